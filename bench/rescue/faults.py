"""What is done to a run, whether any remedy could undo it, and what going back undoes.

    setting       a knob or the schedule is turned, as by a configuration's next stage or a typing error. It stays
                  turned until somebody turns it back: going back does not, for knobs keep their values.
    transient     the state is damaged once, or something goes on for a while and ends. What is left is in the weights,
                  the optimizer or the critic, so a state from before is sound.
    environment   something outside of the trainer's state stays broken whatever is done, before and after going back.
                  Only what it does to learning can be lessened.

Whatever lasts is wrapped around the trainer's own objects, which a rollback loads in place, and counts by the trained
iterations, never by the trainer's step: going back does not make it begin anew.

Only faults are here that some remedy could in principle undo or lessen; `LEFT_OUT` says of each other fault of
StabilityBench why none could. Strengths of the two halves differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch

from bench.detect import broken_rewards as rewards
from bench.detect import broken_rollouts as rollouts
from bench.detect import broken_updates as updates
from bench.detect.faults import SEVERITIES, Strengths
from bench.detect.reach import learns_with, other_weights, pays, randomness, teaches, wrap
from stabilizer.training.learner import Batch
from stabilizer.training.loop import Trainer
from stabilizer.training.tasks import Score

__all__ = ["BY_KIND", "FAULTS", "LEFT_OUT", "SEVERITIES", "Clock", "Fault"]

Clock = Callable[[], int]
"""How many iterations have been trained, those that a rollback threw away among them."""
Act = Callable[[Trainer, float, Clock], None]

RAMP = 40
"""Iterations over which a learning rate that runs away reaches its end."""
BURST = 20
"""Iterations for which what ends by itself goes on."""
SPIKE_EVERY = 10
"""Iterations between two corrupt batches."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One way to harm a run that a remedy could make good."""

    kind: str
    nature: Literal["setting", "transient", "environment"]
    act: Act
    develop: Strengths
    report: Strengths
    causes: tuple[str, ...]
    """Right explanations: ids of `diagnosis.CAUSES`; none where no log can tell."""
    why: str
    """What could undo or lessen it."""
    hosts: tuple[str, ...] = ("grpo", "ppo")
    """On which hosts of the half, taken in turn."""


# --- settings -----------------------------------------------------------------------------------------------------


def lr_times(trainer: Trainer, factor: float, clock: Clock) -> None:
    """The schedule's learning rate is `factor` times what was meant; the knob scales what comes of it."""
    learns_with(trainer, lambda knobs: {"lr_scale": knobs.lr_scale * factor})


def lr_ramp(trainer: Trainer, factor: float, clock: Clock) -> None:
    """A schedule with a wrong sign: the rate grows to `factor` times itself."""
    start = clock()
    learns_with(trainer, lambda knobs: {"lr_scale": knobs.lr_scale * factor ** min(1.0, (clock() + 1 - start) / RAMP)})


def turned(**values: float | None) -> Act:
    """Knobs are set: to the fault's strength where no value is given."""

    def act(trainer: Trainer, strength: float, clock: Clock) -> None:
        for name, value in values.items():
            trainer.controls.set(f"control/{name}", strength if value is None else value)

    return act


# --- transients ---------------------------------------------------------------------------------------------------


def once(act: Callable[[Trainer, float], None]) -> Act:
    """Damage that is done at the onset and never again."""
    return lambda trainer, strength, clock: act(trainer, strength)


def lr_burst(trainer: Trainer, factor: float, clock: Clock) -> None:
    """A scheduler that was restarted sends the rate up for a while."""
    start = clock()
    learns_with(trainer, lambda knobs: {"lr_scale": knobs.lr_scale * (factor if clock() < start + BURST else 1.0)})


def flipped_burst(trainer: Trainer, share: float, clock: Clock) -> None:
    """For a while the verifier says the opposite of the truth for `share` of the completions."""
    start, draw = clock(), randomness(trainer)

    def change(problem: object, text: str, score: Score) -> Score:
        if clock() >= start + BURST or draw.random() >= share:
            return score
        return Score(1.0 - score.reward, not score.solved, {k: 1.0 - v for k, v in score.components.items()})

    pays(trainer, change)


