"""On which clock two sides are compared, and why: a step means as much as the completions it learns from.

Steps are kept where they mean the same. Where they do not (another number of completions a step, or rollout batches
against optimizer steps) completions are the fairer clock, then tokens; wall time says which is quicker, not which
learns better, so it is never chosen unasked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stabilizer.compare.sides import CLOCKS, Member, Side
from stabilizer.runs.reader import RunError

_SAME = 0.02
"""Relative difference of completions per step up to which a step means the same."""


@dataclass(frozen=True)
class Clock:
    """The clock, why it was chosen, and whether steps are known to mean the same on both sides."""

    name: str
    why: str
    warning: str = ""


def choose(run: Side, reference: Side, wanted: str | None = None) -> Clock:
    """The clock both sides are placed on; RunError when the one asked for is missing on a side."""
    common = [clock for clock in run.clocks() if clock in reference.clocks()]
    if wanted:
        if wanted not in common:
            raise RunError(f"--by {wanted}: {_lacking(wanted, run, reference)}; both can be read by {_either(common)}")
        return Clock(wanted, "as asked for", _step_warning(run, reference) if wanted == "step" else "")
    if not common:
        raise RunError(
            f"{run.name} can be read by {_either(run.clocks())}, {reference.name} by {_either(reference.clocks())}: "
            "no clock in common; a curve over steps gets a second one with completions_per_step"
        )
    if "step" not in common:
        return Clock(common[0], f"{CLOCKS[0]}s are not known on both sides")
    return _by_step(run, reference) or _instead_of_steps(run, reference, common)


def _by_step(run: Side, reference: Side) -> Clock | None:
    """Steps, where they are not known to mean something else on either side."""
    mine, theirs = per_step(run), per_step(reference)
    if mine and theirs and abs(mine / theirs - 1) <= _SAME:
        return Clock("step", f"a step learns from {mine:,.0f} completions on both sides")
    if not _steps_differ(run, reference):
        return Clock("step", "both are logged by step", _step_warning(run, reference))
    return None


def _instead_of_steps(run: Side, reference: Side, common: Sequence[str]) -> Clock:
    differs = _steps_differ(run, reference)
    for clock, what in (("samples", "completions"), ("tokens", "tokens")):
        if clock in common:
            return Clock(clock, f"{differs}, so steps are not equal amounts of training; {what} are counted on both")
    return Clock("step", f"{differs}, but nothing else is counted on both sides", _step_warning(run, reference))


def _steps_differ(run: Side, reference: Side) -> str:
    """How a step is known to mean something else on either side, in words; "" where it is not."""
    mine, theirs = per_step(run), per_step(reference)
    if mine and theirs:
        return f"a step learns from {mine:,.0f} completions in the run and {theirs:,.0f} in the reference"
    kinds = _kind(run.first), _kind(reference.first)
    if all(kinds) and kinds[0] != kinds[1]:
        return f"the run counts {_words(run.first)}, the reference {_words(reference.first)}"
    return ""


def per_step(side: Side) -> float | None:
    """Completions a step learns from, where measured or stated."""
    member = side.first
    if "samples" not in member.clocks:
        return None
    steps, totals = member.clocks["samples"]
    spans = np.diff(steps)
    if len(spans) and spans.sum() > 0:
        return float((totals[-1] - totals[0]) / (steps[-1] - steps[0]))
    return None


def common_range(runs: Sequence[np.ndarray], references: Sequence[np.ndarray]) -> tuple[float, float]:
    """Positions that every member of both sides covers."""
    everything = [*runs, *references]
    return max(float(x[0]) for x in everything), min(float(x[-1]) for x in everything)


def _step_warning(run: Side, reference: Side) -> str:
    mine, theirs = per_step(run), per_step(reference)
    if mine and theirs and abs(mine / theirs - 1) > _SAME:
        return f"a step is {mine:,.0f} completions here and {theirs:,.0f} in the reference"
    if not mine or not theirs:
        silent = "the reference" if mine else "the run" if theirs else "either side"
        return f"how many completions a step learns from is not known for {silent}: a step may not mean the same"
    return ""


def _kind(member: Member) -> str:
    return str(member.about.get("clock") or "")


def _words(member: Member) -> str:
    return {"rollout_batch": "rollout batches", "optimizer_step": "optimizer steps"}.get(_kind(member), _kind(member))


def _lacking(clock: str, run: Side, reference: Side) -> str:
    needs = {
        "tokens": "tokens/total",
        "samples": "batch/prompts and batch/group_size",
        "time": "time/step_s",
        "step": "steps",
    }[clock]
    who = [side.name for side in (run, reference) if clock not in side.clocks()]
    return f"{' and '.join(who)} {'do' if len(who) > 1 else 'does'} not have it (it needs {needs})"


def _either(clocks: Sequence[str]) -> str:
    return " or ".join(clocks) or "nothing"
