"""How the reward is doing: the question behind every look-alike.

Entropy that falls while the reward rises is convergence, KL that grows while the reward rises is learning, a solved
task is not a plateau. So every detector asks here first, and all get the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from stabilizer.runs.history import RunView, Series
from stabilizer.signals import LAG, Trend, median, median_scale, step_noise, trend

RECENT = 30
"""Rows over which the reward is called rising or not."""
LEVEL = 5
"""Rows in a level (a median)."""
MINIMUM = 5
"""Rows a level needs before it counts as the best or the start."""
SLOW = 15
"""Rows in a slow level (a mean), for falls not much larger than the noise of a row."""
MEMORY = 2000
"""Rows looked back on for when a fall began."""
LEVEL_SHARE = 0.56
"""Noise of a median of 5 independent rows, in noise of a row."""
CLEAR = 5.5
"""Standard deviations of a level by which a fall from its best is beyond doubt: the best of many is high by luck."""
SOLVED = 0.95
"""Share of completions solved above which a task counts as solved."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What can be said of the reward at a step; `dropped` is a fall from its best that noise does not explain."""

    metric: str
    now: float
    best: float
    start: float
    lowest: float
    peak_step: int
    """When the best level was reached."""
    noise: float
    rows: int
    rising: bool
    falling: bool
    dropped: bool
    drop_step: int
    """First step of the present fall; the current step when there is none."""
    solved: bool


def progress(view: RunView) -> Progress | None:
    """The state of the reward, or None when there is too little of it to speak of."""
    return view.once(_progress)


def _progress(view: RunView) -> Progress | None:
    name = next((name for name in ("reward/mean", "accuracy/train") if name in view), None)
    if name is None:
        return None
    series = view.series(name)
    stage = max((event.step for event in view.events(("data-stage",))), default=0)
    first = int(np.searchsorted(series.steps, stage))  # another stage's best is no height to fall from
    signal = view.causal(name, ("progress", first), partial(_levels, first=first))
    recent = series.last(200).finite()
    rows = int(signal[-1, 0])
    if rows <= LEVEL or len(recent) < LEVEL:
        return None
    _, now, best, peak, lowest, start, slow, best_slow = (float(number) for number in signal[-1])
    reach = max(best - lowest, abs(best) * 0.05)
    rows_seen = signal[-MEMORY:]
    near_best = np.flatnonzero(rows_seen[:, 1] >= best - 0.15 * reach)
    fell = int(near_best[-1]) + 1 if len(near_best) else 0
    # Noise is what was there before a fall; the rows since must not widen the yardstick they are measured by.
    end = min(len(rows_seen) - (LAG if rows >= LAG + 30 else LEVEL), fell)
    noise = max(_near_noise(recent.values, series.values[:20]), _wander(series.values[-MEMORY:][:end]))
    # A large fall shows in a level, one not much larger than the noise of a row in a slow level, while the level agrees
    # that it is down. Both are held against their own noise, which autocorrelated or periodic rewards make larger.
    level_noise = max(noise * LEVEL_SHARE, _wander(rows_seen[:end, 1]))
    slow_noise = max(noise / np.sqrt(SLOW), _wander(rows_seen[:end, 6]))
    dropped = best - now > max(0.3 * reach, CLEAR * level_noise) or (
        best_slow - slow > max(0.3 * reach, CLEAR * slow_noise) and best - now > 3.5 * level_noise
    )
    drop_step = view.step
    if dropped:
        near = np.flatnonzero(rows_seen[:, 1] >= best - max(0.15 * reach, 1.5 * noise))
        steps = series.steps[-MEMORY:]
        drop_step = int(steps[min(int(near[-1]) + 1, len(steps) - 1)]) if len(near) else int(steps[0])
    window = recent.last(RECENT).values
    slope = trend(window) if len(window) >= 12 else None
    return Progress(
        metric=name,
        now=now,
        best=best,
        start=start,
        lowest=lowest,
        peak_step=int(series.steps[int(peak)]),
        noise=noise,
        rows=rows,
        rising=bool(slope and slope.rising and slope.change > noise),
        falling=bool(slope and slope.falling and -slope.change > noise),
        dropped=dropped,
        drop_step=drop_step,
        solved=_solved(view) or _saturated(view, series.values, now, best, start, noise),
    )


