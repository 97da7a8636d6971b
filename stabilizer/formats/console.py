"""Lines of a captured console without their wrapping, and the failures they report.

Trainers print through Ray (`(TaskRunner pid=12) `, `[repeated 4x across cluster]`), through terminals (ANSI colours,
progress bars that return to the start of the line), and some services keep the console as JSON, a list of
`{"stream_name": ..., "data": ...}`. This module removes all of that. `MAX_LINE` bounds the memory: a longer line is cut
and marked as not whole.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from stabilizer.core.failures import KINDS, kind_of
from stabilizer.core.records import Event
from stabilizer.formats.rows import KEPT, assemble, number
from stabilizer.runs.history import History
from stabilizer.runs.loaded import LoadedRun, NoMetrics, Source
from stabilizer.runs.reader import RunError
from stabilizer.troubles import search as troubles
from stabilizer.troubles.search import Found
from stabilizer.troubles.trouble import BARE_CHECK, CODE

MAX_LINE = 4_000_000
"""Characters of a line that are kept; a step's metrics take some thousands."""

HEAD = 16_000_000
"""Bytes in which the first line of metrics must stand for a file to be recognised as a trainer's console."""

LARGEST_LINE = 1 << 28
"""Longest line of a log, in characters. Reading stops there, because no log has such a line."""

LARGEST_WITHOUT_A_STEP = 1 << 28
"""Largest file without metrics, in bytes, that is searched for a failure."""

DOCUMENTS = {".md", ".markdown", ".rst", ".adoc", ".html", ".htm", ".tex"}
SOURCES = {".py", ".sh", ".js", ".c", ".cpp", ".cu", ".rs", ".go", ".yaml", ".yml", ".toml", ".ini", ".cfg"}
"""Texts about runs, not logs. A failure that they mention is not one."""

_CHUNK = 1 << 20
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])")
_RAY = re.compile(
    r"^\s?(?:[(\[](?:[^()\[\]\s](?:[^()\[\]]|\([^()]{0,60}\)){0,80} )?pid=\d+(?:, ip=[^()\s]{1,60})?[)\]]\s?){1,3}"
)
"""Ray's prefix of a line, and those of an engine's processes behind it: `(Engine pid=7) (EngineCore_DP0 pid=9) `. An
actor may have a name with parentheses, as `ActorWorker(reference-0)`; SkyRL writes brackets."""
_HOST = re.compile(r"^(?:\d{1,3}(?:\.\d{1,3}){3}: ?|\[\d{1,6},\d{1,6}\]<std(?:err|out)>:)")
"""The prefix of a line by DeepSpeed's launcher on several machines, or by MPI."""
_RANK = re.compile(r"^\[(?:rank|default)\d{1,6}\]:? ?")
_LOGGER = re.compile(r"^ERROR \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./]{1,80}:\d{1,6}\] ?")
"""vLLM's prefix of every line of a traceback."""
_REPEATED = re.compile(r"\[repeated \d{1,9}x across cluster\].*$")
WRAPPED = ('[{"stream_name"', ',{"stream_name"', '{"stream_name"')


class Line(NamedTuple):
    """One line of the console. `whole` is false where the writer was cut off, or the line is over `MAX_LINE`."""

    number: int
    text: str
    whole: bool


def lines(path: Path) -> Iterator[Line]:
    """The lines of a console log. Each state of a progress bar is a line of its own."""
    for line in _unwrapped(path):
        yield from pieces(line)


def pieces(line: Line) -> Iterator[Line]:
    """What was printed in one line of the file, without its wrapping."""
    text = _ANSI.sub("", line.text) if "\x1b" in line.text else line.text
    parts = text.split("\r") if "\r" in text else (text,)
    last = len(parts) - 1
    for place, part in enumerate(parts):
        if part:
            yield Line(line.number, _plain(part), line.whole or place < last)


