"""Likelihood displacement: right answers become less likely while the reward does not show it yet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import departure, drift
from stabilizer.detectors.evidence.progress import level, progress
from stabilizer.detectors.evidence.since import began, outcome
from stabilizer.runs.history import RunView


@dataclass(frozen=True, kw_only=True)
class LikelihoodDisplacement(Detector):
    """The log-probability per token of answers that are right falls, clearly and materially.

    Signature
        The median of the last 5 rows of `policy/logp_correct` is at least `fall` nats/token below what its past makes
        expect (`departure`) or below the run's start (`drift`). `warn` when the reward has not risen since, or the
        gradient norm has clearly grown by half meanwhile; when the reward still rises, only a fall of `steep` nats that
        the growth of entropy does not account for. `critical` when the reward has lost what it had gained; else `info`.

    Why it matters
        Right and wrong answers to a prompt share most of their tokens. Pushing many wrong ones down takes right ones
        along, each a little less sure than before; less sure tokens have larger gradients, which push harder. It is an
        early warning: the likelihood falls for a hundred rows before the reward does, and that goes at once.

    Look-alikes
        Exploration that pays lowers the likelihood of all answers alike: as many nats as entropy gained, and the reward
        rises. Longer answers: the figure is per token, so length alone does not move it. Harder problems that begin to
        be solved are unlikely at first: the reward rises. A step in which little was solved is noisy: a median of 5.

    False alarms
        A switch to other data that is not declared and is right only by longer shots.

    Remedies
        `lower-lr`, `raise-beta`; `roll-back` to before the decline began once the reward is lost. By hand: weigh
        negative advantages down, mask what the tool returned, add a term that keeps the likelihood of right answers.

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
    """Rows after which a reward that rises can be told from one that stands."""
    inflated: float = 1.5
    """Times the gradient norm of the start."""

    def check(self, view: RunView) -> Finding | None:
        series = view.series("policy/logp_correct")
        recent = series.last(10).finite()
        if len(recent) < 5:
            return None
        now = level(recent)
        moved = departure(view, "policy/logp_correct", up=False)
        start = None
        if not (moved and now <= moved.expected - self.fall):
            first = int(series.steps.searchsorted(view.baseline_start()))
            if not now <= float(series.values[first : first + 20].max(initial=-np.inf)) - self.fall:
                return None  # cheap, and mostly the end of it
            start = drift(view, "policy/logp_correct")
            if not (start and start.clear and now <= start.start - self.fall):
                return None
        reward = progress(view)
        if reward is None or reward.solved:
            return None
        normal = start.start if start else moved.expected
        onset = began(series)
        since = outcome(view, onset)
        unexplained = normal - now - self._entropy_gain(view, onset)
        gradient = drift(view, "optim/grad_norm")
        inflates = gradient is not None and gradient.clear and gradient.ratio >= self.inflated
        rises = reward.rising or since is None or since.paid or since.rows < self.patience
        if reward.dropped and not reward.rising and reward.drop_step >= onset:
            severity = "critical"
        elif (not rises and (inflates or unexplained >= self.fall)) or (rises and unexplained >= self.steep):
            severity = "warn"
        else:
            severity = "info"
        fate = "still rises" if rises else "has fallen" if since.fell else "has not risen"
        return self.finding(
            view, severity, onset,
            f"right answers have {now:.3g} nats/token, {normal - now:.2g} below the {normal:.3g} before step {onset}"
            f" ({unexplained:.2g} beyond the growth of entropy); {reward.metric} {fate} ({reward.now:.3g})",
            metric="policy/logp_correct", baseline=normal, now=now, unexplained=unexplained,
        )  # fmt: skip

    @staticmethod
    def _entropy_gain(view: RunView, onset: int) -> float:
        """Nats per token by which all answers became less sure since; 0 where entropy is not logged."""
        entropy = view.series("policy/entropy")
        before, now = level(entropy.between(0, onset).last(20).finite(), 20), level(entropy.last(8).finite())
        return max(0.0, now - before) if np.isfinite(now - before) else 0.0
