"""Likelihood displacement: correct answers become less likely before the reward shows it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding, Severity
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import departure, drift
from stabilizer.detectors.evidence.progress import level, progress
from stabilizer.detectors.evidence.since import began, outcome
from stabilizer.runs.history import RunView


@dataclass(frozen=True, kw_only=True)
class LikelihoodDisplacement(Detector):
    """The log-probability per token of correct answers falls clearly and materially.

    Signature
        The median of the last 5 rows of `policy/logp_correct` is at least `fall` nats/token below what its past
        predicts (`departure`) or below the run's start (`drift`). `warn` when the reward has not risen since, or when
        the gradient norm has clearly grown by half meanwhile. While the reward still rises, `warn` only for a fall of
        `steep` nats that the growth of entropy does not explain. `critical` when the reward has lost what it had
        gained; else `info`.

    Why it matters
        Correct and wrong answers to a prompt share most of their tokens. Pushing many wrong ones down pulls correct
        ones along, and each becomes a little less certain. Less certain tokens have larger gradients, which push
        harder. It is an early warning: the likelihood falls for a hundred rows before the reward does, and the reward
        then falls at once.

    Look-alikes
        Useful exploration lowers the likelihood of all answers by as many nats as entropy gained, and the reward rises.
        Longer answers: the figure is per token, so length alone does not change it. Harder problems that begin to be
        solved are unlikely at first: the reward rises. A step in which few problems were solved is noisy: the level is
        a median of 5.

    False alarms
        An undeclared switch to data whose correct answers are less likely.

    Remedies
        `lower-lr`, `raise-beta`; `roll-back` to before the decline began once the reward is lost. Manually: weight
        negative advantages down, mask what the tool returned, add a term that keeps the likelihood of correct answers.

    References
        "Lazy likelihood displacement" (arXiv 2512.04220): three phases, and how the gradient inflates in the last.
    """

    id = "policy/likelihood-displacement"
    needs = ("policy/logp_correct", "reward/mean|accuracy/train")
    confirm = 5

    fall: float = 0.12
    """Nats per token that matter."""
    steep: float = 0.25
    """Nats per token beyond entropy's growth that matter although the reward rises."""
    patience: int = 25
    """Rows after which a rising reward can be told from a flat one."""
    inflated: float = 1.5
    """Multiple of the gradient norm at the start."""

    def check(self, view: RunView) -> Finding | None:
        series = view.series("policy/logp_correct")
        recent = series.last(10).finite()
        if len(recent) < 5:
            return None
        now = level(recent)
        moved = departure(view, "policy/logp_correct", up=False)
        if moved and now <= moved.expected - self.fall:
            normal = moved.expected
        else:
            first = int(series.steps.searchsorted(view.baseline_start()))
            if not now <= float(series.values[first : first + 20].max(initial=-np.inf)) - self.fall:
                return None  # a cheap check that mostly ends here
            start = drift(view, "policy/logp_correct")
            if not (start and start.clear and now <= start.start - self.fall):
                return None
            normal = start.start
        reward = progress(view)
        if reward is None or reward.solved:
            return None
        onset = began(series)
        since = outcome(view, onset)
        unexplained = normal - now - self._entropy_gain(view, onset)
        gradient = drift(view, "optim/grad_norm")
        inflates = gradient is not None and gradient.clear and gradient.ratio >= self.inflated
        rises = reward.rising or since is None or since.paid or since.rows < self.patience
        severity: Severity
        if reward.dropped and not reward.rising and reward.drop_step >= onset:
            severity = "critical"
        elif (not rises and (inflates or unexplained >= self.fall)) or (rises and unexplained >= self.steep):
            severity = "warn"
        else:
            severity = "info"
        fate = "still rises" if rises else "has fallen" if since and since.fell else "has not risen"
        return self.finding(
            view, severity, onset,
            f"log-probability of correct answers fell from {normal:.3g} (before step {onset}) to {now:.3g} nats/token,"
            f" {unexplained:.2g} more than entropy explains; {reward.metric} {fate} ({reward.now:.3g})",
            metric="policy/logp_correct", baseline=normal, now=now, unexplained=unexplained,
        )  # fmt: skip

    @staticmethod
    def _entropy_gain(view: RunView, onset: int) -> float:
        """Nats per token by which all answers became less certain since; 0 where entropy is not logged."""
        entropy = view.series("policy/entropy")
        before, now = level(entropy.between(0, onset).last(20).finite(), 20), level(entropy.last(8).finite())
        return max(0.0, now - before) if np.isfinite(now - before) else 0.0
