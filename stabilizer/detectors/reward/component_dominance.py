"""Component dominance: one component dominates the reward, and the policy gives up the others for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stabilizer.core.metrics import means_right
from stabilizer.core.records import Finding
from stabilizer.core.stats import finite, step_noise, trend
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import change_step
from stabilizer.detectors.reward.scale_shift import components
from stabilizer.runs.history import RunView

START = 15
"""Rows of a component below which nothing is said about what was learned; five of them are a level."""
NEVER = 0.03
"""Share of the total reward under which a component for correct answers has hardly ever been earned."""
GREW = 0.2
"""Share of its level that a component must have gained to count as learned."""
FLOOR = 0.1
"""Share of another's gain under which a component counts as never earned."""
SHARE = 0.85
"""Share of the total gain that one component must have made."""
RECENT = 30
"""Newest rows that must not rise."""
RARE = 3.0
"""Deviations of single payments, in means, from which a component is earned seldom rather than small."""


class Unearned(NamedTuple):
    """A component that made the reward's gain, and one that stayed at its floor meanwhile."""

    top: str
    was: float
    now: float
    share: float
    floor: str
    level: float
    earnable: bool
    """Whether it is known to be earned sometimes, or its name says that it is the goal."""
    first: int
    """The first step at which it could have been earned."""


def unearned(view: RunView) -> Unearned | None:
    """The component that was learned and the one that was not, if one component alone raised the reward. Call
    through `view.once`."""
    names = components(view)
    names += [name for name in ("accuracy/train",) if names and name in view]
    ends = {name: found for name in names if (found := _ends(view, name))}
    if len(ends) < 2:
        return None
    gains = {name: now - was for name, (was, now, _) in ends.items() if name.startswith("reward/")}
    top = max(gains, key=lambda name: gains[name])
    was, now, error = ends[top]
    gained = sum(max(gain, 0.0) for gain in gains.values())
    if not gains[top] > max(4 * error, GREW * abs(now)) or gains[top] < SHARE * gained:
        return None
    floors = [name for name in ends if name != top and _at_floor(view, name, ends[name], gains[top])]
    if not floors:
        return None
    floor = max(floors, key=lambda name: (_earnable(view, name), ends[name][1]))
    return Unearned(top, was, now, gains[top] / gained, floor, ends[floor][1], _earnable(view, floor),
                    max(view.baseline_start(), int(view.series(top).steps[0])))  # fmt: skip


