"""No signal: groups in which every answer fails teach nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding, Severity
from stabilizer.core.stats import deviation, mean, median
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.progress import CEILING, LEVEL, Progress, progress
from stabilizer.runs.history import RunView, Series

_SHARES = ("reward/all_fail_frac", "reward/zero_std_frac")
_SPREADS = ("reward/std_group", "reward/std")
_PAID = ("reward/mean", "accuracy/train")
ONE_NUMBER = 1e-3
"""Share of its level within which a reward counts as one number: the seconds or steps in a formula move the last
digits of episodes that are otherwise the same."""


def _silent(view: RunView, name: str | None, rows: int) -> Series:
    """The share of silent groups per row. Where it is not logged: 1 for rows without any spread; or 1 for all rows
    while the reward has been one number of 0 or less since the first row."""
    if name in _SHARES:
        return view.series(name).last(rows).finite()
    series = view.series(name or _paid(view)).last(rows).finite()
    if name:
        silent = series.values == 0
    else:
        same = np.abs(series.values - series.values[:1]) <= ONE_NUMBER * np.abs(series.values[:1])
        silent = same & (series.values <= 0)
    return Series(series.steps, silent.astype(float))


def _paid(view: RunView) -> str:
    """The metric of what answers earn."""
    return next((name for name in _PAID if name in view), _PAID[0])


@dataclass(frozen=True, kw_only=True)
class NoSignal(Detector):
    """Most groups got the same low reward for every answer, so there is almost nothing to learn from.

    Signature
        The mean share of all-fail groups over `window` rows, less two standard errors, is at least `much`. Where a step
        has only a few groups, the mean covers `groups` groups, because one prompt a step makes the share 0 or 1.
        `silence` of them are enough when not one was an exception, or as many rows, `window` at least, as are no
        `accident` at the earlier share of silent groups.

        Where only zero-variance groups are logged, those that all pass are taken off by the level of the reward: no
        more groups can pass than the reward allows. Where `nearly_all` are without spread, whatever they were paid, the
        finding is reported all the same: `info` if they may all have passed, if it has not lasted long, or while the
        reward rises, else `warn`. Where only the spread of rewards is
        logged, rows without any spread count; where not even that is, a reward or accuracy that has been the same
        number, 0 or less, in all rows.

        Where only zero-variance groups are logged and `half` or more have no spread, by one standard error, `info` in
        any case until the task is solved: only the others teach anything. Where only a spread is logged, within groups
        or over the batch, the same holds of `steps` without any.

        Critical from `nearly_all`, and when the reward fell to get there. `info` while the reward is still rising,
        because the rest of the batch is then enough, and during the first `patience` steps of a run that never had a
        success to lose.

    Why it matters
        Group-relative advantages of a group without spread are zero. The step costs the same and changes nothing; KL
        and entropy terms are then the only forces on the policy.

    Look-alikes
        Groups in which every answer passes also have no spread, but that is success (`reward/saturated`); the level of
        the reward tells them apart. A failing verifier looks like every prompt failing at once. Hard tasks start with
        failures only and find their first success after a hundred steps. Single answers, which a critic compares across
        prompts, are no silent groups as long as some of them pass.

    False alarms
        A first success that takes longer than `patience` steps.

    Remedies
        After a fall: `roll-back`. From the start: `easier-prompts` (filtered ones, or partial credit in the reward).
        Manually: a larger group; the chance that one answer of G succeeds is 1 - (1 - p)^G.

    References
        GRESO (arXiv 2506.02177) and DAPO's dynamic sampling (arXiv 2503.14476) on dead prompts.
    """

    id = "reward/no-signal"
    needs = ("reward/all_fail_frac|reward/zero_std_frac|reward/std_group|reward/std|reward/mean|accuracy/train",)

    window: int = 8
    """Rows over which the share is judged where it moves in small steps."""
    groups: int = 48
    """Groups over which it is judged otherwise; rows, when a row is not known to have more than one."""
    silence: int = 26
    """Consecutive groups without any exception that are enough: at a share of 0.7 that happens by chance once in
    10,000 times."""
    never: int = 8
    """Rows that are enough where no group has had any spread since the first row: there is nothing to average."""
    accident: float = 1e-4
    """Probability of such a silence, at the earlier share of silent rows, below which it is no accident."""
    much: float = 0.7
    """Share of groups without signal that is worth a finding."""
    patience: int = 120
    """Steps a run gets to find its first successes."""
    nearly_all: float = 0.9
    """Share from which training has effectively stopped."""
    half: float = 0.5
    """Share of groups without spread from which half of each batch is wasted, which is information in any case."""
    steps: float = 0.35
    """The same share of steps where only the spread is logged: of two groups a step, 0.6 then have none."""

    def check(self, view: RunView) -> Finding | None:
        return self._unpaid(view) or self._wasted(view)

    def _unpaid(self, view: RunView) -> Finding | None:
        """Most groups earn nothing, or the same."""
        known = "reward/all_fail_frac" in view
        name = next((name for name in (*_SHARES, *_SPREADS) if name in view), None)
        newest = _silent(view, name, self.window).values
        if len(newest) < self.window or not float(newest.sum()) >= self.much * self.window:
            return None
        reward, series = progress(view), _silent(view, name, 500)
        if name is None and not series.values.all():
            return None  # a constant reward is no proof
        name = name or _paid(view)
        rows, unbroken = self._rows(view, series.values)
        broken = (series.values < 1).nonzero()[0]
        silence = len(series) - (int(broken[-1]) + 1 if len(broken) else 0)
        unbroken = min(unbroken, self._no_accident(series.values[: len(series) - silence]))
        rows = max(self.window, unbroken) if unbroken <= silence < rows else rows
        rows = min(rows, self.never) if len(series) == silence >= self.never else rows
        recent = series.values[-rows:]
        if reward is None or reward.solved or len(recent) < rows:
            return None
        if view.latest("batch/group_size") == 1 and recent.min() < 1:
            return None  # a critic compares single answers across prompts
        passing = 0.0 if known else self._passing(view, reward, rows)
        share, error = mean(recent) - passing, 2 * deviation(recent) / math.sqrt(rows)
        if share - error < self.much:
            return None if known else self._alike(view, name, reward, series, share + passing, error, rows)
        fell = reward.dropped and not reward.rising
        low = (series.values - passing < (self.much / 2 + share / 2 if fell else self.much)).nonzero()[0]
        onset = int(series.steps[min(int(low[-1]) + 1, len(series) - 1)]) if len(low) else int(series.steps[0])
        onset = min(onset, reward.drop_step) if fell else onset
        calm = not fell and (self._young(view, name) or self._fresh(reward, series))
        severity: Severity = (
            "info" if calm or reward.rising else "critical" if fell or share >= self.nearly_all else "warn"
        )
        name_now = f"{reward.metric} is {reward.now:.3g}"
        origin = f"after {reward.metric} fell from {reward.best:.3g}" if fell else f"and {name_now}"
        which = "in {:.0%} of groups every answer fails" if known else "{:.0%} of groups have no spread at a low reward"
        constant = f"{name} is {reward.now:.4g} in each of {silence} rows: no answer is better than another"
        return self.finding(
            view, severity, onset,
            constant if name in _PAID else f"{which.format(share)} (mean of {rows} rows), {origin}",
            metric=name, baseline=median(series.values[:5]), now=share,
        )  # fmt: skip

    def _young(self, view: RunView, name: str) -> bool:
        """Whether the run, or its newest stage, has not had time for a first success yet."""
        return view.step - max(view.baseline_start(), int(view.series(name).steps[0])) < self.patience

    @staticmethod
    def _fresh(reward: Progress, series: Series) -> bool:
        """Whether it is just having its first successes."""
        return reward.best - reward.start > 4 * reward.noise and reward.peak_step >= int(series.last(20).steps[0])

    def _alike(
        self, view: RunView, name: str, reward: Progress, series: Series, share: float, error: float, rows: int
    ) -> Finding | None:
        """Groups without any spread that may have passed or failed: equal rewards teach nothing either way."""
        if share - error < self.nearly_all:
            return None
        low = (series.values < self.nearly_all).nonzero()[0]
        onset = int(series.steps[min(int(low[-1]) + 1, len(series) - 1)]) if len(low) else int(series.steps[0])
        values = view.series(reward.metric).last(200).finite().values
        may_pass = not (0 <= values.min() and values.max() <= 1) or float(values[-20:].mean()) >= CEILING
        mild = may_pass or reward.rising or view.step - onset < self.patience
        return self.finding(
            view, "info" if mild else "warn", onset,
            f"{share:.0%} of groups have no spread (mean of {rows} rows) at a {reward.metric} of {reward.now:.3g}:"
            " whether they pass or fail, they teach nothing",
            metric=name, baseline=median(series.values[:5]), now=share, alike=True,
        )  # fmt: skip

    def _wasted(self, view: RunView) -> Finding | None:
        """Half of each batch teaches nothing, whatever those groups earn and whatever the reward does."""
        if "reward/all_fail_frac" in view:
            return None  # that share shows which of them fail
        name = next((name for name in ("reward/zero_std_frac", *_SPREADS) if name in view), "reward/std")
        least, whole = (self.half, "groups") if name in _SHARES else (self.steps, "steps")
        series = _silent(view, name, 500)
        if len(series) < self.window or float(series.values[-self.window :].mean()) < least:
            return None
        rows, _ = self._rows(view, series.values)
        recent, reward = series.values[-rows:], progress(view)
        if len(recent) < max(self.window, 3 * rows // 4) or reward is None or reward.solved:
            return None
        share, rows = mean(recent), len(recent)
        if share - deviation(recent) / math.sqrt(rows) < least:
            return None
        before = median(series.values[:LEVEL])
        low = (series.values < (least + min(before, least)) / 2).nonzero()[0]
        since = min(int(low[-1]) + 1, len(series) - 1) if len(low) else 0
        return self.finding(
            view, "info", int(series.steps[since]),
            f"{share:.0%} of {whole} have equal rewards (mean of {rows} rows), so only {1 - share:.0%} of"
            f" {'each batch' if whole == 'groups' else 'steps'} teaches anything; {reward.metric} is {reward.now:.3g}",
            metric=name, baseline=before, now=share, alike=True,
        )  # fmt: skip

    def _rows(self, view: RunView, shares: np.ndarray) -> tuple[int, int]:
        """Rows that hold enough groups for the share to be reliable, and for an unbroken silence."""
        prompts = view.latest("batch/prompts")
        if prompts is None or not 1 <= prompts < np.inf:
            steps = np.diff(np.unique(np.round(shares[-200:], 6)))
            coarse = len(steps) == 0 or float(steps.min()) >= 0.2
            prompts = min(4.0, 1 / min(float(steps.max()), 1.0)) if len(steps) and coarse else 1.0 if coarse else 16.0
        share, silence = (
            min(max(math.ceil(groups / prompts), self.window), self.groups) for groups in (self.groups, self.silence)
        )
        return share, silence

    def _no_accident(self, before: np.ndarray) -> int:
        """Consecutive silent rows that are no accident at the earlier share of silent ones."""
        if len(before) < self.window:
            return len(before) + self.groups
        often = (float(np.clip(before, 0.0, 1.0).sum()) + 1) / (len(before) + 2)
        return max(self.window, math.ceil(math.log(self.accident) / math.log(often)))

    @staticmethod
    def _passing(view: RunView, reward: Progress, rows: int) -> float:
        """The largest share of groups that can all pass at the level that the reward had in these rows (20 at most)."""
        rewards: Series = view.series(reward.metric).last(200).finite()
        level = float(rewards.values[-min(rows, 20) :].mean())
        reach = reward.best - reward.lowest
        height = (level - reward.lowest) / reach if reach > 4 * reward.noise else 0.0
        within = float(rewards.values.min()) >= 0 and float(rewards.values.max()) <= 1
        if not within and not height and level > 0:
            return 1.0  # it never moved, so its scale is unknown
        return float(np.clip(max(height, level if within else 0.0), 0.0, 1.0))