def _levels(values: np.ndarray, done: np.ndarray, first: int) -> tuple[float, ...]:
    """A row of (finite rows, level, best level, its row, lowest, first, slow level, best slow level): a causal signal.

    Levels are medians of the newest finite values; the best of them counts once there are enough for a full median,
    so that one lucky first step is not a height to fall from.
    """
    fresh = (0.0, np.nan, -np.inf, 0.0, np.inf, np.nan, np.nan, -np.inf)
    row = len(values) - 1
    if row < first:
        return fresh
    rows, _, best, peak, lowest, start, _, best_slow = done[-1] if row > first else fresh
    recent = values[max(first, row + 1 - 3 * SLOW) :]
    recent = recent[np.isfinite(recent)]
    now = median(recent[-LEVEL:]) if len(recent) else np.nan
    slow = float(np.mean(recent[-SLOW:])) if len(recent) else np.nan
    rows += float(np.isfinite(values[-1]))
    if rows >= MINIMUM and np.isfinite(now):
        start = now if np.isnan(start) else start
        lowest = min(lowest, now)
        if now > best:
            best, peak = now, float(row)
    if rows >= 2 * SLOW // 3:
        best_slow = max(best_slow, slow)
    return rows, now, best, peak, lowest, start, slow, best_slow


@dataclass(frozen=True, slots=True)
class Stagnation:
    """A stretch in which the reward stood still, as far as anybody can tell."""

    rows: int
    onset_step: int
    change: Trend
    level: float
    grew: bool
    """Whether the run had gained anything before."""


STILL = 80
"""Rows a reward must have stood still at least."""
STILL_MOST = 500
"""Rows looked at most."""
MATTERS = 0.15
"""Share of the gain so far that, reached by going on for as long again, would still be progress."""


def stagnation(view: RunView) -> Stagnation | None:
    """Whether the reward has stopped moving: by a test of equivalence, so that lack of evidence is not enough.

    The stretch is the newer half of the run (at least `STILL` rows). If its trend went on for as many rows as the run
    has had, the upper end of its 95 % interval must still gain less than `MATTERS` of what was gained so far. A run
    that never gained anything is measured by its noise instead, over half as many rows again.
    """
    return view.once(_stagnation)


def _stagnation(view: RunView) -> Stagnation | None:
    reward = progress(view)
    if reward is None or reward.solved or reward.dropped:
        return None
    grew = reward.best - reward.start > 4 * reward.noise
    rows = min(max(STILL, reward.rows // 2), STILL_MOST) if grew else STILL * 3 // 2
    recent = view.series(reward.metric).last(rows + rows // 4).finite().last(rows)
    if reward.rows < rows + 20 or len(recent) < rows or recent.steps[0] < view.baseline_start():
        return None
    change = trend(recent.values)
    level = median(recent.values)
    ahead = reward.rows / rows if grew else 1.0
    band = MATTERS * (level - reward.start) if grew else 1.5 * reward.noise
    if not grew and trend(view.series(reward.metric).last(STILL_MOST).finite().values).rising:
        return None  # too noisy to see over the stretch, plain over the run
    if not (band > 0 and not change.rising and -band < change.low * ahead and change.high * ahead < band):
        return None
    return Stagnation(rows, int(recent.steps[0]), change, level, grew)


def _solved(view: RunView) -> bool:
    """Nearly everything is solved, by accuracy where it is known, else by groups that all pass."""
    for name, enough in (("accuracy/train", SOLVED), ("reward/all_pass_frac", 0.9)):
        recent = view.series(name).finite().last(LEVEL)
        if len(recent) and median(recent.values) >= enough:
            return True
    return False


def _near_noise(recent: np.ndarray, first: np.ndarray) -> float:
    """Standard deviation of a row by what neighbours differ by, now and at the start."""
    return max(step_noise(recent[-60:]), step_noise(first[np.isfinite(first)]))


def _wander(values: np.ndarray) -> float:
    """How far the newest 100 of some values stray from their own trend; 0 when there are too few to tell."""
    stretch = values[-100:]
    stretch = stretch[np.isfinite(stretch)]
    if len(stretch) < 12:
        return 0.0
    rows = np.arange(len(stretch)) - (len(stretch) - 1) / 2
    slope = float(rows @ stretch) / float(rows @ rows)
    scale = median_scale(stretch - slope * rows)[1]
    return scale if scale > 1e-9 * float(np.abs(stretch).max()) else 0.0  # rounding is not noise


def _saturated(view: RunView, values: np.ndarray, now: float, best: float, start: float, noise: float) -> bool:
    """Where nobody logs what is solved: groups without spread, at the best reward so far, and steadier than before."""
    recent = values[-20:]
    if len(values) >= 2 * RECENT and np.all(recent == recent[0]) and recent[0] >= best > start:
        return True  # at its best and not moving by a hair: that is a ceiling
    spread = view.series("reward/zero_std_frac").last(LEVEL).finite()
    if not len(spread) or median(spread.values) < 0.8 or len(values) < 2 * RECENT:
        return False
    early, late = values[:20], values[-20:]
    steady = step_noise(late[np.isfinite(late)]) < 0.5 * step_noise(early[np.isfinite(early)])
    return steady and best - now < 2 * noise and now - start > 4 * noise


def level(series: Series, rows: int = LEVEL) -> float:
    """Median of the newest rows; NaN when there are none."""
    recent = series.last(rows).values
    return median(recent) if len(recent) else np.nan
