"""Monitor a loop of accelerate: `accelerate.register()`, then `Accelerator(log_with="stabilizer")`.

Every `accelerator.log` becomes a row. Only the main process has a run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stabilizer.guests.adapter import Guest
from stabilizer.guests.own_loop import Decision, GuestRun

NAME = "stabilizer"


def register(*, runs: str | Path = "runs", remedy: str = "suggest") -> None:
    """Make `log_with="stabilizer"` known to accelerate; call it before `Accelerator(...)`.

    `accelerator.get_tracker("stabilizer").run` is the run, whose `rates` and `knob` make knobs changeable.
    """
    from accelerate.tracking import GeneralTracker, register_tracker_class

    class Stabilizer(GeneralTracker):  # type: ignore[misc, unused-ignore]
        """Passes what accelerate logs on."""

        name = NAME
        requires_logging_directory = False

        def __init__(self, run_name: str, **others: Any):
            super().__init__()
            self.guest = Guest("accelerate", run_name, runs=runs, remedy=remedy, packages=("accelerate",))

        @property
        def run(self) -> GuestRun | None:
            if self.guest.run is None:
                self.guest.quietly(self._begin, {})
            return self.guest.run

        @property
        def tracker(self) -> GuestRun | None:
            return self.run

        @property
        def decision(self) -> Decision:
            return self.guest.decision

        def _begin(self, config: dict[str, Any]) -> None:
            if self.guest.begin(config):
                self.guest.announce()

        def store_init_configuration(self, values: dict[str, Any]) -> None:
            self.guest.quietly(self._begin, values)

        def log(self, values: dict[str, Any], step: int | None = None, **others: Any) -> None:
            if self.run is not None:
                self.guest.quietly(lambda: self.guest.log(values, step))

        def finish(self) -> None:
            self.guest.quietly(self.guest.end)

    register_tracker_class(Stabilizer)


def stop_asked(accelerator: Any) -> bool:
    """Whether somebody asked the run to stop; every process gets the same answer, so all must ask."""
    tracker = accelerator.get_tracker(NAME) if accelerator.is_main_process else None
    if tracker is not None and tracker.decision.stop:
        accelerator.set_trigger()
    return bool(accelerator.check_trigger())
