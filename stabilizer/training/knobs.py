"""The knobs of a run: their values at the start, and as read at the beginning of a step.

A change during a step takes effect with the next one.
"""

from __future__ import annotations

from typing import NamedTuple

from stabilizer.core.knobs import GROUPED, KNOBS, Controls
from stabilizer.training import kl
from stabilizer.training.settings import Advantage, Mismatch, PolicyConfig, TrainConfig, knob_values


class Knobs(NamedTuple):
    """The settings that may change while a run trains. Choices are given by name."""

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
    actor_frozen: bool = False
    head_float32: bool = True


def read(controls: Controls, policy: PolicyConfig) -> Knobs:
    """The present values of the knobs; settings without a knob in this run are as configured."""
    fixed = {name: getattr(policy, name) for name in Knobs._fields if hasattr(policy, name)}
    return Knobs(**(fixed | {name.removeprefix("control/"): _setting(controls, name) for name in controls.values()}))


def _setting(controls: Controls, name: str) -> float | str | bool:
    choices = KNOBS[name].choices
    if choices == ("off", "on"):
        return bool(controls.get(name))
    return controls.choice(name) if choices else controls.get(name)


def initial_knobs(config: TrainConfig) -> dict[str, float | str]:
    """The knobs of `controls.KNOBS` as the configuration sets them; the factor on the learning rate starts at 1.

    Knobs without an effect in this run are left out, so that nobody turns one and believes it.
    """
    idle = _idle_knobs(config.policy)
    values = {name: value for name, (_, value) in knob_values(config).items() if name not in idle}
    frozen = {"control/actor_frozen": "off"} if config.critic.kind != "none" else {}
    return {"control/lr_scale": 1.0} | values | frozen


def starting_knobs(config: TrainConfig) -> dict[str, float]:
    """The same as they are logged: a switch by the number of its setting."""
    choices = {name: KNOBS[name].choices for name in KNOBS}
    return {
        name: choices[name].index(value) if isinstance(value, str) else float(value)
        for name, value in initial_knobs(config).items()
    }


def _idle_knobs(policy: PolicyConfig) -> set[str]:
    idle = set() if policy.advantage in GROUPED else {"control/advantage", "control/filter_groups"}
    if policy.kl_in == "reward":
        idle.add("control/kl_kind")  # kinds are there for their gradients, of which a reward has none
    if policy.surrogate in ("sapo", "reinforce"):
        idle |= {"control/epsilon_low", "control/epsilon_high"}
    return idle
