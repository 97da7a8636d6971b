"""Undeclared changes of settings shortly before a run broke, with the former values.

A declared change is a decision. An undeclared one is a typing error, the next stage of a configuration or a runaway
schedule. It shows in the knobs, and in the learning rate compared with its knob.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from stabilizer.core.knobs import KNOBS, Change
from stabilizer.core.records import Event
from stabilizer.core.schedule import KINDS, shares_of_peak
from stabilizer.runs.history import RunView, Series
from stabilizer.runs.journal import origin_of_event

LR = "control/lr_scale"
BEFORE = 100
"""Steps before the onset in which a change can be the cause. So can a later change, because an onset is an estimate."""
STEADY = 5
"""Rows of one value before a change; a controller changes a knob all the time."""
JUMP = 1.5
"""Factor from which a rate has left its schedule: no schedule rises like this after constant rows. A rate that rose in
each of `STEADY` rows needs a smaller factor."""
SAME = 1.02
"""Factor within which a rate counts as constant."""
MADE_UP = 1.1
"""Factor within which a knob compensates a rate that left its schedule. Such a knob moves in steps."""


NOBODY: Mapping[str, int] = MappingProxyType({})
"""No remedy changes a knob gradually."""


class Turn(NamedTuple):
    """A knob that was changed, or that can compensate a rate that left its schedule."""

    knob: str
    step: int
    now: float
    was: float
    rate: float | None = None
    """The learning rate, without knob and schedule, before it left the schedule."""


def turns(view: RunView, onset: int, ours: Mapping[str, int] = NOBODY) -> list[Turn]:
    """Every undeclared change of a knob around the onset or since, and a learning rate that rose above its schedule.

    Gradual changes that remedies make to the knobs in `ours`, until the steps given there, do not count.
    """
    return list(view.once(_turns, onset, frozenset(ours.items()), len(view.events())))


def _turns(view: RunView, onset: int, ours: Collection[tuple[str, int]], events: int) -> list[Turn]:
    """The same; `events` is the number of declared events, so that a new event invalidates the stored result."""
    found, until = [], dict(ours)
    for knob in KNOBS:
        series = view.series(knob).between(max(onset - BEFORE, until.get(knob, 0) + 1), view.step)
        row = _first_turn(view, knob, series)
        if row is None:
            continue
        was, left, now = series.values[row - 1], _left_at(view, knob, series, row), series.values[-1]
        if (left - was) * (now - was) > 0:  # neither restored since nor overcompensated by a fix
            found.append(Turn(knob, int(series.steps[row]), float(now), float(was)))
    if all(turn.knob != LR for turn in found):
        found += _runaway(view, onset)
    return found


def turned_back(view: RunView, onset: int, ours: Mapping[str, int] = NOBODY) -> Change:
    """The change that undoes these changes; empty if there are none."""
    return {turn.knob: (turn.now, turn.was) for turn in turns(view, onset, ours)}


def _runaway(view: RunView, onset: int) -> list[Turn]:
    """A learning rate that rose above its schedule, as the change of the knob that restores it.

    Empty if the knob already compensates for it, whoever changed it.
    """
    series = _rates(view, onset - BEFORE)
    values = series.values
    if not len(values) or not values[-1] > SAME * np.fmin.reduce(values):
        return []  # the usual case: it has not risen
    climbs = len(values) > STEADY and bool((np.diff(values[-STEADY - 1 :]) > 0).all())
    for row in range(STEADY, len(values)):
        was = values[row - STEADY : row]
        rested = 0 < was.min() and was.max() < SAME * was.min()
        away = values[-1] > (SAME if climbs else JUMP) * was[-1]
        if rested and away and values[row] > SAME * was[-1]:
            step, usual = int(series.steps[row]), float(was[-1])
            before, now = (float(view.at(at).latest(LR) or 1.0) for at in (step - 1, view.step))
            to = max(KNOBS[LR].low, before * usual / float(values[-1]))
            return [] if now <= MADE_UP * to or _words(view, LR, step) else [Turn(LR, step, now, to, usual)]
    return []


def rate_now(view: RunView) -> float | None:
    """The newest learning rate, without its knob and, if known, its schedule."""
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


def _first_turn(view: RunView, knob: str, series: Series) -> int | None:
    for row in (series.values[1:] != series.values[:-1]).nonzero()[0] + 1:
        rested = row >= STEADY and not np.diff(series.values[row - STEADY : row]).any()
        step = int(series.steps[row])
        if rested and not _words(view, knob, step):
            return int(row)
    return None


def _left_at(view: RunView, knob: str, series: Series, row: int) -> float:
    """The value of the knob after an undeclared change, just before the next declared one.

    If a person declared it, the value before the undeclared change: from then on the value of the knob is intended.
    """
    for later in (series.values[row + 1 :] != series.values[row:-1]).nonzero()[0] + row + 1:
        if words := _words(view, knob, int(series.steps[later])):
            fix = any(origin_of_event(event) == "remedy" for event in words)
            return float(series.values[later - 1] if fix else series.values[row - 1])
    return float(series.values[-1])


def _words(view: RunView, knob: str, step: int) -> list[Event]:
    """Events that declare a change of a knob around a step, by a person or a remedy.

    A note without an action declares nothing; an event that names its knobs declares no other.
    """
    near = [event for event in view.events() if abs(event.step - step) <= 1]
    return [e for e in near if (e.kind != "note" or "action" in e.data) and knob in e.data.get("change", (knob,))]
