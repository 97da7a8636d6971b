"""How much a remedy changes: one knob, as a function of the current knobs. None where the change can't help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stabilizer.core.knobs import KNOBS, Change

MOST_MORE, MOST_PROMPTS = 4.0, 128
"""Largest factor of one increase of the prompts, and their largest number."""


@dataclass(frozen=True)
class Scale:
    """Multiply a knob, within `low`..`high` and its own bounds, if that moves it in the right direction."""

    knob: str
    factor: float
    low: float
    high: float

    def __call__(self, knobs: Mapping[str, float]) -> Change | None:
        before = knobs.get(self.knob)
        if before is None:
            return None
        knob = KNOBS[self.knob]
        after = min(max(before * self.factor, self.low, knob.low), self.high, knob.high)
        after = round(after) if knob.whole else after
        return {self.knob: (before, after)} if (after - before) * (self.factor - 1) > 0 else None


@dataclass(frozen=True)
class Switch:
    """Set a switch to a setting, if it is at one of `when`."""

    knob: str
    to: str
    when: tuple[str, ...]

    def __call__(self, knobs: Mapping[str, float]) -> Change | None:
        choices, before = KNOBS[self.knob].choices, knobs.get(self.knob)
        if before is None or choices[int(before)] not in self.when:
            return None
        return {self.knob: (before, choices.index(self.to))}


@dataclass(frozen=True)
class Start:
    """Set a knob that is at 0."""

    knob: str
    to: float

    def __call__(self, knobs: Mapping[str, float]) -> Change | None:
        return {self.knob: (0.0, self.to)} if knobs.get(self.knob) == 0 else None


Dose = Scale | Switch | Start


def more_prompts(knobs: Mapping[str, float], factor: float) -> Change:
    """Multiply the prompts by a factor; no change if it is not above 1 or a bound is reached."""
    factor = min(factor, MOST_MORE)
    return (Scale("control/prompts", factor, low=1, high=MOST_PROMPTS)(knobs) or {}) if factor > 1 else {}
