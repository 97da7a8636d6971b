"""How much may be done to a run: budgets, cooldowns, locks and bounds, remembered across restarts by the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stabilizer.core.knobs import Controls
from stabilizer.core.records import Action
from stabilizer.remedies.base import Change
from stabilizer.runs.history import RunView

MAX_ACTIONS = 5
"""Fixes applied in one run."""
MAX_FAILURES = 2
"""Failed trials of one incident before a person is asked."""
MAX_ROLLBACKS = 2
"""Returns to a checkpoint for one cause."""
MAX_EXTRA = 0.3
"""Steps that going back and trying things out may cost, as a share of the planned ones."""
LEAST_EXTRA = 100
"""The same for a short run, in steps: less would not pay for a single rollback."""
COOLDOWN = 20
"""Ticks of rest after a trial; a divergence that goes on does not wait."""
LOCK = 100
"""Steps within which a knob is not turned back by another remedy, and no order is given again."""
AFTER_RESUME = 10
"""Steps after a resume in which nothing is changed: the optimizer and the caches settle first."""
REACH = {
    "control/lr_scale": 4.0, "control/max_grad_norm": 4.0, "control/prompts": 8.0, "control/group_size": 8.0,
    "control/minibatches": 8.0, "control/inner_epochs": 16.0, "control/max_completion": 2.0,
}  # fmt: skip
"""How far all fixes together may take a knob from its configured value, as a factor either way."""


@dataclass
class Limits:
    """What was spent, and what may still be done."""

    applied: int = 0
    extra: int = 0
    """Steps thrown away or run on the side."""
    rest: int = 0
    failures: Counter[int] = field(default_factory=Counter)
    """By incident."""
    rollbacks: Counter[str] = field(default_factory=Counter)
    """By cause."""
    moves: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Knob -> when it was last moved, and which way."""
    courses: dict[str, int] = field(default_factory=dict)
    """Knob -> the last step at which a fix that goes there row by row turns it."""
    orders: dict[str, int] = field(default_factory=dict)
    """Order -> when a fix last gave it."""

    def recall(self, earlier: Iterable[Action]) -> None:
        """Take over what the journal says was done before a restart. What a restart cut off is tried anew."""
        earlier = list(earlier)
        latest = {action.action: action for action in earlier}
        for action in earlier:
            self.extra += int(action.data.get("extra_steps", 0))
            if action.entry == "applied":
                last = latest[action.action]
                cut = last.entry == "applied" or "interrupted" in last.data
                self.note(action.change, action.step, () if cut else action.data.get("orders", ()))
                self.note_course(action.data.get("course", {}), int(action.data.get("back_to", action.step)))
                if cause := action.data.get("back_for"):
                    self.rollbacks[str(cause)] += 1
            elif action.entry == "reverted" and action.remedy == "by-hand":
                self.lock(action.change, action.step)
            elif action.entry == "reverted" and "ticks" in action.data:
                self.failures[action.incident] += 1

    def note(self, change: Change, step: int, orders: Iterable[str] = ()) -> None:
        """A fix was applied."""
        self.applied += 1
        self.orders |= {order: step for order in orders}
        for knob, (before, after) in change.items():
            if before != after:
                self.moves[knob] = (step, (after or 0.0) - (before or 0.0))

    def note_course(self, course: Mapping[str, Sequence[float]], begins: int) -> None:
        """A fix takes knobs somewhere row by row, after step `begins`."""
        self.courses |= {knob: begins + len(values) for knob, values in course.items()}

    def lock(self, change: Change, step: int) -> None:
        """A person's word: no machine turns these knobs back soon."""
        for knob, (before, after) in change.items():
            self.moves[knob] = (step, (before or 0.0) - (after or 0.0))

    def refusal(
        self, change: Change, controls: Controls, step: int, *, back: bool = False, orders: Iterable[str] = ()
    ) -> str:
        """Why the automatic modes must not do this now; empty when they may.

        How far knobs may be taken is no question to a change that goes `back` to what the run was well with. What an
        order did not mend it does not mend when it is given again, and what its end made look broken it would prolong.
        """
        if self.applied >= MAX_ACTIONS:
            return f"{MAX_ACTIONS} fixes were applied already; a person should look"
        for order in orders:
            if step - (last := self.orders.get(order, step - LOCK)) < LOCK:
                return f"{order} was ordered at step {last} already; a person should look"
        for knob, (before, after) in change.items():
            if before is None or after is None or before == after:
                continue
            moved_at, direction = self.moves.get(knob, (-LOCK, 0.0))
            if (after - before) * direction < 0 and step - moved_at < LOCK:
                return f"{knob} was moved the other way {step - moved_at} steps ago; a person should decide"
            base, reach = controls.base(knob), None if back else REACH.get(knob)
            if reach and base and not base / reach * 0.999 <= after <= base * reach * 1.001:
                return f"{knob} would be {after:g}, more than {reach:g} times away from the configured {base:g}"
        return ""

    def too_dear(self, steps: int, view: RunView) -> str:
        """Why no more steps may be thrown away; empty when they may."""
        planned = view.config("steps") or view.about("steps") or 0
        most = max(LEAST_EXTRA, int(MAX_EXTRA * planned)) if isinstance(planned, (int, float)) else LEAST_EXTRA
        if self.extra + steps <= most:
            return ""
        return f"it would cost {steps} steps, and of the {most} that fixes may cost {self.extra} are spent"

    def too_often(self, cause: str) -> str:
        """Why there is no going back once more; empty when there is."""
        if self.rollbacks[cause] < MAX_ROLLBACKS:
            return ""
        return f"the run went back {MAX_ROLLBACKS} times for {cause} already; a person should look"


def quiet_hours(view: RunView) -> str:
    """Why nothing is changed just now, though something is suspected; empty outside of quiet hours."""
    warmup = view.config("optim.warmup_steps") or 0
    if isinstance(warmup, (int, float)) and view.step <= warmup:
        return f"the learning rate warms up until step {warmup:g}"
    resumed = max((event.step for event in view.events(("resume",))), default=None)
    if resumed is not None and view.step - resumed < AFTER_RESUME:
        return f"the run was resumed {view.step - resumed} steps ago"
    return ""
