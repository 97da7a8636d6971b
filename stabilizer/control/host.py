"""What the remedy engine needs of the training process around it."""

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
        """Write an entry of the journal, durably, before returning it as it was written."""

    def declare(self, step: int, kind: str, text: str, **data: Any) -> None:
        """Write an event."""

    def roll_back(self, checkpoint: Checkpoint, text: str, *, vary_data: bool = True, **data: Any) -> None:
        """Return the run to a checkpoint and begin a new attempt, with other prompts ahead unless asked not to."""

    def pause(self, text: str) -> None:
        """Wait after the present step until a person says that the run may go on."""

    def stop(self, text: str) -> None:
        """End the run after the present step, with its state saved."""

    def fork(self, changes: Mapping[str, Mapping[str, float]], steps: int) -> Fork:
        """Run some steps under each of some changes from the present state, and come back as if nothing had been."""

    def probe(self, checkpoint: Checkpoint) -> Probe:
        """The rewards of a checkpoint's weights now, beside those of the present ones; training is not affected."""
