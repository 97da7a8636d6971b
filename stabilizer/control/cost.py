"""The cost of approving a proposal now, in sentences for the terminal and the dashboard."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from stabilizer.control.guard import BEFORE, HELD_OUT
from stabilizer.core.records import Action
from stabilizer.detectors.evidence.progress import progress
from stabilizer.runs.history import RunView

_NOTHING = ("", "none beside a snapshot")
"""Values in the journal that mean no cost; the second is from journals before version 0.2."""


def cost(proposed: Action, view: RunView | None, step: int) -> tuple[str, ...]:
    """Sentences about the loss if `proposed` is applied after `step`; empty if no loss is known.

    `view` is None while the metrics of the run are not loaded yet. Then only the steps are counted.
    """
    hypothesis = proposed.data.get("hypothesis")
    hypothesis = hypothesis if isinstance(hypothesis, Mapping) else {}
    back = hypothesis.get("rollback_to")
    if type(back) is not int:
        words = hypothesis.get("cost")
        known = isinstance(words, str) and words not in _NOTHING
        return (f"It costs {words}.",) if known else ()
    lost = max(0, step - back)
    said = [f"{lost:,} step{'s' * (lost != 1)} would be discarded: the run is at step {step:,}."]
    if view is not None:
        said += [text for name in _compared(view) if (text := _then_and_now(view, name, back))]
    probe = proposed.data.get("probe")
    if isinstance(probe, Mapping) and (text := _equal_prompts(probe, proposed.step)):
        said.append(text)
    return tuple(said)


def _compared(view: RunView) -> list[str]:
    """The metrics that show whether a run got better: held-out accuracy and the reward."""
    reward = progress(view)
    return [name for name in (HELD_OUT, reward.metric if reward else "reward/mean") if name in view]


def _then_and_now(view: RunView, name: str, back: int) -> str:
    """The level of a metric at a step and now: one measurement of held-out accuracy, a mean of rows otherwise."""
    series, rows = view.series(name).finite(), 1 if name == HELD_OUT else BEFORE
    until = series.between(0, back).last(rows).values
    if not len(until) and name != HELD_OUT:
        until = series.values[:rows]  # a rollback to the very start: use its first rows
    now = series.last(rows).values
    if not len(until) or not len(now):
        return ""
    there, here = float(until.mean()), float(now.mean())
    of = f"mean of {rows} steps, " if rows > 1 else ""
    return f"{name}: {here:.3g} now, {there:.3g} at step {back:,} ({of}{here - there:+.3g} since then)."


def _equal_prompts(probe: Mapping[str, Any], step: int) -> str:
    """The rewards of both sets of weights on the same prompts, measured when the fix was proposed."""
    gain, error = (_number(probe.get(name)) for name in ("reward_gain", "reward_gain_error"))
    if gain is None:
        return ""
    within = f" ± {error:.2g}" if error is not None else ""
    text = f"On the same prompts, at step {step:,}, the checkpoint's weights got {gain:+.3g}{within} reward"
    there, here = (_number(probe.get(f"accuracy/val_{where}")) for where in ("there", "here"))
    if there is not None and here is not None:
        text += f", and solved {there:.1%} of the held-out problems against {here:.1%}"
    return f"{text}."


def _number(value: Any) -> float | None:
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None
