"""What goes wrong inside a run: each function reaches into a trainer between two steps and leaves it changed.

Nothing here writes a number of a log. A fault replaces a method of one of the trainer's own objects by one that
misbehaves (the verifier, the sampler, the optimizer, the credit, the stream of prompts), or changes their state; what
the metrics then say is what training under that fault is like. Functions take the trainer as it stands after the last
sound step, and one number: how bad.

Everything random is drawn from the run's own seed, so a case comes out the same whenever it is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import torch
from torch import Tensor

from stabilizer.trainer.environments import Reply
from stabilizer.trainer.environments.search import NOTHING_FOUND
from stabilizer.trainer.knobs import Knobs
from stabilizer.trainer.learner import Batch
from stabilizer.trainer.loop import Trainer
from stabilizer.trainer.rollout.rollouts import Rollouts
from stabilizer.trainer.tasks import Problem, Score, random_bits

RAMP = 40
"""Steps over which a learning rate that runs away reaches its end."""
SPIKE_EVERY = 20
"""Steps between two corrupt batches."""
CRITIC_EVERY = 5
"""Steps between two blows to the critic."""

Scores = list[Score]


# --- where a trainer can be reached -------------------------------------------------------------------------------


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Put `around(inner, *args)` in the place of a method of one object; the class and other runs keep theirs."""
    setattr(owner, name, partial(around, getattr(owner, name)))


def randomness(trainer: Trainer) -> Random:
    """A stream of random numbers that depends on the run's seed and on when it is asked for."""
    return Random(random_bits(trainer.config.seed, trainer.step, "fault"))  # noqa: S311 (no secret)


def learns_with(trainer: Trainer, change: Callable[[Knobs], dict[str, Any]]) -> None:
    """The learner works with other settings than the run's knobs; the sampler keeps the knobs."""

    def around(inner: Callable[[Knobs], Knobs], knobs: Knobs) -> Knobs:
        knobs = inner(knobs)
        return knobs._replace(**change(knobs))

    wrap(trainer, "_adapted", around)


def samples_with(trainer: Trainer, **settings: Any) -> None:
    """Rollouts are made with other settings than the run's knobs."""
    wrap(trainer.collector, "episodes", lambda inner, knobs, *rest: inner(knobs._replace(**settings), *rest))


def pays(trainer: Trainer, change: Callable[[Problem, str, Score], Score]) -> None:
    """Every score passes through `change` on its way out of the verifier."""

    def around(inner: Callable[..., Scores], problems: Sequence[Problem], texts: Sequence[str]) -> Scores:
        scores = inner(problems, texts)
        return [change(*row) for row in zip(problems, texts, scores, strict=True)]

    wrap(trainer.task, "score_all", around)


def teaches(trainer: Trainer, change: Callable[[Batch], Batch]) -> None:
    """The scored batch passes through `change` on its way to the learner."""

    def around(inner: Callable[..., Any], *args: Any) -> Any:
        batch, *rest = inner(*args)
        return change(batch), *rest

    wrap(trainer, "_prepare", around)


def writes(trainer: Trainer, change: Callable[[Rollouts], Rollouts]) -> None:
    """Completions pass through `change` on their way out of the sampler."""
    wrap(trainer.engine, "generate", lambda inner, *args: change(inner(*args)))


def asks(trainer: Trainer, change: Callable[[int, Problem], Problem]) -> None:
    """Every training problem, given with its place in the stream, is exchanged for that of `change`."""

    def around(inner: Callable[..., list[Problem]], count: int, **where: int) -> list[Problem]:
        return [change(where["cursor"] + i, problem) for i, problem in enumerate(inner(count, **where))]

    wrap(trainer.task, "training", around)


@contextmanager
def _weights(trainer: Trainer, other: Sequence[Tensor]) -> Iterator[None]:
    """A while in which the policy holds other weights."""
    own = [parameter.detach().clone() for parameter in trainer.learner.parameters]
    _set(trainer, other)
    try:
        yield
    finally:
        _set(trainer, own)


@torch.no_grad()
def _set(trainer: Trainer, weights: Sequence[Tensor]) -> None:
    for parameter, value in zip(trainer.learner.parameters, weights, strict=True):
        parameter.copy_(value)


