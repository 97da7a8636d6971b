"""What a run was made with, and what its metrics did: read for the page Setup."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from dashboards.data.followed_run import FollowedRun
from stabilizer.analysis.changes import Change, changes
from stabilizer.analysis.normal import Normal, normal
from stabilizer.core.settings import flat
from stabilizer.core.text import plain
from stabilizer.runs.secrets import redacted_text

MOST_SETTINGS = 2_000
"""Settings that are shown; a configuration with more is searched by its file."""
LONGEST = 400
"""Characters of a value that are shown."""
MOST_STATES = 30
"""Newest checkpoints that are named."""
MOST_LINES = 40
"""Last lines of a log that are shown."""
TEXTS = (".log", ".txt", ".out")
"""Endings of log files that people read as text."""


@dataclass(frozen=True)
class Setup:
    """All that the page shows of a run."""

    facts: tuple[tuple[str, str], ...]
    command: str
    """What the run was started with; empty where that is not known."""
    report: str
    """The command that writes a report of it."""
    config: Mapping[str, str]
    """Key with dots -> value as text."""
    changes: tuple[Change, ...]
    normal: tuple[Normal, ...]
    log: str = ""
    """The last lines of a log file of text."""


def setup_of(followed: FollowedRun) -> Setup:
    """The setup of a run; whatever makes its directory unreadable is raised."""
    with followed.lock:
        reader = followed.refresh()
        about, view = reader.history.about, reader.history.view()
        found, usual = tuple(changes(view)), tuple(normal(view))
        saved = ", ".join(f"{event.step:,}" for event in reader.checkpoints()[-MOST_STATES:])
    argv = about.get("argv")
    words = [str(word) for word in argv] if isinstance(argv, list) else []
    ours = ["stabilizer"] if about.get("trainer") == "stabilizer" else []  # a guest's has its program
    command = shlex.join([*ours, *words]) if words else ""
    report = shlex.join(["stabilizer", "report", str(followed.path)])
    facts = (*_facts(about), *([("checkpoints", f"after steps {saved}")] if saved else []))
    return Setup(facts, command, report, settings(about), found, usual, _log_end(followed.path))


def _log_end(path: Path) -> str:
    """The last lines of a log, where it is one file of text."""
    if path.suffix not in TEXTS or not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MOST_LINES * LONGEST))
        lines = file.read(MOST_LINES * LONGEST).decode("utf-8", "replace").splitlines()
    return redacted_text(
        "\n".join(line[: len(line) - len(line.lstrip())] + plain(line) for line in lines[-MOST_LINES:])
    )


def settings(about: Mapping[str, Any]) -> dict[str, str]:
    """The configuration with one key per value."""
    return {key: _text(value) for key, value in islice(flat(about.get("config")).items(), MOST_SETTINGS)}


def different(one: Mapping[str, str], other: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(key, value here, value there) where two configurations differ; "–" for a key that is missing."""
    keys = sorted(one.keys() | other.keys())
    return [(key, one.get(key, "–"), other.get(key, "–")) for key in keys if one.get(key) != other.get(key)]


def _text(value: Any) -> str:
    said = value if isinstance(value, str) else repr(value)
    return said if len(said) <= LONGEST else f"{said[:LONGEST]} …"


def _facts(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in ("trainer", "task"):
        if about.get(key):
            yield key, _text(about[key])
    if isinstance(created := about.get("created"), (int, float)):
        yield "begun", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(created))
    git = about.get("git")
    if isinstance(git, Mapping) and git.get("commit"):
        changed = " with uncommitted changes" if git.get("dirty") else ""
        yield "git", f"{_text(git['commit'])[:12]} on {_text(git.get('branch') or 'no branch')}{changed}"
    for group in ("versions", "hardware"):
        values = about.get(group)
        if isinstance(values, Mapping) and values:
            yield group, ", ".join(f"{key} {_text(value)}" for key, value in values.items())
    attempts = about.get("attempts")
    if isinstance(attempts, list) and len(attempts) > 1:
        parts = [f"{a.get('reason')} from step {a.get('from_step')}" for a in attempts if isinstance(a, Mapping)]
        yield "attempts", "; ".join(parts)
