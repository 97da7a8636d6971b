"""The list of runs as it is shown: which rows, in which order, with which words. Nothing here knows of Dash.

The whole view is its address: what is typed, chosen, sorted and grouped is in the query, so that a reload or a shared
link shows the same.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dashboards.data.run_search import Query, choices, parse, said, values
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
"""The worst first; the state of a group is that of its worst member."""
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
DRAWN = 8
"""Members whose trends are drawn in a group's small chart."""


@dataclass(frozen=True)
class ListSettings:
    """How the list is looked at."""

    find: str = ""
    states: tuple[str, ...] = ()
    verdicts: tuple[str, ...] = ()
    sort: str = "started"
    down: bool = True
    group: str = ""
    open: tuple[str, ...] = ()
    show: int = PAGE

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> ListSettings:
        """The settings in an address; missing or invalid ones get their defaults."""
        asked = query.get("sort", "")
        sort = asked.lstrip("-")
        shown = query.get("show", "")
        return cls(
            find=query.get("q", ""),
            states=_among(query.get("state", ""), STATES),
            verdicts=_among(query.get("verdict", ""), VERDICTS),
            sort=sort if sort in SORTS else "started",
            down=asked.startswith("-") if sort in SORTS else True,
            group=query.get("group", "")[:200],
            open=tuple(part[:200] for part in query.get("open", "").split("~") if part)[:100],
            show=min(MAX_SHOWN, max(PAGE, int(shown))) if shown.isdecimal() and len(shown) < 6 else PAGE,
        )

    def as_query(self) -> dict[str, str]:
        """The settings as a query, without the defaults."""
        sort = f"{'-' * self.down}{self.sort}"
        told = {
            "q": self.find,
            "state": ",".join(self.states),
            "verdict": ",".join(self.verdicts),
            "sort": "" if sort == "-started" else sort,
            "group": self.group,
            "open": "~".join(self.open),
            "show": "" if self.show == PAGE else str(self.show),
        }
        return {key: value for key, value in told.items() if value}

    def sorted_by(self, column: str) -> ListSettings:
        """The view after a click on a column's head: its usual direction, or the other one when it is sorted so."""
        if column not in SORTS:
            return self
        down = not self.down if column == self.sort else column in DOWN_FIRST
        return replace(self, sort=column, down=down)

    def toggled(self, group: str) -> ListSettings:
        """The view with a group opened, or closed."""
        if group in self.open:
            return replace(self, open=tuple(key for key in self.open if key != group))
        return replace(self, open=(*self.open, group)[-100:])


@dataclass(frozen=True)
class Number:
    """A cell: the value in words, what it is (metric, step, how it was made of several), the trends to draw."""

    text: str
    note: str
    finite: bool = True
    tag: str = ""
    trends: tuple[tuple[float | None, ...], ...] = ()


@dataclass(frozen=True)
class ListRow:
    """A run, a group, or a member of an opened group. `key` names it for the browser; `run` is empty for a group."""

    key: str
    kind: str
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
    members: tuple[str, ...] = ()
    open: bool = False
    problem: str = ""
    note: str = ""
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
    found = [line for line in lines if _wanted(line, view, query)]
    blocks = _blocks(found, view)
    settings = telling([members[0] for members, _ in blocks]) if view.group == SEEDS else ()
    rows: list[ListRow] = []
    for members, label in blocks[: view.show]:
        rows += _block(members, label, view, settings, now)
    states = _counted((line.state for line in found), STATES)
    urgent = _counted((line.verdict for line in found if line.verdict in URGENT), URGENT)
    return RunList(tuple(rows), len(lines), len(found), max(0, len(blocks) - view.show), query.problem, states, urgent)


def group_choices(lines: Sequence[RunLine]) -> list[tuple[str, str]]:
    """Choices for grouping the list: (value, label)."""
    settings = [key for key in choices(lines) if key not in ("", SEEDS)]
    keys = dict.fromkeys(("task", "trainer", "state", "verdict", *settings))  # a setting may be called `task` too
    return [("", "No grouping"), (SEEDS, "seeds of one configuration"), *((key, key) for key in keys)]


