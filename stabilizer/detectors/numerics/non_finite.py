"""Non-finite numbers: a loss, gradient or other training quantity is NaN or infinite."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.detectors.base import Detector
from stabilizer.runs.history import RunView, Series

FATAL = ("policy/loss", "optim/grad_norm")
WATCHED = (
    *FATAL,
    "optim/grad_norm_max",
    "policy/entropy",
    "policy/kl_ref",
    "policy/kl_old",
    "policy/ratio_max",
    "reward/mean",
    "value/loss",
)
NEVER = 10
"""Rows after which a reward that was never a number is reported: nothing can be learned without one."""
TRAINED = (*WATCHED, "optim/update_ratio", "rollout/length_mean")
"""Metrics of which every training row has at least one finite value, even a row that went wrong."""


@dataclass(frozen=True, kw_only=True)
class NonFinite(Detector):
    """A number that training depends on is NaN or infinite.

    Signature
        A watched metric (loss, gradient norm, entropy, KL, ratio, reward or value loss) is NaN or Inf within the last
        `window` rows. The metric must have been finite before. Loss and gradient norm always count, and so does a
        reward of ten or more rows when no accuracy is logged. The finding is `critical` when the loss or the gradient
        norm is non-finite in `fatal` of those rows, or any other metric in all of them. It is `warn` when the trainer
        reports those updates as skipped (`optim/skipped`) but still makes others (`batch/updates`): something keeps
        overflowing, and only the remaining batches are learned from. It is also `warn` for other metrics while loss and
        gradient norm are finite.

    Why it matters
        One update with a NaN gradient turns every weight into NaN. Completions are then garbage, and nothing recovers
        by itself. A trainer that skips such updates keeps its weights and loses only the batch, or all of the run's
        time if every update is skipped.

    Look-alikes
        A metric that is non-finite from the first row is not measured in this run (for example explained variance of a
        constant return), so it is not reported. A single skipped update followed by healthy rows is `warn`: the guard
        worked. Evaluation rows, whose training columns some trainers fill with NaN, are ignored: every training metric
        is NaN or missing while an evaluation metric is finite. KL to the reference with beta = 0 is ignored, because
        nobody computes it.

    False alarms
        None by construction for loss and gradient norm. A KL estimate can overflow on one extreme token without harm;
        it stays `warn`.

    Remedies
        `lower-lr`; `roll-back` when the values stay non-finite. If `optim/skipped` shows that the updates were skipped,
        the weights are intact and a rollback gains nothing. Manually: check the precision (float16 overflows at 65,504)
        and reward functions that return NaN.

    References
        verl issue 721 (log-probabilities turn NaN first, then KL, then loss); Megatron-LM's rerun state machine
        (transient against persistent non-finite values).
    """

    id = "numerics/non-finite"
    needs = ("policy/loss|optim/grad_norm",)
    confirm = 1

    window: int = 5
    """Newest rows in which a non-finite value counts."""
    fatal: int = 2
    """Rows within `window` with a non-finite loss or gradient norm that make the finding critical."""

    def check(self, view: RunView) -> Finding | None:
        if view.sound(WATCHED):
            return None
        bad: dict[str, str] = {}
        steps: set[int] = set()
        fatal_rows, lasting, onset = 0, False, view.step
        for name in WATCHED:
            series = view.series(name)
            newest = series.values[-self.window :]
            power = float(newest.dot(newest))
            if power - power == 0.0:  # fast check that all values are finite
                continue
            recent = series.last(self.window)
            wrong = ~np.isfinite(recent.values)
            if not wrong.any() or not self._measured(view, name, series):
                continue
            wrong &= [not _evaluation(view, step) for step in recent.steps.tolist()]
            if not wrong.any():
                continue
            bad[name] = str(recent.values[wrong][-1])
            lasting |= len(wrong) == self.window and bool(wrong.all())
            if name in FATAL:
                fatal_rows = max(fatal_rows, int(wrong.sum()))
                steps |= set(recent.steps[wrong].tolist())
            onset = min(onset, int(_run_start(series.steps, series.values)))
        if not bad:
            return None
        known = [name for name in FATAL if name in view]
        untouched = bool(known) and not any(name in bad for name in known)  # loss and gradient norm are finite
        left_out = [step for step in steps if (_at(view, "optim/skipped", step) or 0) > 0]
        guarded = bool(steps) and len(left_out) == len(steps)
        stalled = guarded and lasting and all(_at(view, "batch/updates", step) == 0 for step in steps)
        fatal = stalled if guarded else fatal_rows >= self.fatal or (lasting and not untouched)
        fate = "; loss and gradient norm are finite" if untouched else ""
        if fatal and not guarded:
            fate = "; the weights are lost unless the trainer skips such updates, which this log does not show"
        if guarded:
            fate = "; the trainer skipped those updates, so the weights are intact"
            fate += ", but it has made no update since" if stalled else ""
        if "reward/mean" in bad and not _ever(view.series("reward/mean")):
            fate += "; no reward has been a number so far, so progress cannot be judged"
        names = ", ".join(f"{name} = {value}" for name, value in bad.items())
        first = next(iter(bad))
        return self.finding(
            view, "critical" if fatal else "warn", onset, f"{names} since step {onset}{fate}",
            metric=first, now=bad[first], metrics=sorted(bad), left_out=len(left_out),
        )  # fmt: skip

    @staticmethod
    def _measured(view: RunView, name: str, series: Series) -> bool:
        """Whether this run measures the metric: it was finite once, or it always has to be."""
        if name == "policy/kl_ref" and view.latest("control/beta") == 0:
            return False
        if name == "reward/mean" and len(series) >= NEVER and not _ever(view.series("accuracy/train")):
            return True
        return name in FATAL or _ever(series)


def _ever(series: Series) -> bool:
    """Whether any of the first 200 or the newest 200 values is finite."""
    return bool(np.isfinite(series.values[:200]).any() or np.isfinite(series.values[-200:]).any())


def _evaluation(view: RunView, step: int) -> bool:
    """Whether only an evaluation was logged at a step."""
    held_out = [name for name in view.names() if name.startswith("accuracy/val") or "eval" in name]
    trained, evaluated = (
        any((value := _at(view, name, step)) is not None and np.isfinite(value) for name in names)
        for names in (TRAINED, held_out)
    )
    return evaluated and not trained


def _at(view: RunView, name: str, step: int) -> float | None:
    """The value of a metric at one step; None when it was not logged there."""
    values = view.series(name).between(step, step).values
    return float(values[-1]) if len(values) else None


def _run_start(steps: np.ndarray, values: np.ndarray) -> int:
    """Step of the first non-finite value of the newest stretch. Gaps of up to 5 finite rows belong to the stretch."""
    wrong = (~np.isfinite(values[-200:])).nonzero()[0]
    breaks = (np.diff(wrong) > 6).nonzero()[0]
    return int(steps[-200:][wrong[breaks[-1] + 1 if len(breaks) else 0]])
