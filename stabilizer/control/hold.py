"""Keeps the learning rate constant while its schedule runs away, by moving the knob against the schedule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from stabilizer.core.knobs import KNOBS, Controls
from stabilizer.remedies.turns import LR, rate_now, share_scheduled
from stabilizer.runs.history import RunView

SAME_RATE = 0.05
"""Share by which a held learning rate may differ before its knob is changed again."""

Turned = tuple[float | None, float | None]


class Moved(NamedTuple):
    """One change of a knob that keeps a rate."""

    action: str
    turn: Turned
    """Values of the knob before the action and now."""
    was: float
    rate: float


class Held:
    """The held rates, by the action that started each."""

    def __init__(self, controls: Controls):
        self._controls = controls
        self._held: dict[str, tuple[float, Turned]] = {}
        self._turned: dict[str, Turned] = {}
        """The values set by knobs that follow or followed a schedule."""

    def begin(self, action: str, rate: float, turn: Turned) -> None:
        """Keep the learning rate, without knob and schedule, at `rate`, from a knob that was changed by `turn`."""
        self._held[action] = (rate, turn)

    def turned(self, action: str) -> dict[str, Turned]:
        """The change of the knob of an action since it began to follow; empty if it never moved."""
        return {LR: self._turned[action]} if action in self._turned else {}

    def follow(self, view: RunView) -> Iterator[Moved]:
        """Move each knob with its schedule, in both directions. A knob that somebody else changed is released."""
        rate = rate_now(view) if self._held else None
        for action, (usual, (before, set_to)) in list(self._held.items()):
            now = self._controls.get(LR)
            if now != set_to or before is None or not rate:
                del self._held[action]
                continue
            after = max(KNOBS[LR].low, before * min(1.0, usual / rate))
            if abs(after / now - 1) > SAME_RATE:
                self._controls.set(LR, after)
                self._held[action] = (usual, (before, after))
                self._turned[action] = (before, after)
                kept = usual * before * float(share_scheduled(view, np.array([view.step]))[0])
                yield Moved(action, (before, after), now, kept)
