"""No signal: groups whose answers all fail teach nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.detectors.base import Detector
from stabilizer.detectors.progress import Progress, level, progress
from stabilizer.records import Finding
from stabilizer.runs.history import RunView
from stabilizer.signals import median


@dataclass(frozen=True, kw_only=True)
class NoSignal(Detector):
    """Most groups got the same low reward for every answer, so there is next to nothing to learn from.

    Signature
        The median over the last `window` rows of the share of all-fail groups (where only zero-variance groups are
        logged: of those, while the reward is far below its best or has never left its lowest level) is at least
        `much`. It is critical from `nearly_all` on, or when the reward fell to get there; `info` while the reward is
        still rising, because the rest of the batch is then enough.

    Why it matters
        Group-relative advantages of a group without spread are zero. The step costs the same and changes nothing; KL
        and entropy terms are then the only forces on the policy.

    Look-alikes
        Groups in which every answer passes are also without spread, but that is success (`reward/saturated`). A
        verifier that is down looks like every prompt failing at once. Hard curricula start with many all-fail groups;
        as long as the reward rises they are no reason to act, and a young run gets `patience` rows to find its first
        successes.

    False alarms
        Few prompts a step make the share coarse: with 4 prompts it is 0, 25, 50, 75 or 100 %. The median over
        `window` rows takes care of that.

    Remedies
        After a fall: `roll-back`. From the start: `easier-prompts` (filtered ones, or partial credit in the reward). By
        hand: a larger group; the chance that one answer of G succeeds is 1 - (1 - p)^G.

    References
        GRESO (arXiv 2506.02177) and DAPO's dynamic sampling (arXiv 2503.14476) on dead prompts.
    """

    id = "reward/no-signal"
    needs = ("reward/all_fail_frac|reward/zero_std_frac",)

    window: int = 8
    """Rows over which the share is judged."""
    much: float = 0.7
    """Share of groups without signal that is worth a finding."""
    patience: int = 40
    """Rows a run gets to find its first successes before a share below `nearly_all` is held against it."""
    nearly_all: float = 0.9
    """Share from which training has in effect stopped."""

    def check(self, view: RunView) -> Finding | None:
        known = "reward/all_fail_frac" in view
        name = "reward/all_fail_frac" if known else "reward/zero_std_frac"
        series = view.series(name).last(500).finite()
        reward = progress(view)
        if len(series) < self.window or reward is None or reward.solved:
            return None
        share = level(series, self.window)
        if reward.rows < self.patience and not reward.dropped and share < self.nearly_all:
            return None
        if share < self.much or not (known or self._failing(reward)):
            return None
        fell = reward.dropped and not reward.rising
        if reward.rising:
            severity = "info"
        else:
            severity = "critical" if fell or share >= self.nearly_all else "warn"
        low = np.flatnonzero(series.values < self.much / 2 + share / 2 if fell else series.values < self.much)
        onset = int(series.steps[min(int(low[-1]) + 1, len(series) - 1)]) if len(low) else int(series.steps[0])
        name_now = f"{reward.metric} is {reward.now:.3g}"
        origin = f"after {reward.metric} fell from {reward.best:.3g}" if fell else f"and {name_now}"
        kind = "in which every answer fails" if known else "without any spread of reward"
        return self.finding(
            view, severity, min(onset, reward.drop_step) if fell else onset,
            f"{share:.0%} of groups are groups {kind} (median of {self.window} rows), {origin}",
            metric=name, baseline=median(series.values[:5]), now=share,
        )  # fmt: skip

    @staticmethod
    def _failing(reward: Progress) -> bool:
        """Without a share of all-fail groups: the reward never left its floor, or is far below its best."""
        reach = reward.best - reward.lowest
        if reach <= 1e-9:
            return reward.lowest <= 0
        return reward.now - reward.lowest < 0.3 * reach and reward.best - reward.now > 0.3 * reach
