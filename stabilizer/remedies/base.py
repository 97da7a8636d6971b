"""What every remedy is: one change of knobs, bounded, with the reason and the test that will judge it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from stabilizer.remedies.controls import KNOBS

Change = dict[str, tuple[float | None, float | None]]


class Remedy:
    """One fix: file, class and id are the same words, a verb. It sees knob values, never the model.

    `change` is pure: the same knobs give the same proposal, so advice after the fact and a live fix agree.
    """

    id: ClassVar[str]
    safety: ClassVar[Literal["soft", "hard", "advice"]]
    answers: ClassVar[tuple[str, ...]]
    """Causes it is meant for."""
    rollback: ClassVar[bool] = False
    """Returns to a checkpoint from before the onset; then the change must remove the cause, or it would replay it."""
    horizon: ClassVar[int] = 30
    """Steps after which a trial is judged."""
    by_hand: ClassVar[str] = ""
    """What a person does, in words that can be followed, where that is more than turning the knobs of `change`."""
    why: ClassVar[str]
    expects: ClassVar[str]
    """What must be seen at the horizon, in words: half of the hypothesis (the guard is the other half)."""

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        """Knobs before and after, or None when it can't help here (a bound is reached, the knob is missing)."""
        raise NotImplementedError


def scaled(knobs: Mapping[str, float], name: str, factor: float, low: float, high: float) -> Change | None:
    """Multiply one knob, kept within `low`..`high` and its own bounds; None when that can't move it the right way."""
    if name not in knobs:
        return None
    before = knobs[name]
    after = min(max(before * factor, low, KNOBS[name].low), high, KNOBS[name].high)
    after = round(after) if KNOBS[name].whole else after
    return {name: (before, after)} if (after - before) * (factor - 1) > 0 else None