def _ends(view: RunView, name: str) -> tuple[float, float, float] | None:
    """Level of the first and of the newest rows of a component, and the standard error of their difference."""
    series = view.series(name)
    rows = min(20, len(series) // 3)
    if len(series) < START or series.steps[-1] < view.step - 100:
        return None
    head, tail = finite(series.values[:rows]), finite(series.values[-rows:])
    if min(len(head), len(tail)) < rows // 2 or len(head) < 5:
        return None
    noise = max(step_noise(head), step_noise(tail), step_noise(series.last(60).finite().values) if rows < 10 else 0.0)
    return float(head.mean()), float(tail.mean()), noise * float(np.sqrt(1 / len(head) + 1 / len(tail)))


def _at_floor(view: RunView, name: str, ends: tuple[float, float, float], gain: float) -> bool:
    """Almost nothing at both ends, no penalty, and clearly almost no share of the other's gain."""
    most = FLOOR * gain
    if not (0 <= ends[0] <= most and 0 <= ends[1] <= most):
        return False
    values = view.series(name).last(300).finite().values
    if len(values) < 12 or float(values.min()) < 0:
        return False
    whole, newest = trend(values), trend(values[-RECENT:])
    return whole.high <= most and not (newest.rising and newest.change > max(ends[1], most / 4))


def _earnable(view: RunView, name: str) -> bool:
    """Whether it is known to be earned sometimes, by single answers or by rows, or its name says that it is the
    goal."""
    if name == "accuracy/train" or means_right(name):
        return True
    values = view.series(name).last(300).finite().values
    level = float(values.mean()) if len(values) else 0.0
    apart = view.series(name.removesuffix("mean") + "std").last(300).finite().values
    if not level > 0:
        return False
    return float(apart.mean()) >= RARE * level if len(apart) else float(values.std()) >= level


@dataclass(frozen=True, kw_only=True)
class ComponentDominance(Detector):
    """Almost all movement in the reward comes from one component, while another declines.

    Signature
        Variance: over the newest `window` rows, one component has `most` of the summed variances of the components'
        means, and another, itself no penalty, lies `lost` or more below its first level (mean of 20 rows), by 5
        standard errors. `warn`; `info` when the dominant component is the goal (accuracy rises with it), or when the
        others are only inactive: at 0 since the start.

        Gain (`unearned`): from the first to the newest rows one component made 85 % of what all components gained, by a
        fifth of its level and 4 standard errors. Another component, or accuracy, is at a tenth of that gain or less at
        both ends and clearly gained no more. `info` in the first `patience` steps. `warn` later if the other is known
        to be earned sometimes (its payments are rare rather than small), or its name says that it pays for correct
        answers.

        Share, `info`: the components for correct answers, by their names, have clearly contributed less than 3 % of the
        total reward since the first row, and another component 85 % of it.

    Why it matters
        Advantages see the sum. A component with ten times the variance of the others decides almost every comparison,
        so the policy improves that one at the expense of whatever competes with it.

    Look-alikes
        A format component that all answers have earned is flat and should be. A format that is learned first, with the
        task following (`patience`). A component of weight 0, or one that rarely applies: it never moves, which is
        `info`. Accuracy that dominates because it is what is being learned. Penalties that grow as answers get longer
        while the task is solved more often. Weights that are applied later: what is logged per component may be
        unweighted, and then says nothing about dominance.

    False alarms
        A component that declines because the dominant one replaces it by design. A task so hard that its first
        successes take longer than `patience`.

    Remedies
        `check-reward`. Manually: give every component about the same spread (divide by its own deviation), or reward
        the minor ones only where the main one is earned.

    References
        GDPO (arXiv 2601.05242) on normalising rewards one by one; rl-doctor's thresholds of 0.7 and 0.9.
    """

    id = "reward/component-dominance"
    needs = ("reward/<component>/mean",)

    window: int = 100
    """Rows over which variances are compared."""
    least: int = 50
    """Rows below which nothing is reported: components start at different speeds."""
    most: float = 0.85
    """Share of the variance that dominates."""
    lost: float = 0.2
    """Share of its first level that another component must have lost."""
    patience: int = 100
    """Steps that the hard component gets to follow the easy one."""

    def missing(self, view: RunView) -> list[str]:
        """Needs at least two components of the reward."""
        return [] if len(components(view)) >= 2 else ["reward/<component>/mean"]

    def check(self, view: RunView) -> Finding | None:
        drowned = self._drowned(view)
        if drowned is not None and drowned.severity != "info":
            return drowned
        # a component that was never earned can match several of these: report the most severe
        return self._learned_alone(view) or drowned or self._paid_alone(view)

    def _paid_alone(self, view: RunView) -> Finding | None:
        """The component for correct answers, by its name, has hardly ever been earned, and another made almost all
        of the reward."""
        names = view.once(components)
        right = [name for name in names if means_right(name)]
        if not right or len(right) == len(names):
            return None
        start = view.baseline_start()
        rows = {name: view.series(name).between(start, view.step).last(300).finite() for name in names}
        if any(len(series) < START or series.steps[-1] < view.step - 100 for series in rows.values()):
            return None
        paid = {name: float(series.values.mean()) for name, series in rows.items()}
        top, total = max(paid, key=lambda name: paid[name]), sum(max(level, 0.0) for level in paid.values())
        if top in right or not paid[top] >= SHARE * total > 0:
            return None
        for name in right:
            course = trend(rows[name].values)
            if float(rows[name].values.min()) < 0 or course.rising or paid[name] + abs(course.high) > NEVER * total:
                return None
        victim = max(right, key=lambda name: paid[name])
        return self.finding(
            view, "info", int(rows[top].steps[0]),
            f"{top} made up {paid[top] / total:.0%} of the reward over {len(rows[top])} rows ({paid[top]:.3g}), while"
            f" {victim}, by its name the reward for correct answers, is at {paid[victim]:.2g}",
            metric=victim, baseline=paid[victim], now=paid[victim], dominant=top, share=paid[top] / total,
        )  # fmt: skip

    def _learned_alone(self, view: RunView) -> Finding | None:
        """One component was learned and made the reward's gain, while another that can be earned never was."""
        found = view.once(unearned)
        if found is None:
            return None
        young = view.step - found.first < self.patience
        return self.finding(
            view, "info" if young or not found.earnable else "warn", found.first,
            f"{found.share:.0%} of the reward's gain comes from {found.top} ({found.was:.3g} to {found.now:.3g}), while"
            f" {found.floor} has stayed at its initial {found.level:.2g}",
            metric=found.floor, baseline=found.level, now=found.level, dominant=found.top, share=found.share,
        )  # fmt: skip

    def _drowned(self, view: RunView) -> Finding | None:
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
            f"{top} makes up {power[top] / total:.0%} of the components' variance, and {victim} {fate}",
            metric=victim, baseline=float(np.nanmean(view.series(victim).values[:20])),
            now=float(recent[victim][-20:].mean()), dominant=top, share=power[top] / total,
        )  # fmt: skip

    def _fall(self, view: RunView, name: str) -> float:
        """Share of its first level that a component has clearly lost; 0 for penalties and for noise."""
        series = view.series(name)
        head, tail = finite(series.values[:20]), finite(series.values[-20:])
        if len(series) < self.least or len(head) < 10 or len(tail) < 10:
            return 0.0
        was = float(head.mean())
        fall = was - float(tail.mean())
        if not (was > 0 and fall > self.lost * was):
            return 0.0
        noise = max(step_noise(head), step_noise(tail), float(tail.std()))
        return fall / was if fall > 5 * noise * np.sqrt(2 / 20) else 0.0

    def _wanted(self, view: RunView, top: str) -> bool:
        """Whether the dominant component is the task itself: accuracy rises with it."""
        for name in ("accuracy/val", "accuracy/train"):
            values = view.series(name).last(400).finite().values
            third = len(values) // 3
            if third and values[-third:].mean() > values[:third].mean() + 0.02:
                return True
        return False
