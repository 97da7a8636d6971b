"""Compares the rewards of the current weights with those of a checkpoint, to measure the gain of a rollback.

    from stabilizer.control.probe import probe

    found = probe(trainer, checkpoint)
    print(found.nothing_won or "a rollback helps")

Both answer the next prompts, under the current knobs, engine and reward, and the held-out problems. A fault outside of
the weights affects the older ones too, so they get no higher reward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from stabilizer.core.earnings import BATCHES, Paid
from stabilizer.core.knobs import Checkpoint

SURE = 2.0
"""Number of standard errors above which a difference is more than chance."""
LEAST = 0.02
"""Smallest gain in solved held-out problems that justifies a rollback."""
COST = BATCHES
"""Approximate cost of the answers of both, in steps. They are not used for training."""


class Payable(Protocol):
    """The methods that a trainer needs for a probe."""

    def paid(self, checkpoint: Checkpoint | None = None) -> Paid:
        """Rewards of its weights now, or of those of a checkpoint. The trainer's state does not change."""


@dataclass(frozen=True)
class Probe:
    """The rewards of the current weights and of those of a checkpoint."""

    step: int
    """Of the checkpoint."""
    here: Paid
    there: Paid

    @property
    def more(self) -> tuple[float, float]:
        """The checkpoint's reward minus the current one, and its standard error over prompts."""
        both = self.there.rewards - self.here.rewards
        both = both[np.isfinite(both)]
        error = float(both.std(ddof=1)) / math.sqrt(len(both)) if len(both) > 1 else math.inf
        return float(both.mean()) if len(both) else math.nan, error

    @property
    def says_nothing(self) -> bool:
        """Whether nothing could be measured: no rewards, or identical ones from both.

        Equal rewards that differ between prompts mean that the engine did not load the weights. The same reward for
        every prompt points to a faulty reward and not to the answers.
        """
        here, there = self.here.rewards, self.there.rewards
        return not math.isfinite(self.more[1]) or bool(np.array_equal(here, there) and np.ptp(here) > 0)

    @property
    def nothing_won(self) -> str:
        """Why a rollback would gain nothing; empty if it would gain, or if that is unknown."""
        if self.says_nothing or self._solves_more:
            return ""
        more, error = self.more
        return "" if more > SURE * error else f"a rollback to step {self.step} would gain nothing: {self.words}"

    @property
    def learned(self) -> bool:
        """Whether the current weights get more reward than those of the checkpoint, by more than chance."""
        more, error = self.more
        return not self.says_nothing and -more > SURE * error

    @property
    def words(self) -> str:
        """The result of the measurement."""
        if self.says_nothing:
            return "the gain of a rollback could not be measured"
        here, there = float(np.nanmean(self.here.rewards)), float(np.nanmean(self.there.rewards))
        text = f"on the same prompts its weights get a reward of {there:.3g} and the current ones {here:.3g}"
        text += f" (± {self.more[1]:.2g})"
        if math.isfinite(self.here.held_out):
            text += f"; of held-out problems they solve {self.there.held_out:.1%} against {self.here.held_out:.1%}"
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
    """Measure both sets of weights. Raises the errors of the trainer, CheckpointDamaged included."""
    return Probe(checkpoint.step, trainer.paid(), trainer.paid(checkpoint))