def head(path: Path) -> bytes:
    """The beginning of a regular file, read once for all readers that are asked about it; b"" when it can't be."""
    try:
        known = path.stat()
        return _head(path, known.st_mtime_ns, known.st_size) if path.is_file() else b""
    except OSError:
        return b""


@lru_cache(maxsize=2)
def _head(path: Path, _changed: int, _size: int) -> bytes:
    with path.open("rb") as file:
        raw = file.read(HEAD)
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # as a Windows shell redirects
        return raw.decode("utf-16", "replace").encode("utf-8", "replace")
    return raw.removeprefix(codecs.BOM_UTF8)


def _plain(text: str) -> str:
    if ": " in text[:20] or "<std" in text[:20]:
        text = _HOST.sub("", text, count=1)
    if "pid=" in text[:160]:
        text = _RAY.sub("", text, count=1)
    if text[:1] == "[":
        text = _RANK.sub("", text, count=1)
    if text.startswith("ERROR "):
        text = _LOGGER.sub("", text, count=1)
    if "across cluster]" in text:
        text = _REPEATED.sub("", text)
    return text.rstrip()


def _raw(path: Path) -> Iterator[Line]:
    with path.open("rb") as file:
        utf16 = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    number, held, dropping, dropped = 1, "", False, 0
    with path.open(encoding="utf-16" if utf16 else "utf-8-sig", errors="replace", newline="") as file:
        while chunk := file.read(_CHUNK):
            *full, rest = (held + chunk).split("\n")
            for text in full:
                if not dropping:
                    yield Line(number, text[:MAX_LINE], len(text) <= MAX_LINE)
                dropping, dropped = False, 0
                number += 1
            held = "" if dropping else rest
            if len(held) > MAX_LINE:
                if not dropping:
                    yield Line(number, held[:MAX_LINE], False)
                dropped += len(held)
                held, dropping = "", True
            elif dropping:
                dropped += len(rest)
            if dropped > LARGEST_LINE:
                todo = f"; cut it with `head -n {number - 1}` and give what is left" if number > 1 else "; is it one?"
                raise RunError(f"{path}: line {number} has more than {LARGEST_LINE:,} characters, as no log has{todo}")
    if held and not dropping:
        yield Line(number, held, False)


