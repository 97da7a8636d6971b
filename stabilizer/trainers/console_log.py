"""Reads the console of a trainer, of which its own module knows the lines and the names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from stabilizer.core.records import Event
from stabilizer.formats.console import ConsoleParser, head
from stabilizer.formats.files import beside
from stabilizer.formats.tailing import gather
from stabilizer.runs.loaded import LoadedRun
from stabilizer.trainers.naming import Naming, named_run
from stabilizer.trainers.reader import Rank, Reader


class Module(Protocol):
    """A module that knows one console."""

    NAME: str
    WHAT: str
    CUT: str
    """Lines, tables or steps, in the note on those that end too early."""

    @property
    def SIGNS(self) -> tuple[re.Pattern[bytes], ...]:  # noqa: N802
        """What such a console has near its start, all of it."""

    @property
    def Parser(self) -> Callable[[], ConsoleParser]:  # noqa: N802
        """What takes its lines."""

    def naming(self, keys: Iterable[str], /) -> Naming:
        """The names of one log."""


def console(module: Module) -> Reader:
    """The reader of one trainer's console."""

    def recognises(path: Path) -> bool:
        start = head(path)
        return all(sign.search(start) for sign in module.SIGNS)

    def read(path: Path, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
        parser = gather(path, module.Parser)
        entries, notes = parser.ended()
        torn = parser.torn + parser.inside()
        notes += parser.remarks()
        if torn:
            notes.append(f"{torn} {module.CUT} end too early and are left out")
        seen = {key for entry in entries if not isinstance(entry, Event) for key in entry[1]}
        return named_run(
            path.stem, module.naming(seen), entries, format=module.NAME, files=[path], mapping=mapping,
            config=beside(path, notes) if config is None else dict(config), planned=parser.planned, skipped=torn,
            notes=notes,
        )  # fmt: skip

    return Reader(name=module.NAME, what=module.WHAT, recognises=recognises, read=read, rank=Rank.CONSOLE, printed=True)
