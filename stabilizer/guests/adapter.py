"""What the adapters share: one run, begun when the library begins to train, and hooks that never raise into it.

An adapter translates a library's hooks. It holds a `Guest`, which has no run before `begin`, in a process other than
the main one, or where no run can be written: every call then does nothing.
"""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from stabilizer.core.records import RunState
from stabilizer.guests.knobs import Rates
from stabilizer.guests.own_loop import Decision, GuestRun, check_mode
from stabilizer.trainers.naming import Naming


class Guest:
    """The run of one training inside a library."""

    def __init__(
        self, trainer: str, name: str = "", *, runs: str | Path = "runs", remedy: str = "suggest",
        names: Mapping[str, str] | None = None, naming: Naming | None = None, packages: Iterable[str] = (),
    ):  # fmt: skip
        check_mode(remedy, can_return=False)
        self.run: GuestRun | None = None
        self.decision = Decision()
        """The answer to the newest row."""
        self._trainer, self._name, self._runs, self._remedy = trainer, name or trainer, runs, remedy
        self._names, self._naming, self._packages = names, naming, ("torch", *packages)
        self._knobs: list[str] = []
        self._troubled: set[str] = set()

    def begin(self, config: Mapping[str, Any], *, steps: int | None = None, main: bool = True) -> bool:
        """Begin a run, unless one is open or this is not the main process; whether there is a new one."""
        if not main or (self.run is not None and not self.run.closed):
            return False
        self.run = GuestRun(
            self._name, runs=self._runs, config=config, remedy=self._remedy, steps=steps, trainer=self._trainer,
            names=self._names, naming=self._naming, versions=versions(self._packages),
        )  # fmt: skip
        self.decision, self._knobs = Decision(), []
        return True

    def offer(self, name: str, get: Callable[[], Any], set: Callable[[float], None]) -> None:
        """Make a knob changeable, where the library has it as a number."""
        try:
            float(get())
        except (AttributeError, TypeError, ValueError):
            return
        if self.run is not None:
            self.run.knob(name, get, set)
            self._knobs.append(name)

    def offer_rates(self, optimizers: Iterable[Any], schedules: Iterable[Any] = ()) -> None:
        """Make the learning rate of torch optimizers changeable, where they have one above 0."""
        with contextlib.suppress(ValueError):
            rates = Rates(optimizers, schedules)
            self.offer("lr", rates.get, rates.set)

    def announce(self, alone: bool = True) -> None:
        """Print where the run is and what can be changed."""
        if self.run is not None:
            why = "" if alone else " (several processes: watching only)"
            found = ", ".join(self._knobs) or "none"
            print(f"stabilizer: watching {self._trainer} in {self.run.path}; knobs: {found}{why}", file=sys.stderr)

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> Decision:
        """Log a row, and wait while somebody wants the run to pause."""
        if self.run is not None and not self.run.closed:
            self.decision = self.run.log(metrics, step)
            if self.decision.paused:
                self.run.wait()
        return self.decision

    def enter(self, phase: str) -> None:
        """The training enters a phase, so that a hang is located; the end of a row ends it."""
        if self.run is not None:
            self.run.heart.enter(phase)

    def end(self, error: BaseException | None = None, state: RunState = "finished") -> None:
        """Close the run; with an error it is on record as failed."""
        if self.run is None:
            return
        if error is None:
            self.run.finish(state)
        else:
            self.run.crashed(error)

    def quietly(self, hook: Callable[..., object], *args: Any) -> None:
        """Call a hook of ours; what it raises is reported once and goes no further."""
        try:
            hook(*args)
        except Exception as error:
            self._complain(getattr(hook, "__name__", "hook"), error)

    def _complain(self, what: str, error: Exception) -> None:
        if self.run is not None:
            self.run.complain(what, error)
            return
        text = f"stabilizer: {what}: {type(error).__name__}: {error}; the training goes on unwatched"
        if text not in self._troubled:
            self._troubled.add(text)
            with contextlib.suppress(Exception):  # stderr may be closed
                print(text, file=sys.stderr)


class Backend:
    """A logger as veRL and its heirs call it: `log(data, step)` once a step, on the driver.

    Somebody's wish to stop lowers the number of steps that the trainer's loop compares with.
    """

    def __init__(self, guest: Guest, trainer: Any, last: str):
        self.guest, self._trainer, self._last = guest, trainer, last

    def log(self, data: Mapping[str, Any], step: int, **others: Any) -> None:
        """A row. Nothing that fails in here reaches the trainer."""
        self.guest.quietly(self._log, data, step)

    def _log(self, data: Mapping[str, Any], step: int) -> None:
        if self.guest.log(data, step).stop and hasattr(self._trainer, self._last):
            setattr(self._trainer, self._last, step)

    def finish(self, exit_code: int = 0) -> None:
        """Close the run; its state is failed if the trainer reports a failure."""
        self.guest.quietly(self.guest.end, None, "failed" if exit_code else "finished")


def caller_with(attribute: str, most: int = 8) -> Any:
    """The nearest caller's `self` that has an attribute; None where none of the next `most` callers is one.

    veRL and EasyR1 build their loggers inside the trainer's `fit`, and give them no trainer.
    """
    frame = sys._getframe(1)
    for _ in range(most):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        owner = frame.f_locals.get("self")
        if owner is not None and hasattr(owner, attribute):
            return owner
    return None


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of Python and of the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