def _unwrapped(path: Path) -> Iterator[Line]:
    """Lines as they were printed, taken out of the JSON that some services keep them in."""
    held = ""
    number = 0
    for line in _raw(path):
        if not line.text.startswith(WRAPPED):
            yield line
            continue
        number = line.number
        try:
            entry, _ = json.JSONDecoder().raw_decode(line.text, line.text.index("{"))
            data = entry["data"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if isinstance(data, str):
            *full, held = (held + data)[-MAX_LINE:].split("\n")
            for text in full:
                yield Line(number, text, True)
    if held:
        yield Line(number, held, False)


# A quoted text ends at the first quote without a backslash before it, so each character is read once.
_ITEM = re.compile(
    r"(?:'((?:[^'\\]|\\.){1,300}+)'|\"((?:[^\"\\]|\\.){1,300}+)\"): "
    r"(?:(?:'((?:[^'\\]|\\.){0,100}+)'|\"((?:[^\"\\]|\\.){0,100}+)\")|([^,{}]{0,100}+))(?:,\s+|\}|$)"
)


def python_dict(text: str) -> dict[str, str | None]:
    """The items of a flat dictionary as Python prints it, values as text: numbers may be quoted or `nan`."""
    found: dict[str, str | None] = {}
    for match in _ITEM.finditer(text, 1):
        key, other_key, single, double, bare = match.groups()
        value = bare.strip() if bare is not None else single if single is not None else double
        found[key or other_key] = None if value == "None" else value
    return found


# --- failures ------------------------------------------------------------------------------------------------------

_EXCEPTION = re.compile(
    r"^(?:\[rank\d+\]:? ?)?"
    r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Timeout|Died))(?=[:(]|$)(.*)$"
)
_LOGGED = re.compile(
    r"^(?=[^\n]{0,40}\d\d:\d\d:\d\d)[^\n]{0,200}?[\]:] ((?:[A-Za-z_]\w*\.){0,6}[A-Za-z_]\w*(?:Error|Exception))(: .*)$"
)
"""An exception that a logger printed behind its time and place."""
_RAISED = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Z]\w*|(?:[A-Za-z_]\w*\.){1,6}[a-z]\w*(?=: ))(: .*|:)?$")
"""The last line of a traceback, whatever the exception is called."""
_FRAME = re.compile(r'^\s+File "([^"]{1,500})", line (\d+)(?:, in (\S{1,200}))?')
_DUMPED = re.compile(r'^\s+File "([^"]{1,500})", line (\d+) in (\S{1,200})')
"""A frame of Python's faulthandler, which prints the innermost first."""
_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+[^\n]{0,80}\(most recent call first\):")
_FATAL = "Fatal Python error: "
_CELL_FRAME = re.compile(r"^(?:File )?(~?[^\s:]{1,300}\.py):(\d+)(?:, in (\w{1,200}))?")
_OWN_CELL = re.compile(r"^(Cell In ?\[\d{1,6}\]), line (\d{1,6})(?:, in (\w{1,200}))?")
_OLD_CELL_FRAME = re.compile(r"^(\S{1,300}\.py|<ipython-input-[\w-]{1,80}>) in (<[^>]{1,60}>|\w{1,200})")
"""The frames of a notebook's tracebacks, in three generations."""
_CODE_LINE = re.compile(r"^(?: {4,12}|-{1,4}> ?\d{1,6} {1,40})(?=[^\s~^\d])(.{1,300})")
"""The line of code of a frame, of Python's tracebacks or a notebook's."""
_LIBRARY = re.compile(r"site-packages|dist-packages|[/\\]lib[/\\]python3|<frozen|importlib|^/usr/lib")
"""Paths of installed code: a frame elsewhere is the user's own."""
_LAST_FRAMES = 8
"""Innermost frames that a known trouble may name."""
_MOST_OF_ONE = 3
"""How often one known trouble is kept as an event of its own."""
_ENOUGH = 80_000_000
"""Characters times patterns (about a second) after which only lines that look like failures are searched, and after as
much again none: a log of 60,000 lines needs this much, a hostile text thousands of times that."""
_SUSPICIOUS = re.compile(
    r"Traceback|Error|Exception|Fatal|Interrupt|out of memory|oom-kill|unexpectedly|SIG|Segmentation|timeout|not finite"
)
_MARKED = re.compile(r"\s*(?:[|>#]|[-*] )")  # a table, a quotation, a heading or a list: text about a failure
_TOLD = re.compile(r".{0,60}?\b(?:INFO|DEBUG)\b(?!.{0,200}Error)")
"""A line whose writer says that nothing failed."""
_NOT_FINITE = re.compile(r"grad_norm is not finite", re.I)
KIND_OF_TROUBLE = {
    "out-of-memory": "oom", "config-error": "config-error", "infrastructure": "worker-death",
    "program-error": "traceback",
}  # fmt: skip
"""The kind of failure of a known trouble."""
_MOST = 10_000
"""Most failures that are examined; later ones are hardly of another kind."""


def _frame_in(text: str) -> tuple[str, str, str] | None:
    """File, line and function of a frame of a traceback."""
    if match := _FRAME.match(text) or _CELL_FRAME.match(text) or _OWN_CELL.match(text):
        return match[1], match[2], match[3] or ""
    match = _OLD_CELL_FRAME.match(text)
    return (match[1], "", match[2]) if match else None


_SUPPOSED = re.compile(r"(?:^|\s)#\s|\b(?:if|when|in case|avoid|prevent|against)\b[^.;]{0,40}$", re.I)
"""Words before a failure's name that make it one that may come: a comment in code, a condition, an advice."""