def worst_state(states: Iterable[str]) -> str:
    """The state of a group: a member that needs a person is not hidden by others that run well."""
    return min(states, key=lambda state: _rank(STATES, state))


def compared(ids: Iterable[str]) -> str:
    """Runs as the `runs` of an address: parted by commas, those in a name escaped."""
    return ",".join(id.replace("%", "%25").replace(",", "%2C") for id in ids)


def _counted(words: Iterable[str], order: Sequence[str]) -> dict[str, int]:
    """How often each word occurs, in an order."""
    counts = Counter(words)
    return {word: counts[word] for word in sorted(counts, key=lambda word: _rank(order, word))}


# --- which, in what order ---------------------------------------------------------------------------------------------


def _wanted(line: RunLine, view: ListSettings, query: Query) -> bool:
    if view.states and line.state not in view.states or view.verdicts and line.verdict not in view.verdicts:
        return False
    return query.matches(line) and (not line.archived or query.names("archived"))


def _grouped(lines: Sequence[RunLine], view: ListSettings) -> list[tuple[tuple[RunLine, ...], str]]:
    groups: dict[str, list[RunLine]] = {}
    for line in lines:
        groups.setdefault(_group_of(line, view.group), []).append(line)
    ordered = {label: tuple(_ordered(members, view, _itself)) for label, members in groups.items()}
    return [(ordered[label], label) for label in _ordered(list(ordered), view, lambda label: ordered[label])]


def _itself(line: RunLine) -> RunLine:
    return line


def _blocks(lines: list[RunLine], view: ListSettings) -> list[tuple[tuple[RunLine, ...], str]]:
    """Groups with their labels; without grouping each run by itself."""
    return _grouped(lines, view) if view.group else [((line,), "") for line in _ordered(lines, view, _itself)]


def _group_of(line: RunLine, by: str) -> str:
    if by == SEEDS:
        return line.recipe or f"run {line.id}"
    found = [said(value) for value in values(line, by)]
    return found[0] if found else "not set"


def _ordered(items: list[Any], view: ListSettings, lines_of: Callable[[Any], Any]) -> list[Any]:
    """Items with a value in the view's order, those without one behind them, whatever the direction."""
    keyed = [(_sort_value(lines_of(item), view.sort), item) for item in items]
    known = sorted((pair for pair in keyed if pair[0] is not None), key=lambda pair: pair[0], reverse=view.down)
    return [item for _, item in known] + [item for value, item in keyed if value is None]


def _sort_value(of: RunLine | tuple[RunLine, ...], column: str) -> Any:
    if isinstance(of, RunLine):
        return _value(of, column)
    known = [value for line in of if (value := _value(line, column)) is not None]
    if not known:
        return None
    if column in SHOWN_NUMBERS:
        return statistics.median(known)
    return max(known) if column == "started" else min(known)


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


def _among(text: str, known: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in text.split(",") if word and word in known))


# --- rows -------------------------------------------------------------------------------------------------------------


def telling(first: Sequence[RunLine]) -> tuple[str, ...]:
    """Settings that distinguish the configurations: few enough to show beside a name."""
    return tuple(key for key in choices(first) if key.rpartition(".")[2] not in NOT_RECIPE)[:4]


def setting_words(line: RunLine, settings: Sequence[str]) -> str:
    """The values of some settings of a run."""
    return " · ".join(f"{key} {said(line.settings[key])}" for key in settings if key in line.settings)


def _block(
    members: tuple[RunLine, ...], label: str, view: ListSettings, settings: Sequence[str], now: float
) -> list[ListRow]:
    if not label or (view.group == SEEDS and len(members) == 1):
        return [_row(members[0], now)]
    head = replace(_head(members, label, view, now), note=setting_words(members[0], settings))
    return [head, *(_row(line, now, "member") for line in members)] if head.open else [head]


