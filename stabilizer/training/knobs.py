"""The controls as they stood when a step began, under plain names; a change during the step waits for the next one."""

from __future__ import annotations

from typing import NamedTuple

from stabilizer.core.knobs import KNOBS, Controls
from stabilizer.training.settings import PolicyConfig


class Knobs(NamedTuple):
    """What may be turned while a run trains. Switches are given by name."""

    lr_scale: float
    beta: float
    kl_kind: str
    epsilon_low: float
    epsilon_high: float
    entropy_coef: float
    entropy_target: float
    inner_epochs: int
    minibatches: int
    filter_groups: str
    mask_truncated: bool
    overlong_buffer: float
    mismatch: str
    max_grad_norm: float
    prompts: int
    group_size: int
    temperature: float
    max_completion: int
    validate_every: int
    advantage: str
    actor_frozen: bool = False
    head_float32: bool = True


def read(controls: Controls, policy: PolicyConfig) -> Knobs:
    """The knobs as they stand; what this run has no knob for is as configured."""
    fixed = {name: getattr(policy, name) for name in Knobs._fields if hasattr(policy, name)}
    return Knobs(**(fixed | {name.removeprefix("control/"): _setting(controls, name) for name in controls.values()}))


def _setting(controls: Controls, name: str) -> float | str | bool:
    choices = KNOBS[name].choices
    if choices == ("off", "on"):
        return bool(controls.get(name))
    return controls.choice(name) if choices else controls.get(name)
