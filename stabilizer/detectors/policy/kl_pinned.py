"""KL pinned: the KL penalty holds the policy in place, and the reward cannot improve."""

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
    """The weight of the KL is so large that it, and not the reward, decides where the policy stays.

    Signature
        beta x sqrt(2 KL) is the pull of the penalty on a token on which an advantage pulls with about 1. It is at least
        `pull`, or beta is at least `heavy` while KL is under `tiny` nats. KL has stopped growing. The reward is known
        to be flat (`stagnation`), or, where beta is `absurd`, has not risen in a log that is too short to know. Always
        `warn`: only time is lost.

    Why it matters
        The optimum of a penalised objective lies where both pulls cancel. Once the policy is there, more steps, more
        data and a higher learning rate change nothing; only a smaller beta or a newer reference does.

    Look-alikes
        beta = 0 logs a KL of 0.0 at every step: there is no penalty. With a learning rate that is too low, KL is tiny
        as well but keeps growing. Groups without any spread give no pull to balance: `reward/no-signal`. A solved task
        is flat because it is done.

    False alarms
        A real ceiling while beta is large by design, as in distillation towards the reference.

    Remedies
        `lower-beta`, by half, and watch. Manually: make the present policy the reference and reset the optimizer.

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
    """Share by which KL clearly grew over the newest 100 rows while it is not held yet."""
    absurd: float = 0.3
    """beta for which a short log is enough."""
    short: int = 30
    """Rows of a log that is judged without statistical certainty."""

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
            return None  # slowed down, not held
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
            f"beta = {beta:g} holds KL to the reference at {kl:.3g} nats/token (its pull is {pull:.2g} of an"
            f" advantage's), and {reward.metric} is flat at {reward.now:.3g}",
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
        """The whole of a short log shows no rise above a row's noise."""
        rewards = view.series(metric).last(60).finite().values
        if len(rewards) < self.short:
            return False
        return trend(rewards).change < step_noise(rewards)
