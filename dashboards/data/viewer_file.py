"""What viewers add to runs: names, tags, notes, annotations, archived runs, saved views, alerts. Runs stay untouched.

One file per folder that holds runs, `.viewer.json`, replaced atomically. It is read again when it changes, so several
dashboards over one folder see one another's additions. A file that can't be read adds nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dashboards.data.alerts import MAX_ALERTS, Alert
from dashboards.data.files import modified_ns
from stabilizer.runs.reader import read_json

NAME = ".viewer.json"
MAX_NAME, MAX_NOTE, MAX_TAG, MAX_TAGS = 120, 20_000, 40, 20
"""Characters of a name, a note and a tag, and tags of a run."""
MAX_VIEWS, MAX_QUERY = 100, 4_000
"""Saved views of a folder, and characters of one."""
MAX_ANNOTATIONS, MAX_ANNOTATION = 50, 200
"""Annotations of a run, and characters of one."""
_LOCK = threading.Lock()
LONGEST_WAIT_S = 5.0
"""Longest wait for other dashboards that write the same file. A write takes a few milliseconds."""


@dataclass(frozen=True)
class Annotation:
    """What a viewer wrote at a step, for the charts."""

    step: int
    text: str

    @classmethod
    def read(cls, row: Any) -> Annotation | None:
        """An annotation from a file or a browser; None where it has no step or no text."""
        row = row if isinstance(row, Mapping) else {}
        step, text = row.get("step"), _text(row.get("text"), MAX_ANNOTATION).strip()
        counts = isinstance(step, int) and not isinstance(step, bool) and 0 <= step < 2**53
        return cls(step, text) if counts and text else None

    @classmethod
    def of_line(cls, line: str) -> Annotation | None:
        """An annotation as it is typed: a step and a text."""
        step, _, text = line.strip().partition(" ")
        return cls.read({"step": int(step), "text": text}) if step.isdecimal() and len(step) < 16 else None


@dataclass(frozen=True)
class Remarks:
    """What viewers noted about one run."""

    name: str = ""
    """The name to show instead of the folder's."""
    tags: tuple[str, ...] = ()
    note: str = ""
    archived: bool = False
    annotations: tuple[Annotation, ...] = ()
    """In the order of their steps."""

    @classmethod
    def read(cls, row: Any) -> Remarks:
        """Remarks from a file or a browser; what is malformed is left out."""
        row = row if isinstance(row, Mapping) else {}
        tags = row.get("tags")
        noted = row.get("annotations")
        found = [Annotation.read(one) for one in noted] if isinstance(noted, (list, tuple)) else []
        kept = sorted((one for one in found if one), key=lambda one: one.step)
        words = [str(tag).strip()[:MAX_TAG] for tag in tags] if isinstance(tags, (list, tuple)) else []
        return cls(
            _text(row.get("name"), MAX_NAME).strip(),
            tuple(dict.fromkeys(word for word in words if word))[:MAX_TAGS],
            _text(row.get("note"), MAX_NOTE),
            row.get("archived") is True,
            tuple(kept[:MAX_ANNOTATIONS]),
        )


class ViewerFile:
    """The file of one folder."""

    def __init__(self, folder: Path):
        self.path = folder / NAME
        self._read: tuple[int, dict[str, Any]] | None = None

    def remarks(self, run: str) -> Remarks:
        """What is noted about a run of this folder, by the name of its folder or file."""
        return Remarks.read(self._part("runs").get(run))

    def views(self) -> dict[str, str]:
        """The saved views: name -> query of the address."""
        return {name: query for name, query in self._part("views").items() if isinstance(query, str)}

    def note(self, run: str, remarks: Remarks) -> str:
        """Keep remarks about a run; why that failed, in words, or nothing."""
        row = {key: value for key, value in asdict(remarks).items() if value}
        return self._change("runs", run, row or None)

    def alerts(self) -> dict[str, Alert]:
        """The alerts by their ids."""
        return {id: alert for id, row in self._part("alerts").items() if (alert := Alert.read(row))}

    def keep_alert(self, id: str, alert: Alert | None) -> str:
        """Add an alert, or with None remove it; why that failed, or nothing."""
        if alert is not None and len(self.alerts()) >= MAX_ALERTS:
            return f"there are {MAX_ALERTS} alerts already; remove one first"
        return self._change("alerts", id, asdict(alert) if alert else None)

    def keep_view(self, name: str, query: str | None) -> str:
        """Save a view under a name, or with None remove it; why that failed, or nothing."""
        name = name.strip()[:MAX_NAME]
        if not name:
            return "a view needs a name"
        if query is not None and len(query) > MAX_QUERY:
            return f"the address of this view is longer than {MAX_QUERY:,} characters; select fewer runs"
        if query is not None and name not in self.views() and len(self.views()) >= MAX_VIEWS:
            return f"there are {MAX_VIEWS} views already; delete one first"
        return self._change("views", name, query)

    def _part(self, part: str) -> dict[str, Any]:
        found = self._content().get(part)
        return found if isinstance(found, dict) else {}

    def _content(self) -> dict[str, Any]:
        now = modified_ns(self.path)
        if self._read is None or self._read[0] != now:
            self._read = (now, read_json(self.path) if self.path.is_file() else {})
        return self._read[1]

    def _change(self, part: str, key: str, value: Any) -> str:
        with _LOCK, _alone(self.path.parent) as alone:
            if not alone:
                return f"another process holds {self.path.parent}; try again"
            self._read = None  # another dashboard may have written
            if self.path.exists() and not self._content():
                return f"{self.path} is not a readable JSON object; move it away to start a new one"
            content = {**self._content(), part: {**self._part(part)}}
            if value is None:
                content[part].pop(key, None)
            else:
                content[part][key] = value
            try:
                _replace(self.path, json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True))
            except OSError as error:
                return f"{self.path.parent} can't be written to: {error.strerror or error}"
            self._read = None
            return ""


class ViewerFiles:
    """The files of all folders that hold runs."""

    def __init__(self) -> None:
        self._files: dict[Path, ViewerFile] = {}

    def of(self, run: Path) -> ViewerFile:
        """The file beside a run."""
        return self.inside(run.parent)

    def inside(self, folder: Path) -> ViewerFile:
        """The file in a folder."""
        return self._files.setdefault(folder, ViewerFile(folder))

    def remarks(self, run: Path) -> Remarks:
        """What is noted about a run."""
        return self.of(run).remarks(run.name)

    def archive(self, run: Path, archived: bool) -> str:
        """Archive a run or bring it back; why that failed, or nothing."""
        return self.of(run).note(run.name, replace(self.remarks(run), archived=archived))


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Keep dashboards in other processes from changing the file of a folder; False if one does for too long.

    The folder itself is locked, as no file stays in place. Where a file system knows no locks, none is held.
    """
    with contextlib.ExitStack() as stack:
        alone, until = True, time.monotonic() + LONGEST_WAIT_S
        try:
            handle = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, handle)
            while not (alone := _locked(handle)) and time.monotonic() < until:
                time.sleep(0.01)
        except OSError:
            alone = True
        yield alone


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _replace(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _text(value: Any, most: int) -> str:
    return value[:most] if isinstance(value, str) else ""
