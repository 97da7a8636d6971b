"""The parts of a trainer's table of settings, and how a factor becomes a line to paste."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stabilizer.core.settings import setting_at

LARGEST = 1e18
"""Largest setting; a larger one is damage and would not fit a float."""
BUILT_ONCE = "the data loader is built once, at the start"
SAMPLING = "sampling parameters are copied when the trainer is built"
WORKERS = "the workers take their copy of the configuration when they are built"
DRIVER = "the driver reads it when it is built"
NO_GROUPS = dict.fromkeys(("grow-group", "filter-groups", "other-normaliser"), "it compares no answers of a group")
"""What a trainer without groups lacks."""

FOLLOWS = {
    "lower-beta": ("control/beta", "[0.5 x {key}]"),
    "clip-updates": ("control/max_grad_norm", "[0.5 x {key}]"),
    "grow-batch": ("control/prompts", "[2 x {key}]"),
    "grow-group": ("control/group_size", "[2 x {key}]"),
    "longer-answers": ("control/max_completion", "[2 x {key}]"),
    "raise-temperature": ("control/temperature", "[1.1 x {key}]"),
    "validate-more": ("control/validate_every", "[0.5 x {key}, whole]"),
    "fewer-epochs": ("control/inner_epochs", "1"),
    "widen-clip": ("control/epsilon_high", "0.28"),
    "raise-entropy": ("control/entropy_coef", "0.001"),
    "lower-entropy-bonus": ("control/entropy_coef", "0"),
    "mask-truncated": ("control/mask_truncated", ""),
    "filter-groups": ("control/filter_groups", ""),
}
"""What a remedy means to a trainer that has the knob's key: how the key is turned, or its new value."""

_TURN = re.compile(r"\[([\d.]+(?:/\d+)?) x ([\w.-]+)(, whole)?\]")
_FACTORS = {2.0: "twice", 0.5: "half of", 1 / 3: "a third of"}


@dataclass(frozen=True, slots=True)
class Key:
    """A trainer's own setting for one of our knobs. `template` is filled with `value`."""

    template: str
    why_restart: str
    scales: str = ""
    """Config key whose value the knob multiplies, where the knob is a factor."""
    at: tuple[str, ...] = ()
    """Config keys that hold the knob, the first found counts; empty: those that the template sets."""


@dataclass(frozen=True, kw_only=True)
class Spelling:
    """One trainer's keys and procedures for what we advise.

    In a procedure `[2 x KEY]` is the setting KEY times 2: a number where the configuration is known, words where it is
    not (`, whole` rounds it). `{onset}` is the step at which the incident began.
    """

    title: str
    keys: Mapping[str, Key]
    """By knob."""
    procedures: Mapping[str, str]
    """What a remedy means beyond the knobs it turns, by remedy id, where it does not follow from `FOLLOWS`."""
    why_restart: str
    """Why a changed setting needs a restart, unless its key has its own reason."""
    form: str = "{key}={value}"
    """How a setting is written."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Why there is no setting for a knob or a remedy, where that is known."""

    def settings(self, knob: str) -> tuple[str, ...]:
        """The config keys that hold a knob's value; none where it follows from several or is a switch."""
        key = self.keys.get(knob)
        if key is None:
            return ()
        written = re.escape(self.form).replace(r"\{key\}", r"([\w.-]+)").replace(r"\{value\}", r"\{value\}(?! x )")
        return key.at or tuple(re.findall(written, key.template))

    def text(self, id: str) -> str:
        """A remedy in the trainer's keys, with factors as `[2 x KEY]`; "" where it has no words and no key for it."""
        knob, turn = FOLLOWS.get(id, ("", ""))
        if id in self.procedures or knob not in self.keys:
            return self.procedures.get(id, "")
        if "{key}" not in turn:
            return self.keys[knob].template.format(value=turn)
        held = self.settings(knob)
        return turn.format(key=held[0]) if held else ""

    def procedure(self, id: str, config: Mapping[str, Any], onset: int) -> str:
        """The trainer's words for a remedy, "" where it has none."""
        if id == "roll-back" and onset <= 1:
            return "start from the beginning: it went wrong at once, so no checkpoint is older"
        text = self.text(id)
        return _TURN.sub(lambda turn: self._turned(turn, config), text).replace("{onset}", str(onset))

    def is_relative(self, id: str) -> bool:
        """Whether a procedure multiplies settings, so that the configuration gives its numbers."""
        return bool(_TURN.search(self.text(id)))

    def named(self, key: str) -> str:
        """A key as it is written, without a value."""
        return self.form.format(key=key, value="").rstrip(" =:")

    def _turned(self, turn: re.Match[str], config: Mapping[str, Any]) -> str:
        top, _, bottom = turn[1].partition("/")
        factor = float(top) / float(bottom or 1)
        now = at(config, turn[2])
        if now is None or now <= 0:  # -1 and 0 have special meanings
            unset = config and setting_at(config, turn[2]) is None
            return f"{self.named(turn[2])}: {times(factor)} {'its default' if unset else 'what it is now'}"
        return self.form.format(key=turn[2], value=f"{max(1, round(now * factor)) if turn[3] else now * factor:g}")


def times(factor: float) -> str:
    """A factor in words, used where the number is not known."""
    return _FACTORS.get(factor, f"{factor:g} times")


def at(config: Mapping[str, Any], key: str) -> float | None:
    """The number at a dotted key of a configuration, nested or flat."""
    node = setting_at(config, key)
    if isinstance(node, str):  # YAML reads 1e-6 as text
        try:
            node = float(node)
        except ValueError:
            return None
    if not isinstance(node, (int, float)) or isinstance(node, bool):
        return None
    return float(node) if abs(node) < LARGEST else None
