"""The steps of a foreign loop and those of its run: a return to a checkpoint sets the run back, and not the loop.

A restarted attempt gets its step from the loop's own state. Events of returns and restarts therefore hold at which step
of the loop how many steps were lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from stabilizer.core.records import Event

RETURNS = "returns"
"""Where events keep them."""


class LoopClock:
    """Where the loop is, in its own steps and in those of the run."""

    def __init__(self, earlier: Iterable[Event] = ()):
        self.loop = 0
        """The loop's own count of its steps, which never goes back within an attempt."""
        known = [event.data[RETURNS] for event in earlier if RETURNS in event.data]
        self.returns: list[tuple[int, int]] = [(int(at), int(lost)) for at, lost in (known[-1] if known else ())]
        """Per return: the loop's step, and all steps that were lost by then."""

    @property
    def step(self) -> int:
        """The run's step after which the loop is."""
        return self.loop - (self.returns[-1][1] if self.returns else 0)

    def begin(self, loop: int) -> None:
        """The loop begins after a step of its own: returns that it made later belong to an abandoned branch."""
        self.loop = loop
        self.returns = [(at, lost) for at, lost in self.returns if at <= loop]

    def went_back_to(self, step: int) -> None:
        """The loop has the weights of a step of the run."""
        self.returns.append((self.loop, self.loop - step))
