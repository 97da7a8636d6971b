"""What reads one kind of log: how it is recognised, and when it is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol

from stabilizer.runs.loaded import LoadedRun


class Rank(IntEnum):
    """Readers of a lower rank are asked first: those that recognise their logs by more."""

    OWN = 0
    STATE = 1
    """A file of an exact name."""
    CONTAINER = 2
    """Magic bytes, or the tables of a database."""
    NOTEBOOK = 3
    FILE = 4
    """A trainer's own records in a file."""
    CONSOLE = 5
    DICTIONARIES = 6
    """Records that several programs print or write alike."""
    ANYONE = 7
    """JSON lines and tables, which any program may write."""


Recognises = Callable[[Path], bool]
"""By content or by an exact file name, never by a suffix that a hundred tools share; never raises."""


class Reads(Protocol):
    """The run at a path. `config` holds the settings that the user gave, None when there are none."""

    def __call__(self, path: Path, /, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun: ...


class Module(Protocol):
    """A module that reads one format."""

    NAME: str
    WHAT: str

    def recognises(self, path: Path, /) -> bool:
        """See `Recognises`."""

    def read(self, path: Path, /, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
        """See `Reads`."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    """One format of a log."""

    name: str
    what: str
    """One line for messages."""
    recognises: Recognises
    read: Reads
    rank: Rank
    takes_folder: bool = False
    """Whether a folder that it recognises is one log."""
    printed: bool = False
    """Whether it reads what a trainer prints, and so also what the cells of a notebook printed."""
    step_file: re.Pattern[str] | None = None
    """How the files of its folder are called, where each step has one."""
    held_out: str = ""
    """The format it gives to a log of validations alone."""
    file_names: tuple[str, ...] = ()
    """What only such a log has in its file name."""


def reader(
    module: Module,
    rank: Rank,
    *,
    takes_folder: bool = False,
    printed: bool = False,
    step_file: re.Pattern[str] | None = None,
    held_out: str = "",
    file_names: tuple[str, ...] = (),
) -> Reader:
    """The reader that a module is."""
    return Reader(
        name=module.NAME, what=module.WHAT, recognises=module.recognises, read=module.read, rank=rank,
        takes_folder=takes_folder, printed=printed, step_file=step_file, held_out=held_out, file_names=file_names,
    )  # fmt: skip
