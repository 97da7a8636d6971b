"""Undeclared changes of settings shortly before a run broke: the first suspects, with the values from before.

A declared change is somebody's decision. An undeclared one is a typing error, the next stage of a configuration or a
schedule that ran away. It shows in the knobs, and in the learning rate compared with its knob.
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
"""Steps before the onset in which a change can be the cause. A later one can be too: an onset is an estimate."""
STEADY = 5
"""Rows of one value before a change; a controller moves a knob all the time."""
JUMP = 1.5
"""Factor from which a rate has left its schedule: no schedule rises like this after a rest. A rate that rose in each of
`STEADY` rows need not have come so far."""
SAME = 1.02
"""Factor within which a rate counts as constant."""
MADE_UP = 1.1
"""Factor within which a knob makes up for a rate that left its schedule. A knob that follows moves in steps."""


class Turn(NamedTuple):
    """A knob that was changed, or that can make up for a rate that left its schedule."""

    knob: str
    step: int
    now: float
    was: float
    rate: float | None = None
    """The learning rate, without knob and schedule, before it left the schedule."""


def turns(view: RunView, onset: int, ours: Mapping[str, int] = NOBODY) -> list[Turn]:
    """Every undeclared change of a knob around the onset or since, and a learning rate that left its schedule upward.

    What remedies do to the knobs in `ours` row by row, until the steps given there, does not count.
    """
    return list(view.once(_turns, onset, frozenset(ours.items()), len(view.events())))


def _turns(view: RunView, onset: int, ours: Collection[tuple[str, int]], events: int) -> list[Turn]:
    """The same, computed again whenever the number of declared `events` has grown."""
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
    """The change that undoes those turns; empty if there are none."""
    return {turn.knob: (turn.now, turn.was) for turn in turns(view, onset, ours)}


def _runaway(view: RunView, onset: int) -> list[Turn]:
    """A learning rate that left its schedule upward, as a turn of the knob that takes it back.

    Empty if the knob makes up for it already, whoever turned it.
    """
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
    """The newest learning rate, without its knob and, where it is known, its schedule."""
    values = _rates(view, view.step - BEFORE).values
    return float(values[-1]) if len(values) else None


def share_scheduled(view: RunView, steps: np.ndarray) -> np.ndarray:
    """Shares of the peak rate that the schedule gives at some steps; 1 if the schedule is not known."""
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
    """Where an undeclared change had taken the knob when it was next declared about.

    If a person declared that, the value before the change: from then on the knob is where somebody wants it.
    """
    for later in (series.values[row + 1 :] != series.values[row:-1]).nonzero()[0] + row + 1:
        if words := _words(view, int(series.steps[later])):
            fix = any(origin_of_event(event) == "remedy" for event in words)
            return float(series.values[later - 1] if fix else series.values[row - 1])
    return float(series.values[-1])


def _declared(view: RunView, step: int) -> bool:
    """Whether a change at a step was declared, by a person or a remedy."""
    return bool(_words(view, step))


def _words(view: RunView, step: int) -> list[Event]:
    """Events that declare a change of knobs around a step: all but notes that name no action."""
    near = [event for event in view.events() if abs(event.step - step) <= 1]
    return [event for event in near if event.kind != "note" or "action" in event.data]
