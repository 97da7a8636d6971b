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
"""Rows after which a reward that was never a number is no late beginning: without one nothing can be learned."""
TRAINED = (*WATCHED, "optim/update_ratio", "rollout/length_mean")
"""What a row of training has a number in, even one that went wrong."""


@dataclass(frozen=True, kw_only=True)
class NonFinite(Detector):
    """A number that training depends on is NaN or infinite.

    Signature
        One of the watched metrics (loss, gradient norm, entropy, KL, ratio, reward, value loss) is NaN or Inf within
        the last `window` rows, although the same metric has been a number before, or it is the loss or the gradient
        norm, which always must be, or a reward of ten rows and more with no accuracy beside it. It is `critical` when
        loss or gradient norm are non-finite in `fatal` of those rows, or any other of the metrics in all of them. Rows
        in which the trainer reports the update as left out (`optim/skipped`) are `warn` while it makes others
        (`batch/updates`): something keeps overflowing, and what is learned comes from the rest. So are other metrics
        while loss and gradient norm are in order.

    Why it matters
        An update with a NaN gradient turns every weight into NaN, and after that completions are garbage and no number
        recovers by itself. A trainer that leaves such updates out keeps its weights, and then the cost is the batch,
        or the run's whole time where every update is left out.

    Look-alikes
        A metric that is not a number from the first row on is not measured in this run (explained variance of a
        constant return, say), so it is not reported. A single skipped update with the next rows healthy is `warn`:
        the guard did its work. Rows of evaluation, whose training columns some trainers fill with NaN: when every
        training metric of a row is NaN or missing while one of evaluation is a number, nothing was trained there. KL to
        the reference with beta = 0, which nobody computes.

    False alarms
        None by construction for loss and gradient norm. A KL estimate can overflow on one extreme token and be
        harmless; it stays `warn`.

    Remedies
        `lower-lr`; `roll-back` when the numbers stay non-finite, unless `optim/skipped` says that those updates were
        left out: then the weights are as they were, and rolling back buys nothing. By hand: look at precision (fp16
        overflows at 65,504) and at reward functions that return NaN.

    References
        verl issue 721 (log-probabilities turn NaN first, then KL, then loss); Megatron-LM's rerun state machine
        (transient against persistent non-finite values).
    """

    id = "numerics/non-finite"
    needs = ("policy/loss|optim/grad_norm",)
    confirm = 1

    window: int = 5
    """Rows in which a non-finite value counts as present."""
    fatal: int = 2
    """Rows of `window` with a non-finite loss or gradient norm that make it critical."""

    def check(self, view: RunView) -> Finding | None:
        bad: dict[str, str] = {}
        steps: set[int] = set()
        fatal_rows, lasting, onset = 0, False, view.step
        for name in WATCHED:
            series = view.series(name)
            newest = series.values[-self.window :]
            power = float(newest.dot(newest))
            if power - power == 0.0:  # the quick way to say that all are finite
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
        untouched = bool(known) and not any(name in bad for name in known)  # loss and gradient are in order
        left_out = [step for step in steps if (_at(view, "optim/skipped", step) or 0) > 0]
        guarded = bool(steps) and len(left_out) == len(steps)
        stalled = guarded and lasting and all(_at(view, "batch/updates", step) == 0 for step in steps)
        fatal = stalled if guarded else fatal_rows >= self.fatal or (lasting and not untouched)
        fate = "; loss and gradient are in order" if untouched else ""
        if fatal and not guarded:
            fate = "; the weights are gone unless the trainer leaves such updates out, which nothing here says"
        if guarded:
            fate = "; the trainer left those updates out, so the weights are unharmed"
            fate += ", but none has been made since" if stalled else ""
        if "reward/mean" in bad and not _ever(view.series("reward/mean")):
            fate += "; no reward has been a number so far, so nothing can be said of what is learned"
        names = ", ".join(f"{name} = {value}" for name, value in bad.items())
        first = next(iter(bad))
        return self.finding(
            view, "critical" if fatal else "warn", onset, f"{names} since step {onset}{fate}",
            metric=first, now=bad[first], metrics=sorted(bad), left_out=len(left_out),
        )  # fmt: skip

    @staticmethod
    def _measured(view: RunView, name: str, series: Series) -> bool:
        """Whether this run measures it at all: it was a number once, or must be one."""
        if name == "policy/kl_ref" and view.latest("control/beta") == 0:
            return False
        if name == "reward/mean" and len(series) >= NEVER and not _ever(view.series("accuracy/train")):
            return True
        return name in FATAL or _ever(series)


def _ever(series: Series) -> bool:
    """Whether it was a number at the start or of late."""
    return bool(np.isfinite(series.values[:200]).any() or np.isfinite(series.values[-200:]).any())


def _evaluation(view: RunView, step: int) -> bool:
    """Whether nothing but an evaluation was logged at a step."""
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
    """Step of the first non-finite value of the newest stretch of them (gaps of up to 5 finite rows belong to it)."""
    wrong = (~np.isfinite(values[-200:])).nonzero()[0]
    breaks = (np.diff(wrong) > 6).nonzero()[0]
    return steps[-200:][wrong[breaks[-1] + 1 if len(breaks) else 0]]
