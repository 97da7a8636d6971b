"""Faults of learning: the optimizer, the objective, the critic. Each takes the trainer as it stands after its last
sound step, and one number: how bad.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bench.detect.reach import learns_with, randomness, set_weights, teaches, wrap
from stabilizer.training.knobs import Knobs
from stabilizer.training.learner import Batch
from stabilizer.training.loop import Trainer

RAMP = 40
"""Steps over which a learning rate that runs away reaches its end."""
SPIKE_EVERY = 20
"""Steps between two corrupt batches."""
CRITIC_EVERY = 5
"""Steps between two blows to the critic."""


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
    set_weights(trainer, [p.lerp(old, way_back) for p, old in zip(trainer.learner.parameters, start, strict=True)])


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


# --- the critic ---------------------------------------------------------------------------------------------------


def critic_lr_times(trainer: Trainer, factor: float) -> None:
    """The critic's rate is `factor` times what was meant."""

    def around(inner: Callable[..., float], *args: Any) -> float:
        rate = inner(*args)
        trainer.learner.optimizer.param_groups[1]["lr"] *= factor
        return rate

    wrap(trainer.learner, "set_lr", around)


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
