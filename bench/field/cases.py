"""The field set: one file a thread, in `tests/field/open` or `tests/field/unseen`.

A file names a resolved public thread, its cause and its fix, and holds a re-made input: the error lines of the programs
themselves, in surroundings of our own. `solved`, `helped` and `wrong` are lists of alternatives. An alternative is a
list of regular expressions that all have to match the top of an answer.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "tests" / "field"
HALVES = ("open", "unseen")
KINDS = (
    "crash",
    "configuration",
    "hang",
    "memory",
    "odd metrics",
    "collapse",
    "is this normal",
    "versions",
    "reward function",
)
SHAPES = (
    "traceback",
    "IPython traceback",
    "Ray traceback",
    "rank-prefixed traceback",
    "Markdown",
    "truncated",
    "warnings",
    "log",
    "rows",
    "table",
    "command",
    "YAML",
    "JSON",
    "TOML",
    "Python",
    "mixed",
)
"""In which form the text is pasted."""
COMMANDS = ("diagnose", "preflight")

Alternatives = tuple[tuple[re.Pattern[str], ...], ...]


class CaseError(ValueError):
    """A file of the field set that is not well-formed."""


@dataclass(frozen=True)
class Case:
    """One thread: where it is, what it was about, what a right answer names, and the text to answer."""

    reference: str
    trainer: str
    kind: str
    shape: str
    cause: str
    fix: str
    solved: Alternatives
    helped: Alternatives
    input: str
    version: str = ""
    command: str = "diagnose"
    suffix: str = ".txt"
    """Of the file that `preflight` gets."""
    wrong: Alternatives = ()
    wrong_verdicts: tuple[str, ...] = ()
    """Verdicts that are false whatever the answer says besides."""

    @property
    def half(self) -> str:
        """The half that the reference belongs to."""
        return half_of(self.reference)


def half_of(reference: str) -> str:
    """`open` or `unseen`: the parity of the first byte of SHA-256 of `owner/name#number`."""
    return HALVES[hashlib.sha256(reference.encode()).digest()[0] % 2]


def file_name(reference: str) -> str:
    """The name of the thread's file: `owner__name-number.toml`."""
    return reference.replace("/", "__").replace("#", "-") + ".toml"


def cases(half: str | None = None, folder: Path = FOLDER) -> list[Case]:
    """The cases of a half, or all, in order of their references."""
    halves = [half] if half else HALVES
    paths = [path for name in halves for path in (folder / name).glob("*.toml")]
    return sorted((load(path) for path in paths), key=lambda case: case.reference.lower())


def load(path: Path) -> Case:
    """One file; `CaseError` names what is wrong with it."""
    fields = tomllib.loads(path.read_text(encoding="utf-8"))
    problems = list(_problems(fields, path))
    if problems:
        raise CaseError(f"{path}: {'; '.join(problems)}")
    compiled = {key: _compiled(fields.get(key, [])) for key in ("solved", "helped", "wrong")}
    return Case(**(fields | compiled | {"wrong_verdicts": tuple(fields.get("wrong_verdicts", ()))}))


REQUIRED = ("reference", "trainer", "kind", "shape", "cause", "fix", "solved", "helped", "input")
OPTIONAL = ("version", "command", "suffix", "wrong", "wrong_verdicts")


def _problems(fields: Mapping[str, Any], path: Path) -> Iterator[str]:
    for key in REQUIRED:
        if not fields.get(key):
            yield f"{key} is missing"
    for key in fields.keys() - set(REQUIRED) - set(OPTIONAL):
        yield f"{key} is no field"
    reference = str(fields.get("reference", ""))
    if not re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", reference):
        yield f"reference {reference!r} is not owner/name#number"
    elif (path.parent.name, path.name) != (half_of(reference), file_name(reference)):
        yield f"belongs to {half_of(reference)}/{file_name(reference)}"
    for key, allowed in (("kind", KINDS), ("shape", SHAPES), ("command", COMMANDS)):
        if fields.get(key, allowed[0]) not in allowed:
            yield f"{key} {fields[key]!r} is none of {', '.join(allowed)}"


def _compiled(alternatives: Sequence[Sequence[str]]) -> Alternatives:
    return tuple(tuple(re.compile(part, re.IGNORECASE) for part in alternative) for alternative in alternatives)
