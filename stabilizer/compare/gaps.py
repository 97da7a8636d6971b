"""Where two curves differ: each measure side by side, the difference with its interval, and its state.

A gap is `different` when its 99 % interval excludes "no difference" (99, because half a dozen are tested at once),
`same` when the 95 % interval lies within a margin too small to matter, and `undetermined` otherwise: no difference was
seen, but one of the stated size could have been missed. A single run shows the noise within runs, not the spread
between seeds; where one side has several seeds, their spread is assumed for the other side too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from stabilizer.compare.align import Clock, common_range
from stabilizer.compare.measure import (
    MINIMUM,
    REACHED,
    Measure,
    Scale,
    Shape,
    end_trend,
    final_level,
    level_at,
    measured,
    noise_measure,
    shape,
    t_quantile,
)
from stabilizer.compare.sides import Member, Side
from stabilizer.compare.support import Support, conflict, remarks, support
from stabilizer.core.metrics import metric as definition
from stabilizer.core.text import short
from stabilizer.trainers.settings import keys_of

Shapes = tuple[tuple[Shape, ...], tuple[Shape, ...]]
"""The shapes of the run's seeds and of the reference's."""
Points = Sequence[Sequence[tuple[np.ndarray, np.ndarray]]]
"""Positions and values of each seed, of the run's and of the reference's."""
SIDES = ("the run", "the reference")
State = Literal["same", "different", "undetermined", "not-comparable"]
MARGIN_OF_RISE = 0.1
"""Share of the reference's rise within which levels count as equal."""
MARGIN_OF_NOISE = 0.5
"""Standard deviations of noise within which levels count as equal."""
MARGIN_NOISE = 1.25
"""Factor within which two noises count as equal."""
MARGIN_TIME = 1.5
"""Factor within which two times to the peak count as equal."""
FEW_POINTS = 30
"""Points below which a difference of noise is shown with their number."""
LEAST_SHARED = 20
"""Common points below which two runs are not called identical."""
SEEDS = 0, 17
"""First seed of the noise that is drawn around the curves of each side."""
SHORTER = 0.85
"""A range shorter than this share of the other is compared where it ends, not where each ends."""


@dataclass(frozen=True)
class Gap:
    """One measure on both sides. `difference` is run minus reference, or run / reference where `scale` is ratio."""

    id: str
    label: str
    estimator: str
    scale: Scale
    run: Measure | None
    reference: Measure | None
    difference: float | None
    low: float | None
    high: float | None
    state: State
    why: str
    note: str = ""
    """What `why` says beyond the numbers."""

    @property
    def direction(self) -> str:
        """`higher`, `lower` or "": the run beside the reference."""
        if self.difference is None:
            return ""
        zero = 1.0 if self.scale == "ratio" else 0.0
        return "higher" if self.difference > zero else "lower" if self.difference < zero else ""


@dataclass(frozen=True)
class Compared:
    """One metric of both sides."""

    run_metric: str
    reference_metric: str
    supports: tuple[Support, Support]
    conflict: str
    remarks: tuple[str, ...]
    shapes: Shapes
    gaps: tuple[Gap, ...]
    identical: int
    """Points at which two single runs have the same numbers; 0 where any differs."""
    rescaled: str
    notes: tuple[str, ...]

    def gap(self, wanted: str) -> Gap | None:
        """A gap by its id."""
        return next((gap for gap in self.gaps if gap.id == wanted), None)


def compare_metric(run: Side, reference: Side, names: tuple[str, str], clock: Clock, *, primary: bool) -> Compared:
    """Everything about one metric. Only the primary one gets peak and time to peak."""
    mine, theirs = names
    better = definition(mine).better
    up = better != "down"
    supports = support(run, mine), support(reference, theirs)
    clash = conflict(*supports) if mine.startswith(("reward/", "accuracy/")) else ""
    points = [_points(side, name, clock) for side, name in ((run, mine), (reference, theirs))]
    first, second = (
        tuple(shape(x, y, up=up, seed=seed) for seed, (x, y) in enumerate(side, base))
        for side, base in zip(points, SEEDS, strict=True)
    )
    shapes = first, second
    lone = primary and len(run.members) == len(reference.members) == 1
    identical = _identical(*points[0][0], *points[1][0]) if lone else 0
    gaps = _gaps(shapes, points, clock, clash, directed=primary and better != "neither")
    return Compared(
        run_metric=mine,
        reference_metric=theirs,
        supports=supports,
        conflict=clash,
        remarks=tuple(remarks(*supports)) if primary or not clash else (),
        shapes=shapes,
        gaps=gaps,
        identical=identical,
        rescaled=_rescaled(shapes, gaps) if primary and not clash and not identical else "",
        notes=(*_notes(run, mine), *_notes(reference, theirs)),
    )


