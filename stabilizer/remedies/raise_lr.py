"""Raise the learning rate."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.core.stats import middle
from stabilizer.remedies.base import Change, Remedy, scaled
from stabilizer.remedies.evidence import recent
from stabilizer.remedies.situation import Situation
from stabilizer.remedies.urgency import DIVERGENCE, rank
from stabilizer.runs.history import RunView

LIMITS = (("policy/kl_old", 0.005), ("policy/clip_frac", 0.1), ("reward/zero_std_frac", 0.5))
"""Nats a token, and shares: above, the policy already moves enough, or has nothing to learn from."""

AFTER_DIVERGENCE = 100
"""Steps after a divergence in which no fix may raise the learning rate."""


class RaiseLr(Remedy):
    """Raise the learning rate.

    What it does
        Raises the factor on the scheduled learning rate by half.

    For
        A reward that stands still because updates hardly move the policy; where the batch is small, only after batch,
        groups and filtering.

    Preconditions
        Entropy not low, KL to the sampling policy under 0.005 nats/token, few tokens clipped, fewer than half of the
        groups silent, and no divergence within 100 steps: otherwise what looks slow is stuck, or about to break.

    Dose and bounds
        Times 1.5, four times the configured rate at most.

    Undo
        The factor goes back; kept only when the reward rises afterwards.

    Side effects
        Everything that moves, moves faster, errors too.

    References
        AdaLRS (arXiv 2506.13274) raises the rate and takes it back when the slope does not improve.
    """

    id = "raise-lr"
    safety = "hard"
    answers = ("lr-too-low", "batch-too-small")
    horizon = 60
    why = "steps this small barely move the policy"
    expects = "the policy moves by more than 1e-4 nats/token a step and the reward rises"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return scaled(knobs, "control/lr_scale", 1.5, low=0.25, high=4.0)

    def unfit(self, view: RunView) -> str:
        """Whether something else than small steps holds the run back, or a larger step would break it."""
        entropy = view.series("policy/entropy").finite().values
        level = recent(view, "policy/entropy")
        if len(entropy) >= 40 and level is not None and level < 0.3 * middle(entropy[:20]):
            return "entropy is low: the policy has stopped exploring, and larger steps would finish it"
        for name, most in LIMITS:
            now = recent(view, name)
            if now is not None and now > most:
                return f"{name} is {now:.3g}, above {most:g}"
        return ""

    def objection(self, now: Situation) -> str | None:
        """A flat reward asks for a larger step only where no larger step just broke something."""
        for finding in now.findings:
            ago = now.view.step - finding.last_step
            if rank(finding) <= DIVERGENCE and finding.severity != "info" and ago < AFTER_DIVERGENCE:
                return f"{finding.id} was seen {ago} steps ago"
        return None
