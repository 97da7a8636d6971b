"""No update: steps cost time, and the weights do not change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding, Severity
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.progress import progress
from stabilizer.detectors.evidence.rounding import rate_unseen, rounded
from stabilizer.runs.history import RunView, Series

MOTION = ("optim/update_ratio", "optim/grad_norm", "policy/kl_old")
"""Metrics that are exactly zero when nothing moves, the most reliable first."""
MEMORY = 200
"""Rows looked back on."""
REASONS: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
    ("reward/zero_std_frac", lambda values: values > 0.999),
    ("reward/std_group", lambda values: values == 0),
    ("reward/std", lambda values: values == 0),
    ("batch/updates", lambda values: values == 0),
    ("optim/skipped", lambda values: values > 0),
)
"""Values that explain a zero: rewards without spread, or an update skipped on purpose."""
TRAINED = ("policy/loss", "policy/kl_ref", "policy/entropy", "optim/grad_norm", "policy/clip_frac")
"""Numbers that change in each step of a training that happens."""
FROZEN = 2
"""How many of them must be logged and stay the same: one alone may be a number that nobody fills in."""
PRINTED = ("optim/grad_norm", "policy/entropy", "policy/loss", "policy/kl_ref", "rollout/length_mean")
"""Continuous metrics that show how many digits a log keeps."""


@dataclass(frozen=True, kw_only=True)
class NoUpdate(Detector):
    """Weight change, gradient, KL of the step or learning rate is exactly 0, row after row.

    Signature
        One of the four is exactly 0 in the newest `rows` rows (`fresh` rows if it was never anything else) and for more
        than twice any earlier gap. Equal rewards do not explain it, and nothing else moves: the reward does not rise,
        and a logged `optim/update_ratio` is 0 too. `critical` when the weights are known not to change although the
        learning rate is above 0, or when two of the four are 0; `warn` with one.

        `warn` as well: a third or more of the last `flicker` updates changed nothing, at irregular distances, without
        such a reason and with a learning rate above 0 (judged by the weight change, or else by gradient and KL
        together). Where equal rewards explain the zeros, `reward/no-signal` reports them.

    Why it matters
        The run looks alive (rewards vary, time passes, checkpoints are written) and learns nothing. The reason is a bug
        or a setting, so patience does not help: parameters the optimizer does not hold, a frozen or detached head, a
        loss scaler that skips, a learning rate of 0, or steps too small for bfloat16 weights to hold.

    Look-alikes
        A batch whose groups all got equal rewards correctly has a zero gradient, and a solved task has such batches all
        the time. With one update a batch, KL to the sampler is 0 by definition: it counts only with several updates, or
        where it was above 0 before. Trainers that log a gradient every k rows and pad with zeros leave regular gaps. A
        schedule that has come down to 0 is over. Updates skipped on purpose (`batch/updates` 0, non-finite gradients,
        the critic's head start) are explained. Console logs print 1e-6 as 0.000, so zeros are ignored in a log that
        never shows more than three decimals, and a rate of 0 in one that shows no more than five.

    False alarms
        A backend that never reports a gradient norm and logs 0.0 instead, in a log without any other sign of movement,
        while the reward is flat: `warn`.

    Remedies
        `easier-prompts` where equal rewards are the reason; `raise-lr` where bfloat16 loses the step. Manually: compare
        `optimizer.param_groups` with `model.parameters()`, check `requires_grad` and the scheduler's first values, keep
        master weights in float32.

    References
        TrainCheck (OSDI 2025) on an `optimizer.step` without effect; rl-doctor's public run with 88 % zero gradients.
    """

    id = "optim/no-update"
    needs = ("optim/update_ratio|optim/grad_norm|policy/kl_old|optim/lr",)
    confirm = 1

    rows: int = 5
    """Rows in which the value must be exactly zero."""
    fresh: int = 20
    """Rows required where it was never anything else, which may mean that nobody measures it."""
    flicker: int = 24
    """Rows among which some may be without any update."""
    same: int = 10
    """Rows in which every logged number of training is the same, from which that is reported."""

    def check(self, view: RunView) -> Finding | None:
        zeros = {name: self._zeros(view, name) for name in (*MOTION, "optim/lr")}
        if frozen := self._frozen(view):
            return frozen
        if not any(zeros.values()):
            return self._lost_updates(view)
        moved = view.series("optim/update_ratio").last(self.rows).values
        reward = progress(view)
        if (len(moved) and moved.any() and not zeros["optim/grad_norm"]) or (
            reward and (reward.solved or reward.rising)
        ):
            return None
        standing = [name for name, count in zeros.items() if count]
        if standing == ["optim/lr"] and rate_unseen(view):
            return None
        still = view.series(standing[0])
        onset = int(still.steps[-zeros[standing[0]]])
        if self._explained(view, still.last(self.rows)).all() or _drifts(view, onset) or _rounded(view):
            return None
        proven = zeros["optim/update_ratio"] and (view.latest("optim/lr") or 0.0) > 0
        severity: Severity = "critical" if proven or len(standing) > 1 else "warn"
        others = f" (so have {', '.join(standing[1:])})" if standing[1:] else ""
        pull = view.latest("optim/grad_norm")
        why = f"; the gradient norm is {pull:.3g}, so the optimizer does not apply it" if proven and pull else ""
        return self.finding(
            view, severity, onset,
            f"{standing[0]} has been exactly 0 since step {onset}, {zeros[standing[0]]} rows in a row{others}{why}",
            metric=standing[0], baseline=_before(still, onset), now=0.0, also=standing[1:],
        )  # fmt: skip

    def _zeros(self, view: RunView, name: str) -> int:
        """Number of consecutive newest rows that are zero; 0 when too few to count."""
        if view.latest(name) != 0.0:
            return 0
        values = view.series(name).values[-MEMORY:]
        other = values.nonzero()[0]
        count = len(values) - 1 - int(other[-1]) if len(other) else len(values)
        if not len(other):
            if name == "policy/kl_old" and not (view.latest("batch/updates") or 0) >= 2:
                return 0
            return count if count >= (2 * self.rows if name == "optim/update_ratio" else self.fresh) else 0
        if name == "optim/lr" and values[other[-1]] < 0.05 * np.nanmax(values):
            return 0  # the schedule has ended
        gap = int(np.diff(other).max(initial=int(other[0]) + 1)) - 1
        return count if count >= max(self.rows, 2 * gap + 1) else 0

    @staticmethod
    def _explained(view: RunView, rows: Series) -> np.ndarray:
        """For each row, whether a zero is legitimate: rewards without spread, or an update skipped on purpose."""
        explained = rows.steps <= (view.config("critic.warmup_steps") or 0)
        for name, reason in REASONS:
            series = view.series(name)
            if len(series):
                explained |= reason(series.values[series.steps.searchsorted(rows.steps, side="right") - 1])
        reward = view.series("reward/mean").last(len(rows)).values
        return explained | bool(len(reward) > 1 and (reward == reward[0]).all())

    def _frozen(self, view: RunView) -> Finding | None:
        """Every number of training is the same in every row."""
        rows = {name: view.series(name) for name in TRAINED if name in view}
        if any(_moved(series.values) for series in rows.values()):
            return None  # the usual case, seen without the rows between, which a long run keeps outside of memory
        logged = {name: series.finite().values for name, series in rows.items()}
        if min(map(len, logged.values()), default=0) < self.same:
            return None
        held = {name: float(values[0]) for name, values in logged.items() if (values == values[0]).all()}
        if len(held) < FROZEN or len(held) < len(logged) or not any(held.values()) or _rounded(view):
            return None
        listed = ", ".join(f"{name} {value:.3g}" for name, value in held.items())
        first = next(iter(held))
        return self.finding(
            view, "warn", int(view.series(first).steps[0]),
            f"every number of training is the same in all {min(map(len, logged.values()))} rows: {listed}. No weight"
            " changes, or the program logs placeholders",
            metric=first, baseline=held[first], now=held[first],
        )  # fmt: skip

    def _lost_updates(self, view: RunView) -> Finding | None:
        """Nothing moves in many rows although there was something to learn from."""
        names = MOTION[:1] if MOTION[0] in view else MOTION[1:]
        newest = view.series(names[0]).values[-self.flicker :]
        if 3 * (len(newest) - len(newest.nonzero()[0])) < self.flicker:
            return None  # the usual case, and cheap to see
        series = view.series(names[0]).between(view.baseline_start(), view.step).last(MEMORY)
        newest = series.values[-self.flicker :]
        if len(newest) < self.flicker or 3 * int((newest == 0).sum()) < self.flicker or newest[-1] != newest[-1]:
            return None
        lost = (series.values == 0) & ~self._explained(view, series)
        for name in names[1:]:
            other = view.series(name)
            lost &= np.isin(series.steps, other.steps[other.values == 0]) & bool(other.values.any())
        rows = lost.nonzero()[0]
        gaps = np.diff(rows)
        count = int(lost[-self.flicker :].sum())
        reward = progress(view)
        if 3 * count < self.flicker or (reward and reward.solved) or len(set(gaps[1 - count :].tolist())) < 2:
            return None
        if not (view.latest("optim/lr") or 0.0) > 0 or _rounded(view):
            return None
        pauses = (gaps > self.flicker).nonzero()[0]
        onset = int(series.steps[rows[int(pauses[-1]) + 1 if len(pauses) else 0]])
        return self.finding(
            view, "warn", onset,
            f"{count} of the last {self.flicker} updates changed nothing ({' and '.join(names)} exactly 0) although"
            f" rewards differed and the learning rate is above 0, since step {onset}",
            metric=names[0], baseline=_before(series, onset), now=0.0, lost=count,
        )  # fmt: skip


def _moved(values: np.ndarray) -> bool:
    """Whether the newest value is finite and differs from the first."""
    return bool(len(values) and np.isfinite(values[-1]) and np.isfinite(values[0]) and values[-1] != values[0])


def _before(series: Series, step: int) -> float:
    """The value of the row before a step; 0 when there is none."""
    row = int(series.steps.searchsorted(step)) - 1
    return float(series.values[row]) if row >= 0 else 0.0


def _drifts(view: RunView, since: int) -> bool:
    """The distance to the reference has grown since, so the weights do move despite the zeros."""
    drift = view.series("policy/kl_ref").between(since, view.step).finite().values
    return bool(len(drift) >= 5 and drift[-5:].min() > 1.5 * drift[:5].max() and drift[-1] > 1e-3)


def _rounded(view: RunView) -> bool:
    """Every value in this log has at most three decimals."""
    return rounded(view, PRINTED, decimals=3, least=6)
