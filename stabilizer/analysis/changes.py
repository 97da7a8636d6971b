"""What changed: the largest moves of a run's metrics, however quiet the detectors are.

Every metric gets the same account. A running median removes single spikes. The largest move is the greatest difference
between a level and a later one. It counts if it exceeds the noise of the median, whose size follows from the
differences of neighbouring rows and their correlation, and if it is material for the quantity. Where rows are of two
kinds, as spreads of one group a row that are often exactly 0, a median jumps between the kinds: means are taken there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from stabilizer.core.metrics import UNKNOWN, metric
from stabilizer.core.points import log_floor, wants_log
from stabilizer.core.text import plain, rounded
from stabilizer.runs.history import RunView

Middle = Callable[..., Any]
"""`np.mean` or `np.median`."""
LEAST_ROWS = 3
MOST_POINTS = 600
"""Points of a series that are looked at; of a longer one, medians of as many blocks."""
WINDOW = 10
"""The running median covers a tenth of the rows."""
FEW, FEW_TIMES, FEW_SHARE, FEW_AGAINST = 8, 4.0, 0.2, 1.5
"""Below this many rows the noise cannot be estimated: a move counts if it is by this factor, or by this much of a
share, and this many times what the rows moved against it. Of 3 to 7 rows of noise by a third of their level, 0.3 %
show one (`tests/analysis/test_changes.py`)."""
TWO_KINDS = 0.1
"""Share of rows with one and the same value, and share of other rows, from which rows are of two kinds."""
MEDIAN = 1.25
"""Standard error of a median over that of a mean, for normal noise."""
MOST_CORRELATED = 0.9
JUMP = 2.5
"""Deviations of a difference between neighbouring rows; 1.2 % of those of normal noise are larger."""
BEYOND_NOISE = 7.0
"""A move counts from this many standard errors on: 0.5 % of series of pure noise show one, with 20 to 500 rows,
correlated or not (`tests/analysis/test_changes.py`)."""
MATERIAL = 0.2
"""Least relative size of a move."""
MATERIAL_SHARE = 0.03
"""Least size of a move of a share (0..1)."""
SHOWN = 6
LEFT_OUT = (
    "time/", "tokens/", "control/", "progress/", "optim/lr", "batch/", "rollout/staleness", "policy/beta",
    "system/cpu", "system/process_cores", "system/network", "system/disk", "system/gpu_util", "system/gpu_frac",
    "policy/entropy_coef",
)  # fmt: skip
"""Clocks, settings and schedules: they change on purpose."""
COUNTS = {
    "epoch", "step", "global_step", "iteration", "iterations", "episode", "episodes", "samples", "num_tokens",
    "n_updates", "total_timesteps", "time_elapsed", "num_input_tokens_seen",
}  # fmt: skip
"""Last parts of names under which trainers count; a count always rises."""
CLOCK = 30
"""Rows from which a metric of unknown meaning that rises in each of them is a clock. A trend of one noise a row rises
in each of 30 with a chance of 1 in 20,000."""
UNCHANGED = 3.0
"""Standard errors within which the reward is said to be unchanged between two given steps."""
REWARD = "reward/mean"
WORDS = {
    "reward/mean": "reward",
    "reward/std_group": "spread of rewards within a group",
    "reward/zero_std_frac": "share of groups with equal rewards",
    "rollout/length_mean": "length of answers",
    "rollout/truncated_frac": "share of answers cut by the limit",
    "policy/kl_ref": "KL to the reference",
    "policy/kl_old": "KL of an update",
    "policy/entropy": "entropy",
    "policy/clip_frac": "share of clipped tokens",
    "policy/mismatch_kl": "mismatch of engine and learner",
    "policy/loss": "loss",
    "optim/grad_norm": "gradient norm",
    "accuracy/train": "accuracy in training",
    "accuracy/val": "held-out accuracy",
    "value/explained_variance": "explained variance of the critic",
}
"""Metrics under everyday names; others keep their own."""


SAID_UNITS = ("nats/token", "tokens")


class Change(NamedTuple):
    """The largest move of a metric."""

    metric: str
    before: float
    after: float
    from_step: int
    to_step: int
    noise: float
    """Standard error of each of the two levels."""
    words: str
    first: tuple[float, int] | None = None
    """The level from which the reward came to `before`, and its step, if that was a change as well."""
    later: tuple[float, int] | None = None
    """The level to which the metric came back after `after`, and its step, if that was a change as well."""

    @property
    def size(self) -> float:
        """The move in units of its noise and of the metric's own level, for ranking."""
        scale = max(abs(self.before), abs(self.after), 1e-12)
        known = 2.0 if self.metric in WORDS else 1.0  # what people ask about first
        move = abs(self.after - self.before)
        return known * min(move / max(self.noise, 1e-12), 50.0) * move / scale


