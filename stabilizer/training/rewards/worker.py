"""The process of one reward function or environment. A crash or hang in it cannot stop training.

It is started by its path and needs only the standard library; torch is imported only if the function imports it. The
trainer's end is `process.py`. Requests are pickles and answers are JSON, over the pipes that were standard input and
output. These are replaced before any foreign code runs, so that it can neither read the terminal nor write into the
answers. Its output goes to standard error: a file that the trainer quotes when the process dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import importlib.metadata
import inspect
import json
import os
import pickle
import signal
import struct
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

LENGTH = struct.Struct("<Q")
"""Prefix of every message: its length in bytes."""

LARGEST = 1e15
"""A reward beyond this size is a fault, not a score: its square no longer fits the trainer's arithmetic."""

BATCH = {"prompts", "completions", "answers"}
SAMPLE = {"prompt", "completion", "answer"}
MOST_EXTRA = 32
"""Further numbers per sample that are kept; more would fill the metrics."""
LOGS = ("log_metric", "log_extra")
"""Functions that TRL passes to a reward function, for numbers to log."""


class Reward:
    """A loaded function, called according to the rule in `stabilizer.training.rewards`."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]):
        self.batched, self.rest, named = _parameters(function)
        given = BATCH if self.batched else SAMPLE
        _check_options(options, named, given, self.rest)
        self.names = [name for name in named if name not in options]
        self.trl = self.batched and self.rest and "answers" not in named
        """Whether it has TRL's signature: lists and any further arguments. Of a chat it then gets messages."""
        self.columns = [name for name in self.names if name not in given and name not in LOGS]
        """Parameters that are columns of the data, or options with their default."""
        self.needed = [name for name in self.columns if named[name].default is inspect.Parameter.empty]
        self.function = function
        self.options = options
        self.asynchronous = inspect.iscoroutinefunction(function)
        self.extra: dict[str, list[float | None]] = {}
        """Further numbers of the samples of the last call, by name."""

    def score(self, lists: dict[str, list[Any]], runner: asyncio.Runner) -> list[tuple[float | None, str]]:
        """(value, reason for no value) of each sample. Passes on exceptions of a function of the second form."""
        count = len(lists["completions"])
        self.extra = {}
        if self.batched:
            result = self.function(**self._named(lists), **self._logs(count), **self.options)
            values = runner.run(_awaited(result)) if inspect.isawaitable(result) else result
            return [self._checked(i, value, count) for i, value in enumerate(_as_list(values, count))]
        singular = {name[:-1] if name in BATCH else name: values for name, values in lists.items()}
        rows = [self._named({name: values[i] for name, values in singular.items()}) for i in range(count)]
        if self.asynchronous:
            return runner.run(self._gathered(rows))
        return [self._one(i, row, count) for i, row in enumerate(rows)]

    def _logs(self, count: int) -> dict[str, Callable[[str, Any], None]]:
        """What TRL passes for numbers to log, where the function takes it."""

        def log_metric(name: str, value: Any) -> None:
            self._note(name, range(count), [value] * count, count)

        def log_extra(column: str, values: Any) -> None:
            self._note(column, range(count), list(values)[:count], count)

        functions = dict(zip(LOGS, (log_metric, log_extra), strict=True))
        return {name: call for name, call in functions.items() if name in self.names or self.trl}

    def _note(self, name: str, rows: Sequence[int], values: Sequence[Any], count: int) -> None:
        """Keep what is a finite number."""
        column = self.extra.get(str(name), [None] * count)
        for row, value in zip(rows, values, strict=False):
            if isinstance(value, (int, float)) or hasattr(value, "__float__"):
                number = float(value)
                column[row] = number if abs(number) <= LARGEST else None
        if len(self.extra) < MOST_EXTRA or str(name) in self.extra:
            self.extra[str(name)] = column

    def _checked(self, row: int, value: Any, count: int) -> tuple[float | None, str]:
        """A sample's value; a mapping holds it as `reward`, beside further numbers."""
        if isinstance(value, dict) and "reward" in value:
            for name, further in value.items():
                if name != "reward":
                    self._note(name, [row], [further], count)
            value = value["reward"]
        return _checked(value)

    def _named(self, values: dict[str, Any]) -> dict[str, Any]:
        if self.rest:
            return {name: value for name, value in values.items() if name not in self.options}
        return {name: values[name] for name in self.names if name in values}

    def _one(self, i: int, row: dict[str, Any], count: int) -> tuple[float | None, str]:
        try:
            return self._checked(i, self.function(**row, **self.options), count)
        except Exception as error:
            return None, described(error)

    async def _gathered(self, rows: Sequence[dict[str, Any]]) -> list[tuple[float | None, str]]:
        calls = (self.function(**row, **self.options) for row in rows)
        results = await asyncio.gather(*calls, return_exceptions=True)
        return [
            (None, described(r)) if isinstance(r, BaseException) else self._checked(i, r, len(rows))
            for i, r in enumerate(results)
        ]

    def answer(self, request: dict[str, Any], runner: asyncio.Runner) -> dict[str, Any]:
        """The scores that a request asks for."""
        return {"scores": self.score(request["lists"], runner), "extra": self.extra}

    def about(self) -> dict[str, Any]:
        """What the trainer needs to know of it."""
        return {name: getattr(self, name) for name in ("batched", "rest", "columns", "needed", "trl")}


