"""What requests and proposals may do to a foreign loop: change its knobs, pause it, ask it to stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from stabilizer.control.fork import Fork
from stabilizer.control.probe import Probe
from stabilizer.core.knobs import Checkpoint
from stabilizer.live.monitor import Monitor
from stabilizer.live.recorder import Recorder


class GuestHost(Recorder):
    """Puts every act on record. It is the `Host` of proposals and the `RequestHost` of requests."""

    def __init__(self, monitor: Monitor):
        super().__init__(monitor)
        self.last_step = 0
        """The step of the newest row."""

    @property
    def step(self) -> int:
        return self.last_step

    def save_checkpoint(self) -> None:
        """The loop saves its own."""

    def roll_back(self, checkpoint: Checkpoint, text: str, *, vary_data: bool = True, **data: Any) -> NoReturn:
        """Refused: a guest restores no states."""
        raise ValueError("this run is a guest in another loop, whose checkpoints it cannot restore")

    def fork(self, changes: Mapping[str, Mapping[str, float]], steps: int) -> Fork:
        """Refused."""
        raise ValueError("a guest cannot train copies of the run")

    def probe(self, checkpoint: Checkpoint) -> Probe:
        """Refused."""
        raise ValueError("a guest cannot measure the weights of a checkpoint")
