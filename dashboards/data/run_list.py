"""The list of runs as it is shown: which rows, in which order, with which words. Nothing here knows of Dash.

The whole view is its address: what is typed, chosen, sorted and grouped is in the query, so that a reload or a shared
link shows the same. The workspace groups runs; here each stands by itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dashboards.data.run_search import Query, choices, parse, said
from stabilizer.core.metrics import metric
from stabilizer.core.text import age_words, short
from stabilizer.figures import WORDS
from stabilizer.runs.listing import NOT_RECIPE, Reading, RunLine

PAGE = 50
"""Rows shown at once; more come on demand."""
MAX_SHOWN = 2000
SEEDS = "seeds"
"""Groups of runs of one configuration that differ in their seed and name alone."""
STATES = (
    "unreadable",
    "failed",
    "stalled",
    "stopped",
    "preempted",
    "paused",
    "being read",
    "created",
    "running",
    "quiet",
    "finished",
)
"""The worst first."""
VERDICTS = (
    "crashed",
    "critical",
    "warn",
    "unchecked",
    "waiting",
    "info",
    "too-short",
    "not-rl",
    "healthy",
    "",
)
"""The worst first."""
URGENT = ("crashed", "critical", "warn")
"""Verdicts that need a person, counted above the list."""
UNKNOWN = ("unchecked", "waiting", "not-rl")
"""Verdicts that are shown without the worst severity the run went through."""
SHOWN_NUMBERS = {"reward": "Reward", "accuracy": "Accuracy", "kl": "KL", "grad_norm": "Grad norm"}
SORTS = ("name", "state", "verdict", "progress", *SHOWN_NUMBERS, "started", "task")
DOWN_FIRST = frozenset({"progress", "reward", "accuracy", "kl", "grad_norm", "started"})
"""Columns whose first click puts the largest on top."""
MINUTE = 60.0


@dataclass(frozen=True)
class ListSettings:
    """How the list is looked at."""

    find: str = ""
    sort: str = "started"
    down: bool = True
    show: int = PAGE

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> ListSettings:
        """The settings in an address; missing or invalid ones get their defaults."""
        asked = query.get("sort", "")
        sort = asked.lstrip("-")
        shown = query.get("show", "")
        return cls(
            find=query.get("q", ""),
            sort=sort if sort in SORTS else "started",
            down=asked.startswith("-") if sort in SORTS else True,
            show=min(MAX_SHOWN, max(PAGE, int(shown))) if shown.isdecimal() and len(shown) < 6 else PAGE,
        )

    def as_query(self) -> dict[str, str]:
        """The settings as a query, without the defaults."""
        sort = f"{'-' * self.down}{self.sort}"
        told = {
            "q": self.find,
            "sort": "" if sort == "-started" else sort,
            "show": "" if self.show == PAGE else str(self.show),
        }
        return {key: value for key, value in told.items() if value}

    def sorted_by(self, column: str) -> ListSettings:
        """The view after a click on a column's head: its usual direction, or the other one when it is sorted so."""
        if column not in SORTS:
            return self
        down = not self.down if column == self.sort else column in DOWN_FIRST
        return replace(self, sort=column, down=down)


@dataclass(frozen=True)
class Number:
    """A cell: the value in words, what it is (metric and step), the trend to draw."""

    text: str
    note: str
    finite: bool = True
    tag: str = ""
    trend: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class ListRow:
    """A run in the list."""

    name: str
    run: str
    state: str
    verdict: str
    state_note: str = ""
    verdict_note: str = ""
    steps: str = ""
    percent: float | None = None
    left: str = ""
    numbers: Mapping[str, Number] = field(default_factory=dict)
    started: str = ""
    task: str = ""
    trainer: str = ""
    problem: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunList:
    """The rows to show, and how many there are of what."""

    rows: tuple[ListRow, ...]
    total: int
    matching: int
    more: int
    problem: str = ""
    states: Mapping[str, int] = field(default_factory=dict)
    """How many of the matching runs are in each state."""
    urgent: Mapping[str, int] = field(default_factory=dict)
    """How many of them have each verdict that needs a person."""


def run_list(lines: Sequence[RunLine], view: ListSettings, now: float) -> RunList:
    """The list as it is looked at."""
    query = parse(view.find)
    found = _ordered([line for line in lines if _wanted(line, query)], view)
    rows = tuple(_row(line, now) for line in found[: view.show])
    states = _counted((line.state for line in found), STATES)
    urgent = _counted((line.verdict for line in found if line.verdict in URGENT), URGENT)
    return RunList(rows, len(lines), len(found), len(found) - len(rows), query.problem, states, urgent)


def group_choices(lines: Sequence[RunLine]) -> list[tuple[str, str]]:
    """Choices for grouping runs: (value, label)."""
    settings = [key for key in choices(lines) if key not in ("", SEEDS)]
    keys = dict.fromkeys(("task", "trainer", "state", "verdict", *settings))  # a setting may be called `task` too
    return [("", "No grouping"), (SEEDS, "seeds of one configuration"), *((key, key) for key in keys)]


