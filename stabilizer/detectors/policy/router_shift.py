"""Router shift: a mixture of experts routes tokens differently in training than in sampling."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.records import Finding, Severity
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import departure, drift
from stabilizer.detectors.evidence.progress import level, progress
from stabilizer.detectors.evidence.since import began, outcome
from stabilizer.runs.history import RunView


@dataclass(frozen=True, kw_only=True)
class RouterShift(Detector):
    """More and more tokens use other experts in the trainer than in the engine, and the ratios swing with it.

    Signature
        `policy/router_shift` (only mixtures of experts log it) is at least `growth` times, and `more` above, what its
        past predicts (`departure`) or what it began with (`drift`). `warn` with a second sign: the largest ratio or the
        clip fraction has doubled too, or the reward has fallen since. `critical` when the reward has lost what it had
        gained. `info` without a second sign, and from `high` whatever its past.

    Why it matters
        A token that changes its expert changes its probability by a jump, not by a step of the learning rate. Ratios
        become random, clipping comes in bursts, and the gradient trains experts that the answer never used.

    Look-alikes
        In a healthy run about one assignment in ten changes with every update: a level, not a fault. Early training
        moves the router more than late training. An engine of lower precision shifts routes from the first step and
        stays there.

    False alarms
        More updates between weight transfers raise the share by themselves: `policy/stale-rollouts`.

    Remedies
        `lower-lr`, `roll-back` once the reward is lost. Manually: replay the engine's routing in the trainer (R2, R3),
        use ratios of whole sequences (GSPO) instead of tokens, freeze the router.

    References
        GSPO (arXiv 2507.18071): about a tenth of the experts change per update; RSPO (arXiv 2510.23027) and
        "Stabilizing RL with LLMs" (arXiv 2512.01374) on routing replay.
    """

    id = "policy/router-shift"
    needs = ("policy/router_shift",)
    confirm = 5

    growth: float = 1.5
    """Multiple of the usual share of changed assignments."""
    more: float = 0.05
    """Share of assignments on top of the usual."""
    high: float = 0.4
    """Share that is reported in any run."""

    def check(self, view: RunView) -> Finding | None:
        series = view.series("policy/router_shift")
        recent = series.last(8).finite()
        if len(recent) < 5:
            return None
        now = level(recent)
        moved, start = departure(view, "policy/router_shift", up=True), None
        usual = moved.expected if moved else 1.0
        if not moved and now >= self.more:
            start = drift(view, "policy/router_shift")
            usual = start.start if start and start.clear else 1.0
        grown = now >= max(self.growth * usual, usual + self.more)
        if not grown and now < self.high:
            return None
        onset = began(series, "fraction")
        reward, since = progress(view), outcome(view, onset)
        fell = since is not None and since.fell
        sign = self._swings(view, onset) if grown else ""
        lost = bool(reward and reward.dropped and not reward.rising and reward.drop_step >= onset - 20)
        severity: Severity = "critical" if grown and lost else "warn" if grown and (sign or fell) else "info"
        fate = f"; {since.metric} has fallen from {since.before:.3g} to {since.now:.3g}" if since and fell else ""
        past = f", up from {usual:.0%} before step {onset}" if grown else ""
        return self.finding(
            view, severity, onset,
            f"{now:.0%} of expert assignments differ from the engine's{past}{'; ' + sign if sign else ''}{fate}",
            metric="policy/router_shift", baseline=usual if grown else self.high, now=now,
        )  # fmt: skip

    @staticmethod
    def _swings(view: RunView, onset: int) -> str:
        """The other metric that has doubled since, in words."""
        for name, words in (("policy/ratio_max", "the largest ratio is"), ("policy/clip_frac", "the clip fraction is")):
            series = view.series(name)
            before, now = level(series.between(0, onset).last(20).finite(), 20), level(series.last(10).finite(), 10)
            if now >= max(2 * before, before + 0.03):
                return f"{words} {now:.3g} ({before:.3g} before)"
        return ""
