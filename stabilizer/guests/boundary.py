"""Work that belongs to the loop's own thread: the run's thread asks for it, and it is done between two steps.

The weights of a foreign trainer may be read or changed only while it does not train. The run's thread waits for the
answer; the loop never waits for a question.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Any

POLL_S = 0.05
"""Seconds between two looks whether the training has ended."""


class Over(OSError):
    """The loop has ended, so nothing can be saved or restored any more."""


@dataclass
class _Asked:
    work: Callable[[], Any]
    done: Event = field(default_factory=Event)
    result: Any = None
    error: Exception | None = None


class Boundary:
    """The place between two steps of one loop."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._meanwhile = meanwhile
        """Called now and then in the thread that waits."""
        self._asked: queue.SimpleQueue[_Asked] = queue.SimpleQueue()
        self._over = Event()

    def ask(self, work: Callable[[], Any]) -> Any:
        """Have the loop's thread do this between two steps; returns its result or raises its error.

        `Over` if the loop ends before.
        """
        if self._over.is_set():
            raise Over("the training has ended")
        asked = _Asked(work)
        self._asked.put(asked)
        while not asked.done.wait(POLL_S):
            if self._over.is_set() and not asked.done.is_set():
                raise Over("the training has ended")
            self._meanwhile()
        if asked.error is not None:
            raise asked.error
        return asked.result

    def serve(self) -> None:
        """Do what was asked for. Called by the loop between two steps."""
        self.serve_until(lambda: True)

    def serve_until(self, settled: Callable[[], bool], seconds: float = 0.0) -> bool:
        """Do what is asked for until something is settled, at most for so long; False if it is not."""
        deadline = time.monotonic() + seconds
        while True:
            over = settled()
            try:
                asked = self._asked.get_nowait() if over else self._asked.get(timeout=POLL_S / 50)
            except queue.Empty:
                if over or time.monotonic() >= deadline:
                    return over
                continue
            began = time.monotonic()
            _do(asked)
            deadline += time.monotonic() - began  # its own work is no waiting

    def close(self) -> None:
        """The loop has ended."""
        self._over.set()


def _do(asked: _Asked) -> None:
    try:
        asked.result = asked.work()
    except Exception as error:
        asked.error = error
    finally:
        asked.done.set()
