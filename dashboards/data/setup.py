"""What a run was made with, and what its metrics did: read for the page Setup."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from dashboards.data.followed_run import FollowedRun
from stabilizer.analysis.changes import Change, changes
from stabilizer.analysis.normal import Normal, normal
from stabilizer.core.settings import flat

MOST_SETTINGS = 2_000
"""Settings that are shown; a configuration with more is searched by its file."""
LONGEST = 400
"""Characters of a value that are shown."""


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


def setup_of(followed: FollowedRun) -> Setup:
    """The setup of a run; whatever makes its directory unreadable is raised."""
    with followed.lock:
        reader = followed.refresh()
        about, view = reader.history.about, reader.history.view()
        found, usual = tuple(changes(view)), tuple(normal(view))
    argv = about.get("argv")
    words = [str(word) for word in argv] if isinstance(argv, list) else []
    ours = ["stabilizer"] if about.get("trainer") == "stabilizer" else []  # a guest's has its program
    command = shlex.join([*ours, *words]) if words else ""
    report = shlex.join(["stabilizer", "report", str(followed.path)])
    return Setup(tuple(_facts(about)), command, report, settings(about), found, usual)


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
