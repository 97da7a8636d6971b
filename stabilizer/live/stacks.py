"""Where threads are: the innermost frame of the user's code, and what the code below it waits for."""

from __future__ import annotations

import faulthandler
import linecache
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from stabilizer.runs.heartbeats import LIBRARY

OURS = str(Path(__file__).parents[1])
OUR_THREADS = ("stabilizer", "syncer")
"""Names of our own threads."""
INTERACTIVE = re.compile(r"ipykernel|IPython[/\\](?:terminal|core[/\\]interactiveshell)|[/\\]code\.py$|[/\\]pdb\.py$")
"""Files whose frames mean that a person is asked for the next line."""
DEEPEST = 400
"""Frames of a stack that are read."""
WAITS: tuple[tuple[str, str, str], ...] = (
    # a part of the file, the function, what is waited for
    (r"torch[/\\]distributed|deepspeed[/\\]comm|accelerate[/\\]utils[/\\]operations", r"", "collective"),
    (r"torch[/\\]utils[/\\]data", r"", "data"),
    (r"torch[/\\](?:_inductor|_dynamo)|triton[/\\]compiler|torch[/\\]utils[/\\]cpp_extension", r"", "compiler"),
    (r"vllm|sglang|[/\\]ray[/\\]", r"", "engine"),
    (
        r"urllib3|[/\\]requests[/\\]|httpx|httpcore|aiohttp|[/\\]http[/\\]client|socket\.py|ssl\.py|openai",
        r"",
        "network",
    ),
    (r"multiprocessing[/\\]|subprocess\.py|concurrent[/\\]futures[/\\]process", r"", "child"),
    (r"torch[/\\]serialization|safetensors|[/\\]shutil\.py", r"", "save"),
    (r"[/\\]queue\.py", r"get|put", "queue"),
    (r"concurrent[/\\]futures|threading\.py", r"wait|acquire|join|result|exit|shutdown", "thread"),
    (r"selectors\.py|asyncio[/\\]", r"", "event loop"),
)
"""What library code between the user's innermost frame and the end of the stack waits for."""


class Frame(NamedTuple):
    """One frame of a stack."""

    file: str
    line: int
    function: str

    @property
    def place(self) -> str:
        """As people read it: `train.py:41 score`."""
        return f"{self.file}:{self.line} {self.function}"

    @property
    def code(self) -> str:
        """The line of source; empty where the file can't be read."""
        return linecache.getline(self.file, self.line).strip()[:200]


class Place(NamedTuple):
    """Where a thread is."""

    frame: Frame | None
    """The innermost frame of the user's code, else of ours, else of all."""
    wait: str
    """What library code below that frame waits for (`WAITS`); empty when it is the last one."""
    inner: Frame | None
    """The innermost frame."""
    interactive: bool = False
    """A person is asked for the next line."""


def frames(ident: int) -> list[Frame]:
    """The stack of a thread, innermost frame first; empty for a thread that is over."""
    frame: FrameType | None = sys._current_frames().get(ident)
    found: list[Frame] = []
    while frame is not None and len(found) < DEEPEST:
        code = frame.f_code
        found.append(Frame(code.co_filename, frame.f_lineno or 0, code.co_name))
        frame = frame.f_back
    return found


def is_users(frame: Frame) -> bool:
    """Whether a frame is neither installed code nor ours."""
    return not LIBRARY.search(frame.file) and not frame.file.startswith(OURS)


def place(stack: Sequence[Frame]) -> Place:
    """Where a stack is, for a reader who looks for the line to change."""
    if not stack:
        return Place(None, "", None)
    number = next((n for n, frame in enumerate(stack) if is_users(frame)), None)
    if number is None:
        number = next((n for n, frame in enumerate(stack) if frame.file.startswith(OURS)), None)
    below = stack if number is None else stack[:number]
    waits = [kind for frame in below for kind in _waits(frame)]
    asked = any(INTERACTIVE.search(frame.file) for frame in below[-60:])
    chosen = stack[0] if number is None else stack[number]
    return Place(chosen, waits[-1] if waits else "", stack[0], asked)


def _waits(frame: Frame) -> list[str]:
    return [
        kind for file, function, kind in WAITS if re.search(file, frame.file) and re.search(function, frame.function)
    ][:1]


def other_places(ident: int) -> list[Frame]:
    """The innermost frames of the user's code in all other threads but ours."""
    found = []
    for thread in threading.enumerate():
        if thread.ident in (None, ident) or thread.name in OUR_THREADS:
            continue
        users = next((frame for frame in frames(thread.ident or 0) if is_users(frame)), None)
        if users is not None:
            found.append(users)
    return found


def native_id(ident: int) -> int:
    """The system's number of a thread; 0 for one that is not known."""
    return next((thread.native_id or 0 for thread in threading.enumerate() if thread.ident == ident), 0)


def dump(path: Path, head: str) -> None:
    """Write the stacks of all threads, behind a line that says why."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{head}\n\n")
        file.flush()
        faulthandler.dump_traceback(file, all_threads=True)
        file.write("\n")