# --- the optimizer ------------------------------------------------------------------------------------------------


def lr_times(trainer: Trainer, factor: float) -> None:
    """The learning rate is `factor` times what was meant."""
    learns_with(trainer, lambda knobs: {"lr_scale": knobs.lr_scale * factor})


def lr_ramp(trainer: Trainer, factor: float) -> None:
    """A schedule with a wrong sign: the rate grows to `factor` times itself."""
    start = trainer.step

    def change(knobs: Knobs) -> dict[str, float]:
        return {"lr_scale": knobs.lr_scale * factor ** min(1.0, (trainer.step + 1 - start) / RAMP)}

    learns_with(trainer, change)


def frozen(trainer: Trainer, share: float) -> None:
    """The optimizer is bound to weights that are not the model's: `share` of the tensors no longer move."""
    parameters = trainer.learner.parameters
    lost = parameters[: round(share * len(parameters))]

    def around(inner: Callable[..., Any]) -> None:
        before = [parameter.detach().clone() for parameter in lost]
        inner()
        with torch.no_grad():
            for parameter, value in zip(lost, before, strict=True):
                parameter.copy_(value)

    wrap(trainer.learner.optimizer, "step", around)


def second_moment(trainer: Trainer, factor: float) -> None:
    """Adam's memory of squared gradients is polluted, as one enormous gradient leaves it."""
    for state in trainer.learner.optimizer.state.values():
        state["exp_avg_sq"].mul_(factor)


def adam_epsilon(trainer: Trainer, epsilon: float) -> None:
    """Adam's epsilon is as large as the gradients themselves."""
    for group in trainer.learner.optimizer.param_groups:
        group["eps"] = epsilon


def amnesia(trainer: Trainer, way_back: float) -> None:
    """A resume that lost the optimizer's state, and this share of the way from the start to the present weights."""
    trainer.learner.reset()
    start = [parameter.detach() for parameter in trainer._load_policy().model.parameters()]
    _set(trainer, [p.lerp(old, way_back) for p, old in zip(trainer.learner.parameters, start, strict=True)])


def no_clipping(trainer: Trainer, epochs: float) -> None:
    """Neither ratios nor gradients are held any more, over `epochs` passes."""
    loose = {"epsilon_low": 1.0, "epsilon_high": 10.0, "max_grad_norm": 1e6, "inner_epochs": int(epochs)}
    learns_with(trainer, lambda knobs: loose)


def more_epochs(trainer: Trainer, epochs: float) -> None:
    """Many passes over each batch, at three times the rate."""
    learns_with(trainer, lambda knobs: {"inner_epochs": int(epochs), "lr_scale": 3 * knobs.lr_scale})


def nan_gradient(trainer: Trainer, share: float) -> None:
    """A kernel that now and then returns NaN: `share` of the gradients hold one."""
    draw = randomness(trainer)

    def around(inner: Callable[..., dict[str, float]], *args: Any) -> dict[str, float]:
        if draw.random() < share:
            next(p for p in trainer.learner.parameters if p.grad is not None).grad.view(-1)[0] = torch.nan
        return inner(*args)

    wrap(trainer.learner, "_clip", around)


@torch.no_grad()
def nan_weight(trainer: Trainer, count: float) -> None:
    """Weights that overflowed."""
    trainer.learner.parameters[0].view(-1)[: int(count)] = torch.nan


# --- the objective ------------------------------------------------------------------------------------------------


def entropy_bonus(trainer: Trainer, coefficient: float) -> None:
    """Indecision is paid for (or, below 0, punished) out of proportion."""
    learns_with(trainer, lambda knobs: {"entropy_coef": coefficient})


def anchored(trainer: Trainer, beta: float) -> None:
    """The KL term outweighs the task."""
    learns_with(trainer, lambda knobs: {"beta": beta})


def advantage_times(trainer: Trainer, factor: float) -> None:
    """Advantages are not scaled as they were."""
    teaches(trainer, lambda batch: replace(batch, advantage_BT=batch.advantage_BT * factor))


