"""Runs the same steps with and without a change, on the same prompts and random numbers.

    from stabilizer.control.fork import paired

    fork = paired(trainer, {"as it is": {}, "half the rate": {"control/lr_scale": 0.5}}, steps=20)
    print(fork.compare("half the rate", "as it is", "reward/mean").words)

Every random number of a trainer is a function of integers in its state. So unchanged copies of one state stay equal,
bit for bit on a CPU, and any difference after a change is its effect. The copies run one after the other in the trainer
itself, and its state is restored afterwards, so there is no second model in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from stabilizer.core.knobs import Controls
from stabilizer.core.sequential import half_width

KEPT = ("reward/mean", "accuracy/train", "policy/kl_ref", "policy/entropy", "optim/grad_norm")
"""Metrics of every copy that the journal keeps."""
FEW = 5
"""Fewest paired steps that allow a conclusion."""


class Forkable(Protocol):
    """The methods that a trainer needs to be forked."""

    controls: Controls

    @property
    def step(self) -> int:
        """The last finished step."""

    def state(self) -> dict[str, bytes]:
        """Everything that the next steps depend on, except the knobs."""

    def put_back(self, state: Mapping[str, bytes]) -> None:
        """Restore a state."""

    def train_step(self) -> Any:
        """One step; its result has `metrics`."""

    def validate(self) -> dict[str, float]:
        """Accuracy on held-out problems."""


@dataclass(frozen=True)
class Comparison:
    """Whether one copy did better than another: the mean of the paired differences, with an interval."""

    better: bool
    worse: bool
    difference: float
    half_width: float
    words: str
    steps: int = 0
    """Number of paired steps."""

    def verdict(self, matters: float) -> Literal["better", "worse", "no better", "undetermined"]:
        """The conclusion, if a difference of `matters` is relevant: a wider interval decides nothing."""
        if self.better or self.worse:
            return "better" if self.better else "worse"
        return "no better" if self.difference + self.half_width <= matters else "undetermined"


@dataclass(frozen=True)
class Fork:
    """The results of each copy: `curves[name][metric]` by step, and `ends[name]`, the held-out accuracy at the end."""

    step: int
    """The step after which they all started."""
    steps: int
    curves: Mapping[str, Mapping[str, list[float]]]
    ends: Mapping[str, float | None]

    def compare(self, name: str, against: str, metric: str = "reward/mean") -> Comparison:
        """Compare two copies by a metric for which higher is better."""
        if metric not in self.curves[name] or len(self.curves[name][metric]) < FEW:
            metric = "reward/mean" if "reward/mean" in self.curves[name] else "accuracy/train"
        ours, theirs = (np.array(self.curves[copy].get(metric, []), float) for copy in (name, against))
        rows = min(len(ours), len(theirs))
        ours, theirs = ours[:rows], theirs[:rows]
        broke = np.isfinite(theirs).sum() - np.isfinite(ours).sum()
        both = np.isfinite(ours) & np.isfinite(theirs)
        if both.sum() < FEW:
            words = f"{metric}: {int(both.sum())} steps can be compared, which is too few"
            return Comparison(bool(broke < 0), bool(broke > 0), math.nan, math.inf, words, int(both.sum()))
        differences = (ours - theirs)[both]
        mean, noise = float(differences.mean()), float(differences.std(ddof=1))
        width = half_width(noise, len(differences), len(differences))
        words = f"{metric} {mean:+.3g} ± {width:.2g} over {len(differences)} paired steps against {against!r}"
        better, worse = bool(broke < 0) or mean > width, bool(broke > 0) or mean < -width
        return Comparison(better, worse, mean, width, words, len(differences))

    def best(self, metric: str = "reward/mean") -> str:
        """The copy with the largest certain gain over the first; the first if there is none."""
        first, *others = self.curves
        found = {name: self.compare(name, first, metric) for name in others}
        sure = [name for name, comparison in found.items() if comparison.better]
        return max(sure, key=lambda name: found[name].difference, default=first)

    def record(self) -> dict[str, Any]:
        """For the journal: the curves, rounded, and the final accuracies."""
        curves = {
            name: {metric: [float(f"{value:.4g}") for value in curve[metric]] for metric in KEPT if metric in curve}
            for name, curve in self.curves.items()
        }
        return {"from_step": self.step, "steps": self.steps, "curves": curves, "accuracy/val": dict(self.ends)}


def paired(trainer: Forkable, changes: Mapping[str, Mapping[str, float]], steps: int) -> Fork:
    """Train `steps` under each change of knobs ({} is none) from the current state, then restore that state.

    Raises ValueError for an unknown knob. The state is restored in any case. A request to skip the next update stays
    for the run's own next step.
    """
    if steps < 1:
        raise ValueError(f"steps = {steps}: must be at least 1")
    state, knobs, step = trainer.state(), trainer.controls.values(), trainer.step
    skip = trainer.controls.take_skip()
    curves: dict[str, dict[str, list[float]]] = {}
    ends: dict[str, float | None] = {}
    try:
        for name, change in changes.items():
            trainer.put_back(state)
            trainer.controls.set_all(knobs | dict(change))
            curve = curves.setdefault(name, {})
            for _ in range(steps):
                for metric, value in trainer.train_step().metrics.items():
                    if not metric.startswith(("time/", "control/")):
                        curve.setdefault(metric, []).append(float(value))
            ends[name] = trainer.validate().get("accuracy/val")
    finally:
        if skip:
            trainer.controls.skip_update()
        trainer.put_back(state)
        trainer.controls.set_all(knobs)
    return Fork(step, steps, curves, ends)
