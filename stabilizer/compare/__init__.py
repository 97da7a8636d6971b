"""Compare a run with a reference: what differs by more than noise, which settings explain it, and what to change first.

`compare(run, reference)` answers for one pair of sides; `as_json` is the contract for scripts (`compare --json`). The
questions, in order: are both the same numbers, can the rewards be compared at all (`support`), on which clock
(`align`), what differs by more than noise (`measure`, `gaps`), which settings differ (`differences`), and which of
them explain what (`advice`).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stabilizer.compare.advice import Case, Change, Explanation, explanations, next_change, unknowns
from stabilizer.compare.align import Clock, choose
from stabilizer.compare.differences import Difference, differences, facts, one_sided
from stabilizer.compare.gaps import Compared, Gap, compare_metric
from stabilizer.compare.measure import Measure, Shape
from stabilizer.compare.sides import CURVE_HELP, Member, Side, from_run, group, read_member, read_side
from stabilizer.compare.support import Support
from stabilizer.core import records
from stabilizer.core.metrics import metric as definition
from stabilizer.core.text import short
from stabilizer.runs.reader import RunError

__all__ = [
    "CURVE_HELP",
    "VERDICTS",
    "Clock",
    "Compared",
    "Comparison",
    "Gap",
    "Member",
    "Side",
    "as_json",
    "compare",
    "from_run",
    "group",
    "read_member",
    "read_side",
]

SCHEMA = 1
VERDICTS = {
    "identical": "IDENTICAL",
    "same": "SAME within noise",
    "different": "DIFFERENT",
    "not-comparable": "NOT COMPARABLE as it stands",
    "rescaled": "ANOTHER SCALE of reward",
    "undetermined": "UNDETERMINED",
}
METRICS = (
    "reward/mean",
    "accuracy/val",
    "accuracy/train",
    "rollout/length_mean",
    "policy/entropy",
    "policy/kl_ref",
    "optim/grad_norm",
    "time/step_s",
)
"""Metrics that are compared unless others are asked for; the first that both sides have is the one that is judged."""


@dataclass(frozen=True)
class Comparison:
    """One run (or its seeds) beside the reference."""

    run: Side
    reference: Side
    clock: Clock
    main: Compared
    others: tuple[Compared, ...]
    differences: tuple[Difference, ...]
    one_sided: tuple[tuple[str, Any, Any], ...]
    peak_steps: tuple[float, float]
    """The step by which each side has most of its rise; NaN where steps are not known."""
    highest_steps: tuple[float, float]
    """The step at which each side's smooth is best."""
    explanations: tuple[Explanation, ...]
    unknown: tuple[str, ...]
    verdict: str
    headline: str
    next: Change
    then: tuple[Change, ...]
    cautions: tuple[str, ...]


def compare(run: Side, reference: Side, *, by: str | None = None, metrics: Sequence[str] = ()) -> Comparison:
    """Compare two sides. `metrics` are names, or RUN-NAME=REFERENCE-NAME where they are called differently."""
    pairs = _pairs(run, reference, metrics)
    clock = choose(run, reference, by)
    main, *others = (
        compare_metric(run, reference, pair, clock, primary=place == 0) for place, pair in enumerate(pairs)
    )
    found = tuple(differences(run, reference))
    peaks = _mean_steps(run, reference, main, clock, lambda s: float(s.reached(s.line)))
    highest = _mean_steps(run, reference, main, clock, Shape.peak_at)
    drawn = reference.first.kind in ("curve", "csv")
    case = Case(
        main, others, clock, facts(run), facts(reference), reference.first.about.get("smoothing"), drawn, found, peaks
    )
    verdict = _verdict(main)
    explained = [] if verdict == "identical" else explanations(case)
    seeds = len(run.members), len(reference.members)
    change, then = next_change(case, explained, verdict, seeds)
    return Comparison(
        run,
        reference,
        clock,
        main,
        tuple(others),
        found,
        tuple(one_sided(run, reference)),
        peaks,
        highest,
        tuple(explained),
        tuple(unknowns(case)),
        verdict,
        _headline(verdict, main, run, reference),
        change,
        tuple(then),
        (
            *(m.changed for side in (run, reference) for m in side.members if m.changed),
            *_cautions(clock, main, seeds, verdict),
        ),
    )


