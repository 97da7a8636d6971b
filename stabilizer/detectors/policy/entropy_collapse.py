"""Entropy collapse: the policy becomes near-deterministic before it has learned the task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.detectors.base import Detector
from stabilizer.detectors.progress import Progress, level, progress, stagnation
from stabilizer.records import Finding
from stabilizer.runs.history import RunView, Series
from stabilizer.signals import median


@dataclass(frozen=True, kw_only=True)
class EntropyCollapse(Detector):
    """Token entropy has fallen far below where this run started, and the reward has nothing to show for it.

    Signature
        The median of the last 5 entropies is under `fraction` of the median of the run's first `baseline` rows (a
        frozen baseline: a moving one would follow the decline), the task is not solved, and the reward is not worth
        it: it has fallen (`critical`), or it has stopped moving (`progress.stagnation`), or entropy fell from more
        than half of its baseline within `sudden` rows in which the reward did not rise (`warn`).

    Why it matters
        Without variety every answer to a prompt is the same, groups have no spread, and group-relative advantages
        vanish: the policy can no longer find anything better than what it does.

    Look-alikes
        Entropy that falls while the reward rises, however slowly, is convergence. A solved task is near-deterministic
        and should be. Tasks with one right wording (code, tool calls) have low entropy from the first step: only the
        fall counts. A reward that rests for a while on the way up is not stuck.

    False alarms
        A plateau at a ceiling below 1 that nobody declared looks the same from here.

    Remedies
        `raise-entropy`. By hand: a wider upper clip range, a higher sampling temperature. After a fall of the reward:
        `roll-back`.

    References
        Cui et al. 2025 (arXiv 2505.22617) on reward bought with entropy; DAPO (arXiv 2503.14476) for clip-higher.
    """

    id = "policy/entropy-collapse"
    needs = ("policy/entropy", "reward/mean|accuracy/train")

    baseline: int = 20
    """Rows from the start that define this run's normal entropy (fewer while it is young)."""
    fraction: float = 0.25
    """Share of the baseline under which entropy has collapsed."""
    sudden: int = 60
    """Rows within which a fall counts as sudden."""

    def check(self, view: RunView) -> Finding | None:
        series = view.series("policy/entropy")
        reward = progress(view)
        if len(series) < 10 or reward is None or reward.solved or reward.rising:
            return None
        head = series.values[: min(self.baseline, len(series) - 5)]
        normal = median(head[np.isfinite(head)]) if np.isfinite(head).any() else 0.0
        now = level(series.last(50).finite())
        if normal <= 0 or not now <= self.fraction * normal:
            return None
        if not (reward.dropped or stagnation(view) or self._sudden(series, normal, reward)):
            return None
        recent = series.last(500)
        onset = int(recent.steps[_fell_below(recent.values, (self.fraction * normal + normal) / 2)])
        severity = "critical" if reward.dropped else "warn"
        fate = f"has fallen to {reward.now:.3g}" if reward.dropped else f"is not rising ({reward.now:.3g})"
        return self.finding(
            view, severity, onset,
            f"token entropy is {now:.3g} nats, {now / normal:.0%} of this run's start ({normal:.3g}),"
            f" and {reward.metric} {fate}",
            metric="policy/entropy", baseline=normal, now=now,
        )  # fmt: skip

    def _sudden(self, series: Series, normal: float, reward: Progress) -> bool:
        """It was still more than half there not long ago, and the reward has no new best since."""
        before = series.last(self.sudden + 5)
        was = float(np.nanmedian(before.values[:5])) if np.isfinite(before.values[:5]).any() else 0.0
        return was > 0.5 * normal and reward.peak_step <= int(before.steps[0]) + self.sudden // 2


def _fell_below(values: np.ndarray, threshold: float) -> int:
    """Index after the last value above the threshold."""
    above = np.flatnonzero(values > threshold)
    return min(int(above[-1]) + 1, len(values) - 1) if len(above) else 0
