"""Runs held against one another, as plain data: what is asked, what is answered, and how long answers are kept.

Reading twenty long runs takes seconds, so it happens in a process of its own (`worker`), one question after the other.
A page asks, is told that it is worked on, and asks again; no viewer waits for another's comparison.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from stabilizer.compare import METRICS as JUDGED_METRICS
from stabilizer.compare import VERDICTS, Side, compare, from_run
from stabilizer.compare.differences import label as setting_label
from stabilizer.compare.many import (
    Ending,
    Group,
    GroupCurve,
    Setting,
    X,
    curves,
    endings,
    grouped,
    only_differences,
    positions,
)
from stabilizer.compare.sides import Member
from stabilizer.compare.words import STATES, how, rows, sentence
from stabilizer.core.knobs import change_words
from stabilizer.core.metrics import metric as definition
from stabilizer.figures.lineage import Lineage, on_lineage
from stabilizer.figures.run_groups import Mark, Span, Timeline
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError
from stabilizer.runs.story import Incident, incidents
from stabilizer.trainers.reading import load

MAX_RUNS = 24
MAX_CHARTS = 12
MAX_ROWS = 300
MAX_MARKS = 60
ANSWERS = 12
"""Answers that are kept."""
WAITING = 16
"""Questions that may wait; beyond that a page asks again later."""

Stamp = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Question:
    """A question: which runs (id and path), how grouped, against which, on which axis, which metrics."""

    runs: tuple[tuple[str, Path], ...]
    by: str = ""
    ref: str = ""
    x: X = "step"
    metrics: tuple[str, ...] = ()
    verdicts: bool = False
    """Whether the judgements of `compare` are wanted, which take longer than everything else."""
    stamps: tuple[Stamp, ...] = ()
    notes: tuple[tuple[str, int, str], ...] = ()
    """What viewers wrote at steps: run, step, text."""

    @property
    def without_stamps(self) -> Question:
        """The same, whatever was written since."""
        return replace(self, stamps=(), notes=())


@dataclass(frozen=True)
class Chart:
    """One metric of all groups that have it; `places` are theirs among all groups."""

    metric: str
    meaning: str
    unit: str
    curves: tuple[GroupCurve, ...]
    places: tuple[int, ...]
    endings: tuple[Ending, ...]


@dataclass(frozen=True)
class Judgement:
    """The result of `stabilizer compare` for a group and the reference."""

    label: str
    verdict: str = ""
    words: str = ""
    headline: str = ""
    aligned: str = ""
    rows: tuple[tuple[str, str, str, str, str, str], ...] = ()
    """Measure, group, reference, difference, state, how it was measured."""
    explained: tuple[tuple[str, str, str, str], ...] = ()
    """Gap, cause, how sure, why."""
    excluded: tuple[tuple[str, str, str, str], ...] = ()
    next: tuple[str, str] = ("", "")
    cautions: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Answer:
    """Everything the page shows."""

    labels: tuple[str, ...]
    members: tuple[tuple[str, ...], ...]
    reference: int
    x: X
    charts: tuple[Chart, ...] = ()
    available: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    """Settings that differ between runs, to group by."""
    settings: tuple[Setting, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    judgements: tuple[Judgement, ...] = ()
    notes: tuple[str, ...] = ()
    left: int = 0
    """Groups that are still to be judged as they are now: asking again does the next of them."""


@dataclass(frozen=True)
class Progress:
    """The state of a question: its newest answer, whether it is being worked on, and what went wrong.

    An answer comes in parts: while groups are `left`, it is there and still being worked on.
    """

    answer: Answer | None = None
    revision: int = 0
    working: bool = False
    problem: str = ""


@dataclass(frozen=True)
class _Read:
    run: LoadedRun
    member: Member


def question_of(query: Mapping[str, str], known: Mapping[str, Path]) -> tuple[Question, list[str]]:
    """An address as a question about known runs, and the names in it that are none."""
    ids, lost = _ids(query.get("runs", ""), known)
    x: X = query["x"] if query.get("x") in ("tokens", "share") else "step"  # type: ignore[assignment]
    metrics = tuple(name for name in query.get("metrics", "").split(",") if name)[:MAX_CHARTS]
    ref = query.get("ref", "")
    runs = tuple((id, known[id]) for id in ids)
    return Question(runs, query.get("group", "")[:300], ref if ref in ids else "", x, metrics), lost


def _ids(words: str, known: Mapping[str, Path]) -> tuple[list[str], list[str]]:
    """Names between commas, as `fleet.compared` writes them: those that are known, and those that are not."""
    ids = list(dict.fromkeys(unquote(part) for part in words.split(",")[: 8 * MAX_RUNS] if part))
    return [id for id in ids if id in known], [id for id in ids if id not in known]


def stamp(path: Path) -> Stamp:
    """Modification times and sizes of a run's files, to detect changes without opening one."""
    found = []
    for name in ("run.json", "findings.jsonl", "actions.jsonl", "metrics"):
        part = path / name
        try:
            files = sorted(part.iterdir()) if name == "metrics" else [part]
            found += [(status.st_mtime_ns, status.st_size) for status in (file.stat() for file in files)]
        except OSError:
            found.append((0, 0))
    return tuple(found)


