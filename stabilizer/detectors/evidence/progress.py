"""How the reward is doing: the question that separates every failure from its look-alikes.

Entropy that falls while the reward rises is convergence, KL that grows while the reward rises is learning, and a solved
task is no plateau. So every detector asks here first, and all get the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache, partial

import numpy as np

from stabilizer.core.metrics import means_right
from stabilizer.core.stats import (
    LAG,
    Trend,
    deviation,
    finite,
    inflation,
    line,
    mean,
    median,
    median_scale,
    step_noise,
    trend,
)
from stabilizer.runs.history import RunView, Series

RECENT = 30
"""Rows over which the reward is called rising or not."""
LEVEL = 5
"""Rows in a level (a median)."""
EARLY = 20
"""First rows, whose noise stays a yardstick."""
MINIMUM = 5
"""Rows that a level needs before it counts as the best or the start."""
SLOW = (20, 60)
"""Rows in the slow levels (means), for falls that are small beside the noise of a row."""
IDLE = (20, 500)
"""Rows that the newer half of a run needs to be called idle, and most rows of the run that count."""
MEMORY = 2000
"""Rows looked back on for the start of a fall."""
LEVEL_SHARE = 0.56
"""Noise of a median of 5 independent rows, in noise of a row."""
CLEAR, CLEAR_ROWS = 5.5, 200
"""Standard deviations of a level by which a fall from its best is beyond doubt in so many rows: the best of many is
high by chance, in more rows by more."""
LOST = (0.3, 0.25, 0.25)
"""Share of the whole range ever covered that a fall must lose, in a level and in the slow levels."""
SMALL = 0.2
"""Deviations of single rewards by which a difference of two levels is small (Cohen's convention for effects)."""
SOLVED = 0.95
"""Share of completions solved above which a task counts as solved."""
SILENT = 0.8
"""Share of groups without any spread from which answers count as equally rewarded."""
GONE = 0.4
"""Share of the initial spread of rewards under which answers are equally rewarded, unless rows still differ ..."""
KEPT = 0.7
"""... by this share of their initial difference."""
ALIKE = 0.6
"""Share of the initial spread, and of the initial difference between rows, that is enough where both fell to it."""
ALONE = 0.5
"""The same for the difference between rows alone, where no spread is logged."""
TOP = 0.35
"""Share of the newest rows at the very best from which a reward that is near it on average is at its top."""
NEAR_BEST = 0.7
"""Share of its best row that a component for correct answers has at least, on a solved task."""
TAIL = 0.5
"""Height above the middle, in depths below it, of a reward that strays to one side only: normal noise has 1.4."""
CEILING = 0.9
"""Share above which so little is left that a constant reward has arrived rather than got stuck."""
WITNESSES = 2
"""Rows in which every answer got the best reward ever seen, for that to be the maximum."""

_is_right = lru_cache(maxsize=1024)(means_right)


class Progress:
    """The state of the reward at a step; whatever needs arithmetic is computed on first use."""

    def __init__(self, view: RunView, name: str, series: Series, levels: np.ndarray):
        self._view = view
        self._series = series
        self._levels = levels[-MEMORY:]
        self.metric = name
        rows, self.now, self.best, self._peak, self.lowest, self.start = levels[-1, :6].tolist()
        self.rows = int(rows)

    @property
    def peak_step(self) -> int:
        """When the best level was reached."""
        return int(self._series.steps[int(self._peak)])

    @cached_property
    def _recent(self) -> np.ndarray:
        return self._series.last(200).finite().values

    @cached_property
    def noise(self) -> float:
        """Noise of a row before a fall; the rows since must not widen the yardstick they are measured by."""
        reach = max(self.best - self.lowest, abs(self.best) * 0.05)
        fell = _after_last(self._levels[:, 1], self.best - 0.15 * reach)
        fell -= LEVEL // 2 if fell < len(self._levels) else 0  # a median stays high while its newest two rows are low
        end = min(len(self._levels) - (LAG if self.rows >= LAG + 30 else LEVEL), fell)
        return float(max(_lumpy_noise(self._recent[-60:]), self.early, _wander(self._series.values[-MEMORY:][:end])))

    @cached_property
    def early(self) -> float:
        """The part of it that the first rows already showed."""
        values = self._series.values
        if len(values) <= EARLY:
            return _lumpy_noise(finite(values))
        return float(self._view.causal(self.metric, "early noise", _early_noise)[-1])

    def beyond(self, change: float, times: float = 1.0) -> bool:
        """Whether a change exceeds a multiple of the noise of a row. The first rows mostly show that it does not."""
        return bool(change > times * self.early and change > times * self.noise)

    @cached_property
    def _slope(self) -> Trend | None:
        window = self._recent[-RECENT:]
        return trend(window) if len(window) >= 12 else None

    @cached_property
    def rising(self) -> bool:
        """Whether the newest rows clearly rise, by more than the noise of one row."""
        slope = self._slope
        return bool(slope and slope.rising and self.beyond(slope.change))

    @cached_property
    def falling(self) -> bool:
        """Whether the newest rows clearly fall, by more than the noise of one row."""
        slope = self._slope
        return bool(slope and slope.falling and self.beyond(-slope.change))

    @cached_property
    def idle(self) -> bool:
        """Whether the newer half of the run shows no visible gain, which is no proof that there is none."""
        series = self._series.between(self._view.baseline_start(), self._view.step).last(IDLE[1]).finite()
        rows = len(series) // 2
        if rows < IDLE[0]:
            return False
        slope = trend(series.values[-rows:])
        return slope.change <= (slope.high - slope.change) / 4  # half a standard error

    @cached_property
    def _fall(self) -> tuple[bool, int]:
        return _fallen(self._levels, self._series.values[-MEMORY:], self)

    @property
    def dropped(self) -> bool:
        """Whether it lies below its best by more than noise explains."""
        return bool(self._fall[0])

    @cached_property
    def slight(self) -> bool:
        """Whether its fall is small beside the spread of answers within a step: then no skill is lost, however certain
        the fall.

        A run that has gained almost nothing yet has covered little range and can lose all of it at once. A fall by half
        of the total reward is never slight: a rarely shown skill can be lost like any other.
        """
        if self.now < self.best / 2 and np.nanmin(self._series.values) >= 0:
            return False
        spread = self._view.series("reward/std").between(0, self.drop_step - 1).last(EARLY).finite().values
        return bool(len(spread) >= LEVEL and self.best - self.now < SMALL * median(spread))

    @property
    def drop_step(self) -> int:
        """First step of the present fall; the current step when there is none."""
        dropped, row = self._fall
        return int(self._series.steps[-MEMORY:][row]) if dropped else self._view.step

    @cached_property
    def ceiling(self) -> str:
        """Why nothing is left to learn: `known` where that is measured, `taken` where the reward looks like it and
        no logged metric shows its ceiling, else empty."""
        return _ceiling(self._view, self.metric, self._levels[-1], self)

    @property
    def solved(self) -> bool:
        """Whether there is nothing left to learn, as far as the log shows."""
        return bool(self.ceiling)


def progress(view: RunView) -> Progress | None:
    """The state of the reward, or None when there are too few rows."""
    return view.once(_progress)


def _progress(view: RunView) -> Progress | None:
    name = next((name for name in ("reward/mean", "accuracy/train") if name in view), None)
    if name is None:
        return None
    series = view.series(name)
    stage = max((event.step for event in view.events(("data-stage",))), default=0)
    first = int(series.steps.searchsorted(stage)) if stage else 0  # the best of another stage does not count
    signal = view.causal(name, ("progress", first), partial(_levels, first=first))
    reward = Progress(view, name, series, signal)
    return None if reward.rows <= LEVEL or len(series.last(200).finite()) < LEVEL else reward


def _levels(values: np.ndarray, known: int, last: Sequence[float] | None, *, first: int) -> list[tuple[float, ...]]:
    """A row of (finite rows, level, best, its row, lowest, first, then of each slow level: it, best, lowest).

    Levels are medians of the newest finite values, slow levels means. The best of them counts once there are enough
    rows, so that one lucky first step is no height to fall from. A causal signal.
    """
    state = last or _FRESH
    rows = []
    for row in range(known, len(values)):
        state = _next_levels(values[max(first, row + 1 - SLOW[-1]) : row + 1], row, state) if row >= first else _FRESH
        rows.append(state)
    return rows


_FRESH = (0.0, np.nan, -np.inf, 0.0, np.inf, np.nan, *(np.nan, -np.inf, np.inf) * len(SLOW))


def _next_levels(recent: np.ndarray, row: int, state: Sequence[float]) -> tuple[float, ...]:
    rows, _, best, peak, lowest, start, *slow = state
    value = float(recent[-1])
    rows += 1.0 if value - value == 0.0 else 0.0
    recent = finite(recent)
    now = median(recent[-LEVEL:]) if len(recent) else np.nan
    if rows >= MINIMUM and now == now:
        start = now if start != start else start
        lowest = min(lowest, now)
        if now > best:
            best, peak = now, float(row)
    for index, width in enumerate(SLOW):
        newest = recent[-width:]
        average = mean(newest) if len(newest) else np.nan
        slow[3 * index] = average
        if rows >= 2 * width // 3:
            slow[3 * index + 1] = max(slow[3 * index + 1], average)
            slow[3 * index + 2] = min(slow[3 * index + 2], average)
    return (rows, now, best, peak, lowest, start, *slow)


def _fallen(seen: np.ndarray, values: np.ndarray, reward: Progress) -> tuple[bool, int]:
    """Whether the reward lies below its best beyond what noise explains, and the row at which that fall began.

    A large fall shows in a level, a small one among lumpy rewards only in a slow level. Each is compared with its own
    noise before the fall, which autocorrelated or periodic rewards make larger, and counts only while the newest rows
    agree that it is down.
    """
    now = seen[-1].tolist()
    if not now[2] > now[4]:
        return False, 0  # no five rows were ever better than others: rare lucky rows do not count
    clear = _clear(reward.rows)
    for width, column, low, lost in zip((LEVEL, *SLOW), (1, 6, 9), (4, 8, 11), LOST, strict=True):
        best = now[2] if width == LEVEL else now[column + 1]
        fall = best - now[column]
        if not fall > lost * max(best - now[low], abs(best) * 0.05) or fall == np.inf:
            continue
        if now[6] > best - fall / 2 or not now[1] <= best:
            continue  # recovering
        height = (seen[:, column] >= best - 0.35 * fall).nonzero()[0]
        top = int(height[-1]) if len(height) else 0
        share = LEVEL_SHARE if width == LEVEL else width**-0.5
        before = values[max(0, top - 120) : max(0, top - width // 2)]
        if fall <= clear * (reward.early * share) or fall <= clear * (reward.noise * share):
            continue  # mostly decides, and is cheap
        noise = reward.noise
        level_noise = max(max(noise, _deviation(before)) * share, _wander(seen[:top, column]))
        if fall > clear * level_noise:
            edge = _edge(values, max(0, top - width), best, fall, noise)
            return (True, edge) if _lies_lower(values, edge) else (False, 0)
    return False, 0


def _clear(rows: int) -> float:
    """`CLEAR` in a run of so many rows: the extremes of n independent levels grow with the root of log n."""
    return CLEAR * math.sqrt(max(1.0, math.log(rows / LEVEL) / math.log(CLEAR_ROWS / LEVEL)))


def _lies_lower(values: np.ndarray, edge: int) -> bool:
    """Whether the rows after a fall lie below the best third before it (60 rows at most) by half a deviation of the
    rows there, or by a whole one where they are too few to show the usual variation."""
    before, after = finite(values[:edge])[-MEMORY // 4 :], finite(values[edge:])
    if len(before) < 2 * LEVEL or not len(after):
        return True
    width = min(SLOW[-1], max(LEVEL, len(before) // 3))
    sums = np.concatenate(([0.0], np.cumsum(before)))
    best = float((sums[width:] - sums[:-width]).max()) / width
    strays = float(line(before)[1].std())
    return best - mean(after[-width:]) > strays * (1.0 if len(before) < 120 else 0.5)


def _edge(values: np.ndarray, first: int, best: float, fall: float, noise: float) -> int:
    """Row where a fall began: after the last value near the best; among noise, where the two sides differ most."""
    stretch = values[first:]
    if fall > 5 * noise:
        near = (stretch >= best - max(0.15 * fall, 1.5 * noise)).nonzero()[0]
        return min(first + (int(near[-1]) + 1 if len(near) else 0), len(values) - 1)
    known = np.isfinite(stretch)
    centred = np.where(known, stretch, 0.0) - np.where(known, stretch[known].mean(), 0.0)
    sums, split = np.cumsum(centred)[:-1], np.arange(1, len(stretch))
    return first + 1 + int(np.argmax(sums / np.sqrt(split * (len(stretch) - split))))


def _deviation(values: np.ndarray) -> float:
    """Standard deviation about the trend as it affects a mean: rare successes and autocorrelation count."""
    values = finite(values)
    if len(values) < 20:
        return 0.0
    _, residuals = line(values)
    reach = 5 * median_scale(residuals)[1]
    residuals = np.minimum(np.maximum(residuals, -reach), reach) if reach > 0 else residuals
    return deviation(residuals) * inflation(residuals)


def _ceiling(view: RunView, name: str, levels: np.ndarray, reward: Progress) -> str:
    """Almost everything is solved, or the reward is at a ceiling: too little is left to be called stuck.

    The first of these that is known decides: accuracy; groups that all pass; a component for correct answers; rows that
    all earn the maximum; a reward that never left 0-1; one just under what whole rows earned; silent groups under a
    level that is never exceeded; answers that came to be equally rewarded at the best reward so far.
    """
    accuracy = view.series("accuracy/train").last(SLOW[0]).finite().values
    if len(accuracy):
        near = mean(accuracy) >= CEILING and (len(accuracy) == SLOW[0] or median(accuracy) >= SOLVED)
        return "known" if near else ""
    passed = view.series("reward/all_pass_frac").last(SLOW[0]).finite().values
    if len(passed):
        return "known" if median(passed[-LEVEL:]) >= 0.9 and passed.mean() >= 0.8 else ""
    paid = (name for name in view.names() if name.startswith("reward/") and name.endswith("/mean"))  # means, no spreads
    right = [name for name in paid if _is_right(name)]
    if any(_all_right(view, name) for name in right):
        return "known"
    if any(_seldom_right(view, name) for name in right):
        return ""
    rewards = view.series(name).values
    _, now, best, _, lowest, start, slow, best_slow = levels[:8]
    if len(rewards) < SLOW[0]:
        return ""
    if _at_top(rewards):
        return "known"
    if lowest >= 0 and CEILING <= slow <= 1 and float(np.nanmax(rewards[-MEMORY:])) <= 1:
        return "taken"
    if len(rewards) < 2 * RECENT:
        return ""
    recent = rewards[-SLOW[0] :]
    if np.all(recent == recent[0]) and recent[0] >= best > start:
        return "known"  # constant at its best: that is a ceiling
    if _capped(view, rewards) or _witnessed(view, name, rewards, slow):
        return "taken"
    if best_slow - slow > 0.1 * (best - lowest) or min(now, slow) - start < 2 * reward.noise:
        return ""
    return "taken" if _paid_alike(view, rewards) else ""


def _witnessed(view: RunView, name: str, rewards: np.ndarray, slow: float) -> bool:
    """It is just under what some rows earned in all of their answers, and no row ever earned more.

    A constant is no ceiling, least of all zero, and a reward within 0-1 has its ceiling at 1.
    """
    known = finite(rewards[-MEMORY:])
    low, top = float(known.min()), float(known.max())
    if not SOLVED * top <= slow <= top or not 0 <= low < top or not top > 1:
        return False
    spread = next((view.series(name) for name in ("reward/std", "reward/std_group") if name in view), None)
    if spread is None:
        return False
    series, spread = view.series(name).last(MEMORY).finite(), spread.last(MEMORY).finite()
    silent = np.isin(series.steps, spread.steps[spread.values == 0])
    return int(np.count_nonzero(silent & np.isclose(series.values, top, rtol=1e-6))) >= WITNESSES


def _all_right(view: RunView, name: str) -> bool:
    """A component for correct answers that never left 0-1 and is just under 1."""
    recent = view.series(name).last(200).finite().values
    return len(recent) >= SLOW[0] and 0 <= recent.min() <= recent.max() <= 1 and mean(recent[-SLOW[0] :]) >= SOLVED


def _seldom_right(view: RunView, name: str) -> bool:
    """A component for correct answers whose newest rows are far from its best: the task is not solved, whatever else
    is equal."""
    values = finite(view.series(name).values[-MEMORY:])
    if len(values) < SLOW[0]:
        return False
    low, best = float(values.min()), float(values.max())
    if low == best:
        return best == 0  # it never paid
    floor = min(low, 0.0)
    return mean(values[-SLOW[0] :]) - floor < NEAR_BEST * (best - floor)


def _at_top(rewards: np.ndarray) -> bool:
    """Row after row has the very same reward, and no row was ever higher: this is the maximum.

    A mean repeats exactly only where all of its answers got the same reward. A value of at most 0 may be a run without
    any success, and a reward within 0-1 has its ceiling at 1.
    """
    recent = finite(rewards[-SLOW[0] :])
    top = float(recent.max()) if len(recent) == SLOW[0] else 0.0
    if not top > 0:
        return False
    if (recent == top).mean() < TOP:
        return False
    known = finite(rewards[-MEMORY:])
    low = float(known.min())
    if known.max() > top or low == top or (low >= 0 and CEILING > top):
        return False
    return mean(recent) - low >= CEILING * (top - low)


def _capped(view: RunView, rewards: np.ndarray) -> bool:
    """Groups are silent and rows pile up under a level that none exceeds: nothing higher can be earned.

    Silent groups that pass give a reward that can only fall from its top, those that fail one that can only rise from
    its bottom, and an even mix one that strays both ways. The side of the tail tells which it is.
    """
    silent = view.series("reward/zero_std_frac").last(SLOW[0]).finite().values
    if len(silent) < SLOW[0] or median(silent) < SILENT:
        return False
    recent = finite(rewards[-SLOW[1] :])
    if len(recent) < 2 * SLOW[0]:
        return False
    low, middle, top = np.quantile(recent, (0.05, 0.5, 1.0)).tolist()
    return bool(top - middle < TAIL * (middle - low) and middle > float(np.nanmin(rewards[-MEMORY:])))


def _paid_alike(view: RunView, rewards: np.ndarray) -> bool:
    """Answers came to be equally rewarded: within groups, and from prompt to prompt, or a step would still be chance.

    A policy that gives one answer to each prompt has silent groups too, but the prompts it cannot solve keep rows
    apart.
    """
    early, late = finite(rewards[:20]), finite(rewards[-2 * SLOW[0] :])
    if not len(early) or not len(late):
        return False
    rows = step_noise(late) / step_noise(early) if step_noise(early) > 0 else 1.0
    silent = view.series("reward/zero_std_frac").last(20).finite().values
    if len(silent) >= 10 and median(silent) >= SILENT and rows < ALIKE:
        return True
    grouped = view.series("reward/std_group")
    spread = grouped if len(grouped) >= 40 else view.series("reward/std")
    if len(spread) < 40:  # rows of one answer lie at two values, and their middle differences may all be 0
        return rows < ALONE and bool(late.std() < ALONE * early.std())
    early, late = finite(spread.values[:20]), finite(spread.values[-20:])
    if not len(early) or not len(late):
        return False
    share = median(late) / median(early) if median(early) > 0 else 1.0
    return share < GONE and (spread is not grouped or rows < KEPT) or share < ALIKE and rows < ALIKE


def _after_last(values: np.ndarray, least: float) -> int:
    """The row after the newest value of at least this size, 0 when there is none: mostly it is recent."""
    for newest in (50, len(values)):
        near = (values[-newest:] >= least).nonzero()[0]
        if len(near):
            return max(0, len(values) - newest) + int(near[-1]) + 1
    return 0


def _early_noise(values: np.ndarray, known: int, last: float | None) -> list[float]:
    """Standard deviation of a row by the differences of neighbours among the first rows, once there are more:
    causal."""
    if last is None or last != last:
        last = _lumpy_noise(finite(values[:EARLY])) if len(values) > EARLY else np.nan
    return [np.nan if row < EARLY else last for row in range(known, len(values))]


def _lumpy_noise(values: np.ndarray) -> float:
    """Noise by differences of neighbours, also for rewards that are mostly one value and rarely another."""
    if len(values) < 3:
        return 0.0
    steps = np.abs(values[1:] - values[:-1])
    typical = median(steps)
    if typical > 0:  # a jump or an outlier is no noise
        steps = np.minimum(steps, 6 * typical)
    return max(step_noise(values), 0.886 * mean(steps))


def _wander(values: np.ndarray) -> float:
    """How far the newest 100 values stray from their own trend; 0 when there are too few."""
    stretch = finite(values[-100:])
    if len(stretch) < 12:
        return 0.0
    scale = median_scale(line(stretch)[1])[1]
    return scale if scale > 1e-9 * float(np.maximum.reduce(np.abs(stretch))) else 0.0  # rounding is no noise


def level(series: Series, rows: int = LEVEL) -> float:
    """Median of the newest rows; NaN when there are none."""
    recent = series.last(rows).values
    return median(recent) if len(recent) else np.nan


def level_of(view: RunView, name: str) -> float:
    """The present level of a metric; 0 where fewer than five of its newest eight rows are finite."""
    recent = view.series(name).last(8).finite()
    return level(recent) if len(recent) >= LEVEL else 0.0