def _happened(match: re.Match[str] | None) -> bool:
    """Whether a failure is reported and not only spoken of."""
    return match is not None and not _SUPPOSED.search(match.string[: match.start()])


def _explains(trouble: Found, event: Event) -> bool:
    """Whether a trouble explains a failure: a remark about a frame explains none whose kind is known."""
    return trouble.trouble.severity != "info" or event.data["failure"] == "traceback"


class Failures:
    """Collects the failures that a console reports, as events with their kind in `data["failure"]`.

    It is fed line by line. A traceback's last exception is its cause, so it is reported at the end of the traceback. A
    failure is a fact of the log, not a verdict: a run may survive one, for example in a reward function. In `talk`, a
    text about failures, only a whole traceback counts.
    """

    def __init__(self, talk: bool = False, packages: Mapping[str, str] | None = None) -> None:
        self._talk = talk
        self._packages = packages or {}
        self.count = 0
        self.not_finite = 0
        self.trainer = ""
        """The trainer whose code appeared in a traceback; empty for none."""
        self._inside = False
        self._found: tuple[int, str] | None = None
        self._raised = ""
        self._frames: list[str] = []
        self._user_frame = ""
        self._trouble: Found | None = None
        """The best explanation among the lines of the open traceback."""
        self._dump: list[str] | None = None
        """The frames of the thread in which the interpreter stopped, the innermost last; None outside such a report."""
        self._told: Counter[str] = Counter()
        self._spent = 0

    def see(self, line: Line) -> Event | None:
        """The failure that this line completes, or None."""
        text = line.text
        if self._dump is not None:
            return None if self._of_dump(text) else self._after_dump(line)
        self._headless(text)
        trouble = self._search(text)
        if self._inside:
            belongs = self._in_traceback(line)
            if belongs or not self._found:  # what follows the exception may be another's report of it
                self._trouble = troubles.best([found for found in (self._trouble, trouble) if found])
            if belongs:
                return None
            if self._found and (ended := self.close()):
                return ended
        event = self._outside(line)
        if trouble is None or self._talk or (self._inside and event is None):
            return event
        return self._known(event, trouble, line)

    def _of_dump(self, text: str) -> bool:
        """Take a line of the threads that the interpreter prints when it stops."""
        if match := _DUMPED.match(text):
            file, line, function = match.groups()
            if len(self._dump or ()) < _LAST_FRAMES:
                self._dump = [f"{file} {function}", *(self._dump or ())]
            self._raised = self._raised or f"{file}, line {line}"
            self._program(file)
            return True
        if match := _THREAD.match(text):
            if match[1] == "Current thread":
                self._dump, self._raised = [], ""
            return True
        return not text

    def _after_dump(self, line: Line) -> Event | None:
        """The failure whose threads were printed; without one, what the line after them says."""
        ended, then = self.close(), self.see(line)
        return ended or then

    @staticmethod
    def takes(text: str) -> bool:
        """Whether a line is a frame or an exception: numbers in it are no metrics."""
        raised = _EXCEPTION.match(text)
        return bool(_FRAME.match(text)) or bool(raised and number(raised[2].lstrip(": ")) is None)

    def _search(self, text: str) -> Found | None:
        """The known trouble in a line, within the time that a log may take."""
        if self._spent > 2 * _ENOUGH or (self._spent > _ENOUGH and not (self._inside or _SUSPICIOUS.search(text))):
            return None
        found, cost = troubles.look(text, tuple(self._frames))
        self._spent += cost
        return found

    def _headless(self, text: str) -> None:
        """A frame whose traceback was copied without its head begins one."""
        if not (self._inside or self._talk) and (_FRAME.match(text) or _OWN_CELL.match(text)):
            self._begin()

    def _in_traceback(self, line: Line) -> bool:
        """Take a line of the open traceback; False for one that does not belong to it."""
        text = line.text
        if frame := _frame_in(text):
            self._frame(*frame)
            return True
        if self._code(text):
            return True
        if match := _EXCEPTION.match(text) or (_RAISED.match(text) if self._frames else None):
            self._found = line.number, match[1] + (match[2] or "")
            return True
        return not text or text[0] in " \t[" or "Traceback" in text or text.startswith(("During ", "The above "))

    def _code(self, text: str) -> bool:
        """Take the line of code of the last frame."""
        code = _CODE_LINE.match(text) if self._frames and CODE not in self._frames[-1] else None
        if code:
            self._frames = [*self._frames[:-1], self._frames[-1] + CODE + code[1]]
        return code is not None

    def _known(self, event: Event | None, trouble: Found, line: Line) -> Event | None:
        """The event of a line in which a known trouble shows, outside a traceback."""
        one = trouble.trouble
        data: dict[str, Any] = {"trouble": one.id, "values": trouble.values}
        if event is not None:
            return replace(event, data={**event.data, **data})
        told = f"{one.id} {trouble.values.get('op', '')}"  # of a watchdog, each kind of collective
        self._told[told] += 1
        if self._told[told] > _MOST_OF_ONE or _NOT_FINITE.search(
            line.text
        ):  # such lines are counted, the first is kept
            return None
        short = line.text.strip()[:400]
        data |= {"line": line.number, "message": short}
        if one.severity == "critical" and not _TOLD.match(line.text):
            data["failure"] = KIND_OF_TROUBLE[one.kind]
        return Event(step=0, kind="note", text=f"line {line.number}: {short}", data=data)

    def _outside(self, line: Line) -> Event | None:
        """The failure in a line that belongs to no traceback, or the beginning of one."""
        text = line.text
        if not _SUSPICIOUS.search(text):
            return None
        if "Traceback (most recent call last)" in text:
            self._begin()
        elif self._talk or _MARKED.match(text):
            return None
        elif text.startswith(_FATAL):
            self._begin()
            self._found, self._dump = (line.number, text), []
        elif _NOT_FINITE.search(text):
            self.not_finite += 1
            if self.not_finite == 1:
                return self._event(line.number, text[-200:], "non-finite-gradient")
        elif match := _EXCEPTION.match(text) or _LOGGED.match(text):
            return self._event(line.number, match[1] + match[2])
        elif any(_happened(KINDS[kind].search(text)) for kind in ("oom", "worker-death")):
            return self._event(line.number, text)
        return None

    def _begin(self) -> None:
        """A traceback begins."""
        self._inside, self._raised, self._trouble = True, "", None
        self._frames, self._user_frame = [], ""

    def pending(self) -> list[Event]:
        """The failure that is still open when a row of metrics follows or the log ends."""
        event = self.close()
        return [event] if event else []

    def close(self) -> Event | None:
        """The failure still open at the end of a traceback or of the log."""
        found, self._found, self._inside = self._found, None, False
        event = self._event(*found) if found else None
        trouble, self._trouble = self._trouble, None
        dump, self._dump = self._dump, None
        frames = tuple(self._frames if dump is None else dump)
        if event and dump is not None:
            trouble = troubles.in_line(event.data["message"], frames)
        if event and trouble and trouble.trouble.consequence and not troubles.in_line(event.data["message"], frames):
            trouble = None  # a report further up announces this exception, which says more
        if event and event.data["failure"] == "traceback" and (trouble is None or trouble.trouble.id == BARE_CHECK):
            trouble = troubles.at_place(frames, event.data.get("user_frame", "")) or trouble
        if event and trouble and _explains(trouble, event):
            event = replace(event, data={**event.data, "trouble": trouble.trouble.id, "values": trouble.values})
        return event

    def _event(self, number: int, text: str, kind: str | None = None) -> Event | None:
        self.count += 1
        if self.count > _MOST:
            return None
        short = text.strip()[:400]
        raised, self._raised = self._raised, ""
        user, self._user_frame = self._user_frame, ""
        said: dict[str, Any] = {"failure": kind or kind_of(text), "line": number, "message": short}
        said |= {key: value for key, value in (("raised", raised), ("user_frame", user)) if value}
        return Event(step=0, kind="note", text=f"line {number}: {short}", data=said)

    def _frame(self, file: str, line: str, function: str) -> None:
        """A frame of the traceback; the last one is where the exception was raised."""
        self._raised = f"{file}, line {line}" if line else file
        if not _LIBRARY.search(file):
            self._user_frame = self._raised + (f", in {function}" if function else "")
        self._frames = [*self._frames[1 - _LAST_FRAMES :], f"{file} {function}"]
        self._program(file)

    def _program(self, file: str) -> None:
        """The trainer by a file of its code."""
        parts = set(re.split(r"[/\\.]", file.lower()))
        self.trainer = self.trainer or next((name for package, name in self._packages.items() if package in parts), "")

    def notes(self) -> list[str]:
        """Notes on the failures as a whole."""
        said = []
        if self.not_finite:
            said.append(f"{self.not_finite} updates skipped by the trainer: 'grad_norm is not finite'")
        said += [f"{told.strip()} is in {times} lines" for told, times in self._told.items() if times > _MOST_OF_ONE]
        if self.count > KEPT:
            said.append(f"{self.count} failures in the log, the first {KEPT} and the last are kept as events")
        return said