@torch.no_grad()
def weights_hit(trainer: Trainer, size: float) -> None:
    """A faulty hand-over adds noise to every tensor: `size` of the tensor's own deviation."""
    noise = torch.Generator().manual_seed(randomness(trainer).getrandbits(63))
    for parameter in trainer.learner.parameters:
        spread = parameter.std() if parameter.numel() > 1 else parameter.abs().mean()
        parameter.add_(size * spread * torch.randn(parameter.shape, generator=noise))


@torch.no_grad()
def critic_hit(trainer: Trainer, size: float) -> None:
    """The critic's head is overwritten with noise."""
    noise = torch.Generator().manual_seed(randomness(trainer).getrandbits(63))
    head = trainer.critic.head.weight
    head.copy_(size * torch.randn(head.shape, generator=noise))


# --- the environment ----------------------------------------------------------------------------------------------


def corrupt_batches(trainer: Trainer, factor: float, clock: Clock) -> None:
    """Every tenth batch comes with advantages blown up."""
    start = clock()

    def change(batch: Batch) -> Batch:
        hit = (clock() - start) % SPIKE_EVERY == 0
        return replace(batch, advantage_BT=batch.advantage_BT * (factor if hit else 1.0))

    teaches(trainer, change)


def stale_weights(trainer: Trainer, every: float, clock: Clock) -> None:
    """The hand-over of the weights to the engine is skipped but every so many iterations."""
    held = [parameter.detach().clone() for parameter in trainer.learner.parameters]
    fresh_at = clock()

    def around(inner: Callable[..., object], *args: object) -> object:
        nonlocal held, fresh_at
        if clock() - fresh_at >= every:
            held, fresh_at = [parameter.detach().clone() for parameter in trainer.learner.parameters], clock()
        with other_weights(trainer, held):
            return inner(*args)

    wrap(trainer.engine, "generate", around)


# --- the table ----------------------------------------------------------------------------------------------------

