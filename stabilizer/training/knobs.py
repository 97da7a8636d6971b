"""The knobs of a run: their initial values, and their values at the beginning of a step.

A change during a step takes effect with the next one.
"""

from __future__ import annotations

from typing import NamedTuple

from stabilizer.core.knobs import GROUPED, KNOBS, Controls
from stabilizer.training import kl
from stabilizer.training.losses import Average
from stabilizer.training.settings import COMPARED, Advantage, Mismatch, PolicyConfig, TrainConfig, knob_values


class Knobs(NamedTuple):
    """The settings that may change during a run. Choices are given by name."""

    lr_scale: float
    beta: float
    kl_kind: kl.Kind
    epsilon_low: float
    epsilon_high: float
    entropy_coef: float
    entropy_target: float
    inner_epochs: int
    minibatches: int
    filter_groups: str
    mask_truncated: bool
    overlong_buffer: float
    mismatch: Mismatch
    max_grad_norm: float
    prompts: int
    group_size: int
    temperature: float
    max_completion: int
    validate_every: int
    advantage: Advantage
    average: Average
    actor_frozen: bool = False
    head_float32: bool = True


def read(controls: Controls, policy: PolicyConfig) -> Knobs:
    """The current values of the knobs; settings without a knob in this run keep their configured value."""
    fixed = {name: getattr(policy, name) for name in Knobs._fields if hasattr(policy, name)}
    return Knobs(**(fixed | {name.removeprefix("control/"): _setting(controls, name) for name in controls.values()}))


def _setting(controls: Controls, name: str) -> float | str | bool:
    choices = KNOBS[name].choices
    if choices == ("off", "on"):
        return bool(controls.get(name))
    return controls.choice(name) if choices else controls.get(name)


def initial_knobs(config: TrainConfig) -> dict[str, float | str]:
    """The knobs of `controls.KNOBS` with their configured values; the learning-rate factor starts at 1.

    Knobs without an effect in this run are left out, so that changing one never silently does nothing.
    """
    idle = _idle_knobs(config.policy)
    values = {name: value for name, (_, value) in knob_values(config).items() if name not in idle}
    frozen = {"control/actor_frozen": "off"} if config.critic.kind != "none" else {}
    return {"control/lr_scale": 1.0} | values | frozen


def starting_knobs(config: TrainConfig) -> dict[str, float]:
    """The values as logged: a choice is logged as its number."""
    choices = {name: KNOBS[name].choices for name in KNOBS}
    return {
        name: choices[name].index(value) if isinstance(value, str) else float(value)
        for name, value in initial_knobs(config).items()
    }


def _idle_knobs(policy: PolicyConfig) -> set[str]:
    idle = set() if policy.advantage in GROUPED else {"control/advantage"}
    if policy.advantage not in COMPARED:
        idle.add("control/filter_groups")
    if policy.kl_in == "reward":
        idle.add("control/kl_kind")  # kinds differ in their gradients, and a reward has none
    if policy.surrogate in ("sapo", "reinforce"):
        idle |= {"control/epsilon_low", "control/epsilon_high"}
    return idle
