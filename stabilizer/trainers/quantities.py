"""A configuration in neutral words, so that a rule is written once for all trainers.

Each trainer's schema computes the quantities from its keys and defaults. A quantity knows the key to change, whether
that key is written or a default, and how it was computed from several keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stabilizer.configs.config import Unresolved, parse_version
from stabilizer.trainers.configuration import Config

QUANTITIES = {
    "algorithm": "grpo, rloo, ppo or reinforce",
    "groups": "whether advantages compare the answers to one prompt",
    "lr": "peak learning rate of the policy",
    "warmup_frac": "share of the run in which the learning rate rises",
    "warmup_steps": "optimizer or rollout steps in which it rises",
    "steps": "steps of the run on the trainer's own clock",
    "kl_loss": "weight of the KL term in the loss; 0 for none",
    "kl_reward": "weight of the KL penalty in the reward; 0 for none",
    "group_size": "answers per prompt",
    "prompts_update": "prompts behind one optimizer update",
    "prompts_rollout": "prompts behind one batch of rollouts",
    "updates": "optimizer updates made from one batch of rollouts",
    "inner": "times every answer is learned from",
    "max_prompt": "tokens after which a prompt is cut",
    "max_completion": "tokens after which an answer is cut",
    "context": "tokens the generation engine holds, prompt and answer",
    "temperature": "sampling temperature",
    "top_p": "nucleus sampling",
    "top_k": "top-k sampling",
    "min_p": "min-p sampling",
    "correction": "whether the engine's probabilities are corrected for by importance weights",
    "logging_every": "steps between log rows",
    "validate_every": "steps between validations; 0 for never",
    "save_every": "steps between checkpoints; 0 for never",
    "fp16": "whether the policy trains in float16",
    "clip_low": "how far below 1 a ratio may go",
    "clip_high": "how far above 1 a ratio may go",
    "max_grad_norm": "norm to which gradients are scaled down; 0 for never",
    "lora": "whether only an adapter is trained",
    "model": "name or path of the model",
    "optimizer": "name of the optimizer",
}
"""Every quantity, in words."""


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """One neutral quantity of a configuration."""

    value: Any = None
    key: str = ""
    """The key to change."""
    written: bool = False
    """Whether that key is in the file; else the value is the trainer's default."""
    how: str = ""
    """How it is worked out, with the numbers, when it is not simply the key's value."""
    scale: tuple[str, ...] = ()
    """Keys to multiply together when it must grow."""
    within: str = ""
    """A key whose value must stay a multiple of the first key in `scale`."""
    within_times: float = 1.0
    """Answers per unit of `within`, where it counts prompts and `scale` counts answers."""


@dataclass(frozen=True)
class Since:
    """A default that changed: (first version, value) pairs, oldest first."""

    history: tuple[tuple[str, Any], ...]

    def at(self, version: str) -> Any:
        """The default in a version."""
        now = self.history[0][1]
        for since, value in self.history:
            if parse_version(version) >= parse_version(since):
                now = value
        return now


class Ask:
    """A configuration with its trainer's defaults behind it."""

    def __init__(self, config: Config):
        self.config = config
        self.defaults = config.trainer.defaults

    def default(self, key: str) -> Any:
        """What the trainer takes when `key` is not written."""
        value = self.defaults.get(key)
        return value.at(self.config.version_used) if isinstance(value, Since) else value

    def raw(self, key: str) -> Any:
        """The value in force, None when it can't be known."""
        setting = self.config.settings.get(key)
        if setting is None:
            return self.default(key)
        return None if isinstance(setting.value, Unresolved) else setting.value

    def num(self, key: str) -> float | None:
        """The value in force as a number, None when it is none."""
        value = self.raw(key)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def flag(self, key: str) -> bool:
        """The value in force as yes or no."""
        value = self.raw(key)
        return value.lower() in ("true", "1", "yes") if isinstance(value, str) else bool(value)

    def __call__(self, key: str, **more: Any) -> Quantity:
        """The key as a quantity of its own."""
        return Quantity(value=self.raw(key), key=key, written=key in self.config.settings, **more)

    def made(self, value: Any, key: str, how: str = "", **more: Any) -> Quantity:
        """A quantity worked out from several keys, turned by `key`."""
        return Quantity(value=value, key=key, written=key in self.config.settings, how=how, **more)


class View:
    """All quantities of a configuration; one the trainer does not have, or that can't be known, is None."""

    def __init__(self, config: Config):
        self.config = config
        self.ask = Ask(config)
        self.known: Mapping[str, Quantity] = config.trainer.quantities(self.ask)
        assert not set(self.known) - set(QUANTITIES), set(self.known) - set(QUANTITIES)

    def __getitem__(self, name: str) -> Quantity:
        assert name in QUANTITIES, name
        return self.known.get(name, Quantity())

    def value(self, name: str) -> Any:
        """The value of a quantity, or None."""
        return self[name].value

    def number(self, name: str) -> float | None:
        """The value when it is a number, or None."""
        value = self.value(name)
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    @property
    def recipe(self) -> Mapping[str, Any]:
        """What the trainer's own recipe sets for this algorithm, by quantity."""
        return self.config.trainer.recipes.get(str(self.value("algorithm")), {})


def divided(top: float | None, bottom: float | None) -> float | None:
    """A quotient, None when either is unknown or nothing can be divided by."""
    return top / bottom if top is not None and bottom else None


def times(*factors: float | None) -> float | None:
    """A product, None when a factor is unknown."""
    product = 1.0
    for factor in factors:
        if factor is None:
            return None
        product *= factor
    return product


def every(value: Any) -> float | None:
    """An interval as trainers write it: -1, 0, None and "no" all mean never, which is 0 here."""
    if value is None or value is False or (isinstance(value, str) and value.lower() in ("no", "none", "never")):
        return 0
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value if value > 0 else 0
    return None
