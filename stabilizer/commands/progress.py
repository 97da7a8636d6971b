"""A progress line on the terminal that is erased at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator

from rich.cells import set_cell_size

from stabilizer.core.text import plain

FIRST_S = 2.0
"""Seconds before the line appears; most work is done by then."""
EVERY_S = 0.5
"""Seconds between updates of the line."""
CLEAR = "\r\x1b[2K"
"""Back to the start of the line, and erase it."""


@contextlib.contextmanager
def progress(words: str) -> Iterator[Callable[[str], None]]:
    """While the block runs, show the newest text on standard error if that is a terminal.

    The block gets a function that sets the text. Calling it is cheap: a thread prints the text now and then.
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
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80  # 0 when unknown
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
