"""Gradient spike: one to three rows with an extreme gradient norm, then calm again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from stabilizer.core.records import Finding, Severity
from stabilizer.core.stats import LAG, MINIMUM, WINDOW, deviation, finite, median, median_scale
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import FLOOR, course
from stabilizer.detectors.evidence.progress import progress
from stabilizer.runs.history import RunView, Series

MEMORY = 400
"""Rows looked back on; a cluster is looked for in the newest quarter."""
NO_GRADIENT = 0.1
"""Share of the usual norm under which a row had almost no gradient."""
OFTEN = 0.05
"""Share of such rows from which they count as a separate kind of row and not as the tail of the others."""
LOG_ZERO = math.log(1e-9)
"""Logarithm of the norm under which there is no gradient to compare with: batches without any spread of reward."""


@dataclass(frozen=True, kw_only=True)
class GradSpike(Detector):
    """The pre-clip gradient norm jumped far above its trend for a moment and came back.

    Signature
        A row is a spike when its norm is at least `material` times the highest value that its lagged reference
        predicts, and `deviations` standard deviations of the logarithm above it. Rows with a tenth of the usual norm,
        in which no group had any spread, are left out of the prediction. Up to `longest` consecutive spike rows,
        followed by `calm` rows below, count as one spike: `info` for `recent` rows.

        A cluster is `warn` while the reward does not rise: `several` or more spikes within 100 rows, each `tall` times
        the expected norm, whose probability is below `luck` at the rate of the rows before (up to 300, at least
        `known`). Two are enough at a tenth of that probability, where the tallest count as rarer by `tall` over their
        height (a tail too heavy to have a mean). A spike right after which the reward fell is `warn` as well.

        The first rows have no trend yet. There, the other first rows (`around` at least, with the deviations widened
        because they are few) are the expectation. A row that is `tall` beside them, with `calm` rows on both sides
        below half of its height, is `info`.

    Why it matters
        One spike seldom hurts: clipping limits the step, and the same batch is harmless from other weights. But its
        square stays in Adam's second moment for a thousand steps, and several spikes in short order often precede an
        explosion.

    Look-alikes
        A level shift or a ramp does not come back within `longest` rows: `optim/grad-explosion`. Heavy-tailed norms
        spike at a steady rate in every run, and a rate that was always there is not news. The first rows after a resume
        or a change of data have no reference yet and are not judged. An infinite norm is `numerics/non-finite`.

    False alarms
        A rare kind of prompt (for example with one very long answer) that comes up several times within an epoch.

    Remedies
        None for one spike. `lower-lr` for a cluster, `roll-back` to before the first when the reward fell. Manually:
        log which prompts were in those batches; use a lower or an adaptive `max_grad_norm`; reset the moments after a
        spike of a hundred times.

    References
        PaLM (arXiv 2204.02311) section 5.1: some 20 spikes, skipped by restarting 100 steps earlier, the same batches
        harmless from another state. SPAM (arXiv 2501.06842) on what a spike leaves in Adam; ZClip (arXiv 2504.02507).
    """

    id = "optim/grad-spike"
    needs = ("optim/grad_norm",)
    confirm = 1

    material: float = 3.0
    """Factor over the expected norm below which no row is a spike."""
    deviations: float = 6.0
    """Standard deviations, in the logarithm, by which a spike must exceed the expected value."""
    longest: int = 3
    """Most rows a spike may last."""
    calm: int = 3
    """Rows below the limit that end a spike."""
    recent: int = 15
    """Rows for which a single spike is reported."""
    tall: float = 5.0
    """Factor over the expected norm from which spikes count towards a cluster."""
    known: int = 50
    """Rows before the first spike that are needed to know the usual rate."""
    several: int = 3
    """Spikes within 100 rows that may be more than chance."""
    luck: float = 1e-3
    """Probability of that many spikes, at the rate of the rows before, below which they are a cluster."""
    around: int = 8
    """Other rows that are needed where there is no trend yet."""

    def check(self, view: RunView) -> Finding | None:
        if not self._tall(view, 100) or not self._high(view, 100).any():
            return self._early(view)
        high = self._high(view, MEMORY)
        first, last = self._spikes(high)
        series = view.series("optim/grad_norm").last(MEMORY)
        expected = self._expected(view)[-MEMORY:, 0]
        start = max(0, len(high) - 100)
        new = first >= start
        if not new.any():
            return None
        heights = self._heights(series, expected, high, first, last)
        tall = heights >= self.tall
        count = int((new & tall).sum())
        begins = int(first[new & tall][0]) if count else start
        known = int(np.isfinite(expected[:begins]).sum())
        rows = len(high) - begins
        usual = (float((~new & tall).sum()) + 0.5) / known * rows if known >= self.known else np.inf
        age = len(high) - int(last[-1])
        reward = progress(view)
        many = self._more_than_luck(heights[new & tall], usual)
        severity: Severity
        if age <= 3 * self.recent and reward and reward.dropped and _follows(series, reward.drop_step, first[-1]):
            many, severity, fate = False, "warn", f", and {reward.metric} fell to {reward.now:.3g} right after"
        elif many and not (reward and (reward.rising or reward.solved)):
            severity, fate = "warn", ", and the reward is not rising" if reward else ""
        elif age <= self.recent:
            severity, fate = "info", " and calm again since"
        else:
            return None
        row = begins if many else int(first[-1])
        onset = int(series.steps[row])
        peak = row + int(np.argmax(np.where(high, series.values, 0.0)[row : last[-1] + 1]))
        baseline, now = float(np.exp(expected[peak])), float(series.values[peak])
        what = f"{count} spikes in {rows} rows" if many else "one spike"
        return self.finding(
            view, severity, onset,
            f"gradient norm (before clipping): {what}, from step {onset}, up to {now:.3g} ({now / baseline:.0f} times"
            f" the expected {baseline:.3g}){fate}",
            metric="optim/grad_norm", baseline=baseline, now=now, spikes=count,
        )  # fmt: skip

    def _early(self, view: RunView) -> Finding | None:
        """A spike among the first rows, compared with the rows before and after it."""
        count = view.rows("optim/grad_norm")
        if not self.around < count <= MINIMUM + LAG + self.recent:
            return None
        known = view.series("optim/grad_norm").last(count).finite()
        values, begun = known.values, MINIMUM + LAG
        at = int(np.argmax(values[:begun])) if len(values) else 0
        if not self.calm <= at < len(values) - self.calm or len(values) - 1 - at > self.recent or not values[at] > 0:
            return None
        first, last = at, at
        while first and values[first - 1] > values[at] / self.material:
            first -= 1
        while last + 1 < len(values) and values[last + 1] > values[at] / self.material:
            last += 1
        others = np.concatenate((values[:first], values[last + 1 :]))
        if last - first >= self.longest or len(others) < self.around or min(first, len(values) - 1 - last) < self.calm:
            return None
        others = others[others > max(NO_GRADIENT * median(others), 1e-9)]
        if len(others) < self.around:
            return None
        logs = np.log(others)
        usual = median(logs)
        noise = max(FLOOR, deviation(logs), median_scale(logs)[1]) * (1 + self.calm / len(logs))
        height = math.log(values[at]) - usual
        if height < max(math.log(self.tall), self.deviations * noise):
            return None
        beside = np.concatenate((values[first - self.calm : first], values[last + 1 : last + 1 + self.calm]))
        if math.log(max(float(beside.max()), 1e-12)) > usual + height / 2:
            return None  # it rises and falls in steps, as at the start of a run
        baseline, now, onset = math.exp(usual), float(values[at]), int(known.steps[first])
        return self.finding(
            view, "info", onset,
            f"gradient norm (before clipping): one spike among the first rows, at step {int(known.steps[at])}, of"
            f" {now:.3g} ({now / baseline:.0f} times the {baseline:.3g} of the rows around it) and calm again since",
            metric="optim/grad_norm", baseline=baseline, now=now, spikes=1,
        )  # fmt: skip

    def _heights(
        self, series: Series, expected: np.ndarray, high: np.ndarray, first: np.ndarray, last: np.ndarray
    ) -> np.ndarray:
        """Height of each spike in multiples of the expected norm."""
        over = np.where(high, series.values / np.exp(np.where(np.isfinite(expected), expected, np.inf)), 0.0)
        return np.array([over[a : b + 1].max() for a, b in zip(first, last, strict=True)])

    def _more_than_luck(self, heights: np.ndarray, usual: float) -> bool:
        """Whether that many tall spikes, or the two tallest, are unlikely by chance where `usual` tall ones are
        expected."""
        if len(heights) >= self.several and _chance(len(heights), usual) < self.luck:
            return True
        if len(heights) < 2:
            return False
        second = float(np.sort(heights)[-2])
        return _chance(2, usual * self.tall / second) < self.luck / 10

    def _tall(self, view: RunView, rows: int) -> bool:
        """Whether the tallest of the newest rows can be a spike at all: a cheap check that mostly says no."""
        if view.rows("optim/grad_norm") <= MINIMUM + LAG:
            return False  # nothing is expected yet
        signal = course(view, "optim/grad_norm")
        least = float(np.fmin.reduce(signal[-rows:, 2]))
        tallest = float(np.fmax.reduce(view.series("optim/grad_norm").values[-rows:]))
        return tallest > 0 and math.log(tallest) >= least + 0.99 * math.log(self.material)

    def _high(self, view: RunView, rows: int) -> np.ndarray:
        """Which of the newest rows are far above the expected value."""
        signal = self._expected(view)
        if not len(signal):
            return np.zeros(0, bool)
        expected = signal[-rows:, 0]
        limit = np.exp(expected + np.maximum(math.log(self.material), self.deviations * signal[-rows:, 1]))
        values = view.series("optim/grad_norm").values[-rows:]
        high: np.ndarray = (values > limit) & (values < np.inf) & (expected > LOG_ZERO)
        return high

    def _expected(self, view: RunView) -> np.ndarray:
        """(logarithm of the expected norm, its noise) of every row."""
        start = view.baseline_start()
        steps = view.series("optim/grad_norm").steps
        first = int(steps.searchsorted(start)) if start else 0
        expected = course(view, "optim/grad_norm")
        advance = partial(_with_gradient, course=expected, count=len(steps), first=first, least=self.material)
        return view.causal("optim/grad_norm", ("with gradient", first, self.material), advance)

    def _spikes(self, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and last row of every spike that was short and is over."""
        rows = high.nonzero()[0]
        breaks = (np.diff(rows) > self.calm).nonzero()[0]
        first = rows[np.concatenate(([0], breaks + 1))]
        last = rows[np.concatenate((breaks, [len(rows) - 1]))]
        short = (last - first < self.longest) & (last + self.calm < len(high))
        return first[short], last[short]


