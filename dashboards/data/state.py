"""What the page says, as plain data: which runs there are, and one run as a header, cards and a timeline.

No Dash here. Run ids from the outside are looked up among the runs that were found; they never become part of a path.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from dashboards.data.checks import GIVEN_UP, NO_CHECK, SECONDS, Check, Checks, ToCheck
from dashboards.data.logs import Log, LogReader, Logs, files_of
from dashboards.data.standing import Standing, checkable, standing
from dashboards.data.worker import Worker
from dashboards.security.contained import Contained
from stabilizer.core.records import SEVERITIES, Action, Finding
from stabilizer.core.text import change_words, short
from stabilizer.figures.families import every_chart
from stabilizer.figures.words import definition
from stabilizer.remedies import fitted
from stabilizer.runs.history import History, RunView
from stabilizer.runs.listing import (
    FINDINGS,
    SMALL_FILES,
    RunLine,
    as_of,
    heartbeat_of,
    list_runs,
    measured,
    read_line,
    state_of,
    verdict_of,
    writer_lives,
)
from stabilizer.runs.listing import whole_number as _whole
from stabilizer.runs.listing import word as _word
from stabilizer.runs.loaded import imported
from stabilizer.runs.reader import MAX_SMALL, RunReader, read_json, read_records
from stabilizer.runs.story import Incident, incidents

FOLLOWED = 12
"""Runs kept in memory; the one looked at longest ago goes first."""
FRESH_S = 0.2
"""Several viewers of one run share a refresh this long."""
LARGE = 4 << 20
"""Bytes of metrics that take a moment to read: until then a page says what the small files say."""
MAX_STORY = 8 << 20
"""Bytes of findings or of a journal that are read for that."""
KEY_METRICS = (
    ("Reward", ("reward/mean",)),
    ("Accuracy, held out", ("accuracy/val",)),
    ("Accuracy, training", ("accuracy/train",)),
    ("Gradient norm", ("optim/grad_norm",)),
    ("KL to reference", ("policy/kl_ref", "policy/kl_old")),
    ("Entropy", ("policy/entropy",)),
)
MAX_KEYS = 5
MOST_NOTES = 5
"""Notes of the reader of a foreign log that its page shows."""
ENTRY_WORDS = {
    "after_step": "counted from step", "back_for": "because of", "back_to": "back to the state after step",
    "builds_on": "goes on from", "extra_steps": "steps done again", "guard": "must not suffer:",
    "guard_level": "its level before", "guard_noise": "its noise", "ticks": "steps judged",
}  # fmt: skip
"""What a person reads for a key of the journal; others are read as they are written."""
UNTOLD = frozenset({"request", "put_right"})
"""Keys of the journal that only the training process needs."""


# --- which runs there are ---------------------------------------------------------------------------------------------


class Runs:
    """The runs under some folders, by id, and the followed ones among them. Safe to share between threads."""

    def __init__(self, roots: Sequence[Path], clock: Callable[[], float] = time.time):
        self.roots = tuple(Path(root) for root in roots)
        self.clock = clock
        self.token = secrets.token_urlsafe(32)
        """Known to the pages of this server alone: without it nothing is asked of a run."""
        self.asked: dict[tuple[str, str, str], tuple[Any, float]] = {}
        """What was asked of which run about which action, how things stood then, and when."""
        self._lock = threading.Lock()
        self._paths: dict[str, Path] = {}
        self.logs = Logs(self.roots)
        self.contained = Contained(self.roots)
        checker = Worker(SECONDS, GIVEN_UP)
        self.checks = Checks(_stamp, checker, checker.close)
        self._listing = threading.Lock()
        self._listed: list[RunLine] = []
        self._listed_t = -1.0
        self._lines: dict[str, tuple[tuple[int, ...], RunLine, dict[str, Any]]] = {}
        self._followed: OrderedDict[str, Followed] = OrderedDict()

    def scan(self) -> dict[str, Path]:
        """Run ids and their folders, newest first. Two runs of one name get their parent's in front.

        A run that leads out of the folders that were given, by a link, is passed over.
        """
        found: dict[Path, None] = {}
        for root in self.roots:
            try:
                found |= dict.fromkeys(filter(self.contained.holds, list_runs(root)))
            except OSError:
                continue
        found |= dict.fromkeys(self.logs.paths())
        names = Counter(path.name for path in found)
        paths: dict[str, Path] = {}
        for path in sorted(found, key=lambda path: (path.name, str(path)), reverse=True):
            id = path.name if names[path.name] == 1 else f"{path.parent.name}/{path.name}"
            while id in paths:
                id += "'"
            paths[id] = path
        with self._lock:
            self._paths = paths
        return dict(paths)

    def lines(self) -> list[RunLine]:
        """All runs as list lines, newest first; small files are read again only when they changed.

        Viewers that ask at the same time share an answer that was begun after they asked.
        """
        asked = time.monotonic()
        with self._listing:
            if self._listed_t <= asked:
                self._listed_t = time.monotonic()
                self._listed = self._list()
            return list(self._listed)

    def _list(self) -> list[RunLine]:
        now = self.clock()
        lines, known = [], {}
        for id, path in self.scan().items():
            if (line := self.logs.line(path, id, now)) is None:
                key = tuple(_mtime(path / name) for name in (*SMALL_FILES, FINDINGS))
                cached = self._lines.get(id)
                if cached is None or cached[0] != key or cached[1].path != path:
                    cached = (key, *read_line(path, id))
                known[id] = cached
                line = as_of(cached[1], cached[2], now)
            lines.append(self._judged(line))
        self._lines = known
        return sorted(lines, key=lambda line: line.created or 0.0, reverse=True)

    def _judged(self, line: RunLine) -> RunLine:
        """A line with the verdict that the run's page shows."""
        if line.state == "unreadable":
            return line
        check = self.checks.of(line.path)
        told = standing(line.verdict, line.measured, check, line.reach)
        gravest = check.found.worst if check.found and checkable(line.verdict, line.reach) else line.worst
        return replace(line, verdict=told.verdict, note=told.note, worst=gravest)

    def check(self, id: str) -> str:
        """Have a run checked in the background; why not, in words, where that can't be."""
        followed = self.get(id)
        if followed is None:
            return "there is no such run any more"
        return self.checks.ask(ToCheck(followed.path, followed.log.format if followed.log else ""))

    def get(self, id: str) -> Followed | None:
        """The followed run of an id, None when no such run was found."""
        with self._lock:
            path = self._paths.get(id)
        if path is None:
            path = self.scan().get(id)
        if path is None:
            return None
        with self._lock:
            followed, log = self._followed.get(id), self.logs.get(path)
            if followed is None or followed.path != path or followed.log is not log:
                followed = FollowedLog(log, self.clock, self.checks) if log else Followed(path, self.clock, self.checks)
                self._followed[id] = followed
            self._followed.move_to_end(id)
            while len(self._followed) > FOLLOWED:
                self._followed.popitem(last=False)
            return followed


