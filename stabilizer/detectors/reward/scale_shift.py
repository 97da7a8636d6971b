"""Scale shift: the reward is paid in another currency from one step to the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.detectors.base import Detector
from stabilizer.detectors.departure import Departure, departure
from stabilizer.records import Finding
from stabilizer.runs.history import RunView
from stabilizer.signals import median, step_noise

SHARES = ("accuracy/train", "reward/zero_std_frac", "reward/all_fail_frac", "reward/all_pass_frac")


@dataclass(frozen=True, kw_only=True)
class ScaleShift(Detector):
    """The reward and its spread jumped by the same factor, while what is solved stayed as it was.

    Signature
        The spread of rewards (over the batch where logged, else within groups) left its course by `factor` or more,
        the mean reward moved by the same factor within a tolerance of a third, and none of accuracy and the shares of
        groups that fail, pass or have no spread moved by more than 0.1. At least one of those must be logged.

    Why it matters
        With advantages divided by the group's deviation nothing changes; without, the step grows by that factor, as
        does a reward against a KL or entropy term whose weight stayed. Curves before and after can't be compared.

    Look-alikes
        A policy that gets better: its spread changes too, but then what is solved moves. A mix of data with other
        prices per prompt: the factor differs between mean and spread. A running normaliser that settles in the first
        steps: there is no course yet to leave. A fall of the reward to nothing is `reward/collapse`.

    False alarms
        A declared change of the reward (an event) is none. A task whose correct answers are worth more the harder
        they are, on a change of data nobody declared.

    Remedies
        `check-reward`: find what changed (weights of components, a normaliser, the version of the reward model).
        By hand: bring the KL and entropy coefficients to the new scale, or normalise advantages by the group's spread.

    References
        Engstrom et al. 2020 (arXiv 2005.12729) on reward scaling; Andrychowicz et al. 2021 (arXiv 2006.05990).
    """

    id = "reward/scale-shift"
    needs = ("reward/std_group|reward/std", "|".join(SHARES))
    confirm = 5

    factor: float = 1.5
    """Smallest change of scale, up or down, that matters."""
    still: float = 0.1
    """Change of a share of completions or groups that counts as none."""

    def check(self, view: RunView) -> Finding | None:
        name = "reward/std" if "reward/std" in view else "reward/std_group"  # the batch's is the steadier one
        rewards = view.series("reward/mean")
        if len(rewards) < 40 or not len(view.series(name)) or not any(share in view for share in SHARES):
            return None
        moved = departure(view, name, up=True) or departure(view, name, up=False)
        if moved is None or not (moved.ratio >= self.factor or 0 < moved.ratio <= 1 / self.factor):
            return None
        edge = self._edge(view, name, moved)
        then, now = self._around(view, "reward/mean", edge)
        spread = self._around(view, name, edge)
        if len(then) < 8 or len(now) < 5 or not median(spread[0]) > 0:
            return None
        factor = median(spread[1]) / median(spread[0])
        if not (factor >= self.factor or 0 < factor <= 1 / self.factor):
            return None
        before, after = float(then.mean()), float(now.mean())
        noise = max(step_noise(then), step_noise(now) / factor) / np.sqrt(len(now))
        same = abs(after / factor - before) < max(abs(before) / 3, 3 * noise)
        told = abs(after - before) > 4 * max(noise, noise * factor)  # or the mean is at zero, which has no scale
        if not (same and told and self._unmoved(view, edge)):
            return None
        return self.finding(
            view, "warn", edge,
            f"reward and its spread jumped by a factor of {factor:.3g} at step {edge} ({before:.3g} to {after:.3g})"
            f" while {self._words(view)} stayed: the reward's scale changed, not what is solved",
            metric=name, baseline=median(spread[0]), now=median(spread[1]), factor=factor,
        )  # fmt: skip

    @staticmethod
    def _edge(view: RunView, name: str, moved: Departure) -> int:
        """The step of the jump: where neighbouring rows of the spread differ most, near the onset."""
        near = view.series(name).last(250).finite()
        first = max(0, int(np.searchsorted(near.steps, moved.onset_step)) - 8)
        logs = np.log(np.maximum(near.values[first : first + 24], 1e-12))
        if len(logs) < 6:
            return moved.onset_step
        jumps = [abs(median(logs[i : i + 5]) - median(logs[max(0, i - 5) : i])) for i in range(2, len(logs) - 2)]
        return int(near.steps[first + 2 + int(np.argmax(jumps))])

    @staticmethod
    def _around(view: RunView, name: str, edge: int) -> tuple[np.ndarray, np.ndarray]:
        """Up to 15 values before and from a step."""
        recent = view.series(name).last(260).finite()
        at = int(np.searchsorted(recent.steps, edge))
        return recent.values[max(0, at - 15) : at], recent.values[at : at + 15]

    def _unmoved(self, view: RunView, edge: int) -> bool:
        seen = False
        for name in SHARES:
            then, now = self._around(view, name, edge)
            if len(then) >= 5 and len(now) >= 5:
                seen = True
                error = max(step_noise(then), step_noise(now)) * np.sqrt(2 / len(now))
                if abs(now.mean() - then.mean()) > max(self.still, min(3 * error, 2 * self.still)):
                    return False
        return seen

    @staticmethod
    def _words(view: RunView) -> str:
        return ", ".join(name for name in SHARES if name in view)
