"""What was changed shortly before things broke, and nobody declared: the first suspect, and what it was before.

A change that was declared is somebody's decision; one that was not is a typing error, the next stage of a
configuration or a schedule that ran away. The knobs tell it, and so does the learning rate beside its knob.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from stabilizer.remedies.base import Change
from stabilizer.remedies.controls import KNOBS
from stabilizer.runs.history import RunView, Series

LR = "control/lr_scale"
BEFORE = 100
"""Steps before the onset within which a change can be the cause."""
LATE = 15
"""Steps by which an onset may be estimated too early."""
STEADY = 5
"""Rows of one value before a change; what moves all the time is a controller's business."""
JUMP = 1.5
"""Factor from which a rate has left its schedule: no schedule climbs like this after it has rested."""


def turned_back(view: RunView, onset: int, ours: Collection[str] = ()) -> Change:
    """Every knob that was changed around the onset without a word, from what it is to what it was; not `ours`, which
    a remedy has in its hands. Empty when nothing was."""
    change: Change = {}
    for knob in KNOBS:
        series = _around(view, view.series(knob), onset)
        place = None if knob in ours else _first_turn(view, series, onset)
        if place is not None and series.values[-1] != series.values[place - 1]:
            change[knob] = (float(series.values[-1]), float(series.values[place - 1]))
    if LR not in ours and LR not in change and (was := usual_rate(view, onset)):
        scale = view.latest(LR) or 1.0
        change[LR] = (scale, max(KNOBS[LR].low, scale * was / _rates(view).values[-1]))
    return change


def usual_rate(view: RunView, onset: int) -> float | None:
    """The learning rate without its knob before it left its schedule upward, where it has and is still up."""
    series = _around(view, _rates(view), onset)
    values = series.values
    for row in range(STEADY, len(values)):
        was = values[row - STEADY : row]
        rested = 0 < was.min() and was.max() < 1.02 * was.min()
        if rested and values[row] > 1.02 * was[-1] and values[-1] > JUMP * was[-1]:
            return None if _declared(view, int(series.steps[row])) else float(was[-1])
    return None


def rate_now(view: RunView) -> float | None:
    """The newest learning rate without what its knob does to it."""
    values = _rates(view).values
    return float(values[-1]) if len(values) else None


def _rates(view: RunView) -> Series:
    rates, scales = view.series("optim/lr"), view.series(LR)
    if len(rates) != len(scales) or not np.array_equal(rates.steps, scales.steps):
        return Series(rates.steps[:0], rates.values[:0])
    return Series(rates.steps, rates.values / np.maximum(scales.values, 1e-12))


def _around(view: RunView, series: Series, onset: int) -> Series:
    return series.between(onset - BEFORE, view.step)


def _first_turn(view: RunView, series: Series, onset: int) -> int | None:
    for row in np.flatnonzero(np.diff(series.values)) + 1:
        rested = row >= STEADY and not np.diff(series.values[row - STEADY : row]).any()
        step = int(series.steps[row])
        if rested and step <= onset + LATE and not _declared(view, step):
            return int(row)
    return None


def _declared(view: RunView, step: int) -> bool:
    return any(abs(event.step - step) <= 1 and event.kind != "note" for event in view.events())
