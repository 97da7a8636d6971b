"""What requests and proposals may do to a foreign loop: change its knobs, pause it, ask it to stop, and go back to a
checkpoint of ours where its adapter keeps some."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stabilizer.control.fork import Fork
from stabilizer.control.probe import Probe
from stabilizer.core.earnings import Paid
from stabilizer.core.knobs import Checkpoint
from stabilizer.core.records import Action
from stabilizer.guests.boundary import Boundary
from stabilizer.guests.clock import LoopClock
from stabilizer.guests.knobs import LoopControls
from stabilizer.guests.states import LoopStates
from stabilizer.live.monitor import Monitor
from stabilizer.live.recorder import Recorder
from stabilizer.training.checkpoint import verified

Pay = Callable[[Mapping[str, Path] | None], Paid]
"""Measures what the present weights earn, or those in the files of a checkpoint; the loop's state does not change."""


class GuestHost(Recorder):
    """Puts every act on record. It is the `Host` of proposals and the `RequestHost` of requests."""

    def __init__(
        self, monitor: Monitor, controls: LoopControls, boundary: Boundary, clock: LoopClock,
        states: LoopStates | None = None, pay: Pay | None = None, earlier: Sequence[Action] = (),
    ):  # fmt: skip
        super().__init__(monitor, earlier)
        self._controls = controls
        self._boundary = boundary
        self._clock = clock
        self._states = states
        self._pay = pay
        self.last_step = 0
        """The step of the newest row."""

    @property
    def step(self) -> int:
        return self.last_step

    def save_checkpoint(self) -> None:
        """Save the present state, if the adapter keeps any; a failure is put on record."""
        if self._states is not None:
            try:
                self._states.snapshot()
            except OSError as error:
                self.note(f"checkpoint could not be saved: {error}")

    def roll_back(self, checkpoint: Checkpoint, text: str, *, vary_data: bool = True, **data: Any) -> None:
        """Return to a checkpoint of ours: a new attempt begins, and the old branch stays readable."""
        self._controls.restore(checkpoint, vary_data=vary_data)
        self.monitor.begin_attempt(checkpoint.step + 1, "rollback")
        if self._states is not None:
            self._states.attempt = self.monitor.writer.attempt
        self.last_step = checkpoint.step
        self.declare(checkpoint.step + 1, "rollback", text, returns=self._clock.returns, **data)

    def fork(self, changes: Mapping[str, Mapping[str, float]], steps: int) -> Fork:
        """Refused."""
        raise ValueError("a guest cannot train copies of the run")

    def probe(self, checkpoint: Checkpoint) -> Probe:
        """Measure what the weights of a checkpoint would earn now; the run itself does not move."""
        pay = self._pay
        if pay is None:
            raise ValueError("a guest cannot measure the weights of a checkpoint")
        files = verified(checkpoint)
        here, there = self._boundary.ask(lambda: (pay(None), pay(files)))
        return Probe(checkpoint.step, here, there)
