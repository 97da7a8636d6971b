"""What is done to a run, put on record: the part of a host that needs no trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stabilizer.core.records import Action
from stabilizer.live.monitor import Monitor


class Recorder:
    """The journal and the events of a run, and whether it should pause or end."""

    def __init__(self, monitor: Monitor, earlier: Sequence[Action] = ()):
        self.monitor = monitor
        self.entries: list[Action] = list(earlier)
        """The journal, with the entries of earlier processes."""
        self.paused = False
        self.ended_by = ""
        """The fix or request that ends the run; empty while none does."""

    @property
    def step(self) -> int:
        """The last finished step."""
        raise NotImplementedError

    def hold(self, paused: bool) -> None:
        """Pause before the next step, or continue."""
        self.paused = paused

    def journal(self, action: Action) -> Action:
        """Write an entry of the journal, with the step after which it holds where that is not its own step."""
        if action.step != self.step:  # a return to a checkpoint; the end of what an earlier process began
            action = replace(action, data={**action.data, "after_step": self.step})
        record = self.monitor.writer.action(action)
        self.entries.append(record)
        return record

    def note(self, text: str, **data: Any) -> None:
        """Write a note that detectors do not see."""
        self.monitor.writer.event(self.step, "note", text, **data)

    def declare(self, step: int, kind: str, text: str, **data: Any) -> None:
        """Write an event; detectors see it from that step on."""
        self.monitor.declare(step, kind, text, **data)

    def declared(self, action: str) -> bool:
        """Whether an event of this action is on record."""
        return any(event.data.get("action") == action for event in self.monitor.history.events)

    def pause(self, text: str) -> None:
        """Wait after this step until a user asks to resume."""
        self.hold(True)
        self.declare(self.step, "note", f"paused: {text}")

    def stop(self, text: str) -> None:
        """End the run after this step."""
        self.ended_by = text
