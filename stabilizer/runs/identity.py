"""What a run is: its id, what `run.json` says of it, and which process may write it."""

from __future__ import annotations

import fcntl
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Required, TypedDict, Unpack

from stabilizer.core.json_text import MAX_NESTING, too_deep
from stabilizer.core.records import SCHEMA
from stabilizer.core.version import __version__
from stabilizer.runs.secrets import redacted, redacted_words


class RunFacts(TypedDict, total=False):
    """What is known of a run when it begins."""

    config: Required[Mapping[str, Any]]
    task: str
    trainer: str
    steps: int | None
    """Planned steps."""
    clock: str
    """What a step is: `rollout_batch` or `optimizer_step`."""
    versions: Mapping[str, str] | None
    metrics: Mapping[str, Any] | None
    """Definitions of metrics, by name."""
    argv: Sequence[str] | None
    """The command line; that of this process when not given."""
    inputs: Mapping[str, str] | None
    """sha256 of each file that the run reads, by path, as it was when the run began."""
    created: float | None
    """When the run began, in seconds since the epoch; now when not given."""
    imported: Mapping[str, Any] | None
    """What is known of the log that the run was made from."""


def new_run_id(task: str, when: float | None = None) -> str:
    """An id that sorts by time and names the task."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(when))
    words = re.sub(r"[^a-z0-9]+", "-", task.lower()).strip("-") or "run"
    return f"{stamp}-{words}-{os.urandom(2).hex()}"


def description(path: Path, **facts: Unpack[RunFacts]) -> dict[str, Any]:
    """What `run.json` of a new run says. ValueError when no reader would take it."""
    config, metrics = facts["config"], facts.get("metrics")
    if too_deep([[config, metrics]]):  # two levels, as they have in `run.json`
        raise ValueError(
            f"{path}: the configuration is nested more than {MAX_NESTING - 2} levels deep; give a flatter one"
        )
    created = facts.get("created")
    about = {
        "schema": SCHEMA,
        "run": path.name,
        "task": facts.get("task", ""),
        "trainer": facts.get("trainer", "stabilizer"),
        "steps": facts.get("steps"),
        "clock": facts.get("clock", "rollout_batch"),
        "created": time.time() if created is None else created,
        "config": redacted(config),
        "versions": {"stabilizer": __version__, **(facts.get("versions") or {})},
        "attempts": [{"attempt": 0, "from_step": 0, "parent": None, "reason": "start"}],
        "metrics": dict(metrics or {}),
    }
    if inputs := facts.get("inputs"):
        about["inputs"] = dict(inputs)
    if imported := facts.get("imported"):
        return about | {"imported": dict(imported)}  # it trained elsewhere
    about["versions"] = {"python": platform.python_version(), **about["versions"]}
    return about | _of_this_process(facts.get("argv"))


def _of_this_process(argv: Sequence[str] | None) -> dict[str, Any]:
    """Where a run trains, and by which command."""
    git = git_state(Path.cwd())
    return {
        "hardware": {"machine": platform.machine(), "cpus": os.cpu_count(), "system": platform.system()},
        "argv": redacted_words(sys.argv[1:] if argv is None else argv),
    } | ({"git": git} if git else {})


GIT_S = 3.0
"""Longest wait for git, in seconds: a repository on a slow disk must not delay a run."""


def git_state(folder: Path) -> dict[str, Any]:
    """Commit, branch and whether files differ from it, of the repository around a folder; empty without one."""
    if not any((above / ".git").exists() for above in (folder, *folder.parents)):
        return {}

    def asked(*words: str) -> str:
        command = ["git", "-c", "core.fsmonitor=false", *words]  # a repository's own programs are not started
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=GIT_S, check=True)  # noqa: S603
        return done.stdout.strip()

    try:
        commit, branch = asked("rev-parse", "HEAD"), asked("rev-parse", "--abbrev-ref", "HEAD")
        dirty = bool(asked("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"commit": commit, "branch": branch, "dirty": dirty}


def newest_attempt(path: Path, about: Mapping[str, Any]) -> int:
    """The attempt a run continues from. ValueError where `run.json` names none, or a file of a later one has rows:
    continuing would mix two attempts in one file."""
    try:
        numbers = [entry["attempt"] for entry in about["attempts"]]
        newest = max(numbers)
    except (KeyError, TypeError, ValueError):
        numbers, newest = [None], -1
    if not all(type(number) is int for number in numbers):
        raise ValueError(f"{path / 'run.json'}: names no attempt to go on from; restore it or start a new run")
    later = [file for file in (path / "metrics").glob("r0-a*.jsonl") if _attempt_of(file) > newest]
    if rows := [file.name for file in later if file.stat().st_size]:
        raise ValueError(
            f"{path / 'run.json'}: its newest attempt is {newest}, and {rows[0]} holds rows of a later one: restore it,"
            " because continuing would mix the two"
        )
    return int(newest)


def _attempt_of(metrics: Path) -> int:
    number = metrics.stem.partition("-a")[2]
    return int(number) if number.isdecimal() else -1


def claim(path: Path) -> int:
    """Lock the run against every other process of this machine, until the handle that is returned is closed.

    A heartbeat is not enough: two processes may start in the same second, and a long step has none for minutes.
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
