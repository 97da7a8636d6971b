"""KL runaway: the policy drifts away from its reference without any gain in reward."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.core.stats import median, step_noise
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import Departure, departure
from stabilizer.detectors.evidence.progress import LEVEL, Progress, level, progress
from stabilizer.detectors.evidence.since import began, outcome, since_first
from stabilizer.detectors.evidence.stagnation import stagnation
from stabilizer.detectors.evidence.worth import GUARDS
from stabilizer.runs.history import RunView, Series


@dataclass(frozen=True, kw_only=True)
class KlRunaway(Detector):
    """KL to the reference grows fast while the reward is flat or falls.

    Signature
        After a material fall of the reward: KL is at least `growth` times what it was at the best reward, and twice
        what growth in proportion to the rows would give. That is `critical`, or `warn` when the fall is small beside
        the spread of single rewards.

        While the reward is flat, `warn` in three cases (`info` while KL is below `material`). KL has left its
        own trend (`departure`), `known` rows or more after its first, and doubled. It has tripled within
        `burst` rows, by `sure` standard errors of its logarithm, which no steady drift does and which a log too
        short for a trend can show. Or it has doubled from the first to the last third of a stretch in which the
        reward was known to be flat (`stagnation`). The growth must be at least `material` nats per token, or
        half of that after a fall of the reward or where KL left its trend and reached `growth` times its
        earlier value: a nat is a unit with a meaning, unlike a multiple of something tiny. After a burst that
        left no trend the reward has `answer` rows to respond, unless KL is `far`. Levels are medians in nats,
        so estimates that are sometimes negative (k1) are used as they are.

        A run that its first updates ruin has neither a past nor a best. There, a KL that reached `far` nats per token
        within `first` rows and is still there is `warn` when the reward is no better than in the rows until then,
        `critical` when it is worse or KL is ten times `far`, and `info` while the reward rises. In a log without any
        reward it is `info` from `far` if the first rows had almost no KL.

    Why it matters
        Distance from the reference without reward comes from noise, an exploited reward, or updates too large to be
        corrected. It is the first sign of a learning rate that is too high.

    Look-alikes
        KL that grows while the reward rises is learning, whatever its size; only one that was `far` within the first
        rows is reported, as `info`. KL that has grown at the same pace since the first rows is how this run drifts,
        even where noise hides for a while that the reward rises. With small batches, KL multiplies from row to row and
        comes back. With beta = 0 most trainers log 0.0 or nothing. A KL near 1 from the first step means that the
        reference is not the starting policy; only growth counts, or a first step whose own updates are known to be as
        large. One extreme token can distort a single step's estimate: the level is a median.

    False alarms
        A sum over the sequence instead of a mean over tokens grows with the answer's length; readers give such metrics
        another name, so they do not get here.

    Remedies
        `roll-back` once the reward has fallen; `lower-lr` and `raise-beta` before that.

    References
        Gao et al. 2022 (arXiv 2210.10760) on reward against KL; Ziegler et al. 2019 for the adaptive penalty.
    """

    id = "policy/kl-runaway"
    needs = ("policy/kl_ref", "reward/mean|accuracy/train")

    growth: float = 3.0
    """Factor over the KL at the best reward that counts as a runaway."""
    material: float = 0.1
    """Nats per token of growth below which nothing is reported."""

    far: float = 1.0
    """Nats per token at which a text of a hundred tokens is e^100 times likelier under one policy than under the other.
    """
    first: int = 40
    """First rows of a run, in which only a blow-up gets that far."""
    known: int = 20
    """Rows before the onset that a trend needs: what continues since the first rows is how this run drifts."""
    late: int = 40
    """Rows by which a ramp fitted in nats may miss the start of an exponential, which the trend sees earlier."""
    answer: int = 8
    """Rows that the reward gets to respond to a burst, as long as it has not fallen and KL is not `far`."""
    sure: float = 4.0
    """Standard errors by which the logarithm of a burst exceeds the noise between rows."""
    burst: int = 20
    """Rows within which a tripling is not steady drift."""

    def check(self, view: RunView) -> Finding | None:
        return self.confirmed(self._ran_away(view), view, self._ran_away)

    def _ran_away(self, view: RunView) -> Finding | None:
        series = view.series("policy/kl_ref").last(300).finite()
        if len(series) < 6:
            return None
        now = level(series)
        if now < self.material / 2:
            return None
        reward = progress(view)
        if reward is None:
            return self._unjudged(view, series, now)
        if reward.solved:
            return None
        if reward.rising:
            return self._at_once(view, now)
        if reward.dropped and (found := self._lost(view, series, reward, now)):
            return found
        found = self._at_once(view, now)
        if found is None or found.severity == "info":
            return (None if reward.dropped else self._unpaid(view, series, now)) or found
        return found

    def _lost(self, view: RunView, series: Series, reward: Progress, now: float) -> Finding | None:
        """The reward fell, and the policy had moved."""
        at_best = level(view.series("policy/kl_ref").between(0, reward.peak_step).last(20).finite())
        at_best = 0.0 if np.isnan(at_best) else max(at_best, 0.0)
        rows = view.series("policy/kl_ref").steps.searchsorted([reward.peak_step, view.step], side="right")
        drifts = 2 * float(rows[1]) / max(float(rows[0]), 1.0)  # growth at twice its own pace
        if now < max(max(self.growth, drifts) * at_best, at_best + self.material / 2):
            return None
        # Half-way on a log scale from the earlier to the present level: early drift that was rewarded is left out.
        low = (series.values <= np.sqrt(max(at_best, self.material) * now)).nonzero()[0]
        onset = int(series.steps[min(int(low[-1]) + 1, len(series) - 1)]) if len(low) else reward.drop_step
        return self.finding(
            view, "warn" if reward.slight else "critical", min(onset, reward.drop_step),
            f"KL to the reference is {now:.3g} nats/token, up from {at_best:.3g} when {reward.metric} was at its"
            f" best (step {reward.peak_step}); {reward.metric} has fallen from {reward.best:.3g} to {reward.now:.3g}"
            " since",
            metric="policy/kl_ref", baseline=at_best, now=now,
        )  # fmt: skip

    def _unjudged(self, view: RunView, series: Series, now: float) -> Finding | None:
        """KL is `far` from where it began, in a log without any reward to judge it by."""
        first = series.values[: 2 * LEVEL]
        if any(name in view for name in GUARDS) or now < self.far or not median(first) < self.far / 10:
            return None
        return self.finding(
            view, "info", began(series),
            f"KL to the reference is {now:.3g} nats/token, up from {median(first):.3g} in the first rows; no reward is"
            " logged to judge whether that helped",
            metric="policy/kl_ref", baseline=median(first), now=now,
        )  # fmt: skip

    def _at_once(self, view: RunView, now: float) -> Finding | None:
        """The first rows took KL so far that no trend is needed: a run begins at its reference."""
        if now < self.far:
            return None
        series = view.series("policy/kl_ref").between(view.baseline_start(), view.step).finite()
        head = series.values[: self.first]
        row = int(np.argmax(head >= self.far))
        if (
            not head[row] >= self.far
            or len(series) - row < LEVEL
            or level(series.last(min(2 * LEVEL, len(series) - row)), 2 * LEVEL) < self.far
        ):
            return None
        leap = view.series("policy/kl_old").between(0, int(series.steps[0])).last(1).values
        if head[0] > self.far / 10 and not (len(leap) and leap[0] >= self.far / 20):
            return None  # the reference is probably another policy
        onset = int(series.steps[row])
        since, reward = since_first(view, onset), progress(view)
        if since is None:
            return None
        paid = since.paid or reward is not None and reward.rising
        lost = since.fell or now >= 10 * self.far
        return self.finding(
            view, "info" if paid else "critical" if lost else "warn", onset,
            f"KL to the reference reached {head[row]:.3g} nats/token at step {onset}, row {row + 1} of the run,"
            f" and is now {now:.3g}; {since.metric} went from {since.before:.3g} to {since.now:.3g}"
            f"{': the reward has gained so far, but hardly anything of the starting policy is left' if paid else ''}",
            metric="policy/kl_ref", baseline=float(head[0]) if row else 0.0, now=now,
        )  # fmt: skip

    def _unpaid(self, view: RunView, series: Series, now: float) -> Finding | None:
        """KL has left its trend, burst, or crept on while the reward was flat."""
        series = series.between(view.baseline_start(), view.step)
        if len(series) < self.burst:
            return None
        onset, still = self._left(view, series, now), None
        if onset is None and (still := stagnation(view)):
            onset = still.onset_step
        if onset is None:
            return None
        before = level(series.between(0, onset).last(15), 15)
        if still:  # rows are noisy, so growth must hold over a third of the stretch
            stretch = series.between(onset, view.step)
            third = len(stretch) // 3
            before, now = median(stretch.values[: third + 1]), min(now, level(stretch.last(third + 1), third + 1))
        left = still is None and now >= self.growth * before and self._moved(view) is not None
        if not now >= max(2 * before, before + self.material * (0.5 if left else 1.0)):
            return None
        since = outcome(view, onset)
        if still is None and (since is None or since.paid):
            return None
        young = since is not None and since.rows < self.answer and not since.fell
        if still is None and young and now < self.far and not self._moved(view):
            return None  # a burst among noisy rows, and the reward has had no time to respond
        return self.finding(
            view, "warn" if now >= self.material else "info", onset,
            f"KL to the reference rose from {before:.3g} (before step {onset}) to {now:.3g} nats/token without any"
            " gain in reward",
            metric="policy/kl_ref", baseline=before, now=now,
        )  # fmt: skip

    def _left(self, view: RunView, series: Series, now: float) -> int | None:
        """Step at which KL left its trend or burst; None when it did neither, or drifts as it has since the
        first rows."""
        moved, burst = self._moved(view), self._burst(series, now)
        if not (moved or burst):
            return None
        onset = began(series)
        if moved and len(series.between(moved.onset_step, onset)) <= self.late:
            onset = min(onset, moved.onset_step)
        return onset if burst or len(series.between(0, onset)) >= self.known else None

    @staticmethod
    def _moved(view: RunView) -> Departure | None:
        return departure(view, "policy/kl_ref", up=True)

    def _burst(self, series: Series, now: float) -> bool:
        """Three times the level of some rows ago, beyond the noise between rows, in nats and in proportion."""
        then = level(series.part(0, -self.burst).last(10), 10)
        recent = series.last(60).values
        if not now >= max(3 * then, then + 2 * self.material, then + 3 * step_noise(recent)):
            return False
        logs = np.log(np.maximum(recent, self.material / 100))
        error = 1.25 * step_noise(logs) * math.sqrt(1 / LEVEL + 1 / 10)
        return math.log(now / max(then, self.material / 100)) > self.sure * error
