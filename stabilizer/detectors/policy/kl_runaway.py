"""KL runaway: the policy drifts away from its reference and the reward does not pay for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.detectors.base import Detector
from stabilizer.detectors.departure import departure
from stabilizer.detectors.progress import Progress, level, progress
from stabilizer.detectors.since import began, outcome
from stabilizer.detectors.stagnation import stagnation
from stabilizer.records import Finding
from stabilizer.runs.history import RunView, Series
from stabilizer.signals import step_noise


@dataclass(frozen=True, kw_only=True)
class KlRunaway(Detector):
    """KL to the reference grows fast while the reward stands still or falls.

    Signature
        The reward has fallen materially and KL is at least `growth` times what it was when the reward was at its best:
        `critical`. While the reward merely stands still, `warn` in three cases: KL has left the course of its own past
        (`departure`) and doubled; it has tripled within `burst` rows, which no steady drift does, and can be seen in a
        log too short for a course; or it has doubled over a stretch in which the reward provably stood still
        (`stagnation`). The growth must be at least `material` nats per token, or half of that after a fall: a
        nat is a unit with a meaning, unlike a multiple of something tiny. All levels are medians in nats, so estimates
        that are negative now and then (k1) count as what they are.

    Why it matters
        Distance that buys no reward is distance for its own sake: noise, an exploited reward, or updates too large to
        be corrected. It is the first thing to see in a run whose learning rate is too high.

    Look-alikes
        KL that grows while the reward rises is learning, whatever its size. With beta = 0 most trainers log 0.0 or
        nothing, which says nothing. A KL near 1 from the first step means the reference is not the starting policy;
        only growth counts. One extreme token can throw a single step's estimate: the level is a median.

    False alarms
        A sum over the sequence instead of a mean over tokens grows with the answer's length; readers name such
        metrics differently, so they do not get here.

    Remedies
        `roll-back` once the reward has fallen; `lower-lr` and `raise-beta` before that.

    References
        Gao et al. 2022 (arXiv 2210.10760) on reward against KL; Ziegler et al. 2019 for the adaptive penalty.
    """

    id = "policy/kl-runaway"
    needs = ("policy/kl_ref", "reward/mean|accuracy/train")

    growth: float = 3.0
    """Factor over the KL at the reward's best that counts as having run away."""
    material: float = 0.1
    """Nats per token of growth below which nothing is said."""

    late: int = 40
    """Rows by which a ramp fitted in nats may miss the foot of an exponential, which the course sees earlier."""
    burst: int = 20
    """Rows within which a tripling is not steady drift."""

    def check(self, view: RunView) -> Finding | None:
        series = view.series("policy/kl_ref").last(300).finite()
        if len(series) < 6:
            return None
        now = level(series)
        if now < self.material / 2:
            return None
        reward = progress(view)
        if reward is None or reward.solved or reward.rising:
            return None
        return self._lost(view, series, reward, now) if reward.dropped else self._unpaid(view, series, now)

    def _lost(self, view: RunView, series: Series, reward: Progress, now: float) -> Finding | None:
        """The reward fell, and the policy had moved."""
        at_best = level(view.series("policy/kl_ref").between(0, reward.peak_step).last(20).finite())
        at_best = 0.0 if np.isnan(at_best) else max(at_best, 0.0)
        if now < max(self.growth * at_best, at_best + self.material / 2):
            return None
        # Half-way, on a log scale, from where it was to where it is: early drift that was paid for is not it.
        low = np.flatnonzero(series.values <= np.sqrt(max(at_best, self.material) * now))
        onset = int(series.steps[min(int(low[-1]) + 1, len(series) - 1)]) if len(low) else reward.drop_step
        return self.finding(
            view, "critical", min(onset, reward.drop_step),
            f"KL to the reference is {now:.3g} nats/token, up from {at_best:.3g} when {reward.metric} was at its"
            f" best (step {reward.peak_step}); {reward.metric} has since fallen from {reward.best:.3g}"
            f" to {reward.now:.3g}",
            metric="policy/kl_ref", baseline=at_best, now=now,
        )  # fmt: skip

    def _unpaid(self, view: RunView, series: Series, now: float) -> Finding | None:
        """It has left its course, burst, or crept on beside a reward that stands still."""
        still = None
        series = series.between(view.baseline_start(), view.step)
        if len(series) < self.burst:
            return None
        moved = departure(view, "policy/kl_ref", up=True)
        if moved or self._burst(series, now):
            onset = began(series)
            if moved and len(series.between(moved.onset_step, onset)) <= self.late:
                onset = min(onset, moved.onset_step)
        elif still := stagnation(view):
            onset = still.onset_step
        else:
            return None
        before = level(series.between(0, onset).last(15), 15)
        if not now >= max(2 * before, before + self.material):
            return None
        since = outcome(view, onset)
        if still is None and (since is None or since.paid):
            return None
        return self.finding(
            view, "warn", onset,
            f"KL to the reference has gone its own way: {now:.3g} nats/token, {before:.3g} before step {onset}, and"
            f" the reward has not risen with it",
            metric="policy/kl_ref", baseline=before, now=now,
        )  # fmt: skip

    def _burst(self, series: Series, now: float) -> bool:
        """Thrice the level of some rows ago, beyond what estimates of one row differ by."""
        then = level(Series(series.steps[: -self.burst], series.values[: -self.burst]).last(10), 10)
        return now >= max(3 * then, then + 2 * self.material, then + 3 * step_noise(series.last(60).values))
