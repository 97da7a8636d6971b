"""Functions and classes of the user's own: named in a configuration, read once, loaded in a process of their own."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stabilizer.core.nearest import nearest
from stabilizer.core.paths import expanded


@dataclass(frozen=True, slots=True)
class Code:
    """Something in a file, or in an installed package. A file's text is read once: later edits do not affect a run."""

    file: Path | None
    name: str
    group: str

    def load_request(self) -> dict[str, Any]:
        """The data that its process needs to load it."""
        try:
            source = None if self.file is None else self.file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.file}: not UTF-8 text ({error.reason} at byte {error.start})") from None
        file = None if self.file is None else str(self.file)
        return {"function": self.name, "group": self.group, "file": file, "source": source}


def read_code(where: str, use: str, group: str, kind: str, builtin: Collection[str] = ()) -> Code:
    """What `FILE.py:NAME`, a built-in name or an entry point of `group` means; ValueError if it means nothing."""
    path, colon, name = use.rpartition(":")
    if colon and path.endswith(".py"):
        file = expanded(path, f"{where}: {use}")
        if not file.is_file():
            raise ValueError(f"{where}: {use}: no such file: {file.absolute()}")
        return Code(file.resolve(), name, group)
    if use.endswith(".py"):
        raise ValueError(f"{where}: {use}: no {kind} is named; write {use}:{kind.upper()}")
    entries = {entry.name for entry in importlib.metadata.entry_points(group=group)}
    if use in builtin or use in entries:
        return Code(None, use, group)
    known = [*builtin, *sorted(entries - set(builtin))]
    hint = nearest(use, known)
    what = group.rpartition(".")[2].removesuffix("s")
    named = f"there are {', '.join(known)}, or" if known else "write"
    raise ValueError(
        f"{where}: no {what} {kind} {use!r}; {f'nearest is {hint!r}; ' if hint else ''}{named} your own as"
        f" FILE.py:{kind.upper()}"
    )
