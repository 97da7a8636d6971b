"""What the real command line answers to a pasted text, and which part of it a reader sees first."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.field.cases import Case

LIMIT_S = 60.0
"""Seconds after which an answer counts as none: a busy machine needs a second or two for one."""
TOP_LINES = 16
"""Printed lines that count as the top of a page: half a terminal of 32 rows. A crash has its first fix there."""
PAGE_LINES = 60
"""Printed lines that count as the page; a hint further down is not found by a reader in a hurry."""
ECHO_WORDS = 5
"""Words in a row that an answer shares with the input before they count as quoted from it."""


@dataclass(frozen=True)
class Answer:
    """What was answered. `top` and `page` are without the words that are quoted from the input."""

    readable: bool
    verdict: str = ""
    cause: str = ""
    """The cause that is claimed first, by its name."""
    finding: str = ""
    top: str = ""
    page: str = ""
    error: str = ""


def ask(case: Case, *, from_stdin: bool = True) -> Answer:
    """Run the command twice, for its JSON and for its page, as a user would.

    `from_stdin=False` saves the paste into a file first, for versions that read no standard input.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"paste{case.suffix}"
        path.write_text(case.input, encoding="utf-8")
        name = "-" if from_stdin and case.command == "diagnose" else path.name
        try:
            structured = _run(case, [case.command, name, "--json"], folder)
            printed = _run(case, [case.command, name], folder)
        except subprocess.TimeoutExpired:
            return Answer(readable=False, error=f"no answer within {LIMIT_S:g} s")
    return read_answer(case, structured, printed)


def read_answer(
    case: Case, structured: subprocess.CompletedProcess[str], printed: subprocess.CompletedProcess[str]
) -> Answer:
    """The answer in what the command printed."""
    try:
        data = json.loads(structured.stdout)
    except ValueError:
        data = None
    if structured.returncode not in (0, 1) or not isinstance(data, dict) or "verdict" not in data:
        lines = (structured.stderr or structured.stdout).strip().splitlines()
        return Answer(readable=False, error=lines[-1] if lines else "nothing printed")
    first = _first(data)
    lines = [line for line in printed.stdout.splitlines() if line.strip()]
    fields = "\n".join(_texts(first))
    return Answer(
        readable=True,
        verdict=str(data["verdict"]),
        cause=_cause(first),
        finding=str(first.get("id", "")),
        top=without_echo(f"{fields}\n{_joined(lines[:TOP_LINES])}", case.input),
        page=without_echo(_joined(lines[:PAGE_LINES]), case.input),
    )


def without_echo(answer: str, pasted: str) -> str:
    """The answer without what it quotes: whole short messages, and runs of words that the input has too.

    The quoted words don't show that anything was understood, and error messages contain the words of their cause.
    """
    words, known = _words(answer), _words(pasted)
    keys = [word.lower() for word, _, _ in known]
    runs = {tuple(keys[i : i + ECHO_WORDS]) for i in range(len(keys) - ECHO_WORDS + 1)} | _short_messages(pasted)
    sizes = sorted({len(run) for run in runs}, reverse=True)
    lowered = [word.lower() for word, _, _ in words]
    quoted = [False] * len(words)
    for size in sizes:
        for i in range(len(words) - size + 1):
            if tuple(lowered[i : i + size]) in runs:
                quoted[i : i + size] = [True] * size
    kept = list(answer)
    for (_, start, end), drop in zip(words, quoted, strict=True):
        if drop:
            kept[start:end] = " " * (end - start)
    return re.sub(r"\s+", " ", "".join(kept))


def _short_messages(pasted: str) -> set[tuple[str, ...]]:
    """Lines too short for a run, with and without the name of their exception."""
    found = set()
    for line in pasted.splitlines():
        for part in (line, line.partition("Error: ")[2]):
            words = tuple(word.lower() for word, _, _ in _words(part))
            if 2 <= len(words) < ECHO_WORDS:
                found.add(words)
    return found


def _words(text: str) -> list[tuple[str, int, int]]:
    return [(match[0], *match.span()) for match in re.finditer(r"[\w.\-]*\w", text)]


def _joined(lines: Sequence[str]) -> str:
    """Lines of a page as running text: a phrase may be broken at the margin."""
    return " ".join(line.strip() for line in lines)


def _first(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first finding of the first incident; of a configuration, the first finding."""
    found: Sequence[Mapping[str, Any]] = data.get("findings") or []
    incidents: Sequence[Mapping[str, Any]] = data.get("incidents") or []
    if incidents:
        number = incidents[0].get("incident")
        found = [finding for finding in found if finding.get("incident") == number] or found
    return found[0] if found else {}


def _cause(finding: Mapping[str, Any]) -> str:
    causes = finding.get("causes") or []
    return str(causes[0].get("id", "")) if causes else ""


def _texts(finding: Mapping[str, Any]) -> Iterator[str]:
    """What is said of the finding, its first cause and its first fix."""
    first = [finding, *(finding.get("causes") or [])[:1], *(finding.get("remedies") or [])[:1]]
    for part in first:
        yield from (str(value) for key, value in part.items() if key in _SAID and value)


_SAID = ("summary", "id", "why", "how", "change", "fix", "message_fix", "title", "text", "suggestion")


def _run(case: Case, arguments: Sequence[str], folder: str) -> subprocess.CompletedProcess[str]:
    pasted = case.input if arguments[1] == "-" else None
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"} | {"PYTHONPATH": _python_path()}
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "stabilizer", *arguments],
        cwd=folder, input=pasted, stdin=None if pasted is not None else subprocess.DEVNULL,
        capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False,
    )  # fmt: skip


def _python_path() -> str:
    root = str(Path(__file__).parents[2])
    return os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
