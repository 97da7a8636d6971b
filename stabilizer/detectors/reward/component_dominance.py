"""Component dominance: one term of the reward drowns the others, and the policy sells them for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.detectors.base import Detector
from stabilizer.detectors.departure import change_step
from stabilizer.detectors.reward.scale_shift import components
from stabilizer.records import Finding
from stabilizer.runs.history import RunView
from stabilizer.signals import step_noise


@dataclass(frozen=True, kw_only=True)
class ComponentDominance(Detector):
    """Nearly all that moves in the reward is one component, while another goes down.

    Signature
        Of the summed variances of the components' means over the newest `window` rows one component has `most`; and
        another, itself no penalty, lies `lost` of its first level (mean of 20 rows) or more below it, by 5 standard
        errors. `warn`; `info` when the dominant one is what is wanted (accuracy rises with it), or when the others are
        only dead: at 0 since the start.

    Why it matters
        Advantages see the sum. A term with ten times the variance of the others decides nearly every comparison, so
        the policy improves that one, at the price of whatever stands in its way.

    Look-alikes
        A format term that all answers have earned is flat and should be. Accuracy that dominates because it is what is
        being learned. Penalties that grow as answers get longer while the task is solved more often. Weights that are
        multiplied in later: what is logged per component may be unweighted, and then says nothing about dominance.

    False alarms
        A component that goes down because the dominant one replaces it by design.

    Remedies
        `check-reward`. By hand: give every component about the same spread (divide by its own deviation), or pay the
        minor ones only where the main one is earned.

    References
        GDPO (arXiv 2601.05242) on normalising rewards one by one; rl-doctor's thresholds of 0.7 and 0.9.
    """

    id = "reward/component-dominance"
    needs = ("reward/<component>/mean",)

    window: int = 100
    """Rows over which variances are compared."""
    least: int = 50
    """Rows under which nothing is said: components start at different speeds."""
    most: float = 0.85
    """Share of the variance that dominates."""
    lost: float = 0.2
    """Share of its first level that another component must have lost."""

    def missing(self, view: RunView) -> list[str]:
        """Needs at least two components of the reward."""
        return [] if len(components(view)) >= 2 else ["reward/<component>/mean"]

    def check(self, view: RunView) -> Finding | None:
        if view.step < self.least and len(view.series("reward/mean")) < self.least:
            return None
        names = view.once(components)
        recent = {name: view.series(name).last(self.window).finite().values for name in names}
        recent = {name: values for name, values in recent.items() if len(values) >= self.least // 2}
        if len(recent) < 2:
            return None
        power = {name: float(values.var()) for name, values in recent.items()}
        total = sum(power.values())
        if len(power) < 2 or not total > 0:
            return None
        top = max(power, key=lambda name: power[name])
        if power[top] < self.most * total:
            return None
        falls = {name: fall for name in recent if name != top and (fall := self._fall(view, name)) > 0}
        dead = [name for name, values in recent.items() if not values.any() and not view.series(name).values[:20].any()]
        if not falls and not dead:
            return None
        victim = max(falls, key=lambda name: falls[name]) if falls else dead[0]
        wanted = self._wanted(view, top)
        fate = f"has lost {falls[victim]:.0%} of its first level" if falls else "has been 0 since the start"
        return self.finding(
            view, "warn" if falls and not wanted else "info", change_step(view.series(victim)),
            f"{top} has {power[top] / total:.0%} of the components' variance, and {victim} {fate}",
            metric=victim, baseline=float(np.nanmean(view.series(victim).values[:20])),
            now=float(recent[victim][-20:].mean()), dominant=top, share=power[top] / total,
        )  # fmt: skip

    def _fall(self, view: RunView, name: str) -> float:
        """Share of its first level that a component has lost for sure; 0 for penalties and for noise."""
        series = view.series(name)
        head, tail = series.values[:20], series.last(20).values
        head, tail = head[np.isfinite(head)], tail[np.isfinite(tail)]
        if len(series) < self.least or len(head) < 10 or len(tail) < 10:
            return 0.0
        was = float(head.mean())
        fall = was - float(tail.mean())
        if not (was > 0 and fall > self.lost * was):
            return 0.0
        noise = max(step_noise(head), step_noise(tail), float(tail.std()))
        return fall / was if fall > 5 * noise * np.sqrt(2 / 20) else 0.0

    def _wanted(self, view: RunView, top: str) -> bool:
        """The dominant component is the task itself: accuracy follows it up."""
        for name in ("accuracy/val", "accuracy/train"):
            values = view.series(name).last(400).finite().values
            third = len(values) // 3
            if third and values[-third:].mean() > values[:third].mean() + 0.02:
                return True
        return False
