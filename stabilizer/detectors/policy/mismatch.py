"""Mismatch: the generation engine and the trainer disagree about the probability of the same tokens."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.records import Finding, Severity
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import Departure, departure
from stabilizer.detectors.evidence.progress import level_of, progress
from stabilizer.detectors.evidence.since import began, outcome
from stabilizer.runs.history import RunView

PROBS_DIFF = "verl/training/rollout_probs_diff_mean"


@dataclass(frozen=True, kw_only=True)
class Mismatch(Detector):
    """Tokens are sampled from one distribution and trained on as if they came from another.

    Signature
        Levels are medians of 5 rows. `warn` where the KL between engine and trainer on the same weights is `large`
        nats/token; where its signed mean is below minus half of that (a mean over samples from the engine cannot be
        negative, so the engine reports other probabilities than it samples from); or where veRL's mean difference of
        probabilities is over `diff`. `warn` as well where the KL has left its trend: by `growth` times to at least
        `small` with a reward that has fallen since, or by `leap` times to half of `large` whatever the reward does.
        `critical` when the reward has lost what it had gained. `info` for a KL of half of `large`, and for single
        tokens over `token` times as likely in one as in the other beside a KL of `small`.

    Why it matters
        Every ratio carries this error before the policy has moved at all, so clipping and advantages act on the wrong
        tokens. Rare tokens are hit most: gradient spikes come next, then the reward falls, all within tens of steps.

    Look-alikes
        Rollouts of older weights disagree because the policy moved: `policy/stale-rollouts`, and `info` here. A KL
        measured after the updates includes them. Where a correction is in force (`control/mismatch`), the loss is
        already weighted for it: `info` unless the reward has fallen. Mixture-of-experts models are noisier throughout.

    False alarms
        An 8-bit engine by design, with a correction that this run does not log.

    Remedies
        `lower-lr` gains time, `roll-back` when the reward is lost. Manually: a correction (`policy.mismatch`: token or
        sequence weights), the same temperature and top-p on both sides, float16 or float32 in engine and head.

    References
        Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training"; "When Speed Kills
        Stability" 2025; arXiv 2510.26788 on float16; verl's FAQ: below 0.005 is fine, above 0.01 a problem.
    """

    id = "policy/mismatch"
    needs = (f"policy/mismatch_kl|policy/mismatch_k1|{PROBS_DIFF}",)
    confirm = 3

    large: float = 0.02
    """Nats per token that no rounding explains."""
    small: float = 0.003
    """Nats per token that matter beside other damage."""
    growth: float = 2.5
    """Factor over its trend."""
    leap: float = 5.0
    """Factor over its trend that is reported before any harm is done."""
    diff: float = 0.01
    """veRL's mean |p(engine) - p(trainer)|."""
    token: float = 20.0
    """Ratio of a single token."""

    def check(self, view: RunView) -> Finding | None:
        name = "policy/mismatch_kl" if "policy/mismatch_kl" in view else "policy/mismatch_k1"
        kl = level_of(view, name)
        signed, diff = level_of(view, "policy/mismatch_k1"), level_of(view, PROBS_DIFF)
        metric, now, limit, plain = name, kl, self.large, kl >= self.large
        if signed <= -self.large / 2:
            metric, now, limit, plain = "policy/mismatch_k1", signed, -self.large / 2, True
        elif not plain and diff >= self.diff:
            metric, now, limit, plain = PROBS_DIFF, diff, self.diff, True
        grown = None
        if not plain and kl >= self.small:
            grown = departure(view, name, up=True)
            grown = grown if grown and kl >= self.growth * grown.expected else None
        notable = kl >= self.large / 2 or (
            kl >= self.small and level_of(view, "policy/mismatch_ratio_max") >= self.token
        )
        if not (plain or grown or notable):
            return None
        series = view.series(metric)
        onset = min(began(series), grown.onset_step) if grown else began(series)
        reward, since = progress(view), outcome(view, onset)
        fell = since is not None and since.fell
        lost = bool(reward and reward.dropped and not reward.rising and reward.drop_step >= onset - 20)
        stale = level_of(view, "rollout/staleness")
        excused = stale >= 1 or (view.latest("control/mismatch") or 0) > 0
        severity: Severity
        if (plain or grown) and reward and lost:
            severity, fate = "critical", f", and {reward.metric} has fallen from {reward.best:.3g} to {reward.now:.3g}"
        elif (grown and fell) or ((plain or self._leapt(grown, kl)) and (fell or not excused)):
            severity = "warn"
            fate = (
                f", and {since.metric} has fallen from {since.before:.3g} to {since.now:.3g}" if since and fell else ""
            )
        else:
            severity, fate = "info", ""
        late = f" over {stale:.0f} updates" if stale >= 1 else ""
        return self.finding(
            view, severity, onset,
            f"engine and trainer disagree{late}: {metric.split('/')[-1]} is {now:.2g} (limit {limit:g}){fate}",
            metric=metric, baseline=grown.expected if grown else limit, now=now,
        )  # fmt: skip

    def _leapt(self, grown: Departure | None, kl: float) -> bool:
        """So far above its trend, and so large, that only a fault of the engine explains it."""
        return grown is not None and kl >= max(self.leap * grown.expected, self.large / 2)
