"""Non-finite numbers: a loss, gradient or other training quantity is NaN or infinite."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.detectors.base import Detector
from stabilizer.records import Finding
from stabilizer.runs.history import RunView

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


@dataclass(frozen=True, kw_only=True)
class NonFinite(Detector):
    """A number that training depends on is NaN or infinite.

    Signature
        One of the watched metrics (loss, gradient norm, entropy, KL, ratio, reward, value loss) is NaN or Inf within
        the last `window` rows, although the same metric has been a number before, or it is the loss or the gradient
        norm, which always must be. It is critical when loss or gradient norm are non-finite in `fatal` of those rows
        (the weights are gone, or every update is being thrown away), or any of the metrics in all of them.

    Why it matters
        One update with a NaN gradient turns every weight into NaN. After that the run only burns time: completions
        are garbage and no number recovers by itself.

    Look-alikes
        A metric that is not a number from the first row on is not measured in this run (explained variance of a
        constant return, say), so it is not reported. A single skipped update with the next rows healthy is `warn`:
        the guard did its work. Rows of evaluation, where trainers leave training columns empty, hold no values at all
        here rather than NaN.

    False alarms
        None by construction for loss and gradient norm. A KL estimate can overflow on one extreme token and be
        harmless; it stays `warn`.

    Remedies
        Our trainer leaves out an update whose loss or gradient is not finite by itself. `lower-lr`; `roll-back` when
        the weights are gone. By hand: look at precision (fp16 overflows at 65,504) and at reward functions that
        return NaN.

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
        fatal_rows = 0
        lasting = False
        onset = view.step
        for name in WATCHED:
            series = view.series(name)
            recent = series.last(self.window)
            wrong = ~np.isfinite(recent.values)
            if not wrong.any() or not (name in FATAL or np.isfinite(series.values).any()):
                continue
            bad[name] = str(recent.values[wrong][-1])
            lasting |= len(wrong) == self.window and bool(wrong.all())
            if name in FATAL:
                fatal_rows = max(fatal_rows, int(wrong.sum()))
            onset = min(onset, int(_run_start(series.steps, series.values)))
        if not bad:
            return None
        names = ", ".join(f"{name} = {value}" for name, value in bad.items())
        severity = "critical" if lasting or fatal_rows >= self.fatal else "warn"
        skipped = view.latest("optim/skipped")
        rescue = f"; {skipped:.0f} updates were skipped this step" if skipped else ""
        first = next(iter(bad))
        summary = f"{names} since step {onset}{rescue}"
        return self.finding(view, severity, onset, summary, metric=first, now=bad[first], metrics=sorted(bad))


def _run_start(steps: np.ndarray, values: np.ndarray) -> int:
    """Step of the first non-finite value of the newest stretch of them (gaps of up to 5 finite rows belong to it)."""
    wrong = np.flatnonzero(~np.isfinite(values[-200:]))
    breaks = np.flatnonzero(np.diff(wrong) > 6)
    return steps[-200:][wrong[breaks[-1] + 1 if len(breaks) else 0]]
