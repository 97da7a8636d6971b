"""What remedies and requests may do to a live run, always between two steps.

It is the `Host` of the remedies (`control`) and the `RequestHost` of the requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from stabilizer.control.fork import Fork, paired
from stabilizer.control.probe import Probe, probe
from stabilizer.core.knobs import Checkpoint
from stabilizer.core.records import Action
from stabilizer.live.monitor import Monitor
from stabilizer.training.loop import Trainer


class RunHost:
    """Acts on one trainer and puts every act on record."""

    def __init__(self, trainer: Trainer, monitor: Monitor, earlier: Sequence[Action] = ()):
        self.trainer = trainer
        self.monitor = monitor
        self.entries: list[Action] = list(earlier)
        """The journal, with the entries of earlier processes."""
        self.paused = False
        self.ended_by = ""
        """The fix that ends the run; empty while none does."""
        self.unsaved = ""
        """Why the newest checkpoint is not on disk; empty while it is."""

    @property
    def step(self) -> int:
        """The last finished step."""
        return self.trainer.step

    def save_checkpoint(self) -> None:
        """Save the present state; a failure is put on record, and training continues."""
        try:
            self.trainer.save_checkpoint()
        except OSError as error:
            already, self.unsaved = self.unsaved, str(error)
            text = f"checkpoint could not be saved: {error}"
            if already:  # the record has each failure; the user sees the first
                self.note(text)
            else:
                self.monitor.trouble(self.step, text)
        else:
            self.unsaved = ""

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

    def roll_back(self, checkpoint: Checkpoint, text: str, *, vary_data: bool = True, **data: Any) -> None:
        """Return to a checkpoint: the trainer goes back, a new attempt begins, the old branch stays readable."""
        self.trainer.controls.restore(checkpoint, vary_data=vary_data)
        self.trainer.attempt = self.monitor.writer.attempt + 1
        self.save_checkpoint()  # before the attempt is declared: a crash in between must not resume the old branch
        self.monitor.begin_attempt(checkpoint.step + 1, "rollback")
        self.declare(checkpoint.step + 1, "rollback", text, **data)

    def pause(self, text: str) -> None:
        """Wait after this step until a user asks to resume."""
        self.hold(True)
        self.declare(self.step, "note", f"paused: {text}")

    def stop(self, text: str) -> None:
        """End the run after this step, with its state saved."""
        self.ended_by = text

    def fork(self, changes: Mapping[str, Mapping[str, float]], steps: int) -> Fork:
        """Run copies of the run side by side; the run itself does not move."""
        return paired(self.trainer, changes, steps)

    def probe(self, checkpoint: Checkpoint) -> Probe:
        """Measure what the weights of a checkpoint would earn now; the run itself does not move."""
        return probe(self.trainer, checkpoint)
