"""Resume mismatch: a resumed run continues in another state than it stopped in."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stabilizer.core.metrics import metric
from stabilizer.core.records import Finding, Severity
from stabilizer.core.stats import finite, inflation, line, median
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import scaled, unscaled
from stabilizer.runs.history import REBASELINE, RunView, Series

STATE = ("policy/kl_old", "optim/update_ratio", "optim/grad_norm", "policy/kl_ref", "policy/entropy")
"""Metrics that depend on weights and optimizer state; a change by `factor` is a jump."""
REWARDS = ("reward/mean", "accuracy/train")
BEFORE = 40
"""Rows before the resume that define normal."""
LEVEL_BEFORE = 10
"""The newest of them, whose median is compared."""
SETTLED = 12
"""Rows after which a good resume has settled."""
RESTLESS = 4
"""First of them that may be odd after any resume."""
NEEDED = 8
"""Rows before the resume below which nothing is reported."""
FRESH = 12
"""First rows of a run in which the reference is compared with the starting policy."""


@dataclass(frozen=True, kw_only=True)
class ResumeMismatch(Detector):
    """After a resume the metrics continue at other values than they stopped at.

    Signature
        Within `window` rows after a declared resume (an attempt, or a log whose step goes back), these are signs. The
        learning rate is outside its level and its trend by a factor of `lr_factor`. Medians of 5 rows differ from the
        10 before by `factor` and by `clear` times the noise of a row, among update size, KL to the sampling policy,
        gradient norm, KL to the reference and entropy. The reward is lower by `share` of the whole gain. For what has
        not settled after 12 rows, rows 5 to 12 that differ by `factor` and by `sure` standard errors are a sign as
        well. Where rows are 5 steps apart or more, the first two rows are as good as five.

        A lost reward with another sign is critical. `warn`: the learning rate (`info` while it is on its way back), two
        first updates that are both `restart` times the largest of the 40 before, the reward, or two signs. One sign is
        `info`. On the first rows of a fresh run, a KL to the reference that starts above `kl_start` is `info`: the
        reference is not the policy that the run starts from.

    Why it matters
        Checkpoints are trusted and seldom tested. Weights without the optimizer's moments take a few steps of full size
        in arbitrary directions. A scheduler that restarts warms up again or starts at its peak. A resume from the base
        model trains the same thousand steps a second time, under the old curves' name.

    Look-alikes
        One odd row after a resume is usual (caches, a first batch) and moves no median; so are a short warm-up of the
        rate and norms that calm down within some rows. A change declared at the same step (rollback, schedule, data
        stage, our own remedy) explains every jump: silent. A warm-up or a cosine tail continues along its trend. A log
        that restarts at its first step has nothing to compare with.

    False alarms
        A learning rate, batch size or data set that somebody changed manually while resuming is not declared anywhere.
        It is reported as a discontinuity, and is worth a note in the run.

    Remedies
        `roll-back`: resume once more from the same or an older checkpoint, this time with everything that belongs to
        it. Manually: load optimizer and scheduler with the weights (transformers: `resume_from_checkpoint`, not
        `model_name_or_path`; veRL: `actor.checkpoint.load_contents` with optimizer and extra in it), and compare the
        first learning rate with the last.

    References
        transformers `Trainer` documentation on what a checkpoint holds; MAI-Thinking-1's report on resuming from before
        a collapse; `stabilizer/training/checkpoint.py` for what ours verifies.
    """

    id = "system/resume-mismatch"
    needs = ("optim/lr|policy/kl_old|optim/grad_norm|policy/kl_ref|reward/mean",)
    confirm = 2

    window: int = 20
    """Rows after a resume in which it is judged."""
    lr_factor: float = 1.5
    """Factor outside of the learning rate's own trend."""
    factor: float = 2.0
    """Factor between before and after of the other metrics."""
    restart: float = 1.3
    """Factor over the largest earlier update that both first updates have where the optimizer's moments are lost."""
    share: float = 0.3
    """Share of the reward gained since the start."""
    clear: float = 6.0
    """Standard deviations of a row, widened by autocorrelation."""
    sure: float = 4.0
    """Standard errors of a lasting difference."""
    kl_start: float = 0.05
    """Nats per token of KL to the reference at the first step; also at least three times the KL of that step's own
    updates."""

    def check(self, view: RunView) -> Finding | None:
        resumed = view.events(("resume",))
        if not resumed:
            return self._reference(view)
        at = resumed[-1].step
        if any(event.step >= at for event in view.events(REBASELINE - {"resume"})):
            return None
        before = max((event.step for event in view.events(REBASELINE) if event.step < at), default=0)
        rate = self._lr(view.series("optim/lr"), at)
        jumps = {name: jump for name in STATE if (jump := self._jump(view, name, before, at))}
        lost = next((fall for name in REWARDS if (fall := self._lost(view, name, before, at))), None)
        restarted = self._restarted(view.series("optim/update_ratio"), before, at)
        signs = {**({"optim/lr": rate} if rate else {}), **restarted, **jumps}
        if not (signs or lost):
            return None
        strange = bool(restarted) or (rate is not None and not self._returning(view.series("optim/lr"), at))
        severity: Severity = (
            "critical" if lost and (jumps or strange) else "warn" if lost or strange or len(jumps) > 1 else "info"
        )
        told = [f"{name} {was:.3g} to {now:.3g}" for name, (was, now) in signs.items()]
        name, was, now = lost or ("", 0.0, 0.0)
        told += [f"{name} {was:.3g} to {now:.3g}, which is most of what had been learned"] if lost else []
        first = name or next(iter(signs))
        was, now = (was, now) if lost else signs[first]
        return self.finding(
            view, severity, at, f"resumed at step {at}, the run does not continue where it stopped: {'; '.join(told)}",
            metric=first, baseline=was, now=now, signs=sorted([*signs, *([name] if lost else [])]),
        )  # fmt: skip

    def _around(self, series: Series, before: int, at: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Rows just before and just after; None when there are too few, or the resume is long past."""
        start, split = series.steps.searchsorted(before), series.steps.searchsorted(at)
        least = _early(series)
        if not least <= len(series) - split <= self.window or split - start < NEEDED:
            return None
        old, new = finite(series.values[max(start, split - BEFORE) : split]), finite(series.values[split:])
        return (old, new) if len(old) >= NEEDED and len(new) >= least else None

    def _lr(self, series: Series, at: int) -> tuple[float, float] | None:
        """(last rate, present rate) when it left the range between its level and its trend."""
        split = int(series.steps.searchsorted(at))
        if split < 4 or not 2 <= len(series) - split <= self.window:
            return None
        old, steps, now = series.values[split - 4 : split], series.steps, float(series.values[-1])
        ahead = old[-1] + (old[-1] - old[0]) / (steps[split - 1] - steps[split - 4]) * (steps[-1] - steps[split - 1])
        span = (float(old[-1]), float(ahead))
        if not (np.isfinite(old).all() and math.isfinite(now) and old[-1] > 0):
            return None
        outside = now > self.lr_factor * max(span) or now < max(min(span), 0.0) / self.lr_factor
        return (span[0], now) if outside else None

    def _returning(self, series: Series, at: int) -> bool:
        """Whether a rate that began low is coming back, so that it is too early to call it lost."""
        new = series.values[int(series.steps.searchsorted(at)) :]
        return len(new) < SETTLED and bool(new[-1] > 1.05 * new[0])

    def _jump(self, view: RunView, name: str, before: int, at: int) -> tuple[float, float] | None:
        """(level before, level after) when they differ by `factor` and beyond the noise, at once or lastingly."""
        rows = self._around(view.series(name), before, at)
        if rows is None:
            return None
        kind = metric(name).kind
        old, new = (scaled(part, kind) for part in rows)
        was, noise = median(old[-LEVEL_BEFORE:]), _noise(old)
        early = new[: _early(view.series(name))]
        now = float(early[np.argmin(np.abs(early - was))]) if len(early) < 5 else median(early)
        if abs(now - was) >= max(math.log(self.factor), self.clear * noise):
            return unscaled(was, kind), unscaled(now, kind)
        if len(new) < SETTLED:
            return None
        now = median(new[RESTLESS:SETTLED])
        error = 1.25 * noise * math.sqrt(1 / LEVEL_BEFORE + 1 / (SETTLED - RESTLESS))
        if abs(now - was) < max(math.log(self.factor), self.sure * error):
            return None
        return unscaled(was, kind), unscaled(now, kind)

    def _restarted(self, series: Series, before: int, at: int) -> dict[str, tuple[float, float]]:
        """The first updates are larger than any of the 40 before: the moments started from zero."""
        start, split = series.steps.searchsorted(before), series.steps.searchsorted(at)
        old, new = series.values[max(start, split - BEFORE) : split], series.values[split : split + self.window]
        if not NEEDED <= len(old) or not 2 <= len(series) - split <= self.window:
            return {}
        most = float(old.max())  # NaN compares as False
        if not (new[:2].min() > self.restart * most > 0 and new[0] > self.factor * median(old)):
            return {}
        return {"optim/update_ratio": (median(old[-LEVEL_BEFORE:]), float(new[0]))}

    def _lost(self, view: RunView, name: str, before: int, at: int) -> tuple[str, float, float] | None:
        series = view.series(name)
        rows = self._around(series, before, at)
        if rows is None:
            return None
        start = series.values[:5]
        was, now = median(rows[0][-LEVEL_BEFORE:]), median(rows[1][-5:])
        gained = was - (median(start) if np.isfinite(start).all() else was)
        fell = gained > 0 and was - now > max(self.share * gained, self.clear * _noise(rows[0]))
        return (name, was, now) if fell else None

    def _reference(self, view: RunView) -> Finding | None:
        drift = view.series("policy/kl_ref")
        if not 2 <= len(drift) <= FRESH or drift.steps[0] > 1:
            return None
        first, least = float(drift.values[0]), float(np.min(drift.values[:2]))
        moved = view.series("policy/kl_old").values[:1]
        if not least > self.kl_start or (len(moved) and (moved[0] >= self.kl_start or not first > 3 * moved[0])):
            return None  # a first update that large also explains the KL to the reference
        return self.finding(
            view, "info", int(drift.steps[0]),
            f"the reference is not the policy this run starts from: KL to it is {first:.3g} nats/token at step"
            f" {drift.steps[0]} instead of 0",
            metric="policy/kl_ref", baseline=0.0, now=first,
        )  # fmt: skip


def _early(series: Series) -> int:
    """Fewest rows after a resume that are judged: few where a row covers many steps."""
    recent = series.steps[-20:]
    return 2 if len(recent) > 1 and recent[-1] - recent[0] >= 5 * (len(recent) - 1) else 5


def _noise(old: np.ndarray) -> float:
    """Standard deviation of a row around the earlier trend, widened by its autocorrelation."""
    _, residuals = line(old)
    return float(residuals.std()) * inflation(residuals)  # a MAD would find no noise in rewards of 0, 0.5 and 1