def changes(view: RunView, most: int = SHOWN) -> list[Change]:
    """The largest changes of the run, the largest first."""
    names = [name for name in view.names() if not name.startswith(LEFT_OUT) and _last(name) not in COUNTS]
    found = [change for name in names if (change := largest(view, name))]
    ranked = sorted(found, key=lambda change: (change.metric != REWARD, -change.size))
    return [change._replace(words=_sentence(view, change)) for change in _different(ranked)][:most]


def _last(name: str) -> str:
    return name.rpartition("/")[2].lower()


def largest(view: RunView, name: str) -> Change | None:
    """The largest move of a metric beyond its noise; None if there is none."""
    series = view.series(name).finite()
    middle = _middle(series.values)
    steps, values = _blocks(series.steps, series.values, middle)
    if len(values) < LEAST_ROWS or not np.ptp(values) or _counts(name, values):
        return None
    window = max(1, len(values) // WINDOW)
    level = _running(middle, values, window)
    noise = _noise(values, window, robust=middle is np.median) if len(values) >= FEW else 0.0

    def counts(begin: int, end: int) -> bool:
        before, after = float(level[begin]), float(level[end])
        if len(values) < FEW:
            return _clear(name, values, before, after)
        return abs(after - before) > BEYOND_NOISE * noise and _material(name, before, after)

    read = _as_read(level)
    begin, end = _move(level)
    begin = begin if read is level else _foot(read, begin, end)
    if not counts(begin, end):
        return None
    first, last = _while_moving(read, begin, end)
    change = Change(name, float(level[begin]), float(level[end]), int(steps[first]), int(steps[last]), noise, "")
    if len(values) < FEW:
        return change
    up = change.after > change.before
    came, back = _farthest(level[: begin + 1], up), end + _farthest(level[end:], not up)
    return change._replace(
        first=(float(level[came]), int(steps[came])) if name == REWARD and counts(came, begin) else None,
        later=(float(level[back]), int(steps[back])) if counts(end, back) else None,
    )


def _as_read(level: np.ndarray) -> np.ndarray:
    """The level, or its logarithm if it is read on a logarithmic axis."""
    return np.log(np.maximum(level, log_floor(level) or level[level > 0].min())) if wants_log(level) else level


def _farthest(level: np.ndarray, highest: bool) -> int:
    return int(level.argmax() if highest else level.argmin())


def _counts(name: str, values: np.ndarray) -> bool:
    """Whether a column counts or is a clock, whatever its name: whole numbers rise by the same each row, or an unknown
    metric rises in every row."""
    rises = np.diff(values)
    if len(values) >= CLOCK and metric(name).meaning == UNKNOWN.meaning and rises.min() > 0:
        return True
    return bool(rises[0] > 0 and not np.ptp(rises) and not np.any(values % 1))


def _middle(values: np.ndarray) -> Middle:
    """What levels are made of: medians, or means where one value comes again and again between others."""
    share = np.unique(values, return_counts=True)[1].max() / len(values) if len(values) >= FEW else 0.0
    return np.mean if TWO_KINDS <= share <= 1 - TWO_KINDS else np.median


def _blocks(steps: np.ndarray, values: np.ndarray, middle: Middle) -> tuple[np.ndarray, np.ndarray]:
    if len(values) <= MOST_POINTS:
        return steps, values
    edges = np.linspace(0, len(values), MOST_POINTS + 1).astype(int)
    levels = np.array([middle(values[a:b]) for a, b in zip(edges[:-1], edges[1:], strict=True)])
    return steps[edges[1:] - 1], levels


def _running(middle: Middle, values: np.ndarray, window: int) -> np.ndarray:
    if window < 2:
        return values
    return np.asarray(middle(np.lib.stride_tricks.sliding_window_view(_padded(values, window), window), axis=1))


def _padded(values: np.ndarray, window: int) -> np.ndarray:
    return np.pad(values, (window // 2, window - window // 2 - 1), mode="reflect")


def _move(level: np.ndarray) -> tuple[int, int]:
    """The places between which the level differs most, the earlier first."""
    rise = level - np.minimum.accumulate(level)
    fall = np.maximum.accumulate(level) - level
    end = int(rise.argmax() if rise.max() >= fall.max() else fall.argmax())
    past = level[: end + 1]
    begin = int(past.argmin() if rise.max() >= fall.max() else past.argmax())
    return begin, end


def _foot(level: np.ndarray, begin: int, end: int) -> int:
    """Where a move leaves its slow beginning: the place farthest behind the straight line between its ends."""
    line = np.linspace(level[begin], level[end], end - begin + 1)
    return begin + int(((line - level[begin : end + 1]) * np.sign(level[end] - level[begin])).argmax())


def _noise(values: np.ndarray, window: int, *, robust: bool) -> float:
    """Standard error of the running median under first-order autocorrelation.

    Scale and correlation come from the differences of neighbouring rows, which a trend does not change: for noise with
    correlation rho, neighbouring differences correlate by (rho - 1) / 2 and have a variance of 2 (1 - rho). Differences
    beyond `JUMP` deviations are those of a jump and not of noise: they are cut there, or a jump within two or three
    rows would look like noise with much correlation.
    """
    apart = np.diff(values)
    middle = float(np.median(apart))
    scale = 1.4826 * float(np.median(np.abs(apart - middle))) if robust else 0.0
    if scale:
        apart = np.clip(apart, middle - JUMP * scale, middle + JUMP * scale)
    scale = scale or float(apart.std())
    centred = apart - apart.mean()
    power = float((centred**2).sum())
    neighbours = float((centred[1:] * centred[:-1]).sum()) / power if power > 0 else -0.5
    rho = min(max(1 + 2 * neighbours, 0.0), MOST_CORRELATED)
    one_row = scale / math.sqrt(2 * (1 - rho))
    return MEDIAN * one_row * math.sqrt((1 + rho) / (1 - rho) / window)


def _material(name: str, before: float, after: float) -> bool:
    move = abs(after - before)
    if metric(name).kind == "fraction":
        return move >= MATERIAL_SHARE
    return move >= MATERIAL * max(abs(before), abs(after))


def _clear(name: str, values: np.ndarray, before: float, after: float) -> bool:
    """Whether a move is large enough to be said of a handful of rows."""
    apart = np.diff(values) * np.sign(after - before)
    if abs(after - before) < FEW_AGAINST * -apart[apart < 0].sum() or not _material(name, before, after):
        return False
    if metric(name).kind == "fraction":
        return abs(after - before) >= FEW_SHARE
    low, high = sorted((abs(before), abs(after)))
    return high >= FEW_TIMES * low


def _while_moving(level: np.ndarray, begin: int, end: int) -> tuple[int, int]:
    """Where a tenth and nine tenths of the move were done."""
    done = (level[begin : end + 1] - level[begin]) / (level[end] - level[begin])
    return begin + max(int((done >= 0.1).argmax()) - 1, 0), begin + int((done >= 0.9).argmax())


def _different(ranked: Iterable[Change]) -> list[Change]:
    """Without a second statistic of the same quantity (`rollout/length_max` beside `rollout/length_mean`)."""
    kept: list[Change] = []
    taken: set[str] = set()
    for change in ranked:
        family, _, rest = change.metric.partition("/")
        quantity = f"{family}/{rest.split('/')[0].rsplit('_', 1)[0]}" if change.metric not in WORDS else change.metric
        stem = quantity.removesuffix("_mean")
        if stem not in taken:
            taken.add(stem)
            kept.append(change)
    return kept


def _sentence(view: RunView, change: Change) -> str:
    name, before, after = change.metric, change.before, change.after
    unit = metric(name).unit
    unit = f" {unit}" if unit in SAID_UNITS and name in WORDS else ""
    verb, back = ("rose", "fell") if after > before else ("fell", "rose")
    when = f"between steps {change.from_step:,} and {change.to_step:,}"
    said = f"{verb} from {rounded(before)} to {rounded(after)}{unit}{_times(before, after)} {when}"
    if change.first:
        said = f"{back} from {rounded(change.first[0])} at step {change.first[1]:,}, then {said}"
    if change.later:
        said += f", and was back at {rounded(change.later[0])} by step {change.later[1]:,}"
    said = f"{WORDS.get(name, plain(name))} {said}"
    return said if name == REWARD else said + _reward_meanwhile(view, change)


def _times(before: float, after: float) -> str:
    """The factor of a move in brackets; empty where it is close to 1, very large, or has no meaning."""
    ratio = after / before if before > 0 and after > 0 else 1.0
    return "" if 0.67 < ratio < 1.5 or ratio >= 100 else f" (×{ratio:.2g})"


def _reward_meanwhile(view: RunView, change: Change) -> str:
    """What the reward did between the two levels; empty without a reward."""
    reward = view.series(REWARD).finite()
    if len(reward) < LEAST_ROWS or change.metric.startswith(("reward/", "accuracy/")):
        return ""
    window = max(1, len(reward) // WINDOW)
    padded = _padded(reward.values, window)
    places = np.searchsorted(reward.steps, [change.from_step, change.to_step]).clip(0, len(reward) - 1)
    middle = _middle(reward.values)
    before, after = (float(middle(padded[place : place + window])) for place in places)
    moved = f"; reward {rounded(before)} → {rounded(after)}"
    if len(reward) < FEW or abs(after - before) > UNCHANGED * _noise(reward.values, window, robust=middle is np.median):
        return moved
    return f"{moved}, within its noise" if _material(REWARD, before, after) else "; reward unchanged"
