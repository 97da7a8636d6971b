"""Faults of what a step is made of: the sampler, the prompts, the tool. Each takes the trainer as it stands after its
last sound step, and one number: how bad.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from bench.detect.reach import asks, other_weights, randomness, samples_with, share_of, wrap, writes
from stabilizer.training.environments import Reply
from stabilizer.training.environments.search import NOTHING_FOUND
from stabilizer.training.loop import Trainer
from stabilizer.training.rollout.rollouts import Rollouts
from stabilizer.training.tasks import Problem, random_bits

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
        with other_weights(trainer, coarse):
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
        with other_weights(trainer, held):
            return inner(*args)

    wrap(trainer.engine, "generate", around)


def capped(trainer: Trainer, tokens: float) -> None:
    """Completions are cut after so many tokens."""
    samples_with(trainer, max_completion=int(tokens))


def fewer_prompts(trainer: Trainer, prompts: float) -> None:
    """The batch shrinks, as when workers are lost."""
    samples_with(trainer, prompts=int(prompts))


# --- the prompts --------------------------------------------------------------------------------------------------


def harder(trainer: Trainer, share: float) -> None:
    """`share` of the prompts are beyond the policy: sums of three digits instead of two, eight digits to sort."""
    asks(trainer, lambda at, problem: hard_problem(problem, at) if share_of(at) < share else problem)


def easier(trainer: Trainer, share: float) -> None:
    """`share` of the prompts come from a handful that hardly ask for anything."""
    asks(trainer, lambda at, problem: easy_problem(trainer, problem, at) if share_of(at) < share else problem)


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


# --- the tool -----------------------------------------------------------------------------------------------------


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