def _row(line: RunLine, now: float, kind: str = "run") -> ListRow:
    return ListRow(
        key=line.id,
        kind=kind,
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


def _head(members: tuple[RunLine, ...], label: str, view: ListSettings, now: float) -> ListRow:
    states = [line.state for line in members]
    worst = worst_state(states)
    shares = [share for line in members if (share := _share(line)) is not None]
    steps = [line.step or 0 for line in members]
    reach = f"{min(steps):,}" if min(steps) == max(steps) else f"{min(steps):,} – {max(steps):,}"
    created = [line.created for line in members if line.created is not None]
    others = len(states) - states.count(worst)
    return ListRow(
        key=f"={label}",
        kind="group",
        name=_seeds_name(members) if view.group == SEEDS else f"{view.group} = {label[:120]}",
        run="",
        state=worst,
        state_note=f"{states.count(worst)} of {len(states)}" if others else "",
        verdict=min((line.verdict for line in members), key=lambda verdict: _rank(VERDICTS, verdict)),
        verdict_note="worst of the members" if len({line.verdict for line in members}) > 1 else "",
        steps=f"{reach} step{'s' * (reach != '1')}",
        percent=sum(shares) / len(shares) if shares else None,
        numbers={key: number for key in SHOWN_NUMBERS if (number := _together(members, key))},
        started=_ago(max(created, default=None), now),
        task=_common(line.task for line in members),
        trainer=_common(_trainer(line) for line in members),
        members=tuple(line.id for line in members),
        open=label in view.open,
    )


def _seeds_name(members: tuple[RunLine, ...]) -> str:
    seeds = sorted({said(value) for line in members for value in values(line, "seed")})
    told = f": seeds {', '.join(seeds[:8])}{', …' * (len(seeds) > 8)}" if seeds else ""
    return f"{members[0].task or members[0].trainer or 'one configuration'}{told}"


def _trainer(line: RunLine) -> str:
    """The trainer where it is worth showing: not ours, and not equal to the task."""
    return line.trainer if line.trainer not in (line.task, "stabilizer", "unknown") else ""


def _common(words: Iterable[str]) -> str:
    found = sorted(set(words))
    return found[0] if len(found) == 1 else f"{len(found)} different" if found else ""


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
    return Number(_short(reading.last), note, math.isfinite(reading.last), _tag(reading.metric), _trends([reading]))


def _together(members: Sequence[RunLine], key: str) -> Number | None:
    readings = [line.numbers[key] for line in members if key in line.numbers]
    names = {reading.metric for reading in readings}
    if len(names) > 1:  # two quantities have no median
        return Number("differ", f"members log different metrics: {', '.join(sorted(names))}")
    finite = [reading.last for reading in readings if math.isfinite(reading.last)]
    if not readings:
        return None
    name = readings[0].metric
    if not finite:
        return Number("NaN", f"{name}: not finite in any of {len(readings)} runs", False, _tag(name))
    broken = f", {len(readings) - len(finite)} not finite" if len(finite) < len(readings) else ""
    low, high = short(min(finite)), short(max(finite))
    note = f"{name} · {metric(name).unit} · median of the last values of {len(readings)} runs, {low} to {high}{broken}"
    return Number(_short(statistics.median(finite)), note, not broken, _tag(name), _trends(readings))


def _trends(readings: Sequence[Reading]) -> tuple[tuple[float | None, ...], ...]:
    drawn = (reading.trend for reading in readings)
    return tuple(trend for trend in drawn if sum(value is not None for value in trend) > 1)[:DRAWN]


def _tag(name: str) -> str:
    """Which of two quantities a column shows, where it differs from its heading."""
    return {"accuracy/train": "training", "policy/kl_old": "to old"}.get(name, "")


def _short(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) and 0.01 <= abs(value) < 10 else short(value)