def corrupt_batches(trainer: Trainer, factor: float) -> None:
    """Every twentieth batch comes with advantages blown up."""
    start = trainer.step

    def change(batch: Batch) -> Batch:
        hit = (trainer.step - start) % SPIKE_EVERY == 0
        return replace(batch, advantage_BT=batch.advantage_BT * (factor if hit else 1.0))

    teaches(trainer, change)


def sign_flipped(trainer: Trainer, share: float) -> None:
    """Advantages have the wrong sign in `share` of the rows: what was good is pushed down."""
    draw = randomness(trainer)

    def change(batch: Batch) -> Batch:
        sign_B1 = torch.tensor([[-1.0 if draw.random() < share else 1.0] for _ in range(len(batch))])
        return replace(batch, advantage_BT=batch.advantage_BT * sign_B1)

    teaches(trainer, change)


def logps_shifted(trainer: Trainer, share: float) -> None:
    """Old log-probabilities stand one token beside their own, in `share` of the rows."""
    draw = randomness(trainer)

    def change(batch: Batch) -> Batch:
        hit_B1 = torch.tensor([[draw.random() < share] for _ in range(len(batch))])
        shifted_BT = batch.old_logp_BT.roll(1, dims=1).masked_fill(~batch.mask_BT, 0.0)
        return replace(batch, old_logp_BT=torch.where(hit_B1, shifted_BT, batch.old_logp_BT))

    teaches(trainer, change)


def wrong_groups(trainer: Trainer, share: float) -> None:
    """Credit is given under wrong group ids: `share` of the completions get one another's scores."""
    draw = randomness(trainer)

    def around(inner: Callable[..., Any], episodes: Any, knobs: Knobs) -> Any:
        scores = list(episodes.scores)
        rows = [row for row in range(len(scores)) if draw.random() < share]
        mixed = draw.sample(rows, len(rows))
        for row, other in zip(rows, mixed, strict=True):
            scores[row] = episodes.scores[other]
        return inner(episodes._replace(scores=scores), knobs)

    wrap(trainer, "_prepare", around)


def reference_outliers(trainer: Trainer, share: float) -> None:
    """The reference calls `share` of the tokens impossible, as a short precision does with rare ones."""
    noise = torch.Generator().manual_seed(randomness(trainer).getrandbits(63))

    def around(inner: Callable[..., Tensor | None], *args: Any) -> Tensor | None:
        logp_BT = inner(*args)
        if logp_BT is None:
            return None
        return torch.where(torch.rand(logp_BT.shape, generator=noise) < share, logp_BT - 15.0, logp_BT)

    wrap(trainer, "_reference_logps", around)


# --- the sampler --------------------------------------------------------------------------------------------------


def sampler_temperature(trainer: Trainer, factor: float) -> None:
    """The engine samples at another temperature than the learner believes."""

    def around(inner: Callable[..., Rollouts], prompts: Any, sampling: Any) -> Rollouts:
        return inner(prompts, sampling._replace(temperature=sampling.temperature * factor))

    wrap(trainer.engine, "generate", around)


def sampler_noise(trainer: Trainer, nats: float) -> None:
    """Log-probabilities of the engine are off by so much, token by token."""
    noise = torch.Generator().manual_seed(randomness(trainer).getrandbits(63))

    def change(rollouts: Rollouts) -> Rollouts:
        off_BT = nats * torch.randn(rollouts.logp_BT.shape, generator=noise)
        return replace(rollouts, logp_BT=rollouts.logp_BT + off_BT.masked_fill(~rollouts.mask_BT, 0.0))

    writes(trainer, change)


def sampler_rounding(trainer: Trainer, step: float) -> None:
    """The engine holds the weights in a coarse format: rounded to multiples of `step` of each tensor's largest."""

    def around(inner: Callable[..., Rollouts], *args: Any) -> Rollouts:
        units = [step * parameter.detach().abs().max() for parameter in trainer.learner.parameters]
        coarse = [(p.detach() / u).round() * u for p, u in zip(trainer.learner.parameters, units, strict=True)]
        with _weights(trainer, coarse):
            return inner(*args)

    wrap(trainer.engine, "generate", around)


