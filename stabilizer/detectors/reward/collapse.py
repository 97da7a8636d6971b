"""Reward collapse: what had been learned is gone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stabilizer.core.metrics import metric
from stabilizer.core.records import Finding
from stabilizer.core.stats import median, step_noise
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import scaled
from stabilizer.detectors.evidence.progress import Progress, progress
from stabilizer.runs.history import RunView

AROUND = 5
"""Rows before a fall within few rows that say what the reward was."""


@dataclass(frozen=True, kw_only=True)
class Collapse(Detector):
    """The reward has fallen far below the best level it had reached, and is not on its way back.

    Signature
        The reward, in its newest 5, 20 or 60 rows, lies below the best such level by a quarter of all the ground it
        ever covered and by 5.5 standard deviations of that level's noise, and below the best third before it by half a
        deviation of a row, a whole one in a young run (`progress`); the last 30 rows do not rise; and it has been so
        for `stays` rows if another metric moved and twice as many if none did. If next to everything is lost it must
        have been so for `stays_lost` rows, and for `stays_ruined` where the reward lies still, another metric moved or
        the fall is `plain`. Critical when another metric moved with it (entropy, KL, gradient norm, length, held-out
        accuracy) or when `most` of the gain is gone, unless the fall is a fifth of a deviation of single rewards at
        most, which is little, however sure. It stands as long as the loss is not made good, so a run that broke is not
        called healthy once it has settled.

    Why it matters
        It is the outcome all other findings warn of. Continuing seldom helps: the weights are damaged, or the reward no
        longer says what it said.

    Look-alikes
        Harder prompts, a new curriculum stage or another reward lower the number without any loss of skill: declared as
        events they start a new stage; undeclared, a step down by a part of the gain while nothing else that is logged
        moves is `info`. A verifier that is down drops the reward to its floor within a step (`reward-fault` among the
        causes). A lumpy reward that comes to rest near its usual level. A dip of some 15 rows is made good. Data in
        epoch order make the reward wave: a run younger than `young` rows has shown no wave yet, so its falls need
        another metric, or the loss of nearly all that lies still; of one that does not, `warn` where it came within a
        few rows and is plain twice over, else `info`. In the first `few` rows a reward of which `most` is gone at once,
        by half as much again as it ever moved within the rows before and since, is told of as `info`.

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
    """Rows a partial fall must have lasted."""
    stays_ruined: int = 8
    """Rows that the loss of next to everything must have lasted."""
    stays_lost: int = 12
    """The same where nothing else tells of it, unless it is plain."""
    plain: float = 6.0
    """Deviations of a row by which the loss of next to everything is plain."""
    young: int = 120
    """Rows before which a partial fall of the reward alone says nothing: how far it waves is not known yet."""
    shortest: int = 15
    """Rows before which nothing is said."""
    most: float = 0.8
    """Share of the gain whose loss needs no other witness."""
    few: int = 30
    """Rows up to which a loss that anybody sees is told of, though it has not lasted."""

    def check(self, view: RunView) -> Finding | None:
        found, hint = self._judged(view), self._seen_in_few(view)
        return self.held(found, view, self._judged) if found and hint else found or hint

    def _seen_in_few(self, view: RunView) -> Finding | None:
        """Next to everything is gone within 3 rows, and rows before and since differ little beside that."""
        name = next((name for name in ("reward/mean", "accuracy/train") if name in view), "")
        if not name or not AROUND <= view.rows(name) <= self.few:
            return None
        series = view.series(name).last(view.rows(name)).finite()
        if len(series) <= AROUND or not series.values[-1] < series.values[: AROUND - 1].min():
            return None  # mostly so: the newest row is not below all of the first ones
        falls = []
        for at in range(AROUND - 1, len(series) - 1):
            known, before = series.values[:at], series.values[max(0, at - AROUND) : at]
            if before.mean() <= 0:
                continue  # there is nothing of which a share could be gone
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
            f"{name} has fallen to {now:.3g} from {was:.3g} within the first {len(series)} rows, which say no more yet",
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
        at_once = self._step(view, reward)  # a wave takes its time, and is not that deep; other data take none
        hint = not (at_once and self._plain(reward, 2.0)) if young else seen and at_once
        sure = "warn" if reward.slight else "critical"
        severity = sure if moved or lost else "info" if hint else "warn"
        also = f"; {', '.join(moved)} moved with it" if moved else "; nothing else moved" if seen else ""
        return self.finding(
            view, severity, reward.drop_step,
            f"{reward.metric} has fallen to {reward.now:.3g} from {reward.best:.3g} at step {reward.peak_step}"
            f" (noise of a row {reward.noise:.2g}){also}",
            metric=reward.metric, baseline=reward.best, now=reward.now, moved=moved,
        )  # fmt: skip

    def _alone(self, reward: Progress, ruined: bool) -> int:
        """Rows that a fall nothing else moved with must have lasted."""
        if not ruined:
            return 2 * self.stays
        return self.stays_ruined if self._plain(reward) else self.stays_lost

    def _plain(self, reward: Progress, times: float = 1.0) -> bool:
        return reward.best - reward.now > times * self.plain * reward.noise

    @staticmethod
    def _settled(view: RunView, reward: Progress) -> bool:
        """It lies still at its floor, as no wave and no harder data would have it."""
        newest = view.series(reward.metric).last(30).between(reward.drop_step, view.step).finite().values[-10:]
        return len(newest) >= 8 and float(np.std(newest)) < 0.4 * reward.noise

    @staticmethod
    def _step(view: RunView, reward: Progress) -> bool:
        """Most of the fall happened within 3 rows."""
        rows = view.series(reward.metric)
        at = int(rows.steps.searchsorted(reward.drop_step))
        before, after = rows.values[max(0, at - 10) : at - 1], rows.values[at + 2 : at + 12]
        before, after = before[np.isfinite(before)], after[np.isfinite(after)]
        return bool(len(before) and len(after) and before.mean() - after.mean() > 0.7 * (reward.best - reward.now))

    @staticmethod
    def _witnesses(view: RunView, since: int) -> tuple[list[str], bool]:
        """Metrics that left the level of before the fall, the way harm moves them, by 60 % and 4 standard errors.

        KL to the reference is none in the first 30 rows, and counts beyond a growth in proportion to the rows: it
        starts at 0, so it multiplies in every run that learns.
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
            then, now = scaled(then, kind), scaled(now.values, kind)
            change = median(now) - median(then)
            if name == "policy/kl_ref":
                change -= math.log((len(view.series(name)) - rows / 2) / known)
            error = 1.25 * max(step_noise(then), step_noise(now)) * np.sqrt(1.5 / rows)
            change = {"policy/kl_ref": change, "optim/grad_norm": change, "accuracy/val": -change}.get(
                name, abs(change)
            )
            if change > max(4 * error, 0.05 if name == "accuracy/val" else 0.47):
                moved.append(name)
        return moved, seen
