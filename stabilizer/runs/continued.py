"""Joining a log whose beginning is gone, after rotation or truncation, with the rows that were read from it before.

Rows that are still there must hold the same numbers. The rows after them continue the lineage; a step that goes back is
a restart, as within one log. A log that begins where the earlier one did, with other numbers, is another training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile

from stabilizer.core.records import Event
from stabilizer.runs.history import History, RunView
from stabilizer.runs.loaded import LoadedRun

BY_SEED = 3
"""First rows that two trainings with the same seed may have in common."""


def row(view: RunView) -> dict[str, float]:
    """The numbers measured at the step of a view."""
    found = {name: view.series(name).last(1) for name in view.names()}
    return {name: float(last.values[0]) for name, last in found.items() if last.steps[0] == view.step}


def holds(shown: Mapping[str, float], now: Mapping[str, float]) -> bool:
    """Whether a row still holds its numbers. Later ones, as of an evaluation, may have joined it."""
    return all(now.get(name) == value or value != value for name, value in shown.items())


def continued(before: LoadedRun, after: LoadedRun, taken: int = 0) -> LoadedRun | None:
    """`before` with what `after` adds to it; None where `after` is another training. Neither is changed.

    The reading before has taken in `taken` rows of `after`, those of abandoned branches included. Of these only the
    newest is read again, because numbers may have joined it.
    """
    attempt, last = before.ticks[-1]
    base, first = before.histories[attempt], before.ticks[0][1]
    read = {step for _, step in before.ticks}

    def is_known(tick: tuple[int, int]) -> bool:
        """Whether a row of `after` was read before, with these numbers."""
        return tick[1] in read and holds(row(base.view(tick[1])), row(after.histories[tick[0]].view(tick[1])))

    taken = taken if taken and after.ticks[taken - 1][1] == last else 0  # a log that lost its end continues before it
    if taken:
        start = taken - 1
    else:
        start = sum(1 for _ in takewhile(lambda tick: tick[1] < last and is_known(tick), after.ticks))
    current = _lineage(base, after.history)
    histories, ticks = {**before.histories, attempt: current}, list(before.ticks)
    for place, (part, step) in enumerate(after.ticks[start:], start):
        if place > start:
            back = part != after.ticks[place - 1][0]
        else:
            back = not taken and (step < last or (step == last and not is_known((part, step))))
        if back:
            if step <= first or (place == start and 0 < start < BY_SEED):
                return None
            current = _restarted(current, step)
            histories[current.attempt] = current
        current.append(step, row(after.histories[part].view(step)))
        if ticks[-1] != (current.attempt, step):
            ticks.append((current.attempt, step))
    known = [(event.kind, event.text, event.data) for event in current.events]
    current.events += [
        replace(event, step=min(max(event.step, last), current.step), attempt=current.attempt)
        for event in after.history.events
        if (event.kind, event.text, event.data) not in known
    ]
    source = replace(after.source, steps=len(set(ticks)))
    return replace(before, source=source, histories=histories, ticks=ticks, texts=after.texts)


def _lineage(base: History, newer: History) -> History:
    """A copy of a lineage that can grow, with the description of the run from a newer reading."""
    older = {key: value for key, value in base.about.items() if value and key not in ("steps", "ended")}
    about = {**newer.about, **older}
    about["metrics"] = {**base.about.get("metrics", {}), **newer.about.get("metrics", {})}
    return replace(base.fork(base.step + 1, base.attempt), about=about, forks=list(base.forks))


def _restarted(lineage: History, step: int) -> History:
    """The lineage of a new attempt that begins at an earlier step."""
    attempt = lineage.attempt + 1
    restart = {"attempt": attempt, "from_step": step, "parent": lineage.attempt, "reason": "step went back"}
    forked = lineage.fork(step, attempt)
    forked.about = {**lineage.about, "attempts": [*lineage.about.get("attempts", ()), restart]}
    text = f"the log goes back from step {lineage.step} to {step}: a restart"
    forked.events.append(Event(step=step, kind="resume", text=text, attempt=attempt))
    return forked