class Game:
    """A loaded environment: one object of the class for each episode of a step."""

    def __init__(self, made: Callable[..., Any], options: dict[str, Any]):
        if not callable(getattr(made, "step", None)):
            raise ValueError("an environment needs a method `step(text)` that returns (reply, done) or more")
        self._made, self._options = made, options
        self._games: list[Any] = []
        made(**options)  # so that wrong options are found at the start

    def about(self) -> dict[str, Any]:
        """What the trainer needs to know of it."""
        calls = getattr(self._made, "calls", ())
        if isinstance(calls, str) or not all(isinstance(call, str) and call for call in calls):
            raise ValueError(f"`calls` must be a tuple of texts that end a turn, not {calls!r}")
        return {"calls": list(calls), "role": str(getattr(self._made, "role", "user"))}

    def answer(self, request: dict[str, Any], runner: asyncio.Runner) -> dict[str, Any]:
        """Begin episodes, or answer a turn of some of them."""
        if "begin" in request:
            self._games = []
            return {"begun": [self._begun(columns) for columns in request["begin"]]}
        return {"steps": runner.run(self._stepped(request["steps"]))}

    def _begun(self, columns: dict[str, Any]) -> str:
        self._games.append(None)
        try:
            game = self._made(**self._options)
            if reset := getattr(game, "reset", None):
                parameters = inspect.signature(reset).parameters
                rest = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
                reset(**{name: value for name, value in columns.items() if rest or name in parameters})
        except Exception as error:
            return described(error)
        self._games[-1] = game
        return ""

    async def _stepped(self, turns: Sequence[tuple[int, str]]) -> list[tuple[str, bool, float | None, str]]:
        return list(await asyncio.gather(*(self._step(number, text) for number, text in turns)))

    async def _step(self, number: int, text: str) -> tuple[str, bool, float | None, str]:
        try:
            game = self._games[number] if number < len(self._games) else None
            if game is None:
                return "", True, None, "its process was restarted in the middle of the episode"
            result = game.step(text)
            return _step_taken(await result if inspect.isawaitable(result) else result)
        except Exception as error:
            return "", True, None, described(error)


def _step_taken(result: Any) -> tuple[str, bool, float | None, str]:
    """(reply, done, reward, why there is none) from what `step` returned."""
    if not isinstance(result, (tuple, list)) or len(result) not in (2, 3):
        return "", True, None, f"step returned {type(result).__name__}, not (reply, done) or (reply, done, reward)"
    text, done, reward = (*result, None)[:3]
    if text is not None and not isinstance(text, str):
        return "", True, None, f"step returned a reply of type {type(text).__name__}, not text"
    value, why = _checked(reward)
    return text or "", bool(done), value, why


