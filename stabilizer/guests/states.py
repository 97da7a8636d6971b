"""Checkpoints of ours inside a foreign trainer: saved and restored by the loop's thread, verified, thinned out.

What is in a state is the adapter's business (`Keeper`); this file decides when one is saved, where, and which may be
returned to. States are saved regularly only if fixes may be applied, and so rarely that saving takes at most
`SHARE` of the time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from stabilizer.core.knobs import Checkpoint
from stabilizer.guests.boundary import Boundary
from stabilizer.training import checkpoint as disk

SHARE = 0.02
"""Share of the training time that regular checkpoints may take."""
LEAST = 20
"""Fewest steps between two regular checkpoints: about the uncertainty of an onset."""
KEEP = 3
"""Newest states that are never thinned out, and newest ones from before somebody changed a setting."""


class Keeper(Protocol):
    """What the adapter of a trainer knows about its state. Called in the loop's thread, between two steps."""

    def save(self) -> Mapping[str, bytes | disk.Content]:
        """The files of the present state. OSError or ValueError if it cannot be saved."""

    def load(self, files: Mapping[str, Path]) -> None:
        """Restore a verified state. Nothing changes unless all of it fits."""

    def reset_optimizer(self) -> None:
        """Clear the optimizer's running averages."""

    def reset_reference(self) -> None:
        """Make the present policy the reference of the KL; ValueError if there is none."""


class LoopStates:
    """The states of one run: the `Backend` of its knobs."""

    def __init__(
        self, folder: Path, keeper: Keeper, boundary: Boundary, *, every: int | None = None,
        restored: Callable[[Checkpoint], None] = lambda checkpoint: None,
    ):  # fmt: skip
        self._folder = folder
        self._keeper = keeper
        self._boundary = boundary
        self._every = every
        self._restored = restored
        self.step = 0
        """The run's step after which the loop is."""
        self.attempt = 0
        self._known: list[Checkpoint] = []
        """States on the present branch, oldest first."""
        self._asked_for: set[int] = set()
        """Steps of states that a user asked for."""
        self._before_changes: deque[int] = deque(maxlen=KEEP)
        """Steps of states from just before somebody changed a setting: what a rollback may need much later."""
        self._saving_s = 0.0
        self._before: tuple[int, float] | None = None
        """Step and time at the end of the last regular checkpoint."""

    # --- in the loop's thread ----------------------------------------------------------------------------------------

    def go_on(self, step: int) -> None:
        """The loop begins after a step: states that an earlier attempt saved until then are of this branch."""
        for state in sorted(disk.scan(self._folder), key=lambda state: state.step):
            if state.step <= step:
                self._known.append(state)
            else:
                disk.remove(state)

    def save(self, *, keep: bool = False) -> Checkpoint:
        """Save the present state. OSError if that fails."""
        began = time.monotonic()
        try:
            files = self._keeper.save()
        except (ValueError, TypeError, RuntimeError) as error:
            raise OSError(f"the trainer's state could not be saved: {error}") from error
        saved = disk.write(self._folder, self.step, self.attempt, files)
        self._known = [*(state for state in self._known if state.path != saved.path), saved]
        if keep:
            self._asked_for.add(saved.step)
        self._thin()
        self._saving_s = time.monotonic() - began
        return saved

    def setting_changed(self) -> None:
        """Somebody changed a setting of the loop: keep the state from before it."""
        if self._known and self._known[-1].step not in self._before_changes:
            self._before_changes.append(self._known[-1].step)

    def save_if_due(self) -> None:
        """Save a regular checkpoint, if it is time for one. OSError if that fails."""
        if self._due():
            self.save()
            self._before = (self.step, time.monotonic())

    def _due(self) -> bool:
        if self._before is None:
            return True
        since, then = self._before
        if self._every is not None:
            return self.step - since >= self._every
        steps, seconds = self.step - since, time.monotonic() - then
        return steps >= LEAST and seconds * SHARE >= self._saving_s

    def _load(self, checkpoint: Checkpoint) -> None:
        self._keeper.load(disk.verified(checkpoint))
        abandoned = [state for state in self._known if state.step > checkpoint.step]
        self._known = [state for state in self._known if state.step <= checkpoint.step]
        for state in abandoned:
            disk.remove(state)
        self.step = checkpoint.step
        self._before = (self.step, time.monotonic())
        self._restored(checkpoint)

    def _thin(self) -> None:
        also = self._asked_for.union(self._before_changes)
        kept = disk.worth_keeping((state.step for state in self._known), KEEP, also)
        for state in [state for state in self._known if state.step not in kept]:
            disk.remove(state)
            self._known.remove(state)

    # --- the backend: called by the run's thread ---------------------------------------------------------------------

    def snapshot(self, *, keep: bool = False) -> Checkpoint:
        """Save the state that the loop has at its next boundary."""
        saved: Checkpoint = self._boundary.ask(lambda: self.save(keep=keep))
        return saved

    def checkpoints(self) -> list[Checkpoint]:
        """States that can be restored, oldest first."""
        return list(self._known)

    def load_checkpoint(self, checkpoint: Checkpoint, *, vary_data: bool) -> None:
        """Restore a state. The prompts that follow are new ones in any case: a trainer's data goes on."""
        self._boundary.ask(lambda: self._load(checkpoint))

    def reset_optimizer(self) -> None:
        """Clear the optimizer's running averages."""
        self._boundary.ask(self._keeper.reset_optimizer)

    def reset_reference(self) -> None:
        """Make the present policy the reference."""
        self._boundary.ask(self._keeper.reset_reference)
