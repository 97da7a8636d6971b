"""Compares the rewards of the present weights with those of a checkpoint, to see what going back would win.

    from stabilizer.control.probe import probe

    found = probe(trainer, checkpoint)
    print(found.nothing_won or "going back wins")

Both answer the prompts that come next, under the present knobs, engine and reward, and the held-out problems. If the
trouble lies outside of the weights, the older ones meet it too and get no higher reward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from stabilizer.core.earnings import BATCHES, Paid
from stabilizer.core.knobs import Checkpoint

SURE = 2.0
"""Standard errors from which a difference is more than chance."""
LEAST = 0.02
"""Least share of held-out problems that is worth going back for."""
COST = BATCHES
"""About how many steps the answers of both cost. Nothing is learned from them."""


class Payable(Protocol):
    """What a trainer must be able to do for a probe."""

    def paid(self, checkpoint: Checkpoint | None = None) -> Paid:
        """Rewards of its weights now, or of those of a checkpoint. The trainer's state stays as it was."""


@dataclass(frozen=True)
class Probe:
    """The rewards of the present weights and of those of a checkpoint."""

    step: int
    """Of the checkpoint."""
    here: Paid
    there: Paid

    @property
    def more(self) -> tuple[float, float]:
        """The checkpoint's reward less the present one, and its standard error over prompts."""
        both = self.there.rewards - self.here.rewards
        both = both[np.isfinite(both)]
        error = float(both.std(ddof=1)) / math.sqrt(len(both)) if len(both) > 1 else math.inf
        return float(both.mean()) if len(both) else math.nan, error

    @property
    def says_nothing(self) -> bool:
        """Whether nothing could be measured: no rewards, or the very same ones from both.

        Equal rewards that differ between prompts mean that the engine did not load the weights. The same reward for
        every prompt says something about the reward, which may fail, and not about the answers.
        """
        here, there = self.here.rewards, self.there.rewards
        return not math.isfinite(self.more[1]) or bool(np.array_equal(here, there) and np.ptp(here) > 0)

    @property
    def nothing_won(self) -> str:
        """Why going back would win nothing; empty if it would, or if that is not known."""
        if self.says_nothing or self._solves_more:
            return ""
        more, error = self.more
        return "" if more > SURE * error else f"to go back to step {self.step} would win nothing: {self.words}"

    @property
    def words(self) -> str:
        """What was measured."""
        if self.says_nothing:
            return "what going back would win could not be measured"
        here, there = float(np.nanmean(self.here.rewards)), float(np.nanmean(self.there.rewards))
        text = f"on the same prompts its weights get a reward of {there:.3g}, and the present ones {here:.3g}"
        text += f" (± {self.more[1]:.2g})"
        if math.isfinite(self.here.held_out):
            text += f"; of held-out problems they solve {self.there.held_out:.1%}, and these {self.here.held_out:.1%}"
        return text

    @property
    def _solves_more(self) -> bool:
        """Whether the checkpoint solves more of the held-out problems, which counts even if the reward is wrong."""
        here, there = self.here.held_out, self.there.held_out
        if not (math.isfinite(here) and math.isfinite(there)):
            return False
        rate = (here + there) / 2
        error = math.sqrt(max(2 * rate * (1 - rate), 0.01) / max(1, self.here.problems))
        return there - here > max(LEAST, SURE * error)

    def record(self) -> dict[str, Any]:
        """For the journal."""
        more, error = self.more
        known = {"reward_gain": more, "reward_gain_error": error, "accuracy/val_here": self.here.held_out,
                 "accuracy/val_there": self.there.held_out}  # fmt: skip
        return {"step": self.step} | {name: float(f"{x:.4g}") for name, x in known.items() if math.isfinite(x)}


def probe(trainer: Payable, checkpoint: Checkpoint) -> Probe:
    """Measure both weights. Raises what the trainer raises, CheckpointDamaged included."""
    return Probe(checkpoint.step, trainer.paid(), trainer.paid(checkpoint))