# fmt: off
FAULTS = (
    Fault(kind="lr-jump", nature="setting", act=lr_times, develop=(3, 5, 8), report=(3.5, 6, 9),
          causes=("lr-too-high",), why="the knob scales the rate down again; what was unlearned is in a checkpoint"),
    Fault(kind="lr-ramp", nature="setting", act=lr_ramp, develop=(4, 6, 10), report=(5, 7, 9),
          causes=("lr-too-high",), why="as lr-jump, with time to act before the end of the ramp"),
    Fault(kind="lr-knob", nature="setting", act=turned(lr_scale=None), develop=(2.5, 3.2, 4), report=(2.8, 3.6, 4),
          causes=("lr-too-high",), why="the knob itself was turned up, and can be turned back"),
    Fault(kind="lr-too-low", nature="setting", act=lr_times, develop=(0.25, 0.15, 0.08), report=(0.3, 0.18, 0.1),
          causes=("lr-too-low",), why="the knob scales the rate up, by up to four times"),
    Fault(kind="clip-too-wide", nature="setting",
          act=turned(epsilon_low=1.0, epsilon_high=10.0, max_grad_norm=1e6, inner_epochs=None),
          develop=(2, 4, 6), report=(3, 5, 8),
          causes=("clip-too-wide", "too-many-epochs", "lr-too-high"),
          why="clip range, gradient limit and epochs are knobs; a smaller rate lessens it"),
    Fault(kind="too-many-epochs", nature="setting", act=turned(inner_epochs=None, lr_scale=2.0),
          develop=(4, 8, 12), report=(5, 10, 16), causes=("too-many-epochs", "lr-too-high", "clip-too-wide"),
          why="fewer epochs, or a smaller rate"),
    Fault(kind="entropy-bonus", nature="setting", act=turned(entropy_coef=None),
          develop=(None, None, 0.1), report=(None, None, 0.095), causes=("entropy-bonus-too-large",),
          why="the coefficient is a knob"),
    Fault(kind="entropy-penalty", nature="setting", act=turned(entropy_coef=None),
          develop=(None, None, -0.1), report=(None, None, -0.095), causes=("exploration-exhausted",),
          why="the coefficient is a knob, and a target entropy works against it"),
    Fault(kind="kl-pinned", nature="setting", act=turned(beta=None), develop=(0.1, 0.3, 1.0), report=(0.15, 0.4, 0.9),
          causes=("pinned-by-kl",), why="beta is a knob"),
    Fault(kind="no-kl-anchor", nature="setting", act=turned(beta=0.0, inner_epochs=4, lr_scale=None),
          develop=(1.5, 2.0, 3.0), report=(1.75, 2.25, 2.75), causes=("no-kl-anchor", "too-many-epochs", "lr-too-high"),
          why="beta, epochs and rate are knobs: any of them holds the policy back"),
    Fault(kind="too-hot", nature="setting", act=turned(temperature=None), develop=(1.4, 1.6, 2.0),
          report=(1.5, 1.7, 1.9), causes=("entropy-bonus-too-large", "engine-mismatch"),
          why="the temperature is a knob"),
    Fault(kind="too-cold", nature="setting", act=turned(temperature=None), develop=(0.5, 0.3, 0.15),
          report=(0.4, 0.25, 0.12), causes=("exploration-exhausted",),
          why="the temperature is a knob; groups of equal answers can be sampled anew"),
    Fault(kind="batch-shrunk", nature="setting", act=turned(prompts=None), develop=(3, 2, 1), report=(4, 2, 1),
          causes=("batch-too-small", "noise-floor"), why="the number of prompts is a knob; a smaller rate lessens it"),
    Fault(kind="length-capped", nature="setting", act=turned(max_completion=None), hosts=("cap",),
          develop=(None, 3, 2), report=(5, 4, 3), causes=("capped-length",), why="the cap is a knob"),
    # what is left is in the weights, or in the optimizer
    Fault(kind="lr-burst", nature="transient", act=lr_burst, develop=(6, 12, 25), report=(8, 15, 30),
          causes=("lr-too-high",), why="a checkpoint from before holds sound weights, and the rate is as it was"),
    Fault(kind="verifier-burst", nature="transient", act=flipped_burst, develop=(0.5, 0.75, 1.0),
          report=(0.6, 0.8, 0.95), causes=("reward-fault", "noise-floor", "wrong-groups"),
          why="the verifier mends itself; what it taught is undone by going back"),
    Fault(kind="weights-hit", nature="transient", act=once(weights_hit), develop=(0.2, 0.35, 0.6),
          report=(0.25, 0.4, 0.7), causes=(),
          why="a checkpoint holds the weights as they were"),
    Fault(kind="nan-weight", nature="transient", act=once(updates.nan_weight),
          develop=(None, None, 1), report=(None, None, 64), causes=("numeric-overflow",),
          why="a checkpoint holds the weights as they were"),
    Fault(kind="resume-amnesia", nature="transient", act=once(updates.amnesia), develop=(0.6, 0.8, 1.0),
          report=(0.5, 0.7, 0.9), causes=("optimizer-state",), why="a checkpoint holds the weights as they were"),
    Fault(kind="second-moment-high", nature="transient", act=once(updates.second_moment), develop=(1e3, 1e5, 1e7),
          report=(3e3, 3e5, 3e7), causes=("optimizer-state", "lr-too-low"),
          why="the optimizer can forget its state, and a checkpoint holds a sound one"),
    Fault(kind="second-moment-lost", nature="transient", act=once(updates.second_moment), develop=(1e-3, 1e-5, 1e-8),
          report=(5e-4, 5e-6, 1e-9), causes=("optimizer-state", "lr-too-high"),
          why="a checkpoint holds the weights from before the leap"),
    Fault(kind="critic-overwritten", nature="transient", act=once(critic_hit), develop=(0.2, 1.0, 4.0),
          report=(0.3, 1.5, 5.0), hosts=("ppo",), causes=("critic-broken",),
          why="a checkpoint holds the critic, and one that learns alone for a while does no harm"),
    # it stays; what it does can be lessened
    Fault(kind="corrupt-batches", nature="environment", act=corrupt_batches, develop=(5, 20, 100), report=(6, 25, 150),
          causes=("reward-fault",), why="a lower gradient limit, skipped updates or a smaller rate"),
    Fault(kind="sampler-temperature", nature="environment",
          act=lambda trainer, factor, clock: rollouts.sampler_temperature(trainer, factor),
          develop=(1.3, 1.6, 2.0), report=(1.4, 1.7, 1.9), causes=("engine-mismatch",),
          why="importance weights, or a mask, for what engine and learner disagree about"),
    Fault(kind="sampler-rounding", nature="environment",
          act=lambda trainer, step, clock: rollouts.sampler_rounding(trainer, step),
          develop=(0.05, 0.1, 0.2), report=(0.06, 0.12, 0.25), causes=("engine-mismatch",),
          why="importance weights, or a mask, for what engine and learner disagree about"),
    Fault(kind="stale-weights", nature="environment", act=stale_weights, develop=(8, 30, 1000), report=(12, 40, 600),
          causes=("stale-weights", "engine-mismatch"), why="importance weights or a mask, and a smaller rate"),
    Fault(kind="hair-splitting", nature="environment",
          act=lambda trainer, share, clock: rewards.hair_splitting(trainer, share),
          develop=(0.4, 0.6, 0.8), report=(0.5, 0.7, 0.9), hosts=("grpo",), causes=("reward-fault", "dead-groups"),
          why="without dividing by a group's deviation, differences of a thousandth teach nothing"),
    Fault(kind="harder-prompts", nature="environment",
          act=lambda trainer, share, clock: rollouts.harder(trainer, share),
          develop=(0.5, 0.7, 0.9), report=(0.55, 0.75, 0.85), causes=("prompts-too-hard", "data-shift", "dead-groups"),
          why="what can't be solved teaches nothing: more prompts, or others in the place of dead groups"),
    Fault(kind="reward-flat", nature="environment",
          act=lambda trainer, share, clock: rewards.indifferent(trainer, share),
          develop=(0.5, 0.7, 0.9), report=(0.6, 0.8, 0.95), hosts=("grpo",), causes=("dead-groups", "reward-fault"),
          why="more prompts, or others in the place of groups that are all paid the same"),
)
# fmt: on

