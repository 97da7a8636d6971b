"""Data shift: prompts other than before, or the same ones repeated too often."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from stabilizer.core.metrics import metric
from stabilizer.core.records import Finding
from stabilizer.core.stats import deviation, finite, inflation, line, mean, median, step_noise, trend
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import scaled
from stabilizer.detectors.evidence.worth import sudden
from stabilizer.runs.history import RunView, Series

REWARDS = ("reward/mean", "accuracy/train")
ANSWERS = ("rollout/length_mean", "policy/entropy", "rollout/distinct", "rollout/repetition")
"""Properties of answers that prompts change and a reward function does not."""
JUMPING = ("rollout/length_mean", "policy/entropy")
"""The ones among them with little noise: a jump between two rows is looked for in these and in the reward."""
UPDATES = ("policy/kl_old", "optim/update_ratio", "optim/grad_norm")
"""Metrics that move when the policy itself changed."""
BEFORE = 40
"""Rows that define the earlier level; at least half of them must exist."""
AFTER = 8
"""Rows that define the present level."""
STRETCH = 30
"""Rows that define the level of the reward, where there are as many: it is the noisiest of all."""
STEEP = 0.65
"""Share of the whole change that the first row has, and that the row before it has not."""


@dataclass(frozen=True, kw_only=True)
class DataShift(Detector):
    """The prompts changed without a declaration, or they are being memorised.

    Signature
        Shift: from one row to the next the reward, length or entropy of the answers changes. 8 rows differ from the 40
        before by `jump` standard deviations, and the first of them already has most of the change. From that row, the
        reward differs by `clear` standard errors both from its level and from its trend, and length, entropy or variety
        by `also` standard deviations. Update size, KL to the sampling policy and gradient norm stay within a factor of
        `calm`. `info` for `stand` rows. `warn` when the reward fell and, `patience` rows later, is still down and
        cannot be gaining more than a seventh of the fall in a hundred rows.

        Memorisation: training accuracy is `gap` above validation, and that distance has grown by `grown` beyond the
        noise of both: `info`, and `warn` once validation has fallen from its best by `lost`.

    Why it matters
        A new file, the next epoch's order or a curriculum stage looks like collapse, saturation or a length explosion
        on every chart. A learning rate that is cut in response slows a healthy run. Prompts seen too often gain reward
        and lose everything that was not rewarded.

    Look-alikes
        A failing verifier makes the reward jump and leaves the answers as they were (`reward/outage`,
        `reward/collapse`). Answers that are shorter because more of them are truncated met another limit. A policy that
        breaks takes several rows, and its updates show it first. Declared stages, resumes and rollbacks start a new
        baseline. A validation set that was always harder keeps its distance. Shares that are only ever 0, 0.5 or 1 jump
        at every row; that is their noise.

    False alarms
        Data in order of difficulty, repeated every epoch, shift at every boundary: `info` each time, and correct.

    Remedies
        None for an intended shift: declare it (an event of the kind data-stage), and everything is judged by what came
        after. `easier-prompts` when nothing is learned on the new ones: mix old and new. Manually, for memorised
        prompts: fewer epochs, more prompts, stop at the best validation.

    References
        Hugging Face's and verl's data loaders (order by epoch); GRESO (prompts once uninformative stay so); DAPO (arXiv
        2503.14476) on filtering; RL on one example (arXiv 2504.20571) for how long memorising may help.
    """

    id = "system/data-shift"
    needs = ("reward/mean|accuracy/train",)
    confirm = 3

    jump: float = 5.0
    """Standard deviations of a row by which a metric must jump from one row to the next."""
    clear: float = 4.0
    """Standard errors by which the reward must differ."""
    also: float = 4.0
    """The same for the properties of answers."""
    calm: float = 3.0
    """Factor within which update metrics stay."""
    stand: int = 60
    """Rows for which a shift is reported."""
    patience: int = 150
    """Rows after which a reward that fell should have begun to recover."""
    gap: float = 0.2
    """Share of problems by which training is above validation."""
    grown: float = 0.15
    """Growth of that distance since the first validations."""
    lost: float = 0.05
    """Fall of validation from its best."""

    def check(self, view: RunView) -> Finding | None:
        return self._shift(view) or self._by_heart(view)

    def _shift(self, view: RunView) -> Finding | None:
        name = next((name for name in REWARDS if name in view), None)
        start = view.baseline_start()
        onset = max((self._jump_step(view, other, start) for other in (name, *JUMPING) if other), default=-1)
        if name is None or onset < 0:
            return None
        series = view.series(name)
        since = len(series) - int(series.steps.searchsorted(onset))
        if since > 2 * self.patience or (ends := self._shifted(series, onset, start)) is None:
            return None
        was, now = ends
        stuck = now < was and since >= self.patience and self._stuck(series, was, now)
        if since > self.stand and not stuck:
            return None
        moved = {other: ends for other in ANSWERS if (ends := self._moved(view.series(other), other, onset))}
        if not moved or self._cut_short(view, onset, moved) or not self._calm(view, onset):
            return None
        if not any(sudden(view.series(other), onset, metric(other).kind) for other in moved):
            return None
        answers = ", ".join(f"{other} {old:.3g} to {new:.3g}" for other, (old, new) in moved.items())
        tail = (
            f"; after {since} rows the reward has not begun to recover" if stuck
            else "; the policy's updates are unchanged, so the prompts or the sampling changed, not the policy"
        )  # fmt: skip
        return self.finding(
            view, "warn" if stuck else "info", onset,
            f"from one row to the next at step {onset}: {name} {was:.3g} to {now:.3g}, {answers}{tail}",
            metric=name, baseline=was, now=now, with_it=sorted(moved),
        )  # fmt: skip

    def _jump_step(self, view: RunView, name: str, start: int) -> int:
        """The step of the newest jump of a metric between two rows since a step; -1 when there is none."""
        if view.rows(name) <= BEFORE // 2 + AFTER:
            return -1
        series = view.series(name)
        first = int(series.steps.searchsorted(start)) if start else 0
        signal = view.causal(name, ("jump", first, self.jump), partial(_jumped, first=first, jump=self.jump))
        row = int(signal[-1, 0]) if len(signal) else -1
        return int(series.steps[row]) if 0 <= row and len(series) - row <= 2 * self.patience else -1

    def _shifted(self, series: Series, onset: int, start: int) -> tuple[float, float] | None:
        """(before, after) when the reward after the step differs from both its earlier level and its earlier trend."""
        split, first = int(series.steps.searchsorted(onset)), int(series.steps.searchsorted(start))
        old = finite(series.values[max(first, split - BEFORE) : split])
        new = finite(series.values[split : split + STRETCH])
        if len(old) < BEFORE // 2 or len(new) < AFTER:
            return None
        slope, residuals = line(old)
        newest = old[-BEFORE // 2 :]
        was, now = float(newest.mean()), float(new.mean())
        ahead = was + slope * (len(newest) + len(new)) / 2
        error = float(residuals.std()) * inflation(residuals) * math.sqrt(1 / len(newest) + 1 / len(new))
        apart = min(abs(now - was), abs(now - ahead)) if (now - was) * (now - ahead) > 0 else 0.0
        return (was, now) if apart > self.clear * error else None

    @staticmethod
    def _cut_short(view: RunView, onset: int, moved: dict[str, tuple[float, float]]) -> bool:
        """Whether answers are shorter because more of them are truncated: another limit, not other prompts."""
        length = moved.get("rollout/length_mean")
        ends = _ends(view.series("rollout/truncated_frac"), onset) if length and length[1] < length[0] else None
        return ends is not None and float(ends[1].mean() - ends[0].mean()) > 0.05

    def _stuck(self, series: Series, was: float, now: float) -> bool:
        recent = series.last(100).finite().values
        fall = was - now
        return len(recent) >= 50 and median(recent[-10:]) < now + fall / 2 and trend(recent).high < fall / 7

    def _moved(self, series: Series, name: str, onset: int) -> tuple[float, float] | None:
        """(before, after) when a metric jumped at the same row."""
        ends = _ends(series, onset)
        if ends is None:
            return None
        old, new = (scaled(part, metric(name).kind) for part in ends)
        if abs(new.mean() - old.mean()) < max(self.also * old.std(), 0.05):
            return None
        return float(ends[0].mean()), float(ends[1].mean())

    def _calm(self, view: RunView, onset: int) -> bool:
        """Whether at least one update metric is logged, and none has jumped."""
        known = [ends for name in UPDATES if (ends := _ends(view.series(name), onset))]
        levels = [(median(old), median(new)) for old, new in known]
        limit = math.log(self.calm)
        return bool(levels) and all(
            old > 0 and new > 0 and abs(math.log(new / old)) < limit for old, new in levels if old or new
        )

    def _by_heart(self, view: RunView) -> Finding | None:
        trained, held = view.latest("accuracy/train"), view.latest("accuracy/val")
        if trained is None or held is None or not trained - held > self.gap / 2:
            return None
        val = view.series("accuracy/val").last(200).finite()
        train = view.series("accuracy/train").last(2000).finite()
        if len(val) < 8 or len(train) < 8:
            return None
        beside = _levels_at(train, val.steps)
        distance = beside - val.values
        now, start = median(distance[-4:]), median(distance[:4])
        noise = 4 * step_noise(distance)
        if not (now > self.gap and now - start > max(self.grown, noise) and median(beside[-4:]) > median(beside[:4])):
            return None
        levels = [median(val.values[place : place + 3]) for place in range(len(val) - 2)]
        fall = max(levels) - levels[-1]
        harm = fall > max(self.lost, 4 * step_noise(val.values))
        onset = int(val.steps[int(np.argmax(distance > start + (now - start) / 2))])
        tail = f", and validation has fallen by {fall:.2f} from its best" if harm else ""
        return self.finding(
            view, "warn" if harm else "info", onset,
            f"training accuracy is {now:.2f} above validation ({start:.2f} at the start): the prompts are being"
            f" memorised{tail}",
            metric="accuracy/val", baseline=max(levels), now=levels[-1], gap=now,
        )  # fmt: skip


def _jumped(
    values: np.ndarray, known: int, last: Sequence[float] | None, *, first: int, jump: float
) -> list[Sequence[float]]:
    """A row of (row of the newest jump or -1, mean before, mean after): a causal signal."""
    never = (-1.0, 0.0, 0.0)
    last, rows = last or never, []
    for row in range(known, len(values)):
        last = never if row <= first else _jump(values, row, last, first, jump) or last
        rows.append(last)
    return rows


def _jump(
    values: np.ndarray, row: int, last: Sequence[float], first: int, jump: float
) -> tuple[float, float, float] | None:
    """The jump that the rows up to one show for the first time, if they do."""
    if row - first < BEFORE // 2 + AFTER or (last[0] >= 0 and row - last[0] < BEFORE):
        return None
    begun, then = row + 1 - AFTER, float(values[row - AFTER])
    rise = float(values[begun]) - then
    if (
        not abs(rise) > 0.04 * abs(then) or not rise * (float(values[row]) - then) > 0
    ):  # a cheap check that ends most rows
        return None
    old, new = values[max(first, begun - BEFORE) : begun], values[begun : row + 1]
    with np.errstate(invalid="ignore"):  # infinite rows make a NaN, which fails the comparison below
        was = mean(old)
        change = median(new) - was
        if abs(change) < 0.05 * abs(was) or not abs(change) > jump * deviation(old):
            return None
    share = (new - was) / change
    if share[0] < STEEP or not share.min() >= 0.5 or (old[-1] - was) / change > 1 - STEEP:
        return None
    return float(begun), was, was + change


def _ends(series: Series, onset: int) -> tuple[np.ndarray, np.ndarray] | None:
    """The finite rows before and from a step; None when there are too few."""
    split = int(series.steps.searchsorted(onset))
    old, new = finite(series.values[max(0, split - BEFORE) : split]), finite(series.values[split : split + AFTER])
    return (old, new) if len(old) >= BEFORE // 2 and len(new) == AFTER else None


def _levels_at(train: Series, steps: np.ndarray) -> np.ndarray:
    """Medians of the training rows up to each of some steps: 5 rows, or as many as there are."""
    ends = np.maximum(train.steps.searchsorted(steps, side="right"), 1)
    return np.array([median(train.values[max(0, end - 5) : end]) for end in ends])