@dataclass(frozen=True)
class Brief:
    """The story of a run without its numbers: what is known of a large one while it is being read."""

    FILES: ClassVar[tuple[str, ...]] = ("status.json", "findings.jsonl", "actions.jsonl")

    status: Mapping[str, Any]
    findings: Sequence[Finding]
    actions: Sequence[Action]

    @classmethod
    def of(cls, path: Path) -> Brief:
        """The brief of a run directory; a file that is no story, or a very long one, tells nothing yet."""
        status, findings, actions = (path / name for name in cls.FILES)
        return cls(read_json(status), _story(findings, Finding), _story(actions, Action))


class Followed:
    """One run directory, read as it grows, for all viewers of it. Hold `lock` while using `reader`."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time, checks: Checks | None = None):
        self.path = path
        self.clock = clock
        self.log: Log | None = None
        self.checks = checks
        self.lock = threading.RLock()
        self.reader: RunReader | None = None
        self.rewrites = 0
        self._read = 0.0
        self._newest: dict[str, int] = {}
        self._attempt = -1
        self._checked: Any = None
        """What a check found, as far as viewers were told."""
        self._told = 0
        """How often that changed."""
        self._stands: tuple[Any, Standing] | None = None
        self._brief: tuple[tuple[int, ...], Brief] | None = None

    def refresh(self) -> RunReader | LogReader:
        """The reader, up to date, with what a check found where nobody else looked; whatever makes a directory
        unreadable is raised."""
        with self.lock:
            reader, found = self._up_to_date(), self.check().found
            if found is not None and not checkable(*_recorded(reader)[:2]):
                found = None
            if found is not self._checked:
                self._checked = found
                self._told += 1
                self.rewrites += 1
            if found is None:
                return reader
            if isinstance(reader, LogReader):
                return replace(reader, findings=list(found.findings))
            shown = copy.copy(reader)  # the records of the run stay as they are
            shown.findings = list(found.findings)
            return shown

    def check(self) -> Check:
        """How far a check of this run is."""
        return self.checks.of(self.path) if self.checks else NO_CHECK

    def standing(self) -> Standing:
        """How the run stands, decided anew only when something it rests on changed."""
        with self.lock:
            reader, check = self.reader, self.check()
            if isinstance(reader, LogReader):
                return standing_of(reader, check)
            files = tuple(_mtime(self.path / name) for name in ("run.json", "summary.json"))
            key = (files, len(reader.findings), check)
            if self._stands is None or self._stands[0] != key:
                self._stands = (key, standing_of(reader, check))
            return self._stands[1]

    def _up_to_date(self) -> RunReader | LogReader:
        with self.lock:
            now = time.monotonic()
            if self.reader is None:
                self._check()
                self.reader = RunReader(self.path)
                self._settle()
            elif now - self._read >= FRESH_S:
                try:
                    self._check()
                    fresh = self.reader.refresh()
                except Exception:
                    self.reader = None  # half-taken records would be counted twice: start anew next time
                    raise
                if self.reader.history.attempt != self._attempt:
                    self._settle()
                for step, names in ((step, block.names) for block in fresh for step in block.steps):
                    for name in names:
                        if step <= self._newest.get(name, -1):
                            self.rewrites += 1  # a point that is drawn already changed, or one came in between
                        self._newest[name] = step
            self._read = now
            return self.reader

    def warm(self) -> None:
        """Begin to read in the background: a page of this run is on its way. Problems are told when it is there."""
        if self._unread:
            threading.Thread(target=self._warm, daemon=True).start()

    def _warm(self) -> None:
        with contextlib.suppress(Exception):
            self.refresh()

    def page(self) -> Page:
        """What the run's page says; of a large run that was not read yet, what its small files say."""
        if brief := self.brief():
            return glimpse_of(self.path, brief, self.clock(), self.check())
        with self.lock:
            return page_of(self.refresh(), self.clock(), self.standing())

    def brief(self) -> Brief | None:
        """What a large run's small files say while it was not read yet, without waiting for whoever reads it; None of
        a run that is read, or read in no time."""
        if not self._unread:
            return None
        self._check()
        key = tuple(_mtime(self.path / name) for name in Brief.FILES)
        if self._brief is None or self._brief[0] != key:
            self._brief = (key, Brief.of(self.path))
        return self._brief[1]

    @property
    def _unread(self) -> bool:
        return self.reader is None and _bytes(self.path / "metrics") >= LARGE

    def chart(self, id: str) -> tuple[tuple[str, ...], RunView]:
        """The metrics of one of this run's charts, and the view to take them from; KeyError for no chart of it."""
        with self.lock:
            view = self.refresh().history.view()
        return every_chart(view)[id].metrics, view

    def _check(self) -> None:
        """A folder that is gone is said; a pipe in place of a small file would block its reader, and every viewer."""
        if not self.path.is_dir():
            raise ValueError(f"{self.path}: the folder of this run is gone")
        for name in SMALL_FILES:
            file = self.path / name
            if file.exists() and (not file.is_file() or file.stat().st_size > MAX_SMALL):
                raise ValueError(f"{file}: not a plain file of at most {MAX_SMALL >> 20} MB")

    def _settle(self) -> None:
        view = self.reader.history.view()
        self._attempt = view.attempt
        self._newest = {name: int(view.series(name).steps[-1]) for name in view.names()}
        self.rewrites += 1


