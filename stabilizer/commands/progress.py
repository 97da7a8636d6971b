"""One line on the terminal about work that runs on, and nothing of it left behind."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator

from rich.cells import set_cell_size

from stabilizer.core.text import plain

FIRST_S = 2.0
"""Seconds of silence before the line appears: most work is done by then."""
EVERY_S = 0.5
"""Seconds between two looks at the line."""
CLEAR = "\r\x1b[2K"
"""Back to the start of the line, and erase it."""


@contextlib.contextmanager
def progress(words: str) -> Iterator[Callable[[str], None]]:
    """Show the newest words on standard error while the block runs, where that is a terminal; clear them at the end.

    The block says how far it is by calling what it is given, as often as it likes: the words are only kept for a
    thread that prints them now and then.
    """
    newest = words

    def say(text: str) -> None:
        nonlocal newest
        newest = text

    if not sys.stderr.isatty():
        yield say
        return
    over = threading.Event()

    def show() -> None:
        if over.wait(FIRST_S):
            return
        while True:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80  # 0 where nobody knows
            print(f"{CLEAR}{set_cell_size(plain(newest), columns - 1)}", end="", file=sys.stderr, flush=True)
            if over.wait(EVERY_S):
                print(CLEAR, end="", file=sys.stderr, flush=True)
                return

    shower = threading.Thread(target=show, daemon=True)
    shower.start()
    try:
        yield say
    finally:
        over.set()
        shower.join()
