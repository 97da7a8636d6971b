"""How much may be done to a run: budgets, cooldowns, locks and bounds, as questions about what was done so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stabilizer.core.knobs import KNOBS, Controls
from stabilizer.core.records import Reason
from stabilizer.remedies.base import Change
from stabilizer.runs.history import RunView
from stabilizer.runs.journal import Memory

MAX_ACTIONS = 5
"""Fixes applied in one run."""
MAX_FAILURES = 2
"""Failed trials of one incident before a person is asked."""
MAX_ROLLBACKS = 2
"""Returns to a checkpoint for one cause."""
MAX_EXTRA = 0.3
"""Steps that going back and trying things out may cost, as a share of the planned ones."""
LEAST_EXTRA = 100
"""The same for a short run, in steps: less would not allow a single rollback."""
COOLDOWN = 20
"""Steps of rest after a trial; a divergence that goes on does not wait."""
LOCK = 100
"""Steps within which a knob is not turned back by another remedy, and no order is given again."""
AFTER_RESUME = 10
"""Steps after a resume in which nothing is changed: the optimizer and the caches settle first."""


@dataclass(frozen=True)
class Refusal:
    """Why something is not done."""

    reason: Reason
    text: str
    needs_person: bool = False
    """Whether a person has to decide now, because the automatic modes may do no more."""


def refusal(
    memory: Memory, change: Change, controls: Controls, step: int, *, back: bool = False, orders: Iterable[str] = ()
) -> Refusal | None:
    """Why the automatic modes must not make a change at a step; None where they may.

    A change `back` to a former setting may take knobs as far as it has to. An order that did not help is not repeated
    soon: the steps after it may look broken only because it ended.
    """
    if memory.applied >= MAX_ACTIONS:
        return Refusal("limit", f"{MAX_ACTIONS} fixes were applied already; a person should look", needs_person=True)
    for order in orders:
        if step - (last := memory.orders.get(order, step - LOCK)) < LOCK:
            return Refusal("limit", f"{order} was ordered at step {last} already; a person should look", True)
    for knob, (before, after) in change.items():
        if before is None or after is None or before == after:
            continue
        if why := _locked(memory, knob, after - before, step):
            return why
        if not back and (why := _out_of_reach(knob, after, controls.base(knob))):
            return why
    return None


def _locked(memory: Memory, knob: str, by: float, step: int) -> Refusal | None:
    """Why a knob may not be turned in a direction: it was turned the other way not long ago."""
    moved_at, direction = memory.moves.get(knob, (-LOCK, 0.0))
    if by * direction >= 0 or step - moved_at >= LOCK:
        return None
    text = f"{knob} was moved the other way {step - moved_at} steps ago; a person should decide"
    return Refusal("limit", text, needs_person=True)


def _out_of_reach(knob: str, value: float, configured: float) -> Refusal | None:
    """Why a knob may not be taken to a value, so far from the configured one; the margin is for rounding."""
    reach = KNOBS[knob].reach
    if not reach or not configured or configured / reach * 0.999 <= value <= configured * reach * 1.001:
        return None
    text = f"{knob} would be {value:g}, more than {reach:g} times away from the configured {configured:g}"
    return Refusal("limit", text)


def allowance(view: RunView) -> int:
    """Steps that all fixes together may cost a run."""
    planned = view.config("steps") or view.about("steps") or 0
    return max(LEAST_EXTRA, int(MAX_EXTRA * planned)) if isinstance(planned, (int, float)) else LEAST_EXTRA


def affordable(memory: Memory, view: RunView) -> int:
    """Steps that fixes may still cost."""
    return allowance(view) - memory.extra


def too_expensive(memory: Memory, steps: int, view: RunView, pending: int = 0) -> Refusal | None:
    """Why no more steps may be thrown away; None where they may. `pending` steps are spent and not in the journal."""
    most, spent = allowance(view), memory.extra + pending
    if spent + steps <= most:
        return None
    text = f"it would cost {steps} steps; {spent} of the {most} that fixes may cost are spent"
    return Refusal("limit", text)


def too_often(memory: Memory, cause: str) -> Refusal | None:
    """Why there is no going back once more; None where there is."""
    if memory.rollbacks[cause] < MAX_ROLLBACKS:
        return None
    text = f"the run went back {MAX_ROLLBACKS} times for {cause} already; a person should look"
    return Refusal("limit", text, needs_person=True)


def resting(memory: Memory, step: int) -> bool:
    """Whether the last trial ended so recently that nothing new is begun. A return to before its end ends the rest."""
    return memory.rested_from is not None and 0 <= step - memory.rested_from < COOLDOWN


def quiet_hours(view: RunView) -> str:
    """Why nothing is changed just now, though something is suspected; empty outside of quiet hours."""
    warmup = view.config("optim.warmup_steps") or 0
    if isinstance(warmup, (int, float)) and view.step <= warmup:
        return f"the learning rate warms up until step {warmup:g}"
    resumed = max((event.step for event in view.events(("resume",))), default=None)
    if resumed is not None and view.step - resumed < AFTER_RESUME:
        return f"the run was resumed {view.step - resumed} steps ago"
    return ""
