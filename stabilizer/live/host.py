"""What remedies and requests may do to a live run, always between two steps.

It is the `Host` of the remedies (`control`) and the `RequestHost` of the requests.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from stabilizer.control.fork import Fork, paired
from stabilizer.control.probe import Probe, probe
from stabilizer.core.knobs import Checkpoint
from stabilizer.core.records import Action
from stabilizer.live.heart import Heart
from stabilizer.live.machine import GB
from stabilizer.live.monitor import Monitor
from stabilizer.live.recorder import Recorder
from stabilizer.training.checkpoint import most_kept
from stabilizer.training.loop import Trainer


class RunHost(Recorder):
    """Acts on one trainer and puts every act on record."""

    def __init__(self, trainer: Trainer, monitor: Monitor, earlier: Sequence[Action] = ()):
        super().__init__(monitor, earlier)
        self.trainer = trainer
        self.heart = Heart()
        self.unsaved = ""
        """Why the newest checkpoint is not on disk; empty while it is."""
        self._sized = False
        """Whether a checkpoint with the optimizer's state, which the first one lacks, was compared with the disk."""

    @property
    def step(self) -> int:
        """The last finished step."""
        return self.trainer.step

    def save_checkpoint(self, *, patience_s: float = 0.0) -> None:
        """Save the present state, after waiting so long for a slow disk. A failure is put on record, and training
        continues."""
        try:
            if not self.monitor.writer.disk.answers(patience_s):
                raise OSError("the disk does not answer")
            with self.heart.phase("save"):
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
            if self.step and not self._sized:
                self._sized = True
                with self.monitor.guarded(self.step):
                    self._note_room()

    def _note_room(self) -> None:
        """Put on record when the disk has no room for the checkpoints that this run will keep."""
        config, folder = self.trainer.config, self.trainer.checkpoints()[-1].path
        size = sum(file.stat().st_size for file in folder.iterdir()) / GB
        number = most_kept(config.steps, config.checkpoint.every, config.checkpoint.keep) + config.checkpoint.best
        there = len(self.trainer.checkpoints())
        free = shutil.disk_usage(folder).free / GB
        if (missing := (number - there) * size - free) > 0:
            text = f"the disk has {free:.3g} GB free, and up to {number} checkpoints of {size:.3g} GB each will be kept"
            self.monitor.trouble(self.step, f"{text}: free {missing:.3g} GB, or set checkpoint.keep")

    def roll_back(self, checkpoint: Checkpoint, text: str, *, vary_data: bool = True, **data: Any) -> None:
        """Return to a checkpoint: the trainer goes back, a new attempt begins, the old branch stays readable."""
        self.trainer.controls.restore(checkpoint, vary_data=vary_data)
        self.trainer.attempt = self.monitor.writer.attempt + 1
        self.save_checkpoint()  # before the attempt is declared: a crash in between must not resume the old branch
        self.monitor.begin_attempt(checkpoint.step + 1, "rollback")
        self.declare(checkpoint.step + 1, "rollback", text, **data)

    def stop(self, text: str) -> None:
        """End the run after this step, with its state saved."""
        self.ended_by = text

    def fork(self, changes: Mapping[str, Mapping[str, float]], steps: int) -> Fork:
        """Run copies of the run side by side; the run itself does not move."""
        with self.heart.phase("trial"):
            return paired(self.trainer, changes, steps)

    def probe(self, checkpoint: Checkpoint) -> Probe:
        """Measure what the weights of a checkpoint would earn now; the run itself does not move."""
        with self.heart.phase("trial"):
            return probe(self.trainer, checkpoint)
