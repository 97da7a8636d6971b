"""Calls in a thread of their own, each with a time limit, so that none of them can stop the caller.

A call that never returns costs its thread: the caller goes on after the limit with a TimeoutError in place of a result,
and later calls get a new thread. Python can't end a thread from outside. The old one is asked to end, which a loop of
Python code obeys; a call that waits in C keeps its thread until it returns, and its result is dropped.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

LIMIT_S = 2.5
"""Seconds without a finished call after which the caller looks whether there is progress. A call is given up at the
second look, so after 5 s at most, and a process that was suspended loses none. The slowest detector takes 30 ms."""


class _Job:
    def __init__(self, calls: Sequence[Callable[[], Any]]):
        self.calls = calls
        self.results: list[Any] = []
        self.given_up = False
        self.done = threading.Event()

    def run(self) -> None:
        for call in self.calls:
            result = outcome(call)
            if self.given_up:
                return
            self.results.append(result)
        self.done.set()


class BoundedThread:
    """Makes calls for one caller, in order."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def results(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """The result of each call, or the exception it ended with."""
        found: list[Any] = []
        while len(found) < len(calls):
            job = _Job(calls[len(found) :])
            if not self._put(job):  # the system refuses a thread
                return found + [outcome(call) for call in job.calls]
            looked_at = -1
            while not job.done.wait(LIMIT_S) and looked_at < len(job.results):
                looked_at = len(job.results)
            found += self._finished(job)
        return found

    def close(self) -> None:
        """End the thread once it is idle."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread = None

    def _finished(self, job: _Job) -> list[Any]:
        """The results of a job; where it was given up, those so far and a TimeoutError."""
        if job.done.is_set():
            return job.results
        job.given_up = True
        results = list(job.results)[: len(job.calls) - 1]
        thread, self._thread, self._jobs = self._thread, None, SimpleQueue()
        if thread is not None and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
        return [*results, TimeoutError(f"no answer within {2 * LIMIT_S:g} s")]

    def _put(self, job: _Job) -> bool:
        if self._thread is None or not self._thread.is_alive():
            jobs = self._jobs
            thread = threading.Thread(target=_work, args=(jobs,), name="watch", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        self._jobs.put(job)
        return True


def outcome(call: Callable[[], Any]) -> Any:
    """The result of a call, or the exception it ended with: an attempt to end the process is one as well."""
    try:
        return call()
    except Exception as error:
        return error
    except (SystemExit, GeneratorExit) as error:
        return RuntimeError(f"it raised {type(error).__name__}: {error}")


def _work(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()
        if job.given_up:
            return
