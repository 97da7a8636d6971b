"""KL runaway: the policy drifts away from its reference and the reward does not pay for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from stabilizer.detectors.base import Detector
from stabilizer.detectors.progress import level, progress
from stabilizer.records import Finding
from stabilizer.runs.history import RunView, Series
from stabilizer.signals import CUSUM_ALARM, onset_row, shift


@dataclass(frozen=True, kw_only=True)
class KlRunaway(Detector):
    """KL to the reference grows fast while the reward stands still or falls.

    Signature
        Either the reward has fallen materially and KL is now at least `growth` times what it was when the reward was
        at its best (`critical`); or KL has left the course its own past predicts (a CUSUM on its logarithm,
        `signals.shift`) and at least doubled, while the reward did not rise (`warn`). In both cases the growth must be
        at least `material` nats per token: a nat is a unit with a meaning, unlike a multiple of something tiny.

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

    def check(self, view: RunView) -> Finding | None:
        whole = view.series("policy/kl_ref")
        series = whole.last(300).finite()
        reward = progress(view)
        if len(series) < 6 or reward is None or reward.solved:
            return None
        now = level(series)
        if reward.dropped and not reward.rising:
            at_best = level(whole.between(0, reward.peak_step).last(20).finite())
            at_best = 0.0 if np.isnan(at_best) else max(at_best, 0.0)
            if now < max(self.growth * at_best, at_best + self.material):
                return None
            # Half-way, on a log scale, from where it was to where it is: early drift that was paid for is not it.
            low = np.flatnonzero(series.values <= np.sqrt(max(at_best, self.material) * now))
            onset = int(series.steps[min(int(low[-1]) + 1, len(series) - 1)]) if len(low) else reward.drop_step
            return self.finding(
                view, "critical", min(onset, reward.drop_step),
                f"KL to the reference is {now:.3g} nats/token, up from {at_best:.3g} when {reward.metric} was at its"
                f" best (step {reward.peak_step}); it has since fallen from {reward.best:.3g} to {reward.now:.3g}",
                metric="policy/kl_ref", baseline=at_best, now=now,
            )  # fmt: skip
        if reward.rising:
            return None
        first = int(np.searchsorted(whole.steps, view.baseline_start()))
        signal = view.causal("policy/kl_ref", ("shift", first), partial(shift, kind="positive", first=first))
        if signal[-1, 0] < CUSUM_ALARM or not np.isfinite(signal[-1, 1]):
            return None
        row = onset_row(signal[:, 0])
        before = level(Series(whole.steps[:row], whole.values[:row]).last(30).finite(), 15)
        if not now >= max(2 * before, before + self.material):
            return None
        return self.finding(
            view, "warn", int(whole.steps[row]),
            f"KL to the reference has left its course: {now:.3g} nats/token, {before:.3g} before step"
            f" {whole.steps[row]}, and {reward.metric} has not risen ({reward.now:.3g})",
            metric="policy/kl_ref", baseline=before, now=now,
        )  # fmt: skip
