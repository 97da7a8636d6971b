"""KL pinned: the penalty holds the policy where it is, and the reward cannot move."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.core.stats import median, step_noise, trend
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.progress import level, progress
from stabilizer.detectors.evidence.stagnation import stagnation
from stabilizer.runs.history import RunView


@dataclass(frozen=True, kw_only=True)
class KlPinned(Detector):
    """The weight of the KL is so large that it, not the reward, decides where the policy stays.

    Signature
        beta x sqrt(2 KL), the weight with which the penalty pulls at a token where an advantage pulls with about 1, is
        at least `pull`, or beta is at least `heavy` while KL is under `tiny` nats; KL has stopped growing; and the
        reward provably stands still (`stagnation`), or, where beta is `absurd`, has not risen in a log that
        is too short for proof. Always `warn`: nothing is lost but time.

    Why it matters
        The optimum of a penalised objective lies where both pulls cancel. Once there, more steps, more data and a
        higher learning rate change nothing; only a smaller beta or a newer reference does.

    Look-alikes
        beta = 0 logs a KL of 0.0 every step: no penalty, nothing pins. A learning rate that is too low has a tiny KL as
        well, but one that goes on growing. Groups without any spread give no pull to hold against: `reward/no-signal`.
        A solved task stands still because it is done.

    False alarms
        A ceiling that is really there while beta is large by design, as in distillation towards the reference.

    Remedies
        `lower-beta`, by half and watched. By hand: make the present policy the reference and start the optimizer anew.

    References
        ProRL (arXiv 2505.24864) on resetting the reference; TRL's `sync_ref_model`; Gao et al. 2022 (arXiv 2210.10760).
    """

    id = "policy/kl-pinned"
    needs = ("policy/kl_ref", "reward/mean|accuracy/train")
    confirm = 5

    pull: float = 0.03
    """beta x sqrt(2 KL) from which the penalty matters beside advantages of size 1 that mostly cancel."""
    heavy: float = 0.1
    """beta that no recipe uses."""
    tiny: float = 0.05
    """Nats per token that a heavy beta leaves."""
    growing: float = 0.03
    """Share by which KL surely grew over the newest 100 rows, if it is not yet held."""
    absurd: float = 0.3
    """beta for which a short log is enough."""
    short: int = 30
    """Rows of a log that is judged without proof."""

    def check(self, view: RunView) -> Finding | None:
        beta = self._beta(view)
        if beta is None or beta <= 0:
            return None
        recent = view.series("policy/kl_ref").last(100).finite()
        if len(recent) < self.short:
            return None
        kl = level(recent, 20)
        pull = beta * float(np.sqrt(2 * max(kl, 0.0)))
        if kl == 0 or not (pull >= self.pull or (beta >= self.heavy and abs(kl) <= self.tiny)):
            return None
        if trend(recent.values).low > self.growing * kl:
            return None  # held back, not held
        reward = progress(view)
        if reward is None or reward.solved or reward.rising or reward.dropped:
            return None
        if level(view.series("reward/zero_std_frac").last(20).finite(), 20) > 0.8:
            return None
        still = stagnation(view)
        if still is None and not (beta >= self.absurd and self._rests(view, reward.metric)):
            return None
        onset = still.onset_step if still else int(view.series(reward.metric).last(self.short).steps[0])
        return self.finding(
            view, "warn", onset,
            f"beta = {beta:g} holds KL to the reference at {kl:.3g} nats/token (pull {pull:.2g} of an advantage's), and"
            f" {reward.metric} stands still at {reward.now:.3g}",
            metric="policy/kl_ref", baseline=median(recent.values[: len(recent) // 2]), now=kl, beta=beta, pull=pull,
        )  # fmt: skip

    @staticmethod
    def _beta(view: RunView) -> float | None:
        """The weight in force, as logged or as configured."""
        for name in ("policy/beta", "control/beta"):
            if (known := view.latest(name)) is not None:
                return known
        known = view.config("policy.beta", view.config("beta"))
        return float(known) if isinstance(known, int | float) else None

    def _rests(self, view: RunView, metric: str) -> bool:
        """The whole of a short log shows no rise worth a row's noise."""
        rewards = view.series(metric).last(60).finite().values
        if len(rewards) < self.short:
            return False
        return trend(rewards).change < step_noise(rewards)
