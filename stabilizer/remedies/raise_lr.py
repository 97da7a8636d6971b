"""Raise the learning rate."""

from __future__ import annotations

from stabilizer.core.stats import middle
from stabilizer.remedies.base import Remedy
from stabilizer.remedies.doses import Scale
from stabilizer.remedies.evidence import recent
from stabilizer.remedies.situation import Situation
from stabilizer.remedies.urgency import DIVERGENCE, rank
from stabilizer.runs.history import RunView

LIMITS = (("policy/kl_old", 0.005), ("policy/clip_frac", 0.1), ("reward/zero_std_frac", 0.5))
"""Limits in nats per token and in shares: above them, the policy already moves enough or has nothing to learn from."""

AFTER_DIVERGENCE = 100
"""Steps after a divergence during which no fix may raise the learning rate."""


class RaiseLr(Remedy):
    """Raise the learning rate.

    What it does
        Raises the factor on the scheduled learning rate by half.

    For
        A reward that is flat because updates hardly move the policy. If the batch is small, the remedies for batch,
        groups and filtering come first.

    Preconditions
        Entropy is not low, KL to the sampling policy is below 0.005 nats/token, few tokens are clipped, fewer than half
        of the groups are silent, and there was no divergence within 100 steps. Otherwise a run that looks slow is stuck
        or about to break.

    Dose and bounds
        Times 1.5, at most four times the configured rate.

    Undo
        The factor is restored; the change is kept only if the reward rises afterwards.

    Side effects
        All changes of the policy are faster, harmful ones too.

    References
        AdaLRS (arXiv 2506.13274) raises the rate and restores it if the slope does not improve.
    """

    id = "raise-lr"
    safety = "hard"
    answers = ("lr-too-low", "batch-too-small")
    horizon = 60
    why = "steps this small hardly move the policy"
    expects = "the policy moves by more than 1e-4 nats/token per step and the reward rises"
    dose = Scale("control/lr_scale", 1.5, low=0.25, high=4.0)

    def unfit(self, view: RunView) -> str:
        """Whether the run is slow for another reason than small steps, or a larger step would break it."""
        entropy = view.series("policy/entropy").finite().values
        level = recent(view, "policy/entropy")
        if len(entropy) >= 40 and level is not None and level < 0.3 * middle(entropy[:20]):
            return "entropy is low: the policy has stopped exploring, and larger steps would make it worse"
        for name, most in LIMITS:
            now = recent(view, name)
            if now is not None and now > most:
                return f"{name} is {now:.3g}, above {most:g}"
        return ""

    def objection(self, now: Situation) -> str | None:
        """A flat reward needs larger steps only if no larger step caused a failure recently."""
        for finding in now.findings:
            ago = now.view.step - finding.last_step
            if rank(finding) <= DIVERGENCE and finding.severity != "info" and ago < AFTER_DIVERGENCE:
                return f"{finding.id} was seen {ago} steps ago"
        return None
