"""A run directory on disk: where things are, small JSON files replaced whole, and the one process that writes.

See the package docstring and `records.py` for what the lines hold. `RunWriter` belongs to the training process; a
viewer never writes here, except for requests (`requests.py`).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import socket
import sys
import time
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import orjson

from stabilizer.core.json_text import MAX_NESTING, too_deep
from stabilizer.core.metrics import metric
from stabilizer.core.records import (
    SCHEMA,
    Action,
    Event,
    Finding,
    Metrics,
    RunState,
    Sample,
    as_json,
    encode,
    encode_metrics,
)
from stabilizer.core.version import __version__
from stabilizer.runs.append import AppendFile, Syncer, held
from stabilizer.runs.history import History
from stabilizer.runs.trend import KEY_METRICS, Trend

MAX_TEXT = 64 * 1024
"""Characters of a prompt or completion that are kept (head and tail)."""

MAX_BEHIND = 16
"""Files out of turn (samples, an abandoned branch) whose lines are kept in memory while the disk refuses them."""

SUMMED = 256
"""Rows after which they are summed up though nobody has asked for the summary yet."""

HIDDEN = "***"
"""What stands in `run.json` for the value of a key whose name matches `_SECRET`."""

_SECRET = re.compile(r"token$|api_?key|secret|password", re.IGNORECASE)


def replace_json(path: Path, value: Any, *, sync: bool = True) -> None:
    """Write a JSON file so that a reader sees the old or the new one, never half of either.

    `sync` makes it outlive the machine's death and not only the process's; to wait for the disk takes milliseconds.
    """
    option = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS
    try:
        text = orjson.dumps(value, option=option)
    except orjson.JSONEncodeError:  # a lone surrogate in a name or a setting, or an integer beyond 64 bits
        text = orjson.dumps(as_json(value), option=option)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb") as file:
        file.write(text)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    os.replace(temporary, path)


def new_run_id(task: str, when: float | None = None) -> str:
    """A name that sorts by time and says what was trained."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(when))
    words = re.sub(r"[^a-z0-9]+", "-", task.lower()).strip("-") or "run"
    return f"{stamp}-{words}-{os.urandom(2).hex()}"


def redacted(value: Any, key: str = "") -> Any:
    """The same structure with values of secret-looking keys hidden."""
    if isinstance(value, Mapping):
        return {str(inner): redacted(item, str(inner)) for inner, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(item) for item in value]
    return HIDDEN if _SECRET.search(key) and value else value


def hidden_keys(value: Any, key: str = "") -> list[str]:
    """Dotted keys of what `redacted` hid."""
    inner: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    found = [name for part, item in inner for name in hidden_keys(item, f"{key}.{part}" if key else str(part))]
    return [key] if value == HIDDEN else found


def redacted_words(words: Sequence[str]) -> list[str]:
    """A command line with the values of secret-looking flags and `key=value` pairs hidden."""
    shown: list[str] = []
    for word in words:
        key, equals, _ = word.partition("=")
        before = shown[-1] if shown else ""
        if before.startswith("--") and "=" not in before and _SECRET.search(before):
            shown.append(HIDDEN)
        else:
            shown.append(f"{key}={HIDDEN}" if equals and _SECRET.search(key) else word)
    return shown