def _pairs(run: Side, reference: Side, asked: Sequence[str]) -> list[tuple[str, str]]:
    """The metrics to compare: (the run's, the reference's)."""
    if asked:
        return [_asked_pair(run, reference, word) for word in asked]
    mine, theirs = run.metrics(), reference.metrics()
    shared = [name for name in mine if name in theirs]
    common = [name for name in METRICS if name in shared] or shared
    if not common:
        raise RunError(
            f"{run.name} and {reference.name} have no metric in common: {_some(mine)} against {_some(theirs)}; "
            "pair two of them with --metric RUN-NAME=REFERENCE-NAME"
        )
    return [(name, name) for name in common[: len(METRICS)]]


def _asked_pair(run: Side, reference: Side, word: str) -> tuple[str, str]:
    """The two metrics of one --metric argument."""
    left, _, right = (part.strip() for part in word.partition("="))
    pair = left, right or left
    for name, side in zip(pair, (run, reference), strict=True):
        have = side.metrics()
        if name not in have:
            near = difflib.get_close_matches(name, have, 3, 0.3)
            raise RunError(
                f"--metric {word}: {side.name} has no {name!r} with finite values; it has {_some(near or have)}"
            )
    return pair


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:6])
    return f"{shown} and {len(names) - 6} more" if len(names) > 6 else shown or "no metric with finite values"


def _verdict(main: Compared) -> str:
    if main.identical:
        return "identical"
    if main.conflict:
        return "not-comparable"
    if main.rescaled:
        return "rescaled"
    states = {gap.id: gap.state for gap in main.gaps}
    if "different" in states.values():
        return "different"
    level = "level-at-end" if "level-at-end" in states else "final-level"
    return "same" if states.get(level) == "same" else "undetermined"


def _headline(verdict: str, main: Compared, run: Side, reference: Side) -> str:
    if main.identical:
        return f"the same {main.identical:,} numbers."
    if main.conflict:
        return f"{main.conflict}."
    if main.rescaled:
        return f"{main.rescaled}."
    return " ".join([*_fallen(main, run, reference), _difference(verdict, main)])


def _fallen(main: Compared, run: Side, reference: Side) -> list[str]:
    """Which members ended far below their best: a mean over seeds hides them."""
    said = []
    sides = ("the run", run, main.run_metric), ("the reference", reference, main.reference_metric)
    for (word, side, metric), shapes in zip(sides, main.shapes, strict=True):
        judged = definition(metric).better != "neither"
        told = [(member.name, *ends) for member, item in zip(side.members, shapes, strict=True)
                if judged and (ends := item.fell_back())]  # fmt: skip
        if not told:
            continue
        name, best, end = told[0]
        numbers = f"from {short(_round(best))} at best to {short(_round(end))} at its end"
        if len(shapes) == 1:
            said.append(f"{word.capitalize()} fell back: {metric} {numbers}.")
        else:
            more = f", {name}" if len(told) == 1 else f", among them {name}"
            said.append(f"{len(told)} of {len(shapes)} seeds of {word} fell back{more}: {metric} {numbers}.")
    return said


def _difference(verdict: str, main: Compared) -> str:
    if verdict == "different":
        said = [_gap_words(gap) for gap in main.gaps if gap.state == "different"]
        return f"The run's {main.run_metric}: {'; '.join(said)}."
    level = next(gap for gap in main.gaps if gap.id in ("level-at-end", "final-level"))
    if level.difference is None:
        return f"Nothing can be concluded about the {level.label} of {main.run_metric}: {level.why}."
    return f"The {level.label} of {main.run_metric} is {level.why}."


def _gap_words(gap: Gap) -> str:
    if gap.run is None or gap.reference is None:
        return gap.label
    return f"{gap.label} {gap.direction}, {short(_round(gap.run.value))} against {short(_round(gap.reference.value))}"


def _round(value: float) -> float:
    return float(f"{value:.3g}")


def _cautions(clock: Clock, main: Compared, seeds: tuple[int, int], verdict: str) -> list[str]:
    said = [clock.warning] if clock.warning else []
    if 1 in seeds and verdict != "identical":
        lone = "both sides are single runs" if seeds == (1, 1) else "one side is a single run"
        said.append(f"{lone}: intervals cover the noise within a run; differences between seeds can be larger")
    return said + list(dict.fromkeys(main.notes))