class Comparisons:
    """Questions and answers of all viewers. `compute` answers one question and may take long; it may answer a part,
    and is asked for the rest after the other waiting questions."""

    def __init__(self, compute: Callable[[Question], Answer]):
        self._compute = compute
        self._lock = threading.Condition()
        self._answers: OrderedDict[Question, tuple[Question, Progress]] = OrderedDict()
        self._waiting: deque[Question] = deque()
        self._working: Question | None = None
        self._thread: threading.Thread | None = None

    def ask(self, asked: Question) -> Progress:
        """At once: what is known, and whether a newer answer is on its way."""
        with self._lock:
            known, state = self._answers.get(asked.without_stamps, (None, Progress()))
            if known == asked:
                self._answers.move_to_end(asked.without_stamps)
                return state
            pending = [*self._waiting, *([self._working] if self._working else [])]
            if any(other.without_stamps == asked.without_stamps for other in pending):
                return replace(state, working=True)
            if len(self._waiting) >= WAITING:
                return replace(state, problem="the dashboard is busy with other comparisons; this page asks again")
            self._waiting.append(asked)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="comparisons", daemon=True)
                self._thread.start()
            self._lock.notify()
            return replace(state, working=True)

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._waiting:
                    self._lock.wait()
                asked = self._working = self._waiting.popleft()
            try:
                answer, problem = self._compute(asked), ""
            except Exception as error:  # whatever a directory holds, the page stays up and reports it
                answer, problem = None, str(error) or type(error).__name__
            with self._lock:
                before = self._answers.get(asked.without_stamps, (None, Progress()))[1]
                self._working = None
                left = answer is not None and answer.left > 0
                self._answers[asked.without_stamps] = (asked, Progress(answer, before.revision + 1, left, problem))
                if left:
                    self._waiting.append(asked)
                self._answers.move_to_end(asked.without_stamps)
                while len(self._answers) > ANSWERS:
                    self._answers.popitem(last=False)


# --- one answer -------------------------------------------------------------------------------------------------------


