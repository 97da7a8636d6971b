"""Stale rollouts: the policy trains on answers that older weights generated."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.records import Finding, Severity
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import drift
from stabilizer.detectors.evidence.progress import level_of, progress
from stabilizer.detectors.evidence.since import began, outcome
from stabilizer.runs.history import RunView


@dataclass(frozen=True, kw_only=True)
class StaleRollouts(Detector):
    """Rollouts lag behind the weights being trained, and the ratios show it.

    Signature
        `rollout/staleness` is at least `lag` updates, and the lag has an effect: effective sample size under `ess`, the
        99th percentile of the ratios over `tail`, or a clip fraction clearly three times its start. `warn`, and
        `critical` once the reward has lost what it had gained. A lag that has doubled together with a fall of the
        reward is `warn` too. A lag alone is `info` from `far` updates. Independently of a lag, weights that did not
        reach the engine: `rollout/sync_error` at `lost` nats/token or more (`warn`).

    Why it matters
        Old answers look fine for a while: the reward rises faster than with fresh ones, because there are more of them.
        Meanwhile a few tokens with large ratios carry the gradient, and the collapse comes as a surprise.

    Look-alikes
        Asynchronous training with a constant lag and an effective sample size near 1 works as designed. More passes
        over a batch widen ratios without any lag: `policy/overstepping`. An engine that disagrees on the same weights:
        `policy/mismatch`. A sync error of a few thousandths is the engine's precision.

    False alarms
        Trainers that count lag in samples or versions instead of optimizer updates.

    Remedies
        `lower-lr` reduces how far the weights move within one lag, `roll-back` once the reward is lost. Manually:
        transfer weights more often, drop rollouts over an age, mask negative completions that have become unlikely.

    References
        M2PO (arXiv 2510.01161): stable at 256 updates with a second-moment mask; DeepSeek-V3.2 (arXiv 2512.02556); verl
        calls an effective sample size under 0.3 unhealthy.
    """

    id = "policy/stale-rollouts"
    needs = ("rollout/staleness|rollout/sync_error",)
    confirm = 5

    lag: float = 2.0
    """Updates from which a lag is examined."""
    far: float = 16.0
    """Updates that are reported by themselves."""
    ess: float = 0.5
    """Effective sample size, as a share, under which a few tokens outweigh the rest."""
    tail: float = 2.0
    """99th percentile of the ratios that no clip range allows."""
    clipped: float = 3.0
    """Multiple of the clip fraction at the start."""
    lost: float = 0.2
    """Nats per token by which the engine's probe may be off: coarse precision stays under 0.1."""

    def check(self, view: RunView) -> Finding | None:
        error = level_of(view, "rollout/sync_error")
        if error >= self.lost:
            series = view.series("rollout/sync_error")
            return self.finding(
                view, "warn", began(series, "positive"),
                f"after the weight transfer the engine's log-probabilities are off by {error:.2g} nats/token (rounding"
                f" stays under {self.lost / 2:g}): it generates with other weights than those being trained",
                metric="rollout/sync_error", baseline=self.lost, now=error,
            )  # fmt: skip
        lag = level_of(view, "rollout/staleness")
        if lag < self.lag:
            return None
        start = drift(view, "rollout/staleness")
        grew = start is not None and lag >= max(2 * start.start, start.start + self.lag)
        sign = self._sign(view)
        if not (sign or grew or lag >= self.far):
            return None
        series = view.series("rollout/staleness")
        onset = began(series)
        reward, since = progress(view), outcome(view, onset)
        fell = since is not None and since.fell
        dropped = bool(reward and reward.dropped and not reward.rising and reward.drop_step >= onset)
        severity: Severity
        if sign and dropped:
            severity = "critical"
        elif (sign and not (since and since.paid and grew)) or (grew and fell):
            severity = "warn"
        else:
            severity = "info"
        fate = f"; {since.metric} has fallen from {since.before:.3g} to {since.now:.3g}" if since and fell else ""
        return self.finding(
            view, severity, onset,
            f"rollouts are {lag:g} updates old{' and ' + sign if sign else ''}{fate}",
            metric="rollout/staleness", baseline=start.start if start else lag, now=lag,
        )  # fmt: skip

    def _sign(self, view: RunView) -> str:
        """How the ratios show it, in words; else empty."""
        ess, tail = level_of(view, "policy/ess"), level_of(view, "policy/ratio_p99")
        if 0 < ess < self.ess:
            return f"the effective sample size is {ess:.0%}"
        if tail > self.tail:
            return f"one ratio in a hundred exceeds {tail:.2g}"
        clip = drift(view, "policy/clip_frac")
        if clip and clip.clear and clip.now >= max(self.clipped * clip.start, clip.start + 0.1):
            return f"{clip.now:.0%} of tokens leave the clip range ({clip.start:.1%} at the start)"
        return ""