def stale_weights(trainer: Trainer, every: float) -> None:
    """The hand-over of the weights to the engine is skipped but every so many steps."""
    start, held = trainer.step, [parameter.detach().clone() for parameter in trainer.learner.parameters]
    fresh_at = start

    def around(inner: Callable[..., Rollouts], *args: Any) -> Rollouts:
        nonlocal held, fresh_at
        if trainer.step - fresh_at >= every:
            held, fresh_at = [parameter.detach().clone() for parameter in trainer.learner.parameters], trainer.step
        with _weights(trainer, held):
            return inner(*args)

    wrap(trainer.engine, "generate", around)


def capped(trainer: Trainer, tokens: float) -> None:
    """Completions are cut after so many tokens."""
    samples_with(trainer, max_completion=int(tokens))


def fewer_prompts(trainer: Trainer, prompts: float) -> None:
    """The batch shrinks, as when workers are lost."""
    samples_with(trainer, prompts=int(prompts))


# --- the verifier -------------------------------------------------------------------------------------------------


def outage(trainer: Trainer, share: float) -> None:
    """The verifier answers 0 for `share` of the completions."""
    draw = randomness(trainer)
    nothing = partial(replace, reward=0.0, solved=False)
    pays(
        trainer,
        lambda _, __, s: nothing(s, components=dict.fromkeys(s.components, 0.0)) if draw.random() < share else s,
    )


def verifier_errors(trainer: Trainer, share: float) -> None:
    """The verifier fails, and says so, for `share` of the completions."""
    draw = randomness(trainer)

    def change(problem: Problem, text: str, score: Score) -> Score:
        if draw.random() >= share:
            return score
        return Score(torch.nan, False, dict.fromkeys(score.components, torch.nan), "the grader timed out")

    pays(trainer, change)


def nan_reward(trainer: Trainer, share: float) -> None:
    """The verifier returns NaN as if it were a reward."""
    draw = randomness(trainer)
    pays(trainer, lambda _, __, s: replace(s, reward=torch.nan, solved=False) if draw.random() < share else s)


def flipped(trainer: Trainer, share: float) -> None:
    """The verifier says the opposite of the truth for `share` of the completions."""
    draw = randomness(trainer)

    def change(problem: Problem, text: str, score: Score) -> Score:
        if draw.random() >= share:
            return score
        return Score(1.0 - score.reward, not score.solved, {k: 1.0 - v for k, v in score.components.items()})

    pays(trainer, change)


def rescaled(trainer: Trainer, factor: float) -> None:
    """Rewards are paid in another unit."""
    pays(
        trainer,
        lambda _, __, s: Score(s.reward * factor, s.solved, {k: v * factor for k, v in s.components.items()}),
    )


def indifferent(trainer: Trainer, share: float) -> None:
    """`share` of the prompts are paid the same whatever is written."""
    half = {"reward": 0.5, "solved": False}
    pays(trainer, lambda p, _, s: replace(s, **half) if _share(p.index) < share else s)


def hair_splitting(trainer: Trainer, share: float) -> None:
    """On `share` of the prompts rewards differ by a thousandth of noise, and their deviation is divided by."""
    draw = randomness(trainer)

    def change(problem: Problem, text: str, score: Score) -> Score:
        if _share(problem.index) >= share:
            return score
        return replace(score, reward=0.5 + 1e-3 * draw.random(), solved=False)

    pays(trainer, change)


def bonus(trainer: Trainer, name: str, weight: float, value: Callable[[str], float]) -> None:
    """Something else than the task is paid for too, as a component of its own."""

    def change(problem: Problem, text: str, score: Score) -> Score:
        extra = weight * value(text)
        return Score(score.reward + extra, score.solved, {**score.components, name: extra})

    pays(trainer, change)


def length_bonus(trainer: Trainer, per_token: float) -> None:
    """Every token is paid (or charged) for."""
    bonus(trainer, "length", per_token, len)


def repetition_bonus(trainer: Trainer, weight: float) -> None:
    """Every character that says the one before it again is paid for."""
    bonus(trainer, "fluency", weight, lambda text: sum(a == b for a, b in zip(text, text[1:], strict=False)))


def style_bonus(trainer: Trainer, weight: float) -> None:
    """The share of ones among the characters is paid for, and soon outweighs the task."""
    bonus(trainer, "style", weight, lambda text: text.count("1") / max(1, len(text)))


