"""Reward collapse: what had been learned is lost."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stabilizer.core.metrics import metric
from stabilizer.core.records import Finding, Severity
from stabilizer.core.stats import finite, median, step_noise
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import scaled
from stabilizer.detectors.evidence.progress import Progress, progress
from stabilizer.runs.history import RunView

AROUND = 5
"""Rows before a sudden fall that define the level of the reward."""


@dataclass(frozen=True, kw_only=True)
class Collapse(Detector):
    """The reward has fallen far below the best level it had reached and is not recovering.

    Signature
        The mean of the newest 5, 20 or 60 rows lies below the best such level by a quarter of the whole range ever
        covered and by 5.5 standard deviations of that level's noise. It also lies below the best third before the fall
        by half a deviation of a row, or a whole one in a young run (`progress`). The last 30 rows do not rise. The fall
        has lasted `stays` rows if another metric moved, and twice as many if none did. The loss of almost everything
        needs `stays_lost` rows, or `stays_ruined` where the reward no longer moves, another metric moved, or the fall
        is `plain`.

        Critical when another metric moved with it (entropy, KL, gradient norm, length, held-out accuracy) or when
        `most` of the gain is gone, unless the fall is at most a fifth of the deviation of single rewards. The finding
        stays open until the loss is made good, so a run that broke is not called healthy once it has settled.

    Why it matters
        It is the outcome that all other findings warn of. Continuing seldom helps: the weights are damaged, or the
        reward no longer measures what it did.

    Look-alikes
        Harder prompts, a new curriculum stage or another reward lower the number without any loss of skill. Declared as
        events, they start a new stage. Undeclared, a step down by part of the gain while no other logged metric moves
        is `info`. A failing verifier drops the reward to its floor within a step (`reward-fault` among the causes). A
        lumpy reward may settle near its usual level. A dip of some 15 rows recovers.

        Data in epoch order make the reward wave. A run younger than `young` rows has shown no wave yet, so a fall there
        needs another metric, or the loss of almost everything in a reward that no longer moves. If the reward still
        moves, it is `warn` where the fall came within a few rows and is plain twice over, else `info`. Within the first
        `few` rows, a reward that loses `most` at once, by half as much again as it ever moved before and since, is
        `info`.

    False alarms
        Undeclared changes of data that also change the length or entropy of answers. Waves longer than the run.

    Remedies
        `roll-back` with a lower learning rate when the policy moved first; `check-reward` when only the reward did.

    References
        RAGEN (arXiv 2504.20073) on the order of collapse: reward spread, entropy, gradient, reward.
    """

    id = "reward/collapse"
    needs = ("reward/mean|accuracy/train",)
    stays: int = 16
    """Rows that a partial fall must have lasted."""
    stays_ruined: int = 8
    """Rows that the loss of almost everything must have lasted."""
    stays_lost: int = 12
    """The same where no other metric moved, unless the fall is plain."""
    plain: float = 6.0
    """Deviations of a row by which the loss of almost everything is plain."""
    young: int = 120
    """Rows below which a partial fall of the reward alone is not reported: the size of its waves is not known yet."""
    shortest: int = 15
    """Rows below which nothing is reported."""
    most: float = 0.8
    """Share of the gain whose loss needs no other evidence."""
    few: int = 30
    """Rows up to which an obvious loss is reported although it has not lasted."""

    def check(self, view: RunView) -> Finding | None:
        found, hint = self._judged(view), self._seen_in_few(view)
        return self.confirmed(found, view, self._judged) if found and hint else found or hint

    def _seen_in_few(self, view: RunView) -> Finding | None:
        """Almost everything is lost within 3 rows, and the rows before and since vary little beside that."""
        name = next((name for name in ("reward/mean", "accuracy/train") if name in view), "")
        if not name or not AROUND <= view.rows(name) <= self.few:
            return None
        series = view.series(name).last(view.rows(name)).finite()
        if len(series) <= AROUND or not series.values[-1] < series.values[: AROUND - 1].min():
            return None  # the usual case: the newest row is not below all of the first ones
        falls = []
        for at in range(AROUND - 1, len(series) - 1):
            known, before = series.values[:at], series.values[max(0, at - AROUND) : at]
            if before.mean() <= 0:
                continue  # there is no gain to lose
            for since in (series.values[at + through :] for through in range(min(3, len(series) - at - 1))):
                gap = float(min(before.min(), known.min()) - since.max())
                moved = float(np.ptp(before) + np.ptp(since))
                if gap > 1.5 * moved and since.mean() <= (1 - self.most) * before.mean():
                    falls.append((gap, -at, before.mean(), since.mean()))
        if not falls:
            return None
        _, at, was, now = max(falls)
        return self.finding(
            view, "info", int(series.steps[-at]),
            f"{name} has fallen to {now:.3g} from {was:.3g} within the first {len(series)} rows; it is too early"
            " to say more",
            metric=name, baseline=float(was), now=float(now), moved=[],
        )  # fmt: skip

    def _judged(self, view: RunView) -> Finding | None:
        reward = progress(view)
        if reward is None or reward.rows < self.shortest or not reward.dropped or reward.rising:
            return None
        height = max(reward.best - reward.lowest, 1e-12)
        ruined = reward.now - reward.lowest <= (1 - self.most) * height
        lasted = len(view.series(reward.metric).between(reward.drop_step, view.step))
        if lasted < (self.stays_ruined if ruined else self.stays):
            return None
        moved, seen = self._witnesses(view, reward.drop_step)
        settled = ruined and self._settled(view, reward)
        lost = settled or (ruined and reward.rows >= self.young)
        if not (moved or settled) and lasted < self._alone(reward, ruined):
            return None
        young = not (moved or lost) and reward.rows < self.young
        if young and not (ruined and self._plain(reward) and lasted >= self.stays):
            return None
        at_once = self._step(view, reward)  # a wave is slower and shallower; other data act at once
        hint = not (at_once and self._plain(reward, 2.0)) if young else seen and at_once
        sure: Severity = "warn" if reward.slight else "critical"
        severity: Severity = sure if moved or lost else "info" if hint else "warn"
        also = f"; {', '.join(moved)} moved as well" if moved else "; no other metric moved" if seen else ""
        return self.finding(
            view, severity, reward.drop_step,
            f"{reward.metric} has fallen to {reward.now:.3g} from {reward.best:.3g} at step {reward.peak_step}"
            f" (noise of one row {reward.noise:.2g}){also}",
            metric=reward.metric, baseline=reward.best, now=reward.now, moved=moved,
        )  # fmt: skip

    def _alone(self, reward: Progress, ruined: bool) -> int:
        """Rows that a fall must have lasted when nothing else moved with it."""
        if not ruined:
            return 2 * self.stays
        return self.stays_ruined if self._plain(reward) else self.stays_lost

    def _plain(self, reward: Progress, times: float = 1.0) -> bool:
        return bool(reward.best - reward.now > times * self.plain * reward.noise)

    @staticmethod
    def _settled(view: RunView, reward: Progress) -> bool:
        """Whether the reward no longer moves at its floor, which neither a wave nor harder data would cause."""
        newest = view.series(reward.metric).last(30).between(reward.drop_step, view.step).finite().values[-10:]
        return len(newest) >= 8 and float(np.std(newest)) < 0.4 * reward.noise

    @staticmethod
    def _step(view: RunView, reward: Progress) -> bool:
        """Whether most of the fall happened within 3 rows."""
        rows = view.series(reward.metric)
        at = int(rows.steps.searchsorted(reward.drop_step))
        before, after = finite(rows.values[max(0, at - 10) : at - 1]), finite(rows.values[at + 2 : at + 12])
        return bool(len(before) and len(after) and before.mean() - after.mean() > 0.7 * (reward.best - reward.now))

    @staticmethod
    def _witnesses(view: RunView, since: int) -> tuple[list[str], bool]:
        """Metrics that left the level before the fall in the harmful direction, by 60 % and 4 standard errors.

        KL to the reference does not count in the first 30 rows, and later only beyond a growth in proportion to the
        rows. It starts at 0, so it multiplies in every run that learns.
        """
        moved, seen = [], False
        for name in ("policy/entropy", "policy/kl_ref", "optim/grad_norm", "rollout/length_mean", "accuracy/val"):
            series = view.series(name).last(400).finite()
            rows = 3 if name == "accuracy/val" else 10
            then, now = series.between(0, since - 1).last(2 * rows).values, series.between(since, view.step).last(rows)
            if len(then) < rows or len(now) < rows:
                continue
            known = len(view.series(name).between(0, since - 1)) - rows
            if name == "policy/kl_ref" and known < 30 - rows:
                continue
            seen = True
            kind = metric(name).kind
            before, after = scaled(then, kind), scaled(now.values, kind)
            change = median(after) - median(before)
            if name == "policy/kl_ref":
                change -= math.log((len(view.series(name)) - rows / 2) / known)
            error = 1.25 * max(step_noise(before), step_noise(after)) * np.sqrt(1.5 / rows)
            change = {"policy/kl_ref": change, "optim/grad_norm": change, "accuracy/val": -change}.get(
                name, abs(change)
            )
            if change > max(4 * error, 0.05 if name == "accuracy/val" else 0.47):
                moved.append(name)
        return moved, seen
