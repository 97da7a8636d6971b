"""Healthy runs that look ill, one function a kind: its docstring is what the kind is.

Each returns what is special about a run's set-up and, where it must bend the run's courses, a function that does.
They were written from what is known to raise false alarms, by somebody who writes no detectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.detect.host import Draws
from bench.detect.world import World, logit, sigmoid

Shape = Callable[[World], None]
Kind = Callable[[Draws], tuple[dict[str, Any], Shape | None]]


def base(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """An ordinary run that learns."""
    return {}, None


def noisy_small_batch(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Four to eight prompts a step: rewards and norms jump."""
    return {"prompts": d.whole(3, 8), "group": d.pick((4, 8)), "grad_noise": d.span(0.25, 0.4)}, None


def solved(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """The task is solved in mid-run: reward at its ceiling, groups all pass, entropy and gradient die down."""
    setting = {"p_end": d.span(0.985, 0.999), "tau": d.span(0.08, 0.2), "entropy_fall": d.span(2.0, 4.5), "gap": 0.0}
    return setting | {"spread": d.span(0.6, 1.2), "p_start": d.span(0.2, 0.5)}, None


def converging_entropy(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Entropy falls to a tenth and below while the reward rises all the way: convergence."""
    return {"entropy_fall": d.span(2.0, 3.5), "tau": d.span(0.5, 0.9), "p_end": d.span(0.85, 0.97)}, None


def reasoning_growth(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Answers grow three- to eightfold, and accuracy with them; steps take longer."""
    growth = d.span(1.1, 2.1)
    return {"length_growth": growth, "cap": 14.0, "tau": d.span(0.4, 0.8), "p_end": d.span(0.75, 0.92)}, None


def gradient_creep(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """The gradient norm grows five- to thirtyfold over the run while all else is calm."""
    return {"grad_creep": d.span(1.6, 3.4), "steps": d.whole(700, 1200), "tau": d.span(0.4, 0.8)}, None


def declared_curriculum(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Harder data from a step on, declared as a data stage."""
    at, harder, longer = d.span(0.3, 0.7), d.span(0.6, 1.8), d.span(0.0, 0.4)

    def shape(w: World) -> None:
        step = int(at * w.n)
        w.events.append((step + 1, "data-stage", "harder problems"))
        w.difficulty += harder * w.step_at(step) * np.exp(-np.maximum(0, w.t - step) / (0.3 * w.n))
        w.log_length += longer * w.step_at(step)

    return {}, shape


def undeclared_curriculum(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Somewhat harder data from a step on that nobody declared; the policy learns those too."""
    at, harder, longer = d.span(0.3, 0.7), d.span(0.4, 1.0), d.span(0.0, 0.3)

    def shape(w: World) -> None:
        step = int(at * w.n)
        w.difficulty += harder * w.step_at(step) * np.exp(-np.maximum(0, w.t - step) / (0.15 * w.n))
        w.log_length += longer * w.step_at(step)

    return {"tau": d.span(0.3, 0.6)}, shape


def warming_up(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """The learning rate is still rising at the end: next to nothing happens for a long time, and should not."""
    return {
        "schedule": "warming",
        "tau": d.span(0.3, 0.6),
        "delay": d.span(0.03, 0.12),
        "steps": d.whole(300, 600),
    }, None


def resumed(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Resumed once or twice, as declared: a short warm-up of the rate, some restless norms, a slow first step."""
    places = [d.span(0.25, 0.5), d.span(0.6, 0.85)][: d.pick((1, 2))]
    kick = d.span(0.4, 1.2)

    def shape(w: World) -> None:
        for place in places:
            at = int(place * w.n)
            w.events.append((at + 1, "resume", "resumed from a checkpoint"))
            settling = np.where(w.t >= at, np.exp(-(w.t - at) / 4), 0)
            w.log_grad += kick * settling
            w.log_kl_old += kick * settling
            w.lr *= 1 - 0.8 * settling
            w.log_time[at] += 1.2

    return {}, shape


def batch_grown(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """The batch is made two to four times larger in mid-run: noise and gradient norm drop, steps take longer."""
    at, factor = d.span(0.3, 0.7), d.pick((2, 4))

    def shape(w: World) -> None:
        grown = w.step_at(int(at * w.n))
        w.prompts = np.round(w.prompts * (1 + (factor - 1) * grown)).astype(int)
        w.log_grad -= 0.35 * np.log(factor) * grown
        w.log_time += 0.8 * np.log(factor) * grown

    return {"prompts": d.whole(8, 24)}, shape


def no_reference(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """beta = 0: KL to the reference is not logged, or is 0.0 in every row."""
    return {"beta": 0.0, "kl_logged": d.pick(("zero", "absent"))}, None


def healthy_drift(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """beta = 0 and KL to the reference grows to tenths of a nat and more, and pays in reward."""
    return {"beta": 0.0, "kl": d.ratio(0.2, 1.5), "tau": d.span(0.5, 0.9), "p_end": d.span(0.8, 0.95)}, None


def on_policy(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """One update a batch: nothing is clipped, KL to the old policy is 0."""
    return {"on_policy": True}, None


def sequence_clipping(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """GSPO: about 15 % of completions are clipped from the first step on, as its authors report."""
    return {"clip": d.span(0.1, 0.22), "kl_old": d.ratio(2e-4, 1e-3)}, None


def low_entropy_task(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Code or tool calls: entropy of a few hundredths of a nat from the first step on."""
    return {"entropy": d.ratio(0.02, 0.09), "entropy_fall": d.span(0.2, 0.9)}, None


def cyclic_data(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Difficulty goes up and down with the order of the data; reward, length and entropy follow."""
    period, amplitude, phase = d.ratio(18, 150), d.span(0.25, 0.9), d.span(0, 6.28)

    def shape(w: World) -> None:
        wave = np.sin(2 * np.pi * w.t / period + phase)
        w.difficulty += amplitude * wave
        w.log_length += 0.15 * amplitude * wave
        w.log_entropy += 0.1 * amplitude * wave

    return {}, shape


def sorted_epochs(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Every epoch runs from easy to hard, then jumps back."""
    period, amplitude = d.ratio(40, 220), d.span(0.5, 1.6)

    def shape(w: World) -> None:
        saw = (w.t % period) / period - 0.5
        w.difficulty += amplitude * saw
        w.log_length += 0.25 * amplitude * saw

    return {}, shape


def alternating_tasks(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Two tasks take turns in blocks: rewards, lengths and entropy have two levels."""
    block, apart = d.whole(8, 60), d.span(0.6, 1.6)

    def shape(w: World) -> None:
        second = (w.t // block % 2).astype(float)
        w.difficulty += apart * (second - 0.5)
        w.log_length += 0.4 * second
        w.log_entropy += 0.2 * second

    return {}, shape


def heavy_tails(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Gradient norms with heavy tails: now and then a row is many times the level."""
    return {"heavy": True, "grad_noise": d.span(0.2, 0.35)}, None


def wandering_noise(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """All noise is autocorrelated at 0.9 and the reward wanders with it."""
    amplitude = d.span(0.1, 0.3)

    def shape(w: World) -> None:
        w.difficulty += w.noise(amplitude)

    return {"phi": 0.9}, shape


def single_outliers(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Now and then one single row of one metric is five to fifty times its level, and nothing follows."""
    share = d.span(0.004, 0.012)
    names = ("optim/grad_norm", "policy/kl_ref", "policy/kl_old", "policy/ratio_max", "time/step_s", "policy/loss")

    def shape(w: World) -> None:
        for name in names:
            hit = (w.fresh().random(w.n) < share) & (w.t > 10)
            hit[1:] &= ~hit[:-1]
            w.odd[name] = np.where(hit, np.exp(w.fresh().uniform(np.log(5), np.log(50), w.n)), 1.0)

    return {}, shape


def evaluation_rows(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Rows that hold nothing but held-out accuracy lie between the training rows, with few problems and much noise."""
    every = d.pick((2, 3, 5))
    return {"log_every": every, "val_every": every * d.whole(3, 9), "val_offset": 1, "val_size": d.whole(24, 60)}, None


def sparse_rows(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Logged every ten steps, so a short run has few rows."""
    return {"log_every": 10, "steps": d.whole(600, 2000) // 10 * 10}, None


def slow_learning(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """A long run that gains little, but steadily, to its last step."""
    setting = {"tau": d.span(2.0, 4.0), "steps": d.whole(1200, 2000), "p_start": d.span(0.2, 0.35)}
    return setting | {"schedule": "constant", "p_end": d.span(0.85, 0.95)}, None


def late_start(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Nothing is learned for a hundred steps and more, then everything."""
    return {"delay": d.span(0.15, 0.3), "tau": d.span(0.15, 0.3), "steps": d.whole(600, 900)}, None


def wound_down(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """A cosine schedule reaches its end: the reward flattens below its ceiling, as it should."""
    return {"schedule": "cosine", "tau": d.span(0.25, 0.45), "steps": d.whole(500, 900)}, None


def sparse_reward(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Nine groups in ten fail at first; from the few successes the task is learned."""
    setting = {"p_start": d.span(0.01, 0.03), "p_end": d.span(0.7, 0.9), "tau": d.span(0.3, 0.6), "prompts": 48}
    return setting | {"spread": d.span(1.5, 2.2)}, None


def rising_entropy(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Entropy rises by half to double while the reward rises: the policy explores."""
    return {"entropy": d.ratio(0.3, 0.7), "entropy_fall": -d.span(0.4, 0.75)}, None


def shorter_answers(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Answers shrink to a half or a quarter while accuracy rises: padding is dropped."""
    return {"length_growth": -d.span(0.7, 1.4), "tau": d.span(0.3, 0.7)}, None


def tool_dropped(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """The policy learns to answer without its tool, and answers better."""

    def shape(w: World) -> None:
        w.searches = 1.6 * (1 - 0.93 * w.gain / w.gain[-1])

    return {"tool": True, "task": "search", "p_end": d.span(0.8, 0.95)}, shape


def short_limit(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """The first stage of a long-answer recipe: a tight limit cuts a third of the answers at the start, fewer later."""
    return {"cap": d.span(1.15, 1.5), "length_growth": -d.span(0.2, 0.5)}, None


def young_critic(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """PPO whose critic is worse than a constant for its first forty to hundred steps."""
    until, depth = d.span(40, 100), d.span(0.4, 1.5)

    def shape(w: World) -> None:
        w.explained = 0.6 - (0.6 + depth) * np.exp(-w.t / (until / 2))

    return {"algorithm": "ppo", "trainer": d.pick(("own", "verl"))}, shape


def honest_gap(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Held-out accuracy is 10 to 20 points below training from the start, noisy, and rises with it."""
    return {"gap": d.span(0.08, 0.18), "p_start": d.span(0.3, 0.4), "val_size": d.whole(30, 80)}, None


def asynchronous(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Rollouts lag by a few updates and the engine differs by some thousandths of a nat, all along."""
    return {"staleness": d.whole(1, 4), "mismatch": d.ratio(2e-3, 6e-3), "kl_old": d.ratio(1e-3, 4e-3)}, None


def uneven_steps(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Step times swing: checkpoints, validation, a neighbour on the machine for a while."""
    every, extra, at = d.whole(25, 80), d.span(0.6, 1.8), d.span(0.2, 0.7)

    def shape(w: World) -> None:
        w.log_time += extra * ((w.t + 1) % every == 0) + 0.25 * (
            w.step_at(int(at * w.n)) - w.step_at(int(at * w.n) + 25)
        )

    return {"val_every": every}, shape


def learned_format(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """The format component is learned within some steps and has been constant since."""

    def shape(w: World) -> None:
        w.p_format = np.minimum(1.0, 0.3 + 0.7 * (1 - np.exp(-w.t / 12)) + 1e-3)

    return {"rewards": "0-5", "trainer": d.pick(("own", "trl"))}, shape


def short_run(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Under 130 steps in all: everything that settles does so right in front of the detectors."""
    return {"steps": d.whole(60, 130), "tau": d.span(0.2, 0.8), "entropy_fall": d.span(0.5, 1.4)}, None


def short_small_batch(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """A few hundred steps of small batches, learning to the end: among its noise most stretches look flat."""
    setting = {"steps": d.whole(180, 500), "prompts": d.whole(6, 16), "group": d.pick((4, 8))}
    return setting | {"tau": d.span(0.4, 1.0), "p_start": d.span(0.15, 0.4), "p_end": d.span(0.6, 0.9)}, None


def tiny_batch(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """One to four prompts a step on one small machine, 80 to 500 steps, learning to the end: a row is mostly luck."""
    setting = {"steps": d.whole(80, 500), "prompts": d.pick((1, 2, 3, 4)), "group": d.pick((4, 8)), "trainer": "trl"}
    return setting | {"log_every": d.pick((1, 1, 5)), "tau": d.span(0.4, 1.0), "p_end": d.span(0.65, 0.92)}, None


def format_first(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """The format is learned in the first tens of steps and the task, of which nearly nothing is solved, after it."""
    over, begins = d.span(6, 25), d.span(15, 70)

    def shape(w: World) -> None:
        w.p_format = 0.15 + 0.84 * (1 - np.exp(-w.t / over))
        w.gain = 1 - np.exp(-np.maximum(0.0, w.t - begins) / (w.host.tau * w.n))
        low, high = logit(w.host.p_start), logit(w.host.p_end)
        w.p = sigmoid(low + (high - low) * w.gain)  # what is seldom right is seldom learned from
        w.p_val = w.p - w.host.gap

    setting = {"p_start": d.ratio(0.004, 0.03), "p_end": d.span(0.5, 0.85), "tau": d.span(0.2, 0.5)}
    return setting | {"rewards": "0-5", "trainer": d.pick(("own", "trl")), "components": _names(d)}, shape


def quickly_solved(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Solved within a third of a short run, as a log shows it that knows neither accuracy nor groups that all pass."""
    setting = {"steps": d.whole(90, 400), "prompts": d.pick((2, 4, 8, 16)), "trainer": d.pick(("trl", "verl"))}
    setting |= {"p_start": d.span(0.2, 0.5), "p_end": d.span(0.985, 0.999), "tau": d.span(0.06, 0.12)}
    setting |= {"spread": d.span(0.6, 1.2), "schedule": "constant", "entropy_fall": d.span(0.6, 2.0), "gap": 0.0}
    return setting | {"rewards": d.pick(("-1..1", "0-5"))}, None


def solved_from_the_start(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """A task that was solved before training began: nothing to learn, and nothing wrong."""
    setting = {
        "steps": d.whole(90, 400),
        "trainer": "trl",
        "p_start": d.span(0.97, 0.985),
        "p_end": d.span(0.986, 0.998),
    }
    return setting | {"spread": d.span(0.6, 1.2), "rewards": d.pick(("0-1", "0-5")), "gap": 0.0}, None


def _names(d: Draws) -> tuple[str, str]:
    """What the components for the answer and for its form are called."""
    return d.pick((("correct", "format"), ("accuracy", "compiles"), ("f", "g")))


def fast_start(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Half of all learning happens in twenty steps: reward, entropy, length and KL move at once, then rest."""

    def shape(w: World) -> None:
        quick = 1 - np.exp(-w.t / 12)
        w.gain = 0.55 * quick + 0.45 * w.gain
        w.p = w.host.p_start + (w.host.p_end - w.host.p_start) * w.gain
        w.p_val = w.p - w.host.gap
        w.log_entropy = -w.host.entropy_fall * w.gain
        w.log_length = w.host.length_growth * w.gain

    return {"entropy_fall": d.span(0.8, 1.6), "length_growth": d.span(-0.6, 0.6), "tau": d.span(0.6, 1.2)}, shape


def warm_restarts(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """The rate comes down and jumps back up several times, as scheduled: steps, clipping and norms follow it."""
    cycles = d.pick((3, 4, 5))

    def shape(w: World) -> None:
        pace = 0.1 + 0.9 * (1 - (w.t * cycles / w.n) % 1)
        w.lr = w.host.lr * pace
        w.log_grad += 0.3 * pace

    return {"tau": d.span(0.4, 0.7)}, shape


def two_at_once(d: Draws) -> tuple[dict[str, Any], Shape | None]:
    """Two of the others in one run, for runs are seldom odd in one way only."""
    first, second = d.rng.choice(len(PAIRED), 2, replace=False)
    (one, bend), (other, bend_too) = PAIRED[first](d), PAIRED[second](d)

    def shape(w: World) -> None:
        for bending in (bend, bend_too):
            if bending:
                bending(w)

    return one | other, shape


LOOKALIKES: tuple[Kind, ...] = (
    base, noisy_small_batch, solved, converging_entropy, reasoning_growth, gradient_creep, declared_curriculum,
    undeclared_curriculum, warming_up, resumed, batch_grown, no_reference, healthy_drift, on_policy, sequence_clipping,
    low_entropy_task, cyclic_data, sorted_epochs, alternating_tasks, heavy_tails, wandering_noise, single_outliers,
    evaluation_rows, sparse_rows, slow_learning, late_start, wound_down, sparse_reward, rising_entropy, shorter_answers,
    tool_dropped, short_limit, young_critic, honest_gap, asynchronous, uneven_steps, learned_format, short_run,
    short_small_batch, tiny_batch, format_first, quickly_solved, solved_from_the_start,
    fast_start, warm_restarts, two_at_once,
)  # fmt: skip
"""All of them."""

HELD_OUT = frozenset({sorted_epochs, alternating_tasks, batch_grown, fast_start, tool_dropped, warm_restarts})
"""Kinds that only the report half has."""

HOSTS: tuple[Kind, ...] = (
    base, noisy_small_batch, reasoning_growth, gradient_creep, no_reference, healthy_drift, on_policy, low_entropy_task,
    cyclic_data, heavy_tails, wandering_noise, single_outliers, evaluation_rows, sparse_rows, asynchronous, honest_gap,
    uneven_steps, sequence_clipping,
)  # fmt: skip
"""Those on which faults are let loose: a fault must also be seen in a run that looks ill anyway."""

PAIRED: tuple[Kind, ...] = (
    noisy_small_batch, converging_entropy, reasoning_growth, gradient_creep, declared_curriculum, healthy_drift,
    on_policy, low_entropy_task, cyclic_data, heavy_tails, wandering_noise, single_outliers, sparse_rows, slow_learning,
    wound_down, sparse_reward, rising_entropy, short_limit, honest_gap, asynchronous, uneven_steps, resumed,
)  # fmt: skip
"""Those that may meet in one run."""