def _identical(x: np.ndarray, y: np.ndarray, other_x: np.ndarray, other_y: np.ndarray) -> int:
    shared, rows, other_rows = np.intersect1d(x, other_x, return_indices=True)
    same = len(shared) >= LEAST_SHARED and np.allclose(y[rows], other_y[other_rows], rtol=1e-9, atol=1e-12)
    return len(shared) if same else 0


def _points(side: Side, name: str, clock: Clock) -> list[tuple[np.ndarray, np.ndarray]]:
    return [member.on(clock.name, name) for member in side.members]


def _notes(side: Side, name: str) -> list[str]:
    said = []
    for member in side.members:
        values = member.series[name].values
        if bad := int(np.sum(~np.isfinite(values))):
            where = " at its end" if not np.isfinite(values[-1]) else ""
            said.append(f"{member.name}: {bad:,} of {len(values):,} values of {name} are NaN or Inf{where}; left out")
        if len(values) - bad < MINIMUM:
            points = f"{len(values) - bad} point{'s' if len(values) - bad != 1 else ''}"
            said.append(f"{member.name}: {points} of {name}; no interval can be given below {MINIMUM}")
        if _window(member) > 1:
            said.append(f"{member.name}: each row of {name} is a mean over {_window(member):g} steps")
    return said


def _window(member: Member) -> float:
    value = next((member.config[key] for key in keys_of("logging") if key in member.config), 1)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 1.0


class _Span(NamedTuple):
    """Where the two sides can be compared."""

    first: float
    last: float
    unequal: bool
    """One side ends well before the other."""


def _gaps(shapes: Shapes, points: Points, clock: Clock, clash: str, *, directed: bool) -> tuple[Gap, ...]:
    runs, references = ([x for x, _ in side] for side in points)
    first, last = common_range(runs, references)
    span = _Span(first, last, last < SHORTER * max(float(x[-1]) for x in (*runs, *references)))
    apart = "" if clash or last > first else f"the two have no {_words(clock)} in common"
    both = _up_to(last, shapes, points) if span.unequal and not clash and not apart else shapes
    margin = _margin(shapes)
    found = _peaks(shapes, both, span, clock, margin, clash) if directed else []
    found += _levels(shapes, both, span, clock, margin, clash)
    found.append(_noise(shapes, bool(clash)))
    return tuple(_blank(gap, apart) for gap in found) if apart else tuple(found)


def _up_to(last: float, shapes: Shapes, points: Points) -> Shapes:
    """The shapes up to where the shorter side ends: a shorter run has had less time to rise."""
    mine, theirs = (
        tuple(shape(x[x <= last], y[x <= last], up=s.up) for (x, y), s in zip(*pair, strict=True))
        for pair in zip(points, shapes, strict=True)
    )
    return mine, theirs


def _margin(shapes: Shapes) -> float:
    """The largest difference of levels that is too small to matter."""
    references = shapes[1]
    sigma = max(float(np.mean([s.noise.sd for s in side])) for side in shapes)
    rise = float(np.mean([s.rise for s in references])) if all(s.rises() for s in references) else 0.0
    return max(MARGIN_OF_RISE * rise, MARGIN_OF_NOISE * sigma)


