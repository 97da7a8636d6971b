"""How a run stands and what that rests on: decided here alone, for the list of runs and for every page of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dashboards.data.checks import NO_CHECK, Check
from stabilizer.detectors import DETECTORS
from stabilizer.runs.history import History

UNCHECKED = "unchecked"
WAITING = "waiting"
CALM = ("healthy", "info")
"""Verdicts that say little unless it is said beside them how many detectors had no data."""


@dataclass(frozen=True)
class Blind:
    """A detector that had no data, and the metrics it would need."""

    detector: str
    needs: tuple[str, ...]


@dataclass(frozen=True)
class Standing:
    """The verdict on a run, and all that must be said beside it."""

    verdict: str
    reach: str = ""
    """In words, how far the detectors looked, where that is not to the end."""
    blind: tuple[Blind, ...] = ()
    """Detectors without data, where the verdict is a calm one."""
    ask: str = ""
    """What the button that checks the run says; empty where there is nothing to check."""
    problem: str = ""
    """Why the last check failed."""

    @property
    def blind_words(self) -> str:
        """How much had no data."""
        return f"{len(self.blind)} of {len(DETECTORS)} detectors had no data" if self.blind else ""

    @property
    def note(self) -> str:
        """What stands beside the verdict where there is room for a line."""
        return " · ".join(filter(None, (self.reach, self.blind_words)))


def standing(recorded: str, names: frozenset[str], check: Check = NO_CHECK, reach: int | None = None) -> Standing:
    """How a run stands. `recorded` is the verdict of its own records, empty where no detector was asked, and `reach`
    the step at which detectors stopped; a check counts where the records don't tell of the whole run."""
    if recorded == "not-rl" or not checkable(recorded, reach):
        return _with_blind(recorded, names)
    if check.working:
        return Standing(WAITING)
    if check.found is None:
        told = "" if reach is None else f"checked up to step {reach:,}"
        ask = "" if not names else "Check this run" if reach is None else "Check the whole log"
        return Standing(recorded or UNCHECKED, told, ask=ask, problem=check.problem)
    if not check.stale:
        return _with_blind(check.found.verdict, names)
    told = f"checked up to step {check.found.step:,}; the run has changed since"
    return _with_blind(check.found.verdict, names, told, "Check again", check.problem)


def checkable(recorded: str, reach: int | None) -> bool:
    """Whether the records of a run leave something to check."""
    return recorded == "" or reach is not None


@lru_cache(maxsize=256)
def blind(names: frozenset[str]) -> tuple[Blind, ...]:
    """The detectors that have nothing to look at in a run with these metrics."""
    history = History({})
    history.append(0, dict.fromkeys(sorted(names), 0.0))
    view = history.view()
    return tuple(Blind(d.id, tuple(missing)) for d in DETECTORS if (missing := d.missing(view)))


def _with_blind(verdict: str, names: frozenset[str], reach: str = "", ask: str = "", problem: str = "") -> Standing:
    unseen: Sequence[Blind] = blind(names) if verdict in CALM and names else ()
    return Standing(verdict, reach, tuple(unseen), ask, problem)