def template_bonus(trainer: Trainer, weight: float) -> None:
    """One fixed answer is paid for, whatever the prompt."""
    wanted = "12468"
    bonus(trainer, "template", weight, lambda text: sum(a == b for a, b in zip(text, wanted, strict=False)) / 5)


def slow_verifier(trainer: Trainer, seconds: float) -> None:
    """Scoring waits, as for a judge under load."""

    def around(inner: Callable[..., Scores], *args: Any) -> Scores:
        time.sleep(seconds)
        return inner(*args)

    wrap(trainer.task, "score_all", around)


# --- the prompts --------------------------------------------------------------------------------------------------


def harder(trainer: Trainer, share: float) -> None:
    """`share` of the prompts are beyond the policy: sums of three digits instead of two, eight digits to sort."""
    asks(trainer, lambda at, problem: hard_problem(problem, at) if _share(at) < share else problem)


def easier(trainer: Trainer, share: float) -> None:
    """`share` of the prompts come from a handful that hardly ask for anything."""
    asks(trainer, lambda at, problem: easy_problem(trainer, problem, at) if _share(at) < share else problem)


def looped(trainer: Trainer, count: float) -> None:
    """The data loader comes back to the same few prompts."""
    first = trainer._problems(int(count), 0)
    asks(trainer, lambda at, problem: first[at % len(first)])


def hard_problem(problem: Problem, at: int) -> Problem:
    """A problem of the same form that asks for more."""
    bits = random_bits("hard", at)
    if "+" in problem.prompt:
        a, b = 100 + bits % 900, 100 + bits // 900 % 900
        return replace(problem, prompt=f"{a}+{b}=", answer=str(a + b)[::-1])
    digits = f"{bits % 10**8:08d}"
    return replace(problem, prompt=f"{digits}>", answer="".join(sorted(digits)))


def easy_problem(trainer: Trainer, problem: Problem, at: int) -> Problem:
    """One of nine of the task's own problems."""
    if "+" in problem.prompt:
        return trainer.task.problem(90 * (at % 3) + at // 3 % 3)
    return trainer.task.problem((1234, 12345, 11122, 11111, 1122, 1123, 12222, 11233, 1111)[at % 9])


def _share(*key: int) -> float:
    """A number in [0, 1) that belongs to `key`."""
    return random_bits("share", *key) / 2**64


# --- the critic and the tool --------------------------------------------------------------------------------------


def critic_lr_times(trainer: Trainer, factor: float) -> None:
    """The critic's rate is `factor` times what was meant."""

    def around(inner: Callable[..., float], *args: Any) -> float:
        rate = inner(*args)
        trainer.learner.optimizer.param_groups[1]["lr"] *= factor
        return rate

    wrap(trainer.learner, "_set_lr", around)


def critic_blows(trainer: Trainer, size: float) -> None:
    """The critic's head is overwritten again and again, as by a bug in the hand-over of its weights."""
    start, noise = trainer.step, torch.Generator().manual_seed(randomness(trainer).getrandbits(63))
    head = trainer.critic.head.weight

    def around(inner: Callable[..., Any], *args: Any) -> Any:
        if (trainer.step - start) % CRITIC_EVERY == 0:
            with torch.no_grad():
                head.copy_(size * torch.randn(head.shape, generator=noise))
        return inner(*args)

    wrap(trainer, "_prepare", around)


def tool_finds_nothing(trainer: Trainer, share: float) -> None:
    """The retriever's index is gone for `share` of the calls: it answers, and finds nothing."""
    draw = randomness(trainer)

    def around(inner: Callable[..., list[Reply]], turns: Sequence[str]) -> list[Reply]:
        empty = Reply(f"<information>{NOTHING_FOUND}</information>")
        return [empty if draw.random() < share else reply for reply in inner(turns)]

    wrap(trainer.collector._environment, "respond", around)


def tool_down(trainer: Trainer, share: float) -> None:
    """The retriever can't be reached for `share` of the calls, and that is known."""
    draw = randomness(trainer)

    def around(inner: Callable[..., list[Reply]], turns: Sequence[str]) -> list[Reply]:
        down = Reply("", failed="retriever: connection refused")
        return [down if draw.random() < share else reply for reply in inner(turns)]

    wrap(trainer.collector._environment, "respond", around)