class ConsoleParser:
    """Base of console parsers: rows of metrics and failures in the order in which they were printed."""

    def __init__(self) -> None:
        self._entries: list[Any] = []
        self._failures = Failures()
        self.planned: int | None = None
        """Steps of the whole run, where the log tells."""
        self.torn = 0
        """Lines or tables of metrics that end too early."""

    def inside(self) -> bool:
        """Whether a step's metrics are begun and not ended."""
        return False

    def remarks(self) -> list[str]:
        """What the user should know about the numbers."""
        return []

    def see(self, line: Line) -> None:
        """The next line: metrics, or perhaps a failure."""
        raise NotImplementedError

    def fork(self) -> Self:
        """A copy that can be fed without changing this one."""
        other = copy(self)
        for name, value in vars(self).items():
            setattr(other, name, copy(value))
        return other

    def ended(self) -> tuple[list[Any], list[str]]:
        """Rows and failures so far as if the log ended here, and notes on the failures."""
        failures = copy(self._failures)
        return [*self._entries, *failures.pending()], failures.notes()

    def _row(self, step: int, values: dict[str, float]) -> None:
        self._entries += [*self._failures.pending(), (step, values)]

    def _other(self, line: Line) -> Event | None:
        """Take a line without metrics; returns the failure that it completes, or None."""
        event = self._failures.see(line)
        if event:
            self._entries.append(event)
        return event


def document(path: Path) -> LoadedRun:
    """A document that was given instead of a log, as a run without steps and failures."""
    note = "a document and not a log: give the file or folder that the trainer wrote"
    source = Source("document", "unknown", (str(path),), 0, notes=(note,))
    return LoadedRun(path.name, source, {0: History({"run": path.name}, step=0)}, [])


def failed_run(path: Path, packages: Mapping[str, str]) -> LoadedRun | None:
    """A file without a number that holds a failure: a run of no steps. Large and binary files are none.

    `packages` maps folders of a trainer's code to the trainer.
    """
    start = head(path)[:4096]
    if b"\0" in start or path.stat().st_size > LARGEST_WITHOUT_A_STEP:
        return None
    failures = Failures(path.suffix.lower() in DOCUMENTS | SOURCES, packages)
    events = [event for line in lines(path) if (event := failures.see(line))] + failures.pending()
    try:
        trainer = failures.trainer or "unknown"
        return assemble(path.stem, format="console", trainer=trainer, files=[path], rows=events, about={})
    except NoMetrics as told:
        return told.run
    except RunError:
        return None
