"""The settings in a text that holds other things too: fenced blocks of Markdown, a command or its arguments alone, a
call or a mapping.

An excerpt is the text with every other line blank, so that the numbers of its lines hold.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

MOST = 1 << 18
"""Characters of a text that are searched, from its beginning. Questions put the settings before the log."""
MOST_BLOCKS = 20
"""Fenced blocks that are tried."""
TEXTS = ("", ".txt", ".md", ".markdown")
"""Suffixes of files that may hold more than settings."""
_FENCE = re.compile(r" {0,3}(?:`{3,}|~{3,})[ \t]{0,8}([\w+-]{0,20})")
_FORMS = {
    "bash": ".sh", "sh": ".sh", "shell": ".sh", "console": ".sh", "zsh": ".sh", "yaml": ".yaml", "yml": ".yaml",
    "json": ".json", "toml": ".toml", "python": ".py", "py": ".py",
}  # fmt: skip
"""Language of a fenced block -> suffix of a file of that form."""
_PROMPT = re.compile(r"[ \t]{0,20}\$ (?=\S)")
_COMMAND = re.compile(
    r"\s{0,40}(?:(?:export )?[A-Za-z_]\w{0,60}=\S{0,300} ){0,12}"
    r"(?:(?:uv|poetry|pixi) run |nohup |sudo |time |srun ){0,3}"
    r"(?:python[\d.]{0,5}|accelerate|torchrun|deepspeed|ray|swift|llamafactory-cli|lmf|trl|axolotl|rl)\s"
)
_ASSIGNED = re.compile(r"\s{0,20}(?:export )?[A-Za-z_]\w{0,60}=\S{1,300}\s{0,20}$")
_ARGUMENT = re.compile(r"(?:\+\+|\+|~)?[A-Za-z_]\w{0,60}(?:\.[\w-]{1,60}){1,12}=\S|--[A-Za-z][\w-]{2,60}(?:[\s=]|$)")
"""The beginning of an argument of a command: an override `group.key=value` of Hydra, or a flag."""
_COMMENT = re.compile(r"\s#[^\n]*$")
LEAST_ARGUMENTS = 3
"""Arguments without their command that are settings; fewer stand in prose and logs."""
_CALL = re.compile(r"\b[A-Z]\w{1,40}(?:Config|Arguments|Trainer)\(")
_CALL_LINES = 200
"""Lines of a call in Python."""
_PAIR = re.compile(r"\s{0,40}(?:- )?[A-Za-z_][\w./-]{0,80}:(?:\s|$)")
LEAST_PAIRS = 4
"""Lines `key: value` in a row that are settings; fewer stand in prose and logs."""


def excerpts(path: Path, text: str) -> Iterator[tuple[Path, str]]:
    """Every part of a text that may be settings, with a path whose suffix tells its form."""
    lines = text[:MOST].splitlines()
    fenced = list(islice((block for block in _fenced(lines) if block[1]), MOST_BLOCKS))
    yield from ((path.with_suffix(suffix), _only(lines, kept)) for suffix, kept in fenced)
    outside = sorted(set(range(len(lines))).difference(*(kept for _, kept in fenced)))
    ways: tuple[tuple[str, Callable[[Sequence[str]], list[int]], str], ...] = (
        (".sh", _commands, ""), (".sh", _arguments, " \\"), (".py", _call, ""), (".yaml", _mapping, ""),
    )  # fmt: skip
    for suffix, found_in, end in ways:
        if found := found_in([lines[number] for number in outside]):
            yield path.with_suffix(suffix), _only(lines, [outside[place] for place in found], end)


def _only(lines: Sequence[str], kept: Sequence[int], end: str = "") -> str:
    """The text with those lines alone, moved to the margin together, each with an end that joins it to the next.

    A comment would hide the end, so it is left out then.
    """
    wanted = set(kept)
    shown = ((_PROMPT.sub("", line) if number in wanted else "") for number, line in enumerate(lines))
    joined = (_COMMENT.sub("", line).rstrip("\\ ") + end if end else line for line in shown)
    return textwrap.dedent("\n".join(joined)) + "\n"


def _fenced(lines: Sequence[str]) -> Iterator[tuple[str, list[int]]]:
    """The blocks between fences: the suffix of their form, and their lines. The last may lack its end."""
    fences = [(number, fence[1]) for number, line in enumerate(lines) if (fence := _FENCE.match(line))]
    for place in range(0, len(fences), 2):
        begin, language = fences[place]
        end = fences[place + 1][0] if place + 1 < len(fences) else len(lines)
        yield _FORMS.get(language.lower(), ".txt"), list(range(begin + 1, end))


def _commands(lines: Sequence[str]) -> list[int]:
    """The lines of commands, and the variables that are set on lines of their own."""
    kept: list[int] = []
    before, begun = "", False
    for number, line in enumerate(lines):
        command = bool(_COMMAND.match(_PROMPT.sub("", line)))
        if command or _ASSIGNED.match(line) or _continues(before, line):
            kept.append(number)
            before, begun = line.rstrip(), begun or command
        else:
            before = ""
    return kept if begun else []


def _continues(before: str, line: str) -> bool:
    """Whether a line goes on with the command of the line before."""
    return before.endswith("\\") or bool(before and line.lstrip().startswith("--"))


def _arguments(lines: Sequence[str]) -> list[int]:
    """The lines that begin with an argument of a command, which itself is missing."""
    kept = [number for number, line in enumerate(lines) if _ARGUMENT.match(line.lstrip()[:200])]
    count = sum(bool(_ARGUMENT.match(word)) for number in kept for word in lines[number].split())
    return kept if count >= LEAST_ARGUMENTS else []


def _call(lines: Sequence[str]) -> list[int]:
    """The lines of the first call that builds a trainer or its settings, up to its last bracket."""
    begin = next((number for number, line in enumerate(lines) if _CALL.search(line)), None)
    if begin is None:
        return []
    depth = 0
    for number, line in enumerate(lines[begin : begin + _CALL_LINES], begin):
        depth += sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
        if depth <= 0:
            return list(range(begin, number + 1))
    return []


def _mapping(lines: Sequence[str]) -> list[int]:
    """The longest run of `key: value` lines."""
    best, begin = range(0), 0
    for number, line in enumerate([*lines, ""]):
        if not _PAIR.match(line):
            best = max(best, range(begin, number), key=len)
            begin = number + 1
    return list(best) if len(best) >= LEAST_PAIRS else []
