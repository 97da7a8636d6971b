"""One known trouble: how it shows in a log, why it happens, and what to change, with the numbers of the reader's log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from stabilizer.core.failures import Meaning

Values = Mapping[str, str]
"""What was read out of a message, by the names in its template."""
Kind = Literal["program-error", "config-error", "out-of-memory", "infrastructure"]
CODE = "\n"
"""What separates a frame from its line of code: `FILE FUNCTION\\nCODE`."""
_FIELD = re.compile(r"\{(\w+)(?::([wt]))?\}|(\.\.\.)")
_FORMS = {None: r"[\d,]{1,24}(?:\.\d{1,12})?", "w": r"[^\s'\"`,;()\[\]]{1,200}", "t": r".{1,200}?"}
_SKIPPED = r".{0,300}?"
"""The text that `...` matches in a template."""
_INSTALLED = re.compile(r"(?:site|dist)-packages[/\\](\w{1,60})")
PROGRAMS = {
    "trl": ("trl", "open_r1", "unsloth", "swift", "llamafactory", "llmtuner", "grpo_trainer", "ppo_trainer"),
    "unsloth": ("unsloth",),
    "verl": ("verl",),
    "easyr1": ("verl",),
    "openrlhf": ("openrlhf",),
    "skyrl": ("skyrl",),
    "nemo-rl": ("nemo_rl",),
    "slime": ("slime",),
    "prime-rl": ("prime_rl",),
    "areal": ("areal",),
}
"""Trainers whose troubles the catalogue has, and the parts of paths by which their code is known, or code built on it."""
BARE_CHECK = "python/assert"
"""The id of the trouble of a failed check of which only its own words are known: its place says more."""
INNERMOST = 2
"""Frames that count as the place of an exception: a library function and its caller."""
LIBRARIES = ("site-packages", "dist-packages", "/verl/", "/openrlhf/", "/slime/", "/areal/", "/skyrl", "/nemo_rl/", "/prime_rl/", "/roll/",
             "/swift/", "/llamafactory/", "/trl/", "/open_r1/", "unsloth_compiled_cache", "/megatron/")  # fmt: skip
"""Parts of paths of code that is installed or a trainer's, not the user's."""
FOLDERS = 3
"""Folders above a file outside installed packages that may tell what it is."""
WORD = re.compile(r"[A-Za-z_]{3,}")
"""What a line is looked up by."""
CERTAINTY = {"certain": 0.95, "likely": 0.8, "possible": 0.5}
"""Confidence in the cause. Certain: the message has no other cause known to us."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """One entry of the catalogue.

    `shows` are templates of single lines. `{n}` is a number, `{n:w}` a word, `{n:t}` a text, `...` anything, `^` at the
    beginning and `$` at the end the line's ends; the rest is literal. `cause` and `fix` may name these fields, and those that `work` computes.
    """

    id: str
    """`program/what`, unique."""
    shows: tuple[str, ...]
    cause: str
    fix: str
    source: str
    """A public thread (`owner/repo#number`), a page, or the source file that prints the message."""
    example: str
    """Lines as the program prints them."""
    kind: Kind = "program-error"
    certainty: Literal["certain", "likely", "possible"] = "likely"
    consequence: bool = False
    """Whether it follows from another failure, which then explains the end of the run."""
    general: bool = False
    """Whether it accounts for the message alone: a trouble that says more explains it better, however long."""
    gpu_memory: bool = False
    """Whether the trainer's own keys for a GPU's memory are the better fix, where they are known."""
    severity: Literal["critical", "warn", "info"] = "critical"
    """Critical ends the training; the others are said of a run that goes on."""
    frames: tuple[str, ...] = ()
    """Files or functions, of which one must be among the last frames of the traceback."""
    code: tuple[str, ...] = ()
    """Texts of which one must stand in the line of code that raised, or in the message; with `frames` either will do."""
    innermost: bool = False
    """Whether only the last `INNERMOST` frames count: where the exception was raised, not what called it."""
    work: Callable[[Values], Mapping[str, object]] | None = None
    """Computes further fields. It may raise ValueError: then the message is not this trouble."""

    @cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """The templates as regular expressions. Every part is bounded, so matching is linear in the line."""
        return tuple(re.compile(_pattern(template)) for template in self.shows)

    @cached_property
    def anchors(self) -> frozenset[str]:
        """One word of each template that a line must contain before its pattern is tried."""
        return frozenset(map(_anchor, self.shows))

    @cached_property
    def restricted(self) -> bool:
        """Whether the message alone does not suffice."""
        return bool(self.frames or self.code or self.id.partition("/")[0] in PROGRAMS)

    def found_in(self, line: str, frames: tuple[str, ...] = ()) -> dict[str, str] | None:
        """What the line says, if this trouble shows in it."""
        if self.restricted and not (self.placed(line, frames) and not self.of_another(frames)):
            return None
        for pattern in self.patterns:
            if match := pattern.search(line):
                read = match.groupdict()
                values = _packages(frames) | {
                    name: value.rstrip(".") or value for name, value in read.items() if value is not None
                }
                try:
                    self.explained(values)
                except (ValueError, KeyError, ZeroDivisionError):
                    continue
                return values
        return None

    def among(self, frames: tuple[str, ...]) -> bool:
        """Whether one of the frames is of the files or functions that the trouble names."""
        return _any_in(self.frames, [_of_package(frame) for frame in frames[-INNERMOST if self.innermost else 0 :]])

    def of_another(self, frames: tuple[str, ...]) -> bool:
        """Whether it is a trouble of one trainer, and the traceback runs through another's code alone."""
        own = PROGRAMS.get(self.id.partition("/")[0])
        if own is None or not frames:
            return False
        paths = [frame.partition(CODE)[0].lower() for frame in frames]
        others = {part for parts in PROGRAMS.values() for part in parts}
        return _any_in(others.difference(own), paths) and not _any_in(own, paths)

    def placed(self, line: str, frames: tuple[str, ...]) -> bool:
        """Whether the message stands where the trouble says: in one of its frames, or raised by its code."""
        code = frames[-1].partition(CODE)[2] if frames else ""
        return not (self.frames or self.code) or self.among(frames) or _any_in(self.code, (code, line))

    def explained(self, values: Values) -> tuple[str, str]:
        """Cause and fix with the numbers of the log."""
        worked = {**values, **(self.work(values) if self.work else {})}
        return self.cause.format_map(worked), self.fix.format_map(worked)

    def meaning(self, values: Values) -> Meaning:
        """The trouble as the meaning of a failure."""
        cause, fix = self.explained(values)
        return Meaning(re.compile(""), self.kind, cause, fix, self.gpu_memory)


