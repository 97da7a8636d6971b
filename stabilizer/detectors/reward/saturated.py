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
"""Share of the way to the ceiling that still counts as there."""


@dataclass(frozen=True, kw_only=True)
class Saturated(Detector):
    """The reward stands at its ceiling: nearly every group passes as a whole. Good news, and the end of learning.

    Signature
        The task counts as solved (`progress`: 90 % of completions by accuracy, else by groups that all pass, else 95 %
        by a component that pays for right answers, else a reward at 0.9 of 1 or, on a scale beyond 1, at 0.95 of what
        two rows were paid in all of their answers and no row exceeded, or, on another scale, at its best after a rise
        with answers that came to be paid alike: within groups and from row to row by under 60 % of what it was at
        first, or by far less within groups, or 80 % of groups without any spread and rows that differ less), for `rows`
        rows in a row; the reward no longer rises. Where all-pass groups are logged they must be half of all. Always
        `info`.

    Why it matters
        Groups that all pass have no spread, so the step costs what it cost before and changes nothing; KL and entropy
        terms are what is left to move the policy, and long stays here wear it down.

    Look-alikes
        A plateau below the ceiling, where there is something left to gain (`reward/plateau`, which stands beside this
        one where nothing that is logged tells them apart). Groups that all fail are as silent (`reward/no-signal`); the
        level of the reward tells them apart. A format reward that is earned by all saturates by itself while the task
        does not: accuracy, where it is known, is asked first.

    False alarms
        None that cost anything: nothing is done about it. A reward that was hacked to its ceiling looks solved;
        held-out accuracy will tell (`reward/hacking`).

    Remedies
        By hand: stop here, or go on with harder prompts (drop those with a pass rate of 90 % and more). Of the fixes at
        hand only `grow-batch` finds the few groups that still have spread, and it costs what it finds.

    References
        ScaleRL (arXiv 2510.13786) on no-positive-resampling; DAPO's dynamic sampling (arXiv 2503.14476).
    """

    id = "reward/saturated"
    needs = ("reward/mean|accuracy/train",)
    confirm = 5

    rows: int = 20
    """Rows that the reward must have stood there."""
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
        groups = f", and {share:.0%} of groups pass as a whole" if share is not None else ""
        return self.finding(
            view, "info", _arrived(view.series(reward.metric), reward),
            f"{reward.metric} has reached its ceiling at {reward.now:.3g} (from {reward.start:.3g}){groups}:"
            " little is left to learn from these prompts",
            metric=reward.metric, baseline=reward.start, now=reward.now, all_pass=share,
        )  # fmt: skip


def _arrived(series: Series, reward: Progress) -> int:
    """The step from which the reward has been at its ceiling: after the last level that was clearly below it."""
    recent = series.last(1000).finite()
    values, width = recent.values, LEVEL
    levels = np.median(np.lib.stride_tricks.sliding_window_view(values, width), axis=1)
    ceiling = float(np.median(values[-SLOW[0] :]))
    below = (levels < ceiling - max(2 * step_noise(values[-2 * SLOW[0] :]), NEAR * (ceiling - reward.start))).nonzero()[
        0
    ]
    return int(recent.steps[min(int(below[-1]) + width // 2 + 1, len(values) - 1) if len(below) else 0])