def _mean_steps(
    run: Side, reference: Side, main: Compared, clock: Clock, place: Callable[[Shape], float]
) -> tuple[float, float]:
    """Where something lies on each side, as a step, averaged over its members."""
    means = [
        float(np.mean([in_steps(m, clock, place(s)) for m, s in zip(side.members, shapes, strict=True)]))
        for side, shapes in zip((run, reference), main.shapes, strict=True)
    ]
    return means[0], means[1]


def in_steps(member: Member, clock: Clock, x: float) -> float:
    """The step at a position of another clock."""
    steps, places = member.clocks[clock.name]
    if "step" not in member.clocks:
        return float("nan")
    if member.kind == "curve":  # a curve's own positions need not be steps
        return float(np.interp(x, places, member.clocks["step"][1]))
    return float(np.interp(x, places, steps))


# --- JSON -----------------------------------------------------------------------------------------------------------


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The answer as scripts read it (schema 1). Numbers that could not be measured are null."""
    c = comparison
    value = {
        "schema": SCHEMA,
        "verdict": c.verdict,
        "headline": c.headline,
        "run": _side(c.run),
        "reference": _side(c.reference),
        "clock": {"by": c.clock.name, "why": c.clock.why},
        "metrics": [_compared(item, c) for item in (c.main, *c.others)],
        "differences": [
            {"key": d.key, "what": d.label, "area": d.area, "run": d.run, "reference": d.reference}
            for d in c.differences
        ],
        "one_sided": [{"what": key, "run": a, "reference": b} for key, a, b in c.one_sided],
        "explanations": [
            {"gap": e.gap, "cause": e.cause, "explains": e.explains, "sure": e.sure, "why": e.why}
            for e in c.explanations
        ],
        "unknown": list(c.unknown),
        "next": _change(c.next),
        "then": [_change(change) for change in c.then],
        "cautions": list(c.cautions),
    }
    made: dict[str, Any] = records.as_json(_plain(value))
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (np.floating, float)):
        return float(value) if np.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "seeds": len(side.members),
        "members": [{"name": m.name, "path": m.path, "format": m.kind, "notes": list(m.notes)} for m in side.members],
    }


def _compared(item: Compared, c: Comparison) -> dict[str, Any]:
    mine, theirs = item.shapes
    return {
        "run_metric": item.run_metric,
        "reference_metric": item.reference_metric,
        "support": {"run": _support(item.supports[0]), "reference": _support(item.supports[1])},
        "conflict": item.conflict or None,
        "remarks": list(item.remarks),
        "identical_points": item.identical,
        "rescaled": item.rescaled or None,
        "points": {"run": [len(s.y) for s in mine], "reference": [len(s.y) for s in theirs]},
        "highest_at_step": {
            "run": [_at_step(m, c.clock, s) for m, s in zip(c.run.members, mine, strict=True)],
            "reference": [_at_step(m, c.clock, s) for m, s in zip(c.reference.members, theirs, strict=True)],
        },
        "gaps": [_gap(gap) for gap in item.gaps],
    }


def _gap(gap: Gap) -> dict[str, Any]:
    return {
        "id": gap.id,
        "what": gap.label,
        "estimator": gap.estimator,
        "scale": gap.scale,
        "state": gap.state,
        "run": _measure(gap.run),
        "reference": _measure(gap.reference),
        "difference": gap.difference,
        "interval_99": None if gap.low is None else [gap.low, gap.high],
        "why": gap.why,
    }


def _at_step(member: Member, clock: Clock, item: Shape) -> float:
    return round(in_steps(member, clock, item.peak_at()), 1)


def _support(item: Support) -> dict[str, Any]:
    return {
        "low": item.low,
        "high": item.high,
        "sign": item.sign,
        "resolution": item.resolution,
        "single_reward_step": item.single,
        "components": list(item.components),
        "stated": list(item.stated) if item.stated else None,
    }


def _measure(item: Measure | None) -> dict[str, Any] | None:
    if item is None:
        return None
    return {"value": item.value, "interval_95": list(item.interval), "seeds": item.seeds}


def _change(change: Change) -> dict[str, Any]:
    return {
        "what": change.what,
        "key": change.key,
        "from": change.value,
        "to": change.target,
        "why": change.why,
        "sure": change.sure,
    }
