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
"""Numbers beyond are no setting of a training; kept as text, so that arithmetic never meets them."""
MAX_SETTINGS = 20_000
"""More settings than this are no configuration, or one that expands itself."""
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][-+]?\d+)?")


class ConfigError(ValueError):
    """A configuration that can't be read or judged; the message says where and what to do."""


@dataclass(frozen=True)
class Unresolved:
    """A value that only running the file would tell, e.g. `$LR` or `args.lr`."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One key and its value, and where it is written."""

    key: str
    """The trainer's own name of the key, dots between the parts."""
    value: Any
    written: str
    """The key as it stands in the file."""
    file: str
    line: int | None
    span: tuple[int, int] | None = None
    """Where the value stands in the file's text; None when it can't be replaced there."""


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """A key that stands more than once in its group; what stood there first is lost."""

    key: str
    file: str
    first: int
    last: int
    """Lines of the first and of the last, which is the one that counts."""
    lost: str
    kept: str
    """Both as a sentence has room for them."""
    same: bool = False
    """What is lost is what is kept, all of it."""


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """What a reader found in a file, before anyone knows which trainer it is for."""

    form: str
    path: Path
    text: str
    settings: tuple[Setting, ...]
    command: str = ""
    """The command or class the settings are given to, where the file says."""
    processes: int | None = None
    """Training processes, where a launcher says."""
    hints: Mapping[str, Any] = field(default_factory=dict)
    """What is known besides settings, e.g. that a LoRA configuration is made in the same script."""
    notes: tuple[str, ...] = ()
    """What could not be read, in words."""
    repeated: tuple[Repeated, ...] = ()


def number(text: str) -> int | float | None:
    """The number a text stands for, or None. YAML 1.1 reads `1e-6` as text; every trainer reads it as a number."""
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
    """The settings, unless there are absurdly many."""
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
