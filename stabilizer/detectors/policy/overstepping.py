"""Overstepping: the updates of one step move the policy too far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding, Severity
from stabilizer.core.stats import inflation
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import Departure, departure
from stabilizer.detectors.evidence.progress import LEVEL, Progress, level, progress
from stabilizer.detectors.evidence.since import since_first, slowed
from stabilizer.runs.history import RunView

KL, CLIP = "policy/kl_old", "policy/clip_frac"
ENOUGH = 15
"""Rows since the onset from which the response of the reward counts."""


@dataclass(frozen=True, kw_only=True)
class Overstepping(Detector):
    """The KL of one step, or the share of clipped tokens, is too large for what it brings.

    Signature
        KL to the sampling policy has risen above its trend (`departure`), to at least `factor` times the expected value
        and `material` nats per token; or the clip fraction has, by at least `clipped`. A smaller step that grew
        `factor` times is reported only once the reward has suffered. A rise that the learning rate explains is taken
        off first (KL grows with its square).

        `info` while the reward is unaffected. `warn` when the reward thrashes, is lower, has lost its pace
        (`since.slowed`), or is flat with KL above `large` or the clip fraction above `saturated`. `critical` when it
        has dropped. A run that was like this from its first rows has no trend to leave: there, `large` or `saturated`
        together with a reward that does not rise is enough after 15 rows. One of those rows in which a step's KL
        reached `leap` is `critical` if the reward of the rows until then is lost.

    Why it matters
        Ratios far from 1 make the surrogate a poor guide, and clipping only stops tokens that have already moved too
        far. The policy then jumps back and forth, and the next batch punishes what this one rewarded.

    Look-alikes
        Sequence ratios (GSPO) healthily clip 15 % of tokens or more: a steady clip fraction is no departure. With one
        update a batch both metrics are 0 by definition. A warm-up raises both. A small batch makes the reward noisy
        while KL stays small: that needs more prompts, not a smaller step. KL to the reference is `policy/kl-runaway`.

    False alarms
        An undeclared change of the clip range or of the number of passes, in a run whose reward happens to be flat.

    Remedies
        `lower-lr`; `grow-batch` when the reward is noisy as well; `roll-back` once it has dropped. Manually: fewer
        passes over a batch, stopping a step's updates at 1.5 times the target KL, a narrower clip range.

    References
        Schulman et al. 2017 (arXiv 1707.06347); Spinning Up's early stopping at 1.5 times a KL of 0.01; GSPO (arXiv
        2507.18071) on clip fractions of sequence ratios.
    """

    id = "policy/overstepping"
    needs = ("policy/kl_old|policy/clip_frac",)

    factor: float = 3.0
    """Factor over the expected KL of a step below which nothing is reported."""
    material: float = 0.02
    """Nats per token of a step's KL below which nothing is reported."""
    clipped: float = 0.1
    """Rise of the share of clipped tokens below which nothing is reported."""
    large: float = 0.1
    """Nats per token by which no step should move the policy, ten times what PPO aims at."""
    leap: float = 0.5
    """Nats per token by which no sound step moves a policy even once."""
    saturated: float = 0.4
    """Share of clipped tokens at which most of the batch no longer teaches."""

    def check(self, view: RunView) -> Finding | None:
        for name, least in ((KL, self.material), (CLIP, self.clipped)):
            if not level(view.series(name).last(3 * LEVEL).finite()) >= least:
                continue  # the cheap part of `_material`
            left = departure(view, name, up=True)
            if left is not None and self._material(view, name, left):
                return self._say(view, name, left.onset_step, left.expected, left.now)
        for name in (KL, CLIP):
            left = departure(view, name, up=True)
            if left is not None and left.now >= self.factor * self._faster(view, left) ** 2 * left.expected:
                found = self._say(view, name, left.onset_step, left.expected, left.now)
                return found if found and found.severity != "info" else None
        for name, limit in ((KL, self.large), (CLIP, self.saturated)):
            series = view.series(name)
            if len(series) and series.values[-1] > limit:
                since = series.between(view.baseline_start(), view.step)
                head = since.values[:ENOUGH]
                if len(since) >= ENOUGH and (head > limit).mean() > 0.5 and level(since.last(10).finite()) > limit:
                    return self._say(view, name, int(since.steps[0]), limit, level(since.finite()))
        return self._leapt(view)

    def _leapt(self, view: RunView) -> Finding | None:
        """One of the first steps was so large that the initial reward is gone. Later steps may be small, because
        nothing is left to learn from."""
        head = view.series(KL).between(view.baseline_start(), view.step).values[:ENOUGH]
        far = ((head >= self.leap) & np.isfinite(head)).nonzero()[0]
        reward = progress(view) if len(far) else None
        if reward is None or reward.rising or reward.solved:
            return None
        onset = int(view.series(KL).between(view.baseline_start(), view.step).steps[far[0]])
        since = since_first(view, onset)
        if since is None or not since.fell:
            return None
        return self.finding(
            view, "critical", onset,
            f"the updates of step {onset} alone moved the policy by {head[far[0]]:.2g} nats/token, and"
            f" {since.metric} fell from {since.before:.3g} to {since.now:.3g}",
            metric=KL, baseline=self.large, now=float(head[far[0]]),
        )  # fmt: skip

    @staticmethod
    def _faster(view: RunView, left: Departure) -> float:
        """Ratio of the learning rate to the one before the onset, at least 1."""
        rates = view.series("optim/lr").between(0, left.onset_step - 1).last(5).values
        rate = view.latest("optim/lr")
        return max(rate / rates[0], 1.0) if len(rates) and rate and rates[0] > 0 else 1.0

    def _material(self, view: RunView, name: str, left: Departure) -> bool:
        faster = self._faster(view, left)
        if name == KL:
            return left.now >= max(self.material, self.factor * faster**2 * left.expected)
        return left.now >= faster * left.expected + self.clipped

    def _say(self, view: RunView, name: str, onset: int, baseline: float, now: float) -> Finding | None:
        reward = progress(view)
        severity, fate = self._harm(view, reward, onset, now > (self.large if name == KL else self.saturated))
        if baseline in (self.large, self.saturated):  # so from the start: size alone is no finding
            if severity == "info":
                return None
            than = f"above {baseline:g} since the start"
        else:
            expected = f"{baseline:.2g}" if name == KL else f"{100 * baseline:.2g} %"
            than = f"instead of the expected {expected} since step {onset}"
        size = f"{now:.2g} nats/token" if name == KL else f"{100 * now:.2g} % of tokens"
        what = "the updates of one step move the policy by" if name == KL else "the clip range limits"
        return self.finding(
            view, severity, onset, f"{what} {size}, {than}{fate}", metric=name, baseline=baseline, now=now
        )

    @staticmethod
    def _harm(view: RunView, reward: Progress | None, onset: int, far: bool) -> tuple[Severity, str]:
        """Severity and words, judged by the reward since the onset."""
        if reward is None or reward.rising or reward.solved:
            return "info", "; the reward is unaffected"
        if reward.dropped and reward.drop_step >= onset - 20:
            return "critical", f", and {reward.metric} has fallen from {reward.best:.3g} to {reward.now:.3g}"
        before = view.series(reward.metric).between(0, onset - 1).last(60).finite().values
        since = view.series(reward.metric).between(onset, view.step).last(60).finite().values
        if len(since) < ENOUGH:
            return "info", "; it is too early to judge the reward"
        if len(before) >= ENOUGH and _jumps(since[-30:]) > 2 * _jumps(before) > 0:
            return "warn", f", and {reward.metric} thrashes: it moves twice as much from row to row as before"
        lower = len(before) >= ENOUGH and _lower(before[-2 * ENOUGH :], since, reward.noise)
        slower = slowed(view, onset)
        if lower or slower or (far and reward.noise > 0):
            course = "lower than before" if lower else "no longer rising as it did" if slower else "not rising"
            return "warn", f", and {reward.metric} is {course} ({reward.now:.3g})"
        return "info", f"; {reward.metric} ({reward.now:.3g}) shows no harm yet"


def _lower(before: np.ndarray, since: np.ndarray, noise: float) -> bool:
    """Whether a level is lower than before by more than the noise of both, autocorrelation included."""
    fall = float(before.mean() - since.mean())
    spread = inflation(since - since.mean())
    return fall > 3.2 * noise * spread * float(np.sqrt(1 / len(before) + 1 / len(since)))


def _jumps(values: np.ndarray) -> float:
    """Mean change from row to row."""
    return float(np.abs(np.diff(values)).mean())