def _any_in(parts: Iterable[str], texts: Sequence[str]) -> bool:
    return any(part in text for part in parts for text in texts)


def _of_package(frame: str) -> str:
    """A frame without its code and the folders that every program of the machine shares, as `envs/rl/lib/...`."""
    path, _, function = frame.partition(CODE)[0].partition(" ")
    parts = re.split(r"[/\\]", path)
    installed = [place for place, part in enumerate(parts) if part in ("site-packages", "dist-packages")]
    kept = parts[installed[-1] :] if installed else parts[-FOLDERS - 1 :]
    return f"{'/'.join(kept)} {function}"


def _packages(frames: tuple[str, ...]) -> dict[str, str]:
    """The installed packages of the last frames: `caller`, the innermost, and `above`, the next other one."""
    found = [match[1] for frame in reversed(frames) if (match := _INSTALLED.search(frame))]
    other = next((name for name in found if name != found[0]), "") if found else ""
    return {"caller": found[0], "above": other or found[0]} if found else {}


def _anchor(template: str) -> str:
    """The longest word that stands whole in the line: one beside a field or at an end may go on there."""
    text = _FIELD.sub("\0", template.strip("^$"))
    words = [
        (match[0], text[max(0, match.start() - 1) : match.start()], text[match.end() : match.end() + 1])
        for match in WORD.finditer(text)
    ]
    whole = [word for word, before, after in words if "\0" not in (before, after)]
    inside = [word for word, before, after in words if before and after and "\0" not in (before, after)]
    return max(inside or whole or [word for word, _, _ in words], key=len)


def _pattern(template: str) -> str:
    first = template.startswith("^")
    parts, end = [r"^\s*"] * first, int(first)
    for match in _FIELD.finditer(template):
        parts.append(re.escape(template[end : match.start()]))
        name, form, skipped = match.groups()
        parts.append(_SKIPPED if skipped else f"(?P<{name}>{_FORMS[form]})")
        end = match.end()
    rest, last = template[end:], template.endswith("$")
    return "".join([*parts, re.escape(rest[:-1]) + r"\s*$" if last else re.escape(rest)])
