"""What was changed shortly before things broke, and nobody declared: the first suspect, and what it was before.

A change that was declared is somebody's decision; one that was not is a typing error, the next stage of a
configuration or a schedule that ran away. The knobs tell it, and so does the learning rate beside its knob.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from stabilizer.core.knobs import KNOBS
from stabilizer.core.records import Event
from stabilizer.core.schedule import KINDS, shares_of_peak
from stabilizer.remedies.change import NOBODY, Change
from stabilizer.runs.history import RunView, Series
from stabilizer.runs.journal import origin_of_event

LR = "control/lr_scale"
BEFORE = 100
"""Steps before the onset within which a change can be the cause; an onset is an estimate, so a later one can be too."""
STEADY = 5
"""Rows of one value before a change; what moves all the time is a controller's business."""
JUMP = 1.5
"""Factor from which a rate has left its schedule: no schedule climbs like this after it has rested. One that climbed
at every one of `STEADY` rows need not have come so far."""
SAME = 1.02
"""Factor within which a rate rests."""
MADE_UP = 1.1
"""Factor within which a knob has made up for a rate that is away: one that follows does so in steps."""


class Turn(NamedTuple):
    """A knob that was changed, or that can make up for what changed beside it."""

    knob: str
    step: int
    now: float
    was: float
    rate: float | None = None
    """Learning rate without its knob and its schedule before it left that."""


def turns(view: RunView, onset: int, ours: Mapping[str, int] = NOBODY) -> list[Turn]:
    """Every knob that was changed around the onset or since without a word, and the rate where it left its schedule up.

    Not what a remedy does to a knob of `ours` row by row, up to and with the step named there.
    """
    return list(view.once(_turns, onset, frozenset(ours.items()), len(view.events())))


def _turns(view: RunView, onset: int, ours: Collection[tuple[str, int]], events: int) -> list[Turn]:
    """The same; `events` so many are declared, which may have become more since somebody else asked."""
    found, until = [], dict(ours)
    for knob in KNOBS:
        series = view.series(knob).between(max(onset - BEFORE, until.get(knob, 0) + 1), view.step)
        row = _first_turn(view, series)
        if row is None:
            continue
        was, left, now = series.values[row - 1], _left_at(view, series, row), series.values[-1]
        if (left - was) * (now - was) > 0:  # neither put back since, nor more than made up for by a fix
            found.append(Turn(knob, int(series.steps[row]), float(now), float(was)))
    if all(turn.knob != LR for turn in found):
        found += _runaway(view, onset)
    return found


def turned_back(view: RunView, onset: int, ours: Mapping[str, int] = NOBODY) -> Change:
    """From what those knobs are to what they were; empty when nothing was changed."""
    return {turn.knob: (turn.now, turn.was) for turn in turns(view, onset, ours)}


def _runaway(view: RunView, onset: int) -> list[Turn]:
    """The rate where it left its schedule upward, as a turn of the knob that takes it back: not where the knob has made
    up for it already, whoever turned it."""
    series = _rates(view, onset - BEFORE)
    values = series.values
    if not len(values) or not values[-1] > SAME * np.fmin.reduce(values):
        return []  # mostly so: it is no higher now than it ever was
    climbs = len(values) > STEADY and bool((np.diff(values[-STEADY - 1 :]) > 0).all())
    for row in range(STEADY, len(values)):
        was = values[row - STEADY : row]
        rested = 0 < was.min() and was.max() < SAME * was.min()
        away = values[-1] > (SAME if climbs else JUMP) * was[-1]
        if rested and away and values[row] > SAME * was[-1]:
            step, usual = int(series.steps[row]), float(was[-1])
            before, now = (float(view.at(at).latest(LR) or 1.0) for at in (step - 1, view.step))
            to = max(KNOBS[LR].low, before * usual / float(values[-1]))
            return [] if now <= MADE_UP * to or _declared(view, step) else [Turn(LR, step, now, to, usual)]
    return []


def rate_now(view: RunView) -> float | None:
    """The newest learning rate without what its knob, and a schedule that is known, do to it."""
    values = _rates(view, view.step - BEFORE).values
    return float(values[-1]) if len(values) else None


def share_scheduled(view: RunView, steps: np.ndarray) -> np.ndarray:
    """Shares of the peak that a run's schedule asks for at some steps; 1 where nobody says what the schedule is."""
    kind, warmup, planned = view.config("optim.schedule"), view.config("optim.warmup_steps"), view.about("steps")
    ours = view.about("trainer") == "stabilizer" and kind in KINDS
    if not ours or not isinstance(warmup, int) or not isinstance(planned, int):
        return np.ones(len(steps))
    return shares_of_peak(kind, warmup, steps, planned)


def _rates(view: RunView, since: int) -> Series:
    rates, scales = view.series("optim/lr"), view.series(LR)
    if len(rates) != len(scales) or not np.array_equal(rates.steps, scales.steps):
        return Series(rates.steps[:0], rates.values[:0])
    rates, scales = rates.between(since, view.step), scales.between(since, view.step)
    return Series(rates.steps, rates.values / np.maximum(scales.values * share_scheduled(view, rates.steps), 1e-12))


def _first_turn(view: RunView, series: Series) -> int | None:
    for row in (series.values[1:] != series.values[:-1]).nonzero()[0] + 1:
        rested = row >= STEADY and not np.diff(series.values[row - STEADY : row]).any()
        step = int(series.steps[row])
        if rested and not _declared(view, step):
            return int(row)
    return None


def _left_at(view: RunView, series: Series, row: int) -> float:
    """Where what began without a word had taken the knob when the next word was said about it; where it was before, if
    that word was a person's: from then on it stands where somebody wants it."""
    for later in (series.values[row + 1 :] != series.values[row:-1]).nonzero()[0] + row + 1:
        if words := _words(view, int(series.steps[later])):
            fix = any(origin_of_event(event) == "remedy" for event in words)
            return float(series.values[later - 1] if fix else series.values[row - 1])
    return float(series.values[-1])


def _declared(view: RunView, step: int) -> bool:
    """Whether somebody said so, a remedy among them."""
    return bool(_words(view, step))


def _words(view: RunView, step: int) -> list[Event]:
    """What was declared about knobs around a step; a note of anything but an action is no word about them."""
    near = [event for event in view.events() if abs(event.step - step) <= 1]
    return [event for event in near if event.kind != "note" or "action" in event.data]