BY_KIND = {fault.kind: fault for fault in FAULTS}

LEFT_OUT = {
    "frozen-weights": "the optimizer is bound to other weights until somebody mends the code",
    "adam-epsilon": "the optimizer's epsilon is no knob, and no part of a checkpoint",
    "clipping-off": "is here as clip-too-wide, through the knobs",
    "nan-gradient": "the trainer leaves out such updates by itself; no knob mends a kernel",
    "advantages-scaled": "Adam and the gradient limit already take the factor out; the rest is a bug of the code",
    "sign-flipped": "what is learned is the opposite of what was meant, at any setting",
    "logps-shifted": "the ratios are of other tokens, at any setting",
    "wrong-groups": "scores go to other answers, at any setting",
    "reference-outliers": "a gauge is wrong, and hardly anything is learned from it",
    "sampler-noise": "the trainer measures the log-probabilities anew by itself once they differ",
    "outage": "nothing to learn from until the verifier is back; rewards are never edited automatically",
    "verifier-errors": "what failed is left out by itself; only the verifier's owner can mend it",
    "nan-reward": "what is no number is left out by itself; only the verifier's owner can mend it",
    "verifier-noise": "wrong rewards for good: the verifier's owner has to act; verifier-burst is the kind that ends",
    "reward-rescaled": "advantages are scaled by group already, so it does no harm",
    "length-reward": "what is paid for is never edited automatically",
    "brevity-reward": "what is paid for is never edited automatically",
    "repetition-reward": "what is paid for is never edited automatically",
    "style-reward": "what is paid for is never edited automatically",
    "template-reward": "what is paid for is never edited automatically",
    "slow-verifier": "costs time, not accuracy",
    "easier-prompts": "the data is somebody's decision; nothing is damaged",
    "looped-prompts": "the data loader has to be mended",
    "critic-lr": "the critic's rate is no knob",
    "tool-empty": "the tool has to be mended",
    "tool-down": "the tool has to be mended",
}
"""Faults of StabilityBench that no remedy could repair, and why."""