def _parameters(function: Callable[..., Any]) -> tuple[bool, bool, dict[str, inspect.Parameter]]:
    """(whether it takes lists, whether it takes any argument, the parameters it names)."""
    parameters = inspect.signature(function).parameters
    if ("completions" in parameters) == ("completion" in parameters):
        raise ValueError(
            "it must have a parameter `completion` (one sample in, a number out) or `completions` (lists in, a list"
            f" of numbers out), and not both; it has {', '.join(parameters) or 'none'}"
        )
    rest = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = {name: p for name, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return "completions" in parameters, rest, named


def _check_options(options: dict[str, Any], named: dict[str, Any], given: set[str], rest: bool) -> None:
    unknown = [] if rest else [name for name in options if name not in named]
    if unknown:
        raise ValueError(f"it has no option {unknown[0]!r}; it takes {', '.join(named)}")
    taken = [name for name in options if name in given]
    if taken:
        raise ValueError(f"{taken[0]!r} is not an option: each sample provides it")


class NoList(TypeError):
    """A function of lists returned no list of that length, so no value can be assigned to a sample."""


async def _awaited(result: Any) -> Any:
    return await result


def _as_list(values: Any, count: int) -> list[Any]:
    kind = type(values).__name__
    if isinstance(values, (str, bytes, dict)) or not hasattr(values, "__iter__"):
        raise NoList(f"it returned {kind}, not a list of {count} numbers")
    listed = list(values)
    if len(listed) != count:
        raise NoList(f"it returned {len(listed)} values for {count} completions")
    return listed


def _checked(value: Any) -> tuple[float | None, str]:
    if value is None:
        return None, ""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        return None, f"it returned {type(value).__name__}, not a number"
    try:
        number = float(value)
    except Exception as error:
        return None, described(error)
    return (number, "") if abs(number) <= LARGEST else (None, f"it returned {number:g}")  # NaN fails too


def described(error: BaseException) -> str:
    """An error in one line, with its place in the function's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename != __file__]
    place = f" ({os.path.basename(own[-1].filename)} line {own[-1].lineno})" if own else ""
    try:
        text = " ".join(str(error).split())
    except Exception:  # a user's error whose text fails: its type and place remain useful
        text = ""
    return f"{type(error).__name__}{': ' if text else ''}{text[:300]}{place}"


# --- loading --------------------------------------------------------------------------------------------------------


def load(request: dict[str, Any]) -> Any:
    """The function or class of a request: from a file (with its text), built in, or an entry point."""
    sys.path[:] = request["path"]
    name = request["function"]
    if request["source"] is not None:
        file = request["file"]
        sys.path.insert(0, os.path.dirname(file))
        module = types.ModuleType(os.path.splitext(os.path.basename(file))[0])
        module.__file__ = file
        sys.modules.setdefault(module.__name__, module)
        exec(compile(request["source"], file, "exec"), module.__dict__)  # noqa: S102 (the user's code)
        found = getattr(module, name, None)
        if not callable(found):
            kind, what = (inspect.isclass, "class") if request.get("kind") else (inspect.isfunction, "function")
            there = [key for key, value in vars(module).items() if kind(value) and key[0] != "_"]
            raise ValueError(f"the file has no {what} {name!r}; it has {', '.join(there) or 'none'}")
        return found
    rewards = importlib.import_module("stabilizer.training.rewards")
    if name in rewards.BUILTIN and not request.get("kind"):
        return rewards.BUILTIN[name]
    (entry,) = importlib.metadata.entry_points(group=request["group"], name=name)
    return entry.load()


# --- the process ----------------------------------------------------------------------------------------------------


def main() -> None:
    """Load one function or class, then answer requests until the trainer closes the connection."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    _die_with_the_trainer()
    _adopt_orphans()
    runner = asyncio.Runner()
    loaded: Reward | Game | None = None
    own = os.getpid()
    while (request := _read(requests)) is not None:
        answer, code = {"id": request["id"]}, 0
        try:
            if loaded is None:
                _limit(request["memory_gb"])
                kind = Game if request.get("kind") else Reward
                loaded = kind(load(request), request["options"])
                answer["about"] = loaded.about()
            else:
                # If the trainer is gone while the function blocks every thread, the kernel ends the process.
                signal.setitimer(signal.ITIMER_PROF, request["cpu_s"])
                answer |= loaded.answer(request, runner)
        except BaseException as error:  # SystemExit too: a function must not be able to end the process
            answer |= {
                "error": str(error) if isinstance(error, NoList) else described(error),
                "no_list": isinstance(error, NoList),
            }
            code = _exit_code(error)
        if os.getpid() != own:  # a forked copy of this process that the function left running: it must not answer
            os._exit(code)
        signal.setitimer(signal.ITIMER_PROF, 0)
        _write(answers, answer)
    end_descendants(own)  # the trainer is gone: nothing that the function started may outlive it


SUBREAPER = 36
"""The number of `prctl` that makes a process the parent of its orphaned descendants, in Linux's <sys/prctl.h>."""


def _adopt_orphans() -> None:
    """Stay the ancestor of everything the function starts, so that it is found at the end, sessions of its own too."""
    with contextlib.suppress(Exception):  # other systems have no such call
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """All processes below one, as /proc shows them; none on other systems."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    below, found = {pid}, []
    while more := [child for child, parent in parents.items() if parent in below and child not in below]:
        below |= set(more)
        found += more
    return found


def end_descendants(pid: int) -> None:
    """Kill everything below a process, and what appears meanwhile."""
    for _ in range(20):
        alive = [child for child in descendants(pid) if not _dead(child)]
        if not alive:
            return
        for child in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.005)


def _dead(pid: int) -> bool:
    """Whether a process has ended and only waits for its parent to notice."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return True


def _read(stream: BinaryIO) -> Any:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    body = stream.read(LENGTH.unpack(head)[0])
    return pickle.loads(body)  # noqa: S301 (from the trainer)


def _exit_code(error: BaseException) -> int:
    """Exit status after an exception, the same as Python's own."""
    code = error.code if isinstance(error, SystemExit) else 1
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def _write(stream: BinaryIO, message: dict[str, Any]) -> None:
    with contextlib.suppress(Exception):  # the function may have closed or replaced it
        sys.stdout.flush()
    body = json.dumps(message).encode()
    stream.write(LENGTH.pack(len(body)) + body)
    stream.flush()


def _limit(memory_gb: float) -> None:
    """If memory runs out, the kernel should end this process and not the trainer."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass  # not Linux
    if memory_gb:
        import resource

        limit = int(memory_gb * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _die_with_the_trainer() -> None:
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    main()