class FollowedLog(Followed):
    """A log of another trainer, which is read and judged elsewhere, beside the requests; this is how far that is."""

    def __init__(self, log: Log, clock: Callable[[], float] = time.time, checks: Checks | None = None):
        super().__init__(log.path, clock, checks)
        self.log = log

    def brief(self) -> None:
        """Nothing: reading goes on elsewhere, so there is never anything to wait for."""
        return None

    def _up_to_date(self) -> LogReader:
        """The log as far as it was read. Asking keeps it in memory and up to date."""
        with self.lock:
            self.reader, rewrites = self.log.wanted(self.clock())
            self.rewrites = rewrites + self._told
            return self.reader


# --- one run ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeyNumber:
    """A number of the header: what it is, how much, of what, and when."""

    label: str
    value: str
    unit: str
    step: int
    finite: bool


@dataclass(frozen=True)
class Also:
    """Another finding of the same incident."""

    severity: str
    state: str
    id: str
    summary: str


@dataclass(frozen=True)
class Card:
    """An incident as a person reads it: what, since when, why, on what evidence, what to do."""

    number: int
    id: str
    severity: str
    state: str
    open: bool
    harm: bool
    """Whether it stands and is more than information."""
    summary: str
    """What was said when it opened or last got worse: the console said the same."""
    onset: int
    detected: int
    last: int
    latest: str = ""
    """What is said of it by now, where that is something else."""
    causes: tuple[tuple[str, float, str], ...] = ()
    evidence: tuple[tuple[str, str], ...] = ()
    advice: tuple[tuple[str, str, tuple[str, ...], str, str], ...] = ()
    also: tuple[Also, ...] = ()

    @property
    def later(self) -> str:
        """What is said of it by now, in words; empty where that is what its summary says."""
        return f"{'by now' if self.open else 'at last'}: {self.latest}" if self.latest else ""

    @property
    def likely(self) -> str:
        """The first cause and how sure it is; nobody is sure of not knowing."""
        if not self.causes:
            return ""
        name, sure, _ = self.causes[0]
        return name if name == "undetermined" else f"{name}, {sure:.0%} sure"