def compared(ids: Iterable[str]) -> str:
    """Runs as the `runs` of an address: parted by commas, those in a name escaped."""
    return ",".join(id.replace("%", "%25").replace(",", "%2C") for id in ids)


def _counted(words: Iterable[str], order: Sequence[str]) -> dict[str, int]:
    """How often each word occurs, in an order."""
    counts = Counter(words)
    return {word: counts[word] for word in sorted(counts, key=lambda word: _rank(order, word))}


# --- which, in what order ---------------------------------------------------------------------------------------------


def _wanted(line: RunLine, query: Query) -> bool:
    return query.matches(line) and (not line.archived or query.names("archived"))


def _ordered(lines: list[RunLine], view: ListSettings) -> list[RunLine]:
    """Runs with a value in the view's order, those without one behind them, whatever the direction."""
    keyed = [(_value(line, view.sort), line) for line in lines]
    known = sorted((pair for pair in keyed if pair[0] is not None), key=lambda pair: pair[0], reverse=view.down)
    return [line for _, line in known] + [line for value, line in keyed if value is None]


def _value(line: RunLine, column: str) -> Any:
    if column in SHOWN_NUMBERS:
        reading = line.numbers.get(column)
        return reading.last if reading and math.isfinite(reading.last) else None
    return {
        "name": line.name.casefold(),
        "state": _rank(STATES, line.state),
        "verdict": _rank(VERDICTS, line.verdict),
        "progress": _share(line),
        "started": line.created,
        "task": (line.task or line.trainer).casefold(),
    }[column]


def _rank(order: Sequence[str], word: str) -> int:
    return order.index(word) if word in order else 0


def _share(line: RunLine) -> float | None:
    return min(100.0, 100.0 * max(0, line.step or 0) / line.steps) if line.steps and line.steps > 0 else None


# --- rows -------------------------------------------------------------------------------------------------------------


def telling(first: Sequence[RunLine]) -> tuple[str, ...]:
    """Settings that distinguish the configurations: few enough to show beside a name."""
    return tuple(key for key in choices(first) if key.rpartition(".")[2] not in NOT_RECIPE)[:4]


def setting_words(line: RunLine, settings: Sequence[str]) -> str:
    """The values of some settings of a run."""
    return " · ".join(f"{key} {said(line.settings[key])}" for key in settings if key in line.settings)


def _row(line: RunLine, now: float) -> ListRow:
    return ListRow(
        name=line.name,
        tags=line.tags,
        run=line.id,
        state=line.state,
        state_note=_state_note(line, now),
        verdict=line.verdict,
        verdict_note=" · ".join(filter(None, (_went_through(line), line.note))),
        steps=_steps(line),
        percent=_share(line),
        left="" if line.left_s is None else f"about {age_words(line.left_s)} left",
        numbers={key: _number(reading) for key in SHOWN_NUMBERS if (reading := line.numbers.get(key))},
        started=_ago(line.created, now),
        task=line.task,
        trainer=_trainer(line),
        problem=line.problem,
    )


def _trainer(line: RunLine) -> str:
    """The trainer where it is worth showing: not ours, and not equal to the task."""
    return line.trainer if line.trainer not in (line.task, "stabilizer", "unknown") else ""


def _went_through(line: RunLine) -> str:
    """The worst severity a run went through, where that is worse than its verdict now."""
    bad = line.worst in ("warn", "critical") and line.worst != line.verdict and line.verdict not in UNKNOWN
    return f"was {WORDS[line.worst]}" if bad else ""


def _state_note(line: RunLine, now: float) -> str:
    silent = "" if line.heartbeat is None else age_words(now - line.heartbeat)
    if line.gone:
        known = line.heartbeat is not None and now - line.heartbeat >= MINUTE
        return f"process is gone, silent for {silent}" if known else "process is gone"
    if line.state == "stalled":
        return f"silent for {silent}" if silent else "never sent a heartbeat"
    if line.state == "quiet":
        return f"last line {silent} ago" if silent else ""
    return ""


def _ago(then: float | None, now: float) -> str:
    """How long ago. Seconds are left out, because every change of a row is sent again."""
    if then is None:
        return ""
    return f"{age_words(now - then)} ago" if now - then >= MINUTE else "just now"


def _steps(line: RunLine) -> str:
    if line.step is None:
        return ""
    shown = f"{max(0, line.step):,}" + (f" / {line.steps:,}" if line.steps else "")
    return f"{shown} step" if shown == "1" else f"{shown} steps"


def _number(reading: Reading) -> Number:
    known = metric(reading.metric)
    at = "" if reading.step is None else f" at step {reading.step:,}"
    note = f"{reading.metric}{at} · {known.unit} · {known.estimator}"
    return Number(_short(reading.last), note, math.isfinite(reading.last), _tag(reading.metric), _trend(reading))


def _trend(reading: Reading) -> tuple[float | None, ...]:
    """The trend, where it has two values to draw a line between."""
    return reading.trend if sum(value is not None for value in reading.trend) > 1 else ()


def _tag(name: str) -> str:
    """Which of two quantities a column shows, where it differs from its heading."""
    return {"accuracy/train": "training", "policy/kl_old": "to old"}.get(name, "")


def _short(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) and 0.01 <= abs(value) < 10 else short(value)
