"""What requests and proposals may do to a foreign loop: change its knobs, pause it, ask it to stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from stabilizer.control.fork import Fork
from stabilizer.control.probe import Probe
from stabilizer.core.knobs import Checkpoint
from stabilizer.core.records import Action
from stabilizer.live.monitor import Monitor


class GuestHost:
    """Puts every act on record. It is the `Host` of proposals and the `RequestHost` of requests."""

    def __init__(self, monitor: Monitor):
        self.monitor = monitor
        self.entries: list[Action] = []
        self.step = 0
        self.paused = False
        self.ended_by = ""
        """Why the loop should stop; empty while it should not."""

    def save_checkpoint(self) -> None:
        """The loop saves its own."""

    def hold(self, paused: bool) -> None:
        """Pause before the next step, or continue; the loop reads it in `Decision.paused`."""
        self.paused = paused

    def journal(self, action: Action) -> Action:
        """Write an entry of the journal."""
        if action.step != self.step:
            action = replace(action, data={**action.data, "after_step": self.step})
        record = self.monitor.writer.action(action)
        self.entries.append(record)
        return record

    def note(self, text: str, **data: Any) -> None:
        """Write a note that detectors do not see."""
        self.monitor.writer.event(self.step, "note", text, **data)

    def declare(self, step: int, kind: str, text: str, **data: Any) -> None:
        """Write an event that detectors see from that step on."""
        self.monitor.declare(step, kind, text, **data)

    def declared(self, action: str) -> bool:
        """Whether an event of this action is on record."""
        return any(event.data.get("action") == action for event in self.monitor.history.events)

    def pause(self, text: str) -> None:
        """Ask the loop to wait."""
        self.hold(True)
        self.declare(self.step, "note", f"paused: {text}")

    def stop(self, text: str) -> None:
        """Ask the loop to stop."""
        self.ended_by = text

    def roll_back(self, checkpoint: Checkpoint, text: str, *, vary_data: bool = True, **data: Any) -> NoReturn:
        """Refused: a guest restores no states."""
        raise ValueError("this run is a guest in another loop, whose checkpoints it cannot restore")

    def fork(self, changes: Mapping[str, Mapping[str, float]], steps: int) -> Fork:
        """Refused."""
        raise ValueError("a guest cannot train copies of the run")

    def probe(self, checkpoint: Checkpoint) -> Probe:
        """Refused."""
        raise ValueError("a guest cannot measure the weights of a checkpoint")