@dataclass
class Comparer:
    """Runs that were read and what was concluded of them, so that another look at the same ones is quick."""

    _read: OrderedDict[Path, tuple[Stamp, _Read]] = field(default_factory=OrderedDict)
    _judged: OrderedDict[tuple[Any, ...], tuple[tuple[Stamp, ...], Judgement]] = field(default_factory=OrderedDict)
    """Paths of a group and of its reference, with how their files were then."""

    def answer(self, asked: Question) -> Answer:
        """The answer to a question. RunError when no run of it can be read."""
        notes, found = [], []
        stamps: Mapping[Path, Stamp] = dict(zip((path for _, path in asked.runs), asked.stamps, strict=False))
        for id, path in asked.runs[:MAX_RUNS]:
            try:
                found.append((id, self._take(id, path, stamps.get(path, ()))))
            except RunError as error:
                notes.append(f"{id} could not be read: {error}")
        if len(asked.runs) > MAX_RUNS:
            notes.append(f"{len(asked.runs)} runs were asked for; the first {MAX_RUNS} are shown")
        if not found:
            raise RunError("; ".join(notes) or "no run was named")
        if asked.verdicts:
            return self._verdicts(asked, found)
        return _answered(asked, found, notes)

    def _verdicts(self, asked: Question, found: Sequence[tuple[str, _Read]]) -> Answer:
        """The answer with one more judgement; outdated ones are kept until they are judged again."""
        groups, reference = _groups(asked, found)
        others = [group for place, group in enumerate(groups) if place != reference]
        paths, stamps = dict(asked.runs), dict(zip((id for id, _ in asked.runs), asked.stamps, strict=False))
        told: list[Judgement] = []
        due = 0
        for group in others[:MAX_CHARTS]:
            ids = [member.name for member in (*group.members, *groups[reference].members)]
            key = (group.label, len(group.members), *(paths[id] for id in ids))
            now = tuple(stamps.get(id, ()) for id in ids)
            known = self._judged.get(key)
            if known is None or known[0] != now:
                due += 1
                if due == 1:
                    known = self._judged[key] = (now, _judged(group, groups[reference]))
            if known is not None:
                self._judged.move_to_end(key)
                told.append(known[1])
        while len(self._judged) > ANSWERS * MAX_CHARTS:
            self._judged.popitem(last=False)
        more = len(others) - MAX_CHARTS
        notes = (f"{more} more are not judged",) if more > 0 else ()
        labels, left = tuple(group.label for group in groups), max(0, due - 1)
        return Answer(labels, (), reference, asked.x, judgements=tuple(told), notes=notes, left=left)

    def _take(self, id: str, path: Path, now: Stamp) -> _Read:
        known = self._read.get(path)
        if known and now and known[0] == now:
            self._read.move_to_end(path)
            return known[1]
        run = load(path)
        read = _Read(run, replace(from_run(run), name=id))
        self._read[path] = (now, read)
        self._read.move_to_end(path)
        while len(self._read) > MAX_RUNS:
            self._read.popitem(last=False)
        return read


def _groups(asked: Question, found: Sequence[tuple[str, _Read]]) -> tuple[list[Group], int]:
    """The groups, and which of them is the reference."""
    groups = grouped([read.member for _, read in found], asked.by)
    return groups, next((i for i, g in enumerate(groups) if any(m.name == asked.ref for m in g.members)), 0)


def _answered(asked: Question, found: Sequence[tuple[str, _Read]], notes: list[str]) -> Answer:
    members = [read.member for _, read in found]
    groups, reference = _groups(asked, found)
    available = list(dict.fromkeys(name for member in members for name in member.series))
    charts = [_chart(groups, name, asked.x) for name in _wanted(asked.metrics, available)]
    timelines = [_timeline(read, asked) for _, read in found]
    alone = [Group(member.name, (member,)) for member in members]
    return Answer(
        labels=tuple(group.label for group in groups),
        members=tuple(tuple(member.name for member in group.members) for group in groups),
        reference=reference,
        x=asked.x,
        charts=tuple(chart for chart in charts if chart is not None),
        available=tuple(available[:MAX_ROWS]),
        keys=tuple(row.key for row in only_differences(alone) if len(set(row.values)) < len(members))[:MAX_ROWS],
        settings=tuple(only_differences(groups)[:MAX_ROWS]),
        timelines=tuple(timeline for timeline in timelines if timeline is not None),
        notes=(*notes, *_notes(members, asked.x)),
    )


def _wanted(asked: Sequence[str], available: Sequence[str]) -> list[str]:
    """The metrics to draw: those asked for, else those that `compare` judges, else the first ones."""
    for names in (asked, JUDGED_METRICS, available):
        if found := [name for name in names if name in available]:
            return found[:MAX_CHARTS]
    return []


