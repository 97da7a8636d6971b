"""A process that reads, checks and compares runs, so that the one that answers viewers never has to.

`Worker` is the dashboard's end: a question down one pipe, an answer up the other. The process ends with the dashboard,
however that ends, because its pipe does; and it steps back behind any training on the same machine.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import subprocess
import sys
import threading
from typing import IO, Any, Generic, TypeVar, cast

from stabilizer.core.text import spoken

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")

SECONDS = 180.0
"""The longest a comparison may take."""
FEWER = "the comparison was stopped: it took more than {seconds} or too much memory; choose fewer runs"
_SIZE = struct.Struct("<Q")


class Worker(Generic[Asked, Answered]):
    """The process, started with the first question. One question at a time."""

    def __init__(self, seconds: float = SECONDS, given_up: str = FEWER):
        self.seconds = seconds
        self._given_up = given_up.format(seconds=spoken(seconds))
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, asked: Asked) -> Answered:
        """The answer. ValueError describes what went wrong."""
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                (sys.executable, "-m", "dashboards.data.worker"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        limit = threading.Timer(self.seconds, process.kill)
        limit.daemon = True
        limit.start()
        try:
            _send(process.stdin, asked)
            answer = _receive(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            self.close()
            raise ValueError(self._given_up) from None
        finally:
            limit.cancel()
        if isinstance(answer, Exception):
            raise ValueError(str(answer) or type(answer).__name__)
        return cast(Answered, answer)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _send(stream: IO[bytes] | None, value: Any) -> None:
    assert stream is not None
    content = pickle.dumps(value)
    stream.write(_SIZE.pack(len(content)) + content)
    stream.flush()


def _receive(stream: IO[bytes] | None) -> Any:
    assert stream is not None
    head = stream.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise EOFError
    return pickle.loads(stream.read(_SIZE.unpack(head)[0]))  # noqa: S301 - from our own process, over its own pipe


def main() -> None:
    """Answer questions until there is nobody left to ask."""
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints must not end up between answers
    with contextlib.suppress(OSError):
        os.nice(5)
    from dashboards.data.checks import ToCheck, checked
    from dashboards.data.comparison import Comparer

    bench = Comparer()
    while True:
        try:
            asked = _receive(questions)
        except (EOFError, KeyboardInterrupt):
            return
        try:
            answer: Any = checked(asked) if isinstance(asked, ToCheck) else bench.answer(asked)
        except Exception as error:  # the question was answered with what went wrong
            answer = ValueError(str(error) or type(error).__name__)
        try:
            _send(answers, answer)
        except OSError:
            return


if __name__ == "__main__":
    main()