def _with_gradient(
    values: np.ndarray, known: int, last: list[float] | None, *,
    course: np.ndarray, count: int, first: int, least: float,
) -> list[tuple[float, float]]:  # fmt: skip
    """The expected norm of every row. For tall rows the expectation leaves out rows with almost no gradient: these are
    a separate kind of batch, and a mix of two kinds makes everything look usual.

    The trend covers the newest of `count` rows; nothing is expected of rows so old that theirs was dropped.
    """
    gone = count - len(course)
    out = [(math.nan, 0.0)] * (gone - known)
    for row in range(max(known, gone), count):
        expected, noise = float(course[row - gone, 2]), float(course[row - gone, 6])
        value = float(values[row])
        if 0 < value < math.inf and math.log(value) - expected > math.log(least):
            before = finite(values[max(first, row - LAG - WINDOW) : row - LAG])
            kept = before[before > NO_GRADIENT * max(median(before), 0.0)] if len(before) else before
            if MINIMUM <= len(kept) <= (1 - OFTEN) * len(before):
                logs = np.log(kept)
                middle, spread = median_scale(logs)
                expected = max(expected, middle)
                noise = max(FLOOR, deviation(np.clip(logs, middle - 4 * spread, middle + 4 * spread)))
        out.append((expected, noise))
    return out


def _chance(count: int, usual: float) -> float:
    """Poisson probability of `count` or more where `usual` are expected; 1 where the rate is unknown."""
    if usual == np.inf:
        return 1.0
    return 1 - sum(math.exp(-usual) * usual**k / math.factorial(k) for k in range(count))


def _follows(series: Series, step: int, row: int) -> bool:
    """Whether a step lies within ten rows after a row; a fall is dated to within three rows."""
    return -3 <= int(series.steps.searchsorted(step)) - row <= 10
