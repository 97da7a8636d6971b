"""A page on a terminal: its titles, lines and labels, in the characters that the terminal can show.

Text out of a log or a configuration reaches the screen only through `plain`, which takes out control characters, escape
sequences and the marks that reverse the direction of text, and only inside `Text`, which has no markup. Colour is never
the only sign: every severity has its icon and its word.
"""

from __future__ import annotations

import os
import re
from typing import IO, Any, TextIO, cast

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stabilizer.core.severity import ICONS

STYLES = {"info": "blue", "warn": "yellow", "critical": "bold red", "crashed": "bold red", "healthy": "green"}
_ICONS = {"healthy": "✔", "crashed": "✖", "too-short": "…", "not-rl": "–", **ICONS}
_ASCII_ICONS = {"info": "(i)", "warn": "[!]", "critical": "[X]", "crashed": "[X]", "healthy": "[ok]"}
_ASCII = (("·", "-"), ("–", "-"), ("−", "-"), ("▲", "^"), ("→", "->"), ("…", "..."), ("×", "x"), ("±", "+-"))
"""Characters outside of ASCII that pages use, and their substitutes."""


def console(file: TextIO | None = None, *, widest: int = 110, piped: int = 100) -> Console:
    """A console for reports: as wide as the terminal up to `widest` columns, or `piped` in a pipe.

    rich honours NO_COLOR.
    """
    made = Console(file=file, highlight=False, markup=False, emoji=False)
    made.width = min(made.width, widest) if made.is_terminal or "COLUMNS" in os.environ else piped
    if not made.is_terminal:
        made.file = cast(TextIO, _Trimmed(made.file))
    return made


class _Trimmed:
    """A file without the blanks with which rich fills the lines of tables: they spoil what is pasted into an issue."""

    def __init__(self, file: IO[str]):
        self._file = file

    def write(self, text: str) -> int:
        """Write lines; rich hands over whole ones."""
        return self._file.write(re.sub(r" +(?=\n)", "", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class Screen:
    """Prints the parts of a page. `ascii` where the terminal can't show more."""

    label_width, label_style = 12, "bold"

    def __init__(self, out: Console):
        self.out = out
        self.ascii = not (out.encoding or "").lower().startswith("utf")

    def icon(self, level: str) -> str:
        """The icon of a severity or a verdict."""
        return _ASCII_ICONS.get(level, "[-]") if self.ascii else _ICONS.get(level, "·")

    def shown(self, text: Text | str, style: str = "") -> Text:
        """The same text in what the terminal's encoding holds."""
        text = Text(text, style) if isinstance(text, str) else text
        if not self.ascii:
            return text
        words, coding = text.plain, self.out.encoding or "ascii"
        for mark, typed in _ASCII:
            words = words.replace(mark, typed)
        return Text(words.encode(coding, "replace").decode(coding), text.style)

    def title(self, words: str) -> None:
        """A heading after an empty line."""
        self.out.print()
        self.out.print(self.shown(words, "bold"))

    def line(self, text: Text | str, indent: int = 2, style: str = "") -> None:
        """A paragraph."""
        self.out.print(Padding(self.shown(text, style), (0, 0, 0, indent), expand=False))

    def grid(self, grid: RenderableType) -> None:
        """A table, indented."""
        self.out.print(Padding(grid, (0, 0, 0, 2), expand=False))

    def label(self, label: str, content: RenderableType) -> None:
        """A word and, in a column beside it, what it is about."""
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(width=self.label_width, overflow="fold")
        grid.add_column(ratio=1, overflow="fold")
        grid.add_row(self.shown(label, self.label_style), self.shown(content) if isinstance(content, Text) else content)
        self.grid(grid)