class RunWriter:
    """The training process's hand on its run directory. After `create` or `reopen` no method raises an OSError.

    What could not be written waits, is tried again with every later record, and is said by `problems`.
    """

    def __init__(self, path: Path, about: dict[str, Any], claim: int, *, attempt: int):
        self.path = path
        self._release = weakref.finalize(self, os.close, claim)
        self.about = about
        self.attempt = attempt
        self._n = 0
        self._metrics = self._metrics_file()
        self._events = AppendFile(path / "events.jsonl")
        self._findings = AppendFile(path / "findings.jsonl", sync=True)
        self._actions = AppendFile(path / "actions.jsonl", sync=True)
        self._syncer = Syncer()
        self._actions.flush()  # a last line that only lacks its newline is an entry, and the chain goes on from it
        self._behind: deque[AppendFile] = deque()
        self._lost = 0
        self._chain, self._actions_n, self._made = _journal_tail(path / "actions.jsonl")
        self._refused: dict[str, OSError] = {}
        self._replaced: dict[str, int] = {}
        """How often each small file was to be written."""
        self._replacing: dict[str, Lock] = {}
        self._remedy: str | None = None
        self._said: tuple[Any, ...] = ()
        self._status_t = 0.0
        self._summary_t = 0.0
        self._summary: dict[str, dict[str, float]] = {}
        self._trends: dict[str, Trend] = {}
        self._names: tuple[str, ...] = ()
        """Names of the newest row; all are described."""
        self._unsummed: list[tuple[int, tuple[str, ...], tuple[float, ...]]] = []
        """Rows that the summary does not hold yet: many at once cost little more than one."""

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        config: Mapping[str, Any],
        task: str = "",
        trainer: str = "stabilizer",
        steps: int | None = None,
        clock: str = "rollout_batch",
        versions: Mapping[str, str] | None = None,
        metrics: Mapping[str, Any] | None = None,
        argv: Sequence[str] | None = None,
        inputs: Mapping[str, str] | None = None,
        created: float | None = None,
        imported: Mapping[str, Any] | None = None,
    ) -> RunWriter:
        """Start a new run directory. FileExistsError when there is a run already, OSError when it can't be made.

        `inputs` says of the files that the run reads what they held when it began: path -> sha256. `created` is when
        the run began, where that is not now, and `imported` what is known of the log that it is made from.
        """
        if (path / "run.json").exists():
            raise FileExistsError(f"{path}: there is a run here already; choose another name or --resume it")
        if too_deep([[config, metrics]]):  # as they lie in `run.json`, which no reader would take
            raise ValueError(
                f"{path}: the configuration is nested more than {MAX_NESTING - 2} levels deep; give a flatter one"
            )
        about = {
            "schema": SCHEMA,
            "run": path.name,
            "task": task,
            "trainer": trainer,
            "steps": steps,
            "clock": clock,
            "created": time.time() if created is None else created,
            "config": redacted(config),
            "versions": {"stabilizer": __version__, "python": platform.python_version(), **(versions or {})},
            "hardware": {"machine": platform.machine(), "cpus": os.cpu_count(), "system": platform.system()},
            "argv": redacted_words(sys.argv[1:] if argv is None else argv),
            "attempts": [{"attempt": 0, "from_step": 0, "parent": None, "reason": "start"}],
            "metrics": dict(metrics or {}),
            **({"inputs": dict(inputs)} if inputs else {}),
            **({"imported": dict(imported)} if imported else {}),
        }
        replace_json(path / "run.json", about)
        return cls(path, about, _claim(path), attempt=0)._usable()

    @classmethod
    def reopen(cls, path: Path) -> RunWriter:
        """Go on with a run of an earlier process; call `begin_attempt` before writing metrics."""
        from stabilizer.runs.reader import read_json

        claim = _claim(path)
        about = read_json(path / "run.json")
        if not isinstance(about.get("metrics"), dict):
            about["metrics"] = {}  # what is said of each is said anew with its next row
        try:
            attempt = _newest_attempt(path, about)
        except ValueError:
            os.close(claim)
            raise
        return cls(path, about, claim, attempt=attempt)._usable()

    # --- what the run says ------------------------------------------------------------------------------------------

    def metrics(self, step: int, values: Mapping[str, float], t: float | None = None) -> bool:
        """One record of numbers. True when it is in the file."""
        self._catch_up()
        names = tuple(values)
        if names != self._names:  # seldom: a step has the names of the step before
            if new := [name for name in names if name not in self.about["metrics"]]:
                self._describe(new)
            self._names = names
        now = time.time() if t is None else t
        done = self._metrics.append(encode_metrics(Metrics(step=step, values=values, t=now, n=self._n)))
        self._n += 1
        self._unsummed.append((step, self._names, tuple(values.values())))
        if len(self._unsummed) >= SUMMED:
            self._sum_up()
        return done

    def samples(self, step: int, samples: Sequence[Sample]) -> None:
        """The completions of a step, in a file of their own that is never overwritten."""
        if not samples:
            return
        file = AppendFile(self.path / "samples" / f"{step:06d}-r0.jsonl")
        for sample in samples:
            file.append(encode(_shortened(sample)))
        self._let_go(file)

    def event(self, step: int, kind: str, text: str, **data: Any) -> Event:
        """Declare something that was not measured."""
        return self.record(Event(step=step, kind=kind, text=text, t=time.time(), attempt=self.attempt, data=data))

    def record(self, event: Event) -> Event:
        """Write an event as it is, with the time it has."""
        self._events.append(encode(event))
        return event

    def finding(self, *findings: Finding, sync: bool = True) -> None:
        """Incidents opened, changed or closed; those that only stand as they stood need no `sync`."""
        self._findings.append(*map(encode, findings), sync=sync)

    def action(self, action: Action, *, sync: bool = True) -> Action:
        """Add an entry to the journal; the record that was written, with its place in the chain, comes back.

        What changes nothing in the run needs no `sync`.
        """
        record = replace(action, attempt=self.attempt, t=time.time(), n=self._actions_n, prev=self._chain, hash="")
        record = replace(record, hash=chain_hash(record))
        self._chain, self._actions_n = record.hash, self._actions_n + 1
        if record.entry == "applied":
            self._made.add(record.action)
        self._actions.append(encode(record), sync=sync)
        return record

    def sync_soon(self) -> None:
        """Have findings and journal on the disk before long, without waiting for it."""
        self._syncer.soon(self._findings, self._actions)

    def begin_attempt(
        self, from_step: int, reason: str, *, parent: int | None = None, history: History | None = None
    ) -> int:
        """A rollback or resume: later metrics belong to a new attempt whose steps count from `from_step`.

        `parent` is the attempt it branches off (that of the checkpoint; the present one when not given), and `history`
        the lineage it starts with, from which the summary is made anew.
        """
        attempt = self.attempt + 1
        parent = self.attempt if parent is None else parent
        self.about["attempts"].append({"attempt": attempt, "from_step": from_step, "parent": parent, "reason": reason})
        self._replace("run.json", self.about)
        self.attempt = attempt
        before, self._metrics = self._metrics, self._metrics_file()
        self._let_go(before)
        self._n = 0
        if history is not None:
            self._summary = _summary(history)
            self._trends = _trends(history)
            self._unsummed = []
            self._summary_t = 0.0
        return attempt

    def status(
        self, state: RunState, step: int, *, remedy: str | None = None, force: bool = False, t: float | None = None
    ) -> None:
        """The heartbeat, at most once a second unless the state changed. `remedy` is the mode, kept once given; `t` is
        when the run was last seen, where that is not now."""
        self._catch_up()
        now = time.time() if t is None else t
        self._remedy = self._remedy if remedy is None else remedy
        said = (state, self.attempt, self._remedy, len(self._made))
        if not force and said == self._said and now - self._status_t < 1.0:
            return
        row: dict[str, Any] = {"state": state, "step": step, "steps": self.about.get("steps"), "t": now}
        row |= {"pid": os.getpid(), "host": socket.gethostname(), "attempt": self.attempt}
        row |= {"remedy": self._remedy} if self._remedy is not None else {}
        row |= {"interventions": len(self._made)} if self._made else {}  # for lists, which open no journal
        if not force and said == self._said:
            self._status_t = now
            self._replace_soon("status.json", row)
        elif self._replace("status.json", row):
            self._said, self._status_t = said, now

    @property
    def summary_due(self) -> bool:
        """Whether the last summary is old enough to be written anew."""
        return time.time() - self._summary_t >= 5.0

    def summary(self, *, verdict: str, worst: str | None, force: bool = False) -> None:
        """Last, min and max per metric, the course of a few, and how the run stands, when due: derived, for lists."""
        self._catch_up()
        if not force and not self.summary_due:
            return
        self._summary_t = time.time()
        self._sum_up()
        trends = {name: trend.points() for name, trend in self._trends.items()}
        row = {"verdict": verdict, "worst": worst, "metrics": dict(self._summary), "trends": trends}
        if force:
            self._replace("summary.json", row)
        else:
            self._replace_soon("summary.json", row)

    def problems(self) -> list[str]:
        """What could not be written, in words, for the terminal; empty when all is well."""
        said = [f"{file.path}: {file.error}" for file in self._files() if file.error]
        said += [f"{self.path / name}: {error}" for name, error in list(self._refused.items())]
        said += [f"{self.path}: {what}: {error}" for what, error in list(self._syncer.failed.items())]
        lost = self._lost + sum(file.lost for file in self._files())
        return [*said, f"{self.path}: {lost:,} lines were lost while nothing could be written"] if lost else said

    def close(self) -> None:
        """Let go of all files, and of the run."""
        self._catch_up()
        self._syncer.close()
        for file in self._files():
            file.close()
        self._release()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _files(self) -> tuple[AppendFile, ...]:
        return (self._metrics, self._events, self._findings, self._actions, *self._behind)

    def _usable(self) -> RunWriter:
        """This writer; OSError when a file of it can't be opened now, before there is any training to protect."""
        if error := next((file.error for file in self._files() if file.error), None):
            self.close()
            raise error
        return self

    def _let_go(self, file: AppendFile) -> None:
        """Close a file, or keep it aside while lines of it are still to be written."""
        if file.flush():
            file.close()
            return
        self._behind.append(file)
        if len(self._behind) > MAX_BEHIND:
            oldest = self._behind.popleft()
            oldest.close()
            self._lost += oldest.lost + oldest.waiting

    def _catch_up(self) -> None:
        """Try again what was refused before: `run.json`, for without it a new attempt is invisible, and old files."""
        if "run.json" in self._refused:
            self._replace("run.json", self.about)
        for _ in range(len(self._behind)):
            self._let_go(self._behind.popleft())

    def _metrics_file(self) -> AppendFile:
        return AppendFile(self.path / "metrics" / f"r0-a{self.attempt}.jsonl")

    def _replace(self, name: str, value: Any) -> bool:
        """Write a small file; False when the disk refuses, which must not stop training (see `_catch_up`)."""
        return self._put(name, value, self._number(name), sync=True)

    def _replace_soon(self, name: str, value: Any) -> None:
        """The same for what is written again before long, without waiting: a busy disk holds up a file that takes
        another's place, though nobody asks for it to be synced."""
        self._syncer.do(name, partial(self._put, name, value, self._number(name), sync=False))

    def _number(self, name: str) -> int:
        self._replacing.setdefault(name, Lock())
        self._replaced[name] = number = self._replaced.get(name, 0) + 1
        return number

    def _put(self, name: str, value: Any, number: int, *, sync: bool) -> bool:
        with held(self._replacing[name]):
            if number < self._replaced[name]:
                return True  # a newer one is on its way, or there
            try:
                replace_json(self.path / name, value, sync=sync)
            except OSError as error:
                self._refused[name] = error
                return False
            self._refused.pop(name, None)
            return True

    def _describe(self, names: list[str]) -> None:
        for name in names:
            known = metric(name)
            self.about["metrics"][name] = {
                "unit": known.unit, "estimator": known.estimator, "aggregation": known.aggregation, "source": name,
            }  # fmt: skip
        self._replace("run.json", self.about)

    def _sum_up(self) -> None:
        """Take the rows that came since into last, min and max, and into the trends."""
        rows, self._unsummed = self._unsummed, []
        for names, alike in groupby(rows, key=lambda row: row[1]):
            steps, _, values = zip(*alike, strict=True)
            try:
                table = np.array(values, float).reshape(len(steps), -1)
            except OverflowError:
                table = np.array([[_as_float(value) for value in row] for row in values]).reshape(len(steps), -1)
            lows, highs = np.fmin.reduce(table), np.fmax.reduce(table)  # NaN passed over
            for column, name in enumerate(names):
                low, high, last = float(lows[column]), float(highs[column]), float(table[-1, column])
                known = self._summary.get(name)
                if known is not None:
                    low, high = float(np.fmin(low, known["min"])), float(np.fmax(high, known["max"]))
                self._summary[name] = {"last": last, "step": steps[-1], "min": low, "max": high}
                if name in KEY_METRICS:
                    trend = self._trends.setdefault(name, Trend())
                    for value in table[:, column].tolist():
                        trend.add(value)