@dataclass(frozen=True)
class Entry:
    """One line of a trial's life."""

    entry: str
    step: int
    text: str
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Trial:
    """What was tried against an incident: the change, and everything the journal says of it, oldest first."""

    action: str
    remedy: str
    incident: int
    safety: str
    change: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def outcome(self) -> str:
        """The newest entry."""
        return self.entries[-1].entry

    @property
    def waiting(self) -> bool:
        """Whether it waits for a person's answer."""
        return self.outcome == "proposed"


@dataclass(frozen=True)
class Page:
    """Everything the page says about a run, charts excepted."""

    name: str
    task: str
    trainer: str
    state: str
    heartbeat: float | None
    step: int
    steps: int | None
    attempt: int
    standing: Standing
    lives: bool | None = None
    """Whether the process that writes it is there; None where that can't be seen."""
    numbers: tuple[KeyNumber, ...] = ()
    cards: tuple[Card, ...] = ()
    journal: tuple[Trial, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def verdict(self) -> str:
        """How the run stands, in a word."""
        return self.standing.verdict

    @property
    def progress(self) -> float | None:
        """Percent of the planned steps, None when no plan is known."""
        return min(100.0, 100.0 * max(self.step, 0) / self.steps) if self.steps else None

    @property
    def open(self) -> tuple[Card, ...]:
        """Incidents that are open, the gravest first."""
        return tuple(sorted((c for c in self.cards if c.open), key=lambda c: -SEVERITIES.index(c.severity)))

    @property
    def waiting(self) -> tuple[Trial, ...]:
        """Proposals nobody answered yet."""
        return () if self.over else tuple(trial for trial in self.journal if trial.waiting)

    @property
    def newest(self) -> Trial | None:
        """The newest fix that was made, whatever came of it."""
        return next((t for t in self.journal if any(entry.entry == "applied" for entry in t.entries)), None)

    @property
    def over(self) -> bool:
        """Whether nothing more is to be expected of this run for now."""
        return self.state in ("finished", "failed", "stopped", "preempted", "quiet", "unreadable")


def page_of(reader: RunReader | LogReader, now: float, stands: Standing | None = None) -> Page:
    """The page of a run as its reader has it now."""
    view = reader.history.view()
    page = _page(
        reader.path, reader.about, reader.status, now, reader.findings, reader.actions,
        stands=stands or standing_of(reader, NO_CHECK), step=view.step, attempt=view.attempt,
        numbers=key_numbers(view), skipped=reader.skipped,
    )  # fmt: skip
    if not isinstance(reader, LogReader):
        return replace(page, notes=(*said_by_import(reader.about), *page.notes))
    return replace(page, notes=(*reader.notes, *page.notes))


def said_by_import(about: Mapping[str, Any]) -> tuple[str, ...]:
    """Where an imported run came from, and what its reader had to say; empty of any other run."""
    source = imported(about)
    return (f"Imported from a log ({source.format}).", *source.notes[:MOST_NOTES]) if source else ()


def standing_of(reader: RunReader | LogReader, check: Check) -> Standing:
    """How a run stands, by its records and by a check of it."""
    recorded, reach, names = _recorded(reader)
    return standing(recorded, names, check, reach)


def _recorded(reader: RunReader | LogReader) -> tuple[str, int | None, frozenset[str]]:
    """The verdict of a run's own records, the step at which its detectors stopped, and its metrics."""
    if isinstance(reader, LogReader):
        return reader.verdict, reader.reach, reader.names
    return _on_record(reader.path, reader.about, reader.findings)


def _on_record(
    path: Path, about: Mapping[str, Any], findings: Sequence[Finding]
) -> tuple[str, int | None, frozenset[str]]:
    summary = read_json(path / "summary.json")
    names = measured(about, summary)
    return verdict_of(_word(summary.get("verdict")), findings, names), None, names


def glimpse_of(path: Path, brief: Brief, now: float, check: Check = NO_CHECK) -> Page:
    """The page of a run from its small files alone."""
    about, status = read_json(path / "run.json"), brief.status
    metrics = read_json(path / "summary.json").get("metrics")
    last = History(about)
    for name, row in metrics.items() if isinstance(metrics, Mapping) else ():
        value, step = (row.get("last"), row.get("step")) if isinstance(row, Mapping) else (None, None)
        if isinstance(value, (int, float)) and isinstance(step, int):
            last.append(step, {name: float(value)})
    recorded, _, names = _on_record(path, about, brief.findings)
    return _page(
        path, about, status, now, brief.findings, brief.actions, stands=standing(recorded, names, check),
        step=last.step, attempt=_whole(status.get("attempt")) or 0, numbers=key_numbers(last.view()), skipped=0,
    )  # fmt: skip


def _story(file: Path, kind: type) -> list[Any]:
    return read_records(file, kind).records if _size(file) < MAX_STORY else []


def _page(
    path: Path, about: Mapping[str, Any], status: Mapping[str, Any], now: float, findings: Sequence[Finding],
    actions: Sequence[Action], *, stands: Standing, step: int, attempt: int, numbers: tuple[KeyNumber, ...],
    skipped: int,
) -> Page:  # fmt: skip
    found = incidents(findings)
    skipped += source.skipped_lines if (source := imported(about)) else 0
    return Page(
        name=path.name,
        task=_word(about.get("task")),
        trainer=_word(about.get("trainer")),
        state=state_of(status, now),
        lives=writer_lives(status),
        heartbeat=heartbeat_of(status),
        step=step,
        steps=_whole(about.get("steps")),
        attempt=attempt,
        standing=stands,
        numbers=numbers,
        cards=cards_of(found, about, state_of(status, now)) if stands.verdict != "not-rl" else (),
        journal=journal_of(actions),
        notes=(f"{skipped:,} lines of this run could not be read and were left out",) if skipped else (),
    )


def key_numbers(view: RunView) -> tuple[KeyNumber, ...]:
    """The few numbers one looks at first, with the step each was measured at."""
    out = []
    for label, names in KEY_METRICS:
        name = next((name for name in names if name in view), None)
        if name is None:
            continue
        series = view.series(name)
        value, unit = float(series.values[-1]), definition(view, name).unit
        text = f"{value:.3f}" if math.isfinite(value) and 0.01 <= abs(value) < 10 else short(value)
        out.append(KeyNumber(label, text, "" if unit == "1" else unit, int(series.steps[-1]), math.isfinite(value)))
    return tuple(out[:MAX_KEYS])


def cards_of(found: Sequence[Incident], about: Mapping[str, Any], state: str) -> tuple[Card, ...]:
    """Incidents as cards, with advice that fits the run's state: those that stand first, then the newest."""
    ranked = sorted(found, key=lambda incident: (incident.open, incident.onset), reverse=True)
    ours = about.get("trainer", "stabilizer") == "stabilizer"
    return tuple(_card(incident, ours=ours, state=state) for incident in ranked)


def journal_of(actions: Iterable[Action]) -> tuple[Trial, ...]:
    """The journal, grouped by trial, the newest trial first."""
    groups: dict[str, list[Action]] = {}
    for action in actions:
        groups.setdefault(action.action, []).append(action)
    return tuple(_trial(entries) for entries in reversed(groups.values()))


def _card(incident: Incident, *, ours: bool, state: str) -> Card:
    lead = incident.lead
    advice = next((finding.remedies for finding in incident.findings if finding.remedies), ())
    harm = any(finding.state != "resolved" and finding.severity != "info" for finding in incident.findings)
    advice = fitted(advice, harm=harm, state=state, ours=ours)
    causes = next((finding.causes for finding in incident.findings if finding.causes), ())
    return Card(
        number=incident.number,
        id=lead.id,
        severity=incident.severity,
        state=incident.findings[0].state,
        open=incident.open,
        harm=harm,
        summary=incident.told,
        onset=incident.onset,
        detected=incident.detected,
        last=incident.last,
        latest=incident.latest,
        causes=tuple((cause.id, cause.confidence, cause.why) for cause in sorted(causes, key=lambda c: -c.confidence)),
        evidence=_facts(lead.evidence),
        advice=tuple((r.id, r.safety, tuple(change_words(r.change)), r.why, r.how) for r in advice),
        also=tuple(Also(f.severity, f.state, f.id, f.summary) for f in incident.findings if f.id != lead.id),
    )  # fmt: skip


def _trial(entries: Sequence[Action]) -> Trial:
    changed = next((entry.change for entry in reversed(entries) if entry.change), {})
    lines = tuple(Entry(entry.entry, entry.step, entry.text, _told(entry.data)) for entry in entries)
    first = entries[0]
    return Trial(first.action, first.remedy, first.incident, first.safety, tuple(change_words(changed)), lines)


def _facts(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What is said in a word or a number; a structure (a trial's hypothesis) is told in the entry's own words."""
    return tuple((str(key), short(value)) for key, value in values.items() if not isinstance(value, Mapping))


def _told(data: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The facts of a journal's entry in words; a number that is none tells nothing."""
    return tuple(
        (ENTRY_WORDS.get(key, key.replace("_", " ")), value)
        for key, value in _facts({key: value for key, value in data.items() if key not in UNTOLD and _known(value)})
    )


def _known(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def _stamp(path: Path) -> Any:
    """What changes when a run or a log is written to."""
    if not (path / "run.json").is_file():
        return files_of(path)
    metrics = path / "metrics"
    try:
        files = [*sorted(metrics.iterdir()), path / "events.jsonl", path / "run.json"]
    except OSError:
        files = [path / "run.json"]
    return tuple((file.name, _mtime(file), _size(file)) for file in files)


def _bytes(folder: Path) -> int:
    """How much there is to read in a folder of metrics."""
    try:
        return sum(_size(Path(entry.path)) for entry in os.scandir(folder))
    except OSError:
        return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _mtime(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