def _peaks(shapes: Shapes, both: Shapes, span: _Span, clock: Clock, margin: float, clash: str) -> list[Gap]:
    """Peak and time to it, up to where the shorter side ends."""
    upto = f", up to {_place(span.last, clock)}" if both is not shapes else ""
    best = "highest" if shapes[0][0].up else "lowest"
    text = f"{best} point of the smooth{upto}"
    peak = _gap("peak", "peak", text, both, lambda s: s.peak, smooth=True, margin=margin, clash=clash)
    reach = f"{_words(clock)} until the smooth has {REACHED:.0%} of its rise{upto}"
    time = _gap(
        "time-to-peak", "time to peak", reach, both, lambda s: s.reached, smooth=True, scale="ratio", margin=MARGIN_TIME
    )
    flat = [who for side, who in zip(both, SIDES, strict=True) if not all(s.rises() for s in side)]
    late = [who for side, who in zip(both, SIDES, strict=True) if side[0].rising_at_end()]
    if flat:
        time = _blank(time, f"{' and '.join(flat)} {'do' if len(flat) > 1 else 'does'} not rise by more than noise")
    elif late and time.state != "undetermined":
        time = _noted(time, f"{' and '.join(late)} may still be rising at the end")
    return [peak, time]


def _levels(shapes: Shapes, both: Shapes, span: _Span, clock: Clock, margin: float, clash: str) -> list[Gap]:
    """Level and trend at the end; where the sides end at different places, the level where the shorter one ends."""
    found = []
    if span.unequal and span.last > span.first:
        text = f"the smooth where the shorter ends, at {_place(span.last, clock)}"
        begun = all(s.x[0] <= span.last for side in shapes for s in side)  # a thinned curve may begin later
        at_end = _gap(
            "level-at-end",
            f"level at {short(float(round(span.last)))}",
            text,
            shapes if begun else both,
            lambda s: level_at(s, span.last),
            smooth=True,
            margin=margin,
            clash=clash,
        )
        found.append(at_end)
    text = "mean over the last fifth" + (" of each" if span.unequal else "")
    level = _gap("final-level", "final level", text, shapes, final_level, margin=margin, clash=clash)
    text = "change over the last third, least squares"
    trend = _gap("trend", "trend at the end", text, shapes, end_trend, margin=margin, clash=clash)
    if span.unequal:
        why = "the two end at different places, so this is not judged"
        return [*found, level if clash else _blank(level, why), _blank(trend, why)]
    return [*found, level, trend]


def _gap(
    id: str,
    label: str,
    estimator: str,
    shapes: Shapes,
    statistic: Callable[[Shape], Callable[[np.ndarray], np.ndarray]],
    *,
    smooth: bool = False,
    scale: Scale = "linear",
    margin: float = 0.0,
    clash: str = "",
) -> Gap:
    mine, theirs = (measured(side, statistic, of_smooth=smooth, scale=scale) for side in shapes)
    if clash and scale == "linear":
        return Gap(id, label, estimator, scale, mine, theirs, None, None, None, "not-comparable", "another quantity")
    return judged(id, label, estimator, scale, mine, theirs, margin)


def judged(
    id: str, label: str, estimator: str, scale: Scale, mine: Measure | None, theirs: Measure | None, margin: float
) -> Gap:
    """The gap between two measures, with its interval and state."""
    if mine is None or theirs is None:
        why = f"fewer than {MINIMUM} points, or nothing to measure, on a side"
        return Gap(id, label, estimator, scale, mine, theirs, None, None, None, "undetermined", why)
    ratio = scale == "ratio"
    difference = math.log(mine.value / theirs.value) if ratio else mine.value - theirs.value
    wide, narrow = _reaches(mine, theirs)
    limit = math.log(margin) if ratio else margin
    state: State = "undetermined"
    if abs(difference) + narrow <= limit or wide == difference == 0:
        state = "same"
    elif abs(difference) > wide:
        state = "different"
    shown = difference, difference - wide, difference + wide
    value, low, high = (math.exp(v) for v in shown) if ratio else shown
    why = _why(state, scale, value, low, high, margin)
    return Gap(id, label, estimator, scale, mine, theirs, value, low, high, state, why)


def _reaches(mine: Measure, theirs: Measure) -> tuple[float, float]:
    """Half widths of the 99 % and the 95 % interval of a difference, by Welch's degrees of freedom."""
    variances = _variances(mine, theirs)
    error = math.sqrt(sum(variances))
    powers = sum(v**2 / m.freedom for v, m in zip(variances, (mine, theirs), strict=True))
    freedom = sum(variances) ** 2 / powers if powers > 0 else 1e6
    return t_quantile(0.995, freedom) * error, t_quantile(0.975, freedom) * error


