"""Saturated: the task is solved, and solved groups teach nothing more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.core.stats import step_noise
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.progress import LEVEL, SLOW, Progress, progress
from stabilizer.runs.history import RunView, Series

NEAR = 0.05
"""Share of the way to the ceiling that still counts as reached."""


@dataclass(frozen=True, kw_only=True)
class Saturated(Detector):
    """The reward is at its ceiling: almost every group passes completely. Good news, and the end of learning.

    Signature
        The task counts as solved (`progress`) for `rows` consecutive rows, and the reward no longer rises. Solved
        means, by the first of these that is logged: 90 % of completions by accuracy; groups that all pass; 95 % by a
        component for correct answers; a reward at 0.9 of 1; on a scale beyond 1, 0.95 of a reward that two rows were
        paid in all of their answers and no row exceeded; on another scale, a reward at its best after a rise while
        answers came to be paid alike. Paid alike means under 60 % of the initial spread within groups and between rows,
        or far less within groups, or 80 % of groups without any spread and rows that differ less. Where all-pass groups
        are logged they must be half of all. Always `info`.

    Why it matters
        Groups that all pass have no spread, so the step costs the same and changes nothing. Only KL and entropy terms
        still move the policy, and many steps here wear it down.

    Look-alikes
        A plateau below the ceiling, where there is something left to gain (`reward/plateau`, which is reported beside
        this one where no logged metric tells them apart). Groups that all fail are as silent (`reward/no-signal`); the
        level of the reward tells them apart. A format reward that every answer earns saturates by itself while the task
        does not: accuracy, where it is known, is checked first.

    False alarms
        None with a cost: no action follows. A reward that was hacked to its ceiling looks solved; held-out accuracy
        will show it (`reward/hacking`).

    Remedies
        Manually: stop here, or continue with harder prompts (drop those with a pass rate of 90 % and more). Of the
        built-in remedies only `grow-batch` finds the few groups that still have spread, at proportional cost.

    References
        ScaleRL (arXiv 2510.13786) on no-positive-resampling; DAPO's dynamic sampling (arXiv 2503.14476).
    """

    id = "reward/saturated"
    needs = ("reward/mean|accuracy/train",)
    confirm = 5

    rows: int = 20
    """Rows that the reward must have been at its ceiling."""
    passing: float = 0.5
    """Share of groups that all pass, where it is known."""

    def check(self, view: RunView) -> Finding | None:
        reward = progress(view)
        if reward is None or not reward.solved or reward.dropped or reward.rising or reward.rows < self.rows:
            return None
        passed = view.series("reward/all_pass_frac").last(SLOW[0]).finite().values
        share = float(passed.mean()) if len(passed) else None
        if share is not None and share < self.passing:
            return None
        groups = f", and all answers pass in {share:.0%} of groups" if share is not None else ""
        return self.finding(
            view, "info", _arrived(view.series(reward.metric), reward),
            f"{reward.metric} has reached its ceiling at {reward.now:.3g} (from {reward.start:.3g}){groups}:"
            " little is left to learn from these prompts",
            metric=reward.metric, baseline=reward.start, now=reward.now, all_pass=share,
        )  # fmt: skip


def _arrived(series: Series, reward: Progress) -> int:
    """The step since which the reward has been at its ceiling: after the last level that was clearly below it."""
    recent = series.last(1000).finite()
    values, width = recent.values, LEVEL
    levels = np.median(np.lib.stride_tricks.sliding_window_view(values, width), axis=1)
    ceiling = float(np.median(values[-SLOW[0] :]))
    below = (levels < ceiling - max(2 * step_noise(values[-2 * SLOW[0] :]), NEAR * (ceiling - reward.start))).nonzero()[
        0
    ]
    return int(recent.steps[min(int(below[-1]) + width // 2 + 1, len(values) - 1) if len(below) else 0])
