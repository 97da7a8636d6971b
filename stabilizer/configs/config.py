"""A configuration file as settings, each with the place where it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

Version = tuple[int, int, int]

LARGEST = 1e15
"""A larger number is not a plausible setting. It is kept as text, so that nothing calculates with it."""
MAX_SETTINGS = 20_000
"""Settings of one file. A file with more is not a configuration, or expands itself."""
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][-+]?\d+)?")


class ConfigError(ValueError):
    """A configuration that can't be read or checked. The message says where and what to do."""


@dataclass(frozen=True)
class Unresolved:
    """A value that is known only when the file is run, e.g. `$LR` or `args.lr`."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A configuration key with its value, and where it is written."""

    key: str
    """The key as the trainer names it, dots between the parts."""
    value: Any
    written: str
    """The key as written in the file."""
    file: str
    line: int | None
    span: tuple[int, int] | None = None
    """Where the value is in the text of the file; None when it can't be replaced there."""


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """A key that is written more than once in its group, so that the first value is lost."""

    key: str
    file: str
    first: int
    last: int
    """Lines of the first and of the last; the last one counts."""
    lost: str
    kept: str
    """The lost and the kept value, shortened to fit a sentence."""
    same: bool = False
    """Whether both values are the same."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A command of the same script that trains nothing."""

    does: str
    """In words, e.g. `serves a model`."""
    program: str
    """The words by which it is known, e.g. `trl vllm-serve`."""
    words: tuple[str, ...]
    """What follows the program, flags left out."""
    settings: Mapping[str, Any]
    """By flag, with underscores."""
    devices: tuple[int, ...] | None
    """The GPUs it sees; None where nothing is said."""
    line: int


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """What a reader found in a file, before the trainer is known."""

    form: str
    path: Path
    text: str
    settings: tuple[Setting, ...]
    command: str = ""
    """The command or class that gets the settings, where the file names it."""
    processes: int | None = None
    """Number of training processes, where a launcher says."""
    hints: Mapping[str, Any] = field(default_factory=dict)
    """Other facts, e.g. that a LoRA configuration is made in the same script."""
    notes: tuple[str, ...] = ()
    """What could not be read, in words."""
    repeated: tuple[Repeated, ...] = ()
    beside: tuple[Beside, ...] = ()
    """The commands of the script that train nothing."""
    does: str = ""
    """What the command does where it trains nothing and no other command of the script trains."""
    devices: tuple[int, ...] | None = None
    """The GPUs that the command sees; None where nothing is said."""
    part: bool = False
    """Whether the settings are a part of a longer text, to which nothing is written back."""


def number(text: str) -> int | float | None:
    """The number that a text holds, or None. YAML 1.1 reads `1e-6` as text; every trainer reads it as a number."""
    if not _NUMBER.fullmatch(text):
        return None
    clean = text.replace("_", "")
    value = float(clean)
    if not abs(value) <= LARGEST:
        return None
    try:
        return int(clean)
    except ValueError:
        return value


def scalar(text: str) -> Any:
    """The value of a word on a command line: number, true/false, null, or the text itself."""
    words = {"true": True, "false": False, "null": None, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    found = number(text)
    return text if found is None else found


def limited(settings: Iterable[Setting], path: Path) -> tuple[Setting, ...]:
    """The settings; ConfigError where there are more than `MAX_SETTINGS`."""
    kept: list[Setting] = []
    for setting in settings:
        value = setting.value
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not abs(value) <= LARGEST:
            setting = replace(setting, value=Unresolved(f"{value:g}" if isinstance(value, float) else "a huge number"))
        kept.append(setting)
        if len(kept) > MAX_SETTINGS:
            raise ConfigError(f"{path}: more than {MAX_SETTINGS:,} settings; is this the configuration?")
    return tuple(kept)


@cache
def parse_version(text: str) -> Version:
    """`0.18`, `v0.18.0` and `0.18.0.dev0` as three numbers that compare."""
    match = re.match(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?", str(text).strip())
    if not match:
        raise ConfigError(f"version {text!r}: write it as numbers, e.g. 0.18.0")
    major, minor, patch = match.groups(default="0")
    return int(major), int(minor), int(patch)