def _newest_attempt(path: Path, about: Mapping[str, Any]) -> int:
    """The one a run goes on from; ValueError where that can't be told, for its rows would be mixed with others."""
    try:
        numbers = [entry["attempt"] for entry in about["attempts"]]
        newest = max(numbers)
    except (KeyError, TypeError, ValueError):
        numbers, newest = [None], -1
    if not all(type(number) is int for number in numbers):
        raise ValueError(f"{path / 'run.json'}: names no attempt to go on from; restore it, or start the run anew")
    later = [file for file in (path / "metrics").glob("r0-a*.jsonl") if _attempt_of(file) > newest]
    if rows := [file.name for file in later if file.stat().st_size]:
        raise ValueError(
            f"{path / 'run.json'}: its newest attempt is {newest}, and {rows[0]} holds rows of a later one: restore it,"
            " for to go on would mix the two"
        )
    return newest


def _attempt_of(metrics: Path) -> int:
    number = metrics.stem.partition("-a")[2]
    return int(number) if number.isdecimal() else -1


def _claim(path: Path) -> int:
    """Keep every other process of this machine from writing this run until the handle is closed, or we are gone.

    A heartbeat alone doesn't: two processes may start in the same second, and a long step has none for minutes.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ValueError(
            f"{path}: another process still trains this run; stop it first (SIGTERM saves and ends it)"
        ) from None
    except OSError:  # a file system without locks
        pass
    return handle


def chain_hash(action: Action) -> str:
    """The hash an entry must carry: over all its fields, the hash of the entry before among them, except its own."""
    return hashlib.sha256(encode(replace(action, hash=""))).hexdigest()


def _summary(history: History) -> dict[str, dict[str, float]]:
    """Last, min and max per metric of a lineage; min and max leave NaN out, as they do while a run goes on."""
    view = history.view()
    rows: dict[str, dict[str, float]] = {}
    for name in view.names():
        series = view.series(name)
        known = series.values[~np.isnan(series.values)]
        low, high = (float(known.min()), float(known.max())) if len(known) else (np.nan, np.nan)
        rows[name] = {"last": float(series.values[-1]), "step": int(series.steps[-1]), "min": low, "max": high}
    return rows


def _trends(history: History) -> dict[str, Trend]:
    view = history.view()
    return {name: Trend(view.series(name).values.tolist()) for name in KEY_METRICS if name in view}


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer no float can hold; the record keeps it as Inf too
        return float("inf") if value > 0 else float("-inf")


def _journal_tail(path: Path) -> tuple[str, int, set[str]]:
    """Hash of the newest entry, the number of the next, and the actions that were ever applied."""
    from stabilizer.runs.reader import read_records

    entries: list[Action] = read_records(path, Action).records
    applied = {entry.action for entry in entries if entry.entry == "applied"}
    return (entries[-1].hash, entries[-1].n + 1, applied) if entries else ("", 0, applied)


def _shortened(sample: Sample) -> Sample:
    """A sample that fits a line; tokens are kept only where they still make up the completion."""
    prompt, completion = _capped(sample.prompt), _capped(sample.completion)
    if completion != sample.completion:
        return replace(sample, prompt=prompt, completion=completion, tokens=(), logps=())
    return replace(sample, prompt=prompt, completion=completion)


def _capped(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[: MAX_TEXT // 2]} [… {len(text) - MAX_TEXT} characters left out …] {text[-MAX_TEXT // 2 :]}"
