"""The interface of the training process that the remedy engine needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from stabilizer.control.fork import Fork
from stabilizer.control.probe import Probe
from stabilizer.core.knobs import Checkpoint
from stabilizer.core.records import Action


class Host(Protocol):
    """The training process."""

    def journal(self, action: Action) -> Action:
        """Write an entry of the journal durably, then return it as written."""

    def declare(self, step: int, kind: str, text: str, **data: Any) -> None:
        """Write an event."""

    def roll_back(self, checkpoint: Checkpoint, text: str, *, vary_data: bool = True, **data: Any) -> None:
        """Return the run to a checkpoint and start a new attempt, with other prompts unless requested otherwise."""

    def pause(self, text: str) -> None:
        """Wait after the current step until a person resumes the run."""

    def stop(self, text: str) -> None:
        """End the run after the current step, with its state saved."""

    def fork(self, changes: Mapping[str, Mapping[str, float]], steps: int) -> Fork:
        """Run some steps under each change from the current state, then restore that state."""

    def probe(self, checkpoint: Checkpoint) -> Probe:
        """The rewards of a checkpoint's weights and of the current ones on the same prompts; training is not
        affected."""