def _variances(mine: Measure, theirs: Measure) -> tuple[float, float]:
    """Squared standard errors; a lone run is given the spread between seeds that the other side shows."""
    errors = []
    for one, other in ((mine, theirs), (theirs, mine)):
        spread = other.between if one.seeds == 1 and other.seeds > 1 else 0.0
        errors.append(max(one.error, spread) ** 2)
    return errors[0], errors[1]


def _why(state: State, scale: Scale, value: float, low: float, high: float, margin: float) -> str:
    if scale == "ratio":
        span = f"{value:.2g} times the reference's, 99 % interval {low:.2g} to {high:.2g}"
        slack = f"within a factor {margin:g}"
    else:
        span = f"{short(value)} apart, 99 % interval {short(low)} to {short(high)}"
        slack = f"within {short(margin)}"
    return {
        "same": f"{span}: {slack} of the reference's",
        "different": span,
        "undetermined": f"{span}: no difference shown, but one of that size is not ruled out",
    }[state]


def _noise(shapes: Shapes, relative: bool) -> Gap:
    label = "noise / rise" if relative else "noise"
    estimator = "standard deviation around the smooth" + (", as a share of the rise" if relative else "")
    mine, theirs = (noise_measure(side, relative=relative) for side in shapes)
    gap = judged("noise", label, estimator, "ratio", mine, theirs, MARGIN_NOISE)
    firsts = {who: side[0] for who, side in zip(SIDES, shapes, strict=True)}
    if gap.difference is None:
        quiet = [who for who, first in firsts.items() if first.noise.sd == 0]
        return replace(gap, why=f"{' and '.join(quiet)} shows no noise at all") if quiet else gap
    sparse = next((who for who, first in firsts.items() if len(first.y) < FEW_POINTS), None)
    if sparse and gap.state == "different":
        return _noted(gap, f"{sparse} has only {len(firsts[sparse].y)} points")
    return gap


def _rescaled(shapes: Shapes, gaps: Sequence[Gap]) -> str:
    """Whether the reference looks like the run with its reward multiplied: trend and noise by the same factor."""
    run, reference = shapes[0][0], shapes[1][0]
    noise = next(gap for gap in gaps if gap.id == "noise")
    if not (run.rises() and reference.rises()) or noise.state != "different" or not noise.low or not noise.high:
        return ""
    scale = reference.rise / run.rise
    by_noise = 0.85 / noise.high <= scale <= 1 / noise.low / 0.85
    if not by_noise or abs(math.log(scale)) < math.log(1.2):
        return ""
    slope, offset, left = _line_through(run, reference)
    if left > 0.1 * reference.rise or not 0.8 < slope / scale < 1.25:
        return ""
    shift = f" {'+' if offset > 0 else '-'} {short(abs(offset))}" if abs(offset) > 0.05 * reference.rise else ""
    return (
        f"the reference looks like the run's reward x {short(slope)}{shift}: rise and noise differ by the same "
        "factor, and no batch size does that"
    )


def _line_through(run: Shape, reference: Shape) -> tuple[float, float, float]:
    """Slope and offset that turn the run's smooth into the reference's, and the standard deviation of what is left."""
    grid = np.linspace(max(run.x[0], reference.x[0]), min(run.x[-1], reference.x[-1]), 100)
    mine, theirs = np.interp(grid, run.x, run.line), np.interp(grid, reference.x, reference.line)
    slope, offset = np.polyfit(mine, theirs, 1)
    return float(slope), float(offset), float(np.std(theirs - offset - slope * mine))


def _noted(gap: Gap, note: str) -> Gap:
    return replace(gap, why=f"{gap.why}; {note}", note=note)


def _blank(gap: Gap, why: str) -> Gap:
    """The gap with its measures and without a judgement."""
    state: State = "not-comparable" if gap.state == "not-comparable" else "undetermined"
    return replace(gap, difference=None, low=None, high=None, state=state, why=why)


def _words(clock: Clock) -> str:
    return {"step": "steps", "samples": "completions", "tokens": "tokens", "time": "seconds"}[clock.name]


def _place(x: float, clock: Clock) -> str:
    return f"step {x:,.0f}" if clock.name == "step" else f"{short(float(round(x)))} {_words(clock)}"
