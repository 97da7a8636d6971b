"""Copies a run directory to other tools while it grows: one thread a tool, which reads files and nothing else.

The run directory is the buffer: a tool that raises or hangs costs its own thread, neither memory nor time of the
training. What was not copied is copied when the tool works again, or later by `stabilizer watch RUN --to TOOL`; how far
a tool got is in `sinks/TOOL/copied.json` of the run.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import orjson

from stabilizer.core.records import Finding, RecordError, decode, decode_metrics
from stabilizer.core.settings import flat
from stabilizer.output.sinks import Place, Sink, chosen
from stabilizer.runs.reader import Tail, read_json
from stabilizer.runs.secrets import redacted

ENVIRONMENT = "STABILIZER_SINKS"
"""Names tools, separated by commas, for guests that are built without arguments."""
POLL_S = 1.0
"""Seconds between looks at the files."""
RETRY_S = 30.0
"""Seconds without the tool after it failed."""
CLOSING_S = 5.0
"""Longest wait at the end for what is not copied yet, for all tools of a run together."""
COPIED = ("open", "resolved")
"""States of findings that are copied."""


class Mirror:
    """One tool that gets one run."""

    def __init__(self, run: Path, asked: str, report: Callable[[str], None]):
        self._asked = asked
        self.name, self._kind, self._where = chosen(asked)
        self._run, self._report = run, report
        place = f"-{zlib.crc32(self._where.encode()):08x}" if self._where else ""  # each has its own cursor
        self._folder = run / "sinks" / (self.name + place)
        self._cursor = self._folder / "copied.json"
        self._sink: Sink | None = None
        self._tails: dict[str, Tail] = {}
        self._known: dict[tuple[int, str], tuple[str, str]] = {}
        """State and severity of each finding that was copied; open ones are written again every 20 steps."""
        self._said: set[str] = set()
        self._not_before = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"stabilizer-{self.name}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Copy what is left, then close the tool."""
        self._ending.set()

    def join(self, seconds: float) -> bool:
        """Wait for the end; whether it came."""
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    def _work(self) -> None:
        self._tails = {name: Tail(self._run / name, offset) for name, offset in self._reached().items()}
        while True:
            ending = self._ending.is_set()
            if ending or time.monotonic() >= self._not_before:
                self._try(self._copy)
            if ending:
                break
            self._ending.wait(POLL_S)
        if self._sink is not None:
            self._try(self._sink.close)

    def _try(self, work: Callable[[], object]) -> None:
        """Do a piece of work. After a failure the tool is made again later, and gets the piece again."""
        before = {name: tail.offset for name, tail in self._tails.items()}
        try:
            work()
        except (Exception, SystemExit) as error:  # some tools end their thread
            for name, tail in self._tails.items():
                tail.offset = before.get(name, 0)
            self._sink, self._not_before = None, time.monotonic() + RETRY_S
            self._say(f"{type(error).__name__}: {error}")

    def _say(self, why: str) -> None:
        if why not in self._said:
            self._said.add(why)
            again = f"stabilizer watch {self._run} --to {self._asked}"
            self._report(f"stabilizer: {self.name}: {why}; it is tried again, and `{again}` copies the rest later")

    def _copy(self) -> None:
        """Copy what is new."""
        if self._sink is None:
            about = read_json(self._run / "run.json")
            config = flat(redacted(about.get("config") or {}))
            self._folder.mkdir(parents=True, exist_ok=True)
            self._sink = self._kind.make(
                Place(str(about.get("run") or self._run.name), self._folder, config, self._where)
            )
        copied = sum([self._rows(self._sink, name) for name in self._files()])
        if copied + self._incidents(self._sink):
            self._keep()

    def _files(self) -> Iterable[str]:
        """The files of the main process, attempt by attempt."""
        found = [path.name for path in (self._run / "metrics").glob("r0-a*.jsonl")]
        return [f"metrics/{name}" for name in sorted(found, key=lambda name: (len(name), name))]

    def _tail(self, name: str) -> Tail:
        return self._tails.setdefault(name, Tail(self._run / name))

    def _rows(self, sink: Sink, name: str) -> int:
        count = 0
        for line in self._tail(name).lines():
            try:
                record = decode_metrics(line)
            except RecordError:
                continue
            sink.row(record.step, record.t, record.values)
            count += 1
        return count

    def _incidents(self, sink: Sink) -> int:
        count = 0
        for line in self._tail("findings.jsonl").lines():
            try:
                finding: Finding = decode(Finding, line)
            except RecordError:
                continue
            now = (finding.state, finding.severity)
            if finding.state in COPIED and self._known.get((finding.incident, finding.id)) != now:
                sink.incident(finding)
                self._known[finding.incident, finding.id] = now
                count += 1
        return count

    def _reached(self) -> dict[str, int]:
        """How far each file was copied, by this process or an earlier one."""
        try:
            kept = orjson.loads(self._cursor.read_bytes())
            return {str(name): int(offset) for name, offset in kept.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _keep(self) -> None:
        part = self._cursor.with_suffix(".part")
        part.write_bytes(orjson.dumps({name: tail.offset for name, tail in self._tails.items()}))
        part.replace(self._cursor)


def mirrors(run: Path, asked: Iterable[str] | None, report: Callable[[str], None]) -> list[Mirror]:
    """A mirror for each tool. None takes those of the environment, where a wrong one is reported and left out."""
    if asked is not None:
        return [Mirror(run, name, report) for name in asked]
    found = []
    for name in filter(None, os.environ.get(ENVIRONMENT, "").split(",")):
        try:
            found.append(Mirror(run, name.strip(), report))
        except (ValueError, ImportError) as error:
            report(f"stabilizer: {ENVIRONMENT}: {error}")
    return found


def end(running: Iterable[Mirror], seconds: float = CLOSING_S) -> None:
    """Let all copy what is left, and wait for them a bounded time."""
    running, until = list(running), time.monotonic() + seconds
    for mirror in running:
        mirror.end()
    for mirror in running:
        mirror.join(until - time.monotonic())
