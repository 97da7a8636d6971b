"""Reward collapse: what had been learned is gone."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.detectors.base import Detector
from stabilizer.detectors.progress import progress
from stabilizer.records import Finding
from stabilizer.runs.history import RunView


@dataclass(frozen=True, kw_only=True)
class Collapse(Detector):
    """The reward has fallen far below the best level it had reached, and is not on its way back.

    Signature
        The median of the last 5 rewards is below the best such median by more than 30 % of what the run ever moved
        through and by more than 3 standard deviations of a row's noise (`progress`), and the last 30 rows do not rise.
        It stands as long as the loss is not made good, so a run that broke is not called healthy once its other
        numbers have settled at a new level.

    Why it matters
        It is the outcome all other findings warn of. Continuing seldom helps: the weights are damaged, or the reward
        no longer says what it said.

    Look-alikes
        Harder prompts, a new curriculum stage or another reward lower the number without any loss of skill: declare
        them as events, and look at held-out accuracy. A verifier that is down drops the reward within a step while
        entropy, KL and gradients stay where they are (`reward-fault` among the causes). A dip on the way up is made
        good within some rows; the finding must stand for 8.

    False alarms
        Undeclared changes of data. Rewards that wander by themselves widen their own noise here, but in a run younger
        than the period of its wandering the first way down looks like a fall.

    Remedies
        `roll-back` with a lower learning rate when the policy moved first; `check-reward` when only the reward did.

    References
        RAGEN (arXiv 2504.20073) on the order of collapse: reward spread, entropy, gradient, reward.
    """

    id = "reward/collapse"
    needs = ("reward/mean|accuracy/train",)
    confirm = 8

    young: int = 40
    """Rows before which a fall of the reward alone says nothing: how far it wanders by itself is not known yet."""

    def check(self, view: RunView) -> Finding | None:
        reward = progress(view)
        if reward is None or reward.rows < self.young or not reward.dropped or reward.rising:
            return None
        return self.finding(
            view, "critical", reward.drop_step,
            f"{reward.metric} has fallen to {reward.now:.3g} from {reward.best:.3g} at step {reward.peak_step}"
            f" (noise of a row {reward.noise:.2g})",
            metric=reward.metric, baseline=reward.best, now=reward.now,
        )  # fmt: skip