def _chart(groups: Sequence[Group], name: str, x: X) -> Chart | None:
    """One metric of the groups that have it; None where no group has."""
    drawn = curves(groups, name, x)
    if not drawn:
        return None
    known, labels = definition(name), [group.label for group in groups]
    places = tuple(labels.index(curve.label) for curve in drawn)
    unit = "" if known.unit == "1" else known.unit
    return Chart(name, known.meaning, unit, tuple(drawn), places, tuple(endings(groups, name)))


def _notes(members: Sequence[Member], x: X) -> list[str]:
    notes = []
    without = [member.name for member in members if "tokens" not in member.clocks]
    if x == "tokens" and without:
        notes.append(f"left out of the charts, because they count no tokens: {', '.join(without[:4])}")
    for member in members:
        notes += [*member.notes, *([member.changed] if member.changed else [])]
    return list(dict.fromkeys(notes))


def _judged(group: Group, reference: Group) -> Judgement:
    try:
        c = compare(Side(group.members), Side(reference.members))
    except RunError as error:
        return Judgement(group.label, problem=str(error))
    except (ValueError, ArithmeticError) as error:  # a series no measure was made for must not hide the others
        return Judgement(group.label, problem=f"these could not be measured: {error}")
    names = {"support": "reward range"} | {gap.id: gap.label for gap in c.main.gaps}
    told = [(names.get(e.gap, e.gap), setting_label(e.cause), e.sure, e.why, e.explains) for e in c.explanations]
    return Judgement(
        group.label,
        verdict=c.verdict,
        words=VERDICTS[c.verdict],
        headline=sentence(c.headline),
        aligned=f"aligned by {c.clock.name}: {c.clock.why}",
        rows=tuple(
            (r.what, r.run, r.reference, r.difference, STATES.get(r.state, ""), how(r)) for r in rows(c.main, c)
        ),
        explained=tuple(row[:4] for row in told if row[4]),
        excluded=tuple(row[:4] for row in told if not row[4]),
        next=(c.next.what, c.next.why),
        cautions=tuple(c.cautions),
    )


def _timeline(read: _Read, asked: Question) -> Timeline | None:
    x = asked.x
    steps = np.unique([s.steps[end] for s in read.member.series.values() if len(s) for end in (0, -1)])
    if not len(steps):
        return None
    ends = positions(read.member, steps, x)
    if ends is None:
        return None

    def at(step: int) -> float:
        place = positions(read.member, np.array([step]), x)
        return float(f"{place[0]:.6g}") if place is not None else 0.0

    current = read.run.history
    found = incidents(on_lineage(read.run.recorded, Lineage.of(current.attempt, current.about)))[-MAX_MARKS:]
    last = int(steps[-1])
    spans = tuple(_span(incident, at, last) for incident in found)
    fixes = [action for action in read.run.actions if action.entry == "applied"][-MAX_MARKS:]
    marks = tuple(
        Mark(at(a.step), f"fix {a.remedy} at step {a.step:,}: {', '.join(change_words(a.change))}"[:300]) for a in fixes
    )
    return Timeline(read.member.name, float(ends[0]), float(ends[-1]), spans, marks, _notes_of(asked, read, at))


def _notes_of(asked: Question, read: _Read, at: Callable[[int], float]) -> tuple[Mark, ...]:
    mine = [(step, text) for run, step, text in asked.notes if run == read.member.name]
    return tuple(Mark(at(step), f"★ {read.member.name} at step {step:,}: {text}") for step, text in mine)


def _span(incident: Incident, at: Callable[[int], float], last: int) -> Span:
    """An incident on the timeline; an open one reaches to the last step."""
    end = last if incident.open else max(incident.last, incident.onset)
    words = f"{incident.id}, steps {incident.onset:,} to {incident.last:,}: {incident.lead.summary[:300]}"
    return Span(at(incident.onset), at(end), incident.severity, words, incident.open)
