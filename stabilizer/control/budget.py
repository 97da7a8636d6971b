"""Limits on fixes of a run: budgets, cooldowns, locks and bounds, as functions of the actions so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stabilizer.core.knobs import KNOBS, Controls
from stabilizer.core.records import Reason
from stabilizer.remedies.base import Change
from stabilizer.runs.history import RunView
from stabilizer.runs.journal import Memory

MAX_ACTIONS = 5
"""Most fixes applied in one run."""
MAX_FAILURES = 2
"""Failed trials of one incident after which a person is asked."""
MAX_ROLLBACKS = 2
"""Most rollbacks for one cause."""
MAX_EXTRA = 0.3
"""Steps that rollbacks and trials may cost, as a share of the planned steps."""
LEAST_EXTRA = 100
"""The lower limit of this budget, in steps: less would not allow a single rollback."""
COOLDOWN = 20
"""Steps without a new trial after a trial; an ongoing divergence does not wait."""
LOCK = 100
"""Steps within which no other remedy moves a knob back and no order is repeated."""
AFTER_RESUME = 10
"""Steps after a resume without changes: the optimizer and the caches settle first."""


@dataclass(frozen=True)
class Refusal:
    """Why an action is not taken."""

    reason: Reason
    text: str
    needs_person: bool = False
    """Whether a person must decide, because the automatic modes have reached a limit."""


def refusal(
    memory: Memory, change: Change, controls: Controls, step: int, *, back: bool = False, orders: Iterable[str] = ()
) -> Refusal | None:
    """Why the automatic modes must not make a change at a step; None if they may.

    A change `back` to a former setting may move knobs as far as necessary. An order that did not help is not repeated
    soon: the steps after it may look broken only because it ended.
    """
    if memory.applied >= MAX_ACTIONS:
        return Refusal(
            "limit", f"{MAX_ACTIONS} fixes were already applied; a person should check the run", needs_person=True
        )
    for order in orders:
        if step - (last := memory.orders.get(order, step - LOCK)) < LOCK:
            return Refusal("limit", f"{order} was already ordered at step {last}; a person should check the run", True)
    for knob, (before, after) in change.items():
        if before is None or after is None or before == after:
            continue
        if why := _locked(memory, knob, after - before, step):
            return why
        if not back and (why := _out_of_reach(knob, after, controls.base(knob))):
            return why
    return None


def _locked(memory: Memory, knob: str, by: float, step: int) -> Refusal | None:
    """Why a knob may not move in a direction: it recently moved the other way."""
    moved_at, direction = memory.moves.get(knob, (-LOCK, 0.0))
    if by * direction >= 0 or step - moved_at >= LOCK:
        return None
    text = f"{knob} was moved the other way {step - moved_at} steps ago; a person should decide"
    return Refusal("limit", text, needs_person=True)


def _out_of_reach(knob: str, value: float, configured: float) -> Refusal | None:
    """Why a knob may not be set to a value too far from the configured one; the margin is for rounding."""
    reach = KNOBS[knob].reach
    if not reach or not configured or configured / reach * 0.999 <= value <= configured * reach * 1.001:
        return None
    text = f"{knob} would be {value:g}, more than {reach:g} times away from the configured {configured:g}"
    return Refusal("limit", text)


def allowance(view: RunView) -> int:
    """Steps that all fixes of a run together may cost."""
    planned = view.config("steps") or view.about("steps") or 0
    return max(LEAST_EXTRA, int(MAX_EXTRA * planned)) if isinstance(planned, (int, float)) else LEAST_EXTRA


def affordable(memory: Memory, view: RunView) -> int:
    """Steps left in the budget of fixes."""
    return allowance(view) - memory.extra


def too_expensive(memory: Memory, steps: int, view: RunView, pending: int = 0) -> Refusal | None:
    """Why no more steps may be discarded; None if they may. `pending` steps are spent but not yet in the journal."""
    most, spent = allowance(view), memory.extra + pending
    if spent + steps <= most:
        return None
    text = f"it would cost {steps} steps; fixes have used {spent} of their budget of {most}"
    return Refusal("limit", text)


def too_often(memory: Memory, cause: str) -> Refusal | None:
    """Why no further rollback is allowed; None if it is."""
    if memory.rollbacks[cause] < MAX_ROLLBACKS:
        return None
    text = f"the run was already rolled back {MAX_ROLLBACKS} times for {cause}; a person should check the run"
    return Refusal("limit", text, needs_person=True)


def resting(memory: Memory, step: int) -> bool:
    """Whether the last trial ended too recently for a new one. A rollback to before its end ends this cooldown."""
    return memory.rested_from is not None and 0 <= step - memory.rested_from < COOLDOWN


def warming_up(view: RunView) -> str:
    """Why only what does not depend on the rate is changed now; empty if other changes are allowed."""
    warmup = view.config("optim.warmup_steps") or 0
    if isinstance(warmup, (int, float)) and view.step <= warmup:
        return f"the learning rate warms up until step {warmup:g}"
    return ""


def quiet_hours(view: RunView) -> str:
    """Why nothing is changed now despite a suspected cause; empty if changes are allowed."""
    resumed = max((event.step for event in view.events(("resume",))), default=None)
    if resumed is not None and view.step - resumed < AFTER_RESUME:
        return f"the run was resumed {view.step - resumed} steps ago"
    return ""
