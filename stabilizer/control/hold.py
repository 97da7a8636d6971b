"""Keeps the learning rate where it was while its schedule runs away, by turning the knob against the schedule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from stabilizer.core.knobs import KNOBS, Controls
from stabilizer.remedies.turns import LR, rate_now, share_scheduled
from stabilizer.runs.history import RunView

SAME_RATE = 0.05
"""Share by which a held learning rate may be off before its knob is turned again."""

Turned = tuple[float | None, float | None]


class Moved(NamedTuple):
    """One turn of a knob that keeps a rate."""

    action: str
    turn: Turned
    """Where the knob was before the action, and where it is now."""
    was: float
    rate: float


class Held:
    """The rates that are held, by the action that began each."""

    def __init__(self, controls: Controls):
        self._controls = controls
        self._held: dict[str, tuple[float, Turned]] = {}
        self._turned: dict[str, Turned] = {}
        """Where the knobs that follow, or followed, have been turned to."""

    def begin(self, action: str, rate: float, turn: Turned) -> None:
        """Keep the learning rate, without knob and schedule, at `rate`, from a knob that was turned by `turn`."""
        self._held[action] = (rate, turn)

    def turned(self, action: str) -> dict[str, Turned]:
        """The change of the knob of an action since it began to follow; empty where it never moved."""
        return {LR: self._turned[action]} if action in self._turned else {}

    def follow(self, view: RunView) -> Iterator[Moved]:
        """Turn each knob as its schedule moves, in both directions. A knob that somebody else turned is let go."""
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
