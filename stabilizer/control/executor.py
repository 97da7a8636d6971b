"""Carries out one trial at a time: snapshot, change and judgement; then the change is kept or undone.

The state of a trial is its newest entry in the journal:

    proposed  ->  approved (a snapshot was made)  ->  applied  ->  verified (kept) | reverted (undone)

or `rejected`, `expired` or `failed` if it was not started. A restart reads the same entries (`recover`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stabilizer.control.budget import MAX_FAILURES, too_expensive
from stabilizer.control.context import Context
from stabilizer.control.follow_up import (
    FollowUp,
    escalation,
    holds_back,
    mending,
    no_longer_needed,
    overtaken,
    restoring_more,
)
from stabilizer.control.hold import Held
from stabilizer.control.judge import advance
from stabilizer.control.permission import refused, tried_on_a_copy
from stabilizer.control.trial import SETTLE, Trial, plan, targets
from stabilizer.core.knobs import Checkpoint
from stabilizer.core.records import Action, JournalEntry, Reason
from stabilizer.detectors.evidence.progress import progress
from stabilizer.remedies.base import Change
from stabilizer.remedies.turns import LR
from stabilizer.runs.history import RunView
from stabilizer.runs.journal import BY_HAND

CUT_OFF: Mapping[JournalEntry, tuple[JournalEntry, str]] = {
    "applied": ("reverted", "the run was interrupted during the trial, so the change was undone"),
    "approved": ("failed", "the run was interrupted while the change was made, so it was undone"),
    "proposed": ("expired", "the run was restarted; it will be proposed again if the need remains"),
}
"""Newest entry of an action when a run was interrupted -> the entry that closes it, and why."""


class Executor:
    """The running trial of one run, if any, and the changes that were kept."""

    def __init__(self, context: Context):
        self._context = context
        self._ledger = context.ledger
        self._controls = context.controls
        self._host = context.host
        self.trial: Trial | None = None
        self._held = Held(context.controls)

    # --- beginning --------------------------------------------------------------------------------------------------

    def apply(self, trial: Trial, view: RunView) -> bool:
        """Make a snapshot, try the fix on a copy if requested, and change the run. False if the copy shows no gain."""
        try:
            trial.snapshot = self._controls.snapshot()
        except OSError as error:
            return self._give_up(trial, view, f"no snapshot could be made, so nothing was changed: {error}")
        ways = self._ways_back(trial)  # read again: saving the snapshot may have deleted older states
        if trial.remedy.rollback and not ways:
            return self._give_up(trial, view, f"no checkpoint is older than the onset at step {trial.onset}")
        if why := tried_on_a_copy(trial, self._context, view):
            self._ledger.record(trial, "rejected", view.step, why.text, why.reason, **trial.evidence())
            return False
        data = {"snapshot": trial.snapshot.path.name} | trial.evidence()
        words = "; ".join([f"snapshot at step {trial.snapshot.step}", *_probed(trial)])
        self._ledger.record(trial, "approved", view.step, words, **data)
        try:
            self._change(trial, ways, view)
        except Exception as error:  # undo a partial change: return to the snapshot and report it
            self._undo(trial.change)
            self._controls.restore(trial.snapshot, vary_data=False)
            text = f"could not be applied: {type(error).__name__}: {error}"
            self._ledger.record(trial, "failed", view.step, text, "error")
            return True
        if trial.holds is not None:
            self._held.begin(trial.action, trial.holds, trial.change[LR])
        self.trial = trial
        where = f"returned to step {trial.target.step}" if trial.target else ""
        text = " and ".join(filter(None, (where, trial.words)))
        self._ledger.record(trial, "applied", view.step, text, **_applied(trial, view))
        if not trial.remedy.horizon:
            self._keep(trial, view, "its window has no steps")
        return True

    def _give_up(self, trial: Trial, view: RunView, text: str) -> bool:
        self._ledger.record(trial, "failed", view.step, text, "error", **trial.evidence())
        return True

    def _ways_back(self, trial: Trial) -> list[Checkpoint]:
        """States a trial may start from, best first; empty if it starts from the current state."""
        if trial.returns:
            return [trial.returns]
        found = self._controls.checkpoints() if trial.remedy.rollback else []
        return targets(found, trial.onset, trial.margin)

    def _change(self, trial: Trial, ways: list[Checkpoint], view: RunView) -> None:
        for knob, (_, after) in trial.change.items():
            to = trial.course[knob][0] if knob in trial.course else after
            assert to is not None, f"{trial.remedy.id} sets {knob} to no value"
            self._controls.set(knob, to)
        words = f"{trial.remedy.id}: {trial.words}"
        if ways:
            trial.target = self._roll_back(trial, ways, words)
            trial.began = trial.target.step + 1
        else:
            self._declare(trial, view, words)
        self._give_orders(trial)

    def _roll_back(self, trial: Trial, ways: list[Checkpoint], text: str) -> Checkpoint:
        """Return to the first intact state; damage is detected while loading, before any change."""
        data: dict[str, Any] = {"action": trial.action, "incident": trial.incident, "origin": "remedy"}
        data["vary_data"] = not trial.replays
        for way in ways[:-1]:
            try:
                self._host.roll_back(way, text, **data)
                return way
            except OSError as error:
                self._host.declare(way.step, "note", f"checkpoint {way.path.name} can't be used: {error}")
        self._host.roll_back(ways[-1], text, **data)
        return ways[-1]

    def _declare(self, trial: Trial, view: RunView, words: str) -> None:
        """Declare a change. A change that affects neither weights nor data is a note.

        Metrics before and after such a change can be compared, so detectors keep their baselines.
        """
        data: dict[str, Any] = {"action": trial.action, "incident": trial.incident, "origin": "remedy"}
        kind = "note" if trial.remedy.harmless and not trial.remedy.orders else "intervention"
        if trial.change:
            data["change"] = {knob: list(turn) for knob, turn in trial.change.items()}
        self._host.declare(view.step + 1, kind, words, **data)

    def _give_orders(self, trial: Trial) -> None:
        for order in trial.remedy.orders:
            text = f"{trial.remedy.id}: {trial.remedy.why}"
            if order == "pause":
                self._host.pause(text)
            elif order == "stop":
                self._host.stop(text)
            else:
                self._controls.obey(order)

    # --- following --------------------------------------------------------------------------------------------------

    def follow(self, trial: Trial, view: RunView) -> None:
        """One more step of the running trial."""
        now = self._context.situation(trial.incident, view)
        if overtaken(trial, now):
            self.trial = None
            text = "an undeclared change of a setting was found; it must be undone first"
            self._revert(trial, view, text, "overtaken")
            return
        if (further := restoring_more(trial, now)) and self._go_further(further, trial, view):
            return
        found = advance(trial, self._context.watch, view)
        if found.outcome == "running":
            self._go_on(trial)
        elif found.outcome == "verified" and self._spared(trial, view):
            self.trial = None
            self._revert(trial, view, _over(found.reason), "over", released=True)
        elif found.outcome == "verified":
            self._keep(trial, view, found.reason)
        else:
            more = escalation(trial, self._context.situation(trial.incident, view), found.reason)
            if not (more and self._go_further(more, trial, view)):
                self._fail(trial, view, found.reason)

    def _spared(self, trial: Trial, view: RunView) -> bool:
        needed = not no_longer_needed(trial.remedy.id, trial.change, trial.onset, self._context.memory, view)
        return self._context.acts and holds_back(trial) and not needed

    def _go_on(self, trial: Trial) -> None:
        """The next step of gradual changes. If somebody changed a knob meanwhile, it is left alone."""
        for knob, values in trial.course.items():
            last = values[min(trial.ticks - 1, len(values) - 1)]
            if trial.ticks < len(values) and self._controls.get(knob) == last:
                self._controls.set(knob, values[trial.ticks])
        if trial.ticks < trial.remedy.repeats:
            self._give_orders(trial)

    def _go_further(self, more: FollowUp, after: Trial, view: RunView) -> bool:
        """Start the trial that follows another one; False if it was not started."""
        for knob, value in more.now.knobs.items():  # the first trial may not have reached its final values
            if self._controls.get(knob) != value:
                self._controls.set(knob, value)
        trial = plan(self._ledger.next_id(), more.remedy, more.change, more.now, more.onset, margin=more.margin)
        trial.under, trial.replays, trial.returns = more.under, more.replays, more.returns
        data: dict[str, Any] = {"hypothesis": trial.hypothesis(), "builds_on": after.action}
        self._ledger.record(trial, "proposed", view.step, more.text, **data)
        if why := refused(trial, self._context, view):
            self._ledger.record(trial, "rejected", view.step, why.text, why.reason, **trial.evidence())
            return False
        self.apply(trial, view)
        return self.trial is trial

    def hold_rates(self, view: RunView) -> None:
        """Adjust each knob that keeps a rate to a runaway schedule, and update the change it belongs to."""
        for moved in self._held.follow(view):
            if self.trial and self.trial.action == moved.action:
                self.trial.change = self.trial.change | {LR: moved.turn}
            after = moved.turn[1]
            words = f"{LR} {moved.was:.3g} → {after:.3g}, so that the learning rate stays at {moved.rate:.2g}"
            data = {"action": moved.action, "change": {LR: [moved.was, after]}, "origin": "remedy"}
            self._host.declare(view.step + 1, "note", f"{moved.action}: {words}", **data)

    # --- keeping ----------------------------------------------------------------------------------------------------

    def _keep(self, trial: Trial, view: RunView, reason: str) -> None:
        self.trial = None
        self._save_quietly(view)
        for under in reversed(trial.chain()):
            self._ledger.record(under, "verified", view.step, f"together with {trial.action}")
        data = _measured(trial, view) | _remembered(trial)
        if self._context.acts and holds_back(trial):
            data["against"] = {"cause": trial.cause, "onset": trial.onset}
        if trial.outlived:
            data["outlived"] = self._made_harmless(trial)
        self._ledger.record(trial, "verified", view.step, reason, **data)
        if more := mending(trial, self._context.situation(trial.incident, view)):
            self._go_further(more, trial, view)

    def _made_harmless(self, trial: Trial) -> list[str]:
        """Findings that remain under a fix that does not remove them."""
        active = self._context.watch.active()
        early = {f.id for f in active if f.incident == trial.incident and f.onset_step <= trial.began + SETTLE}
        return sorted(early | set(trial.remedy.outlived(trial.cause)))

    def kept_change(self, action: str) -> Change | None:
        """The change of a kept action with the current values of its knobs; None if it is not kept."""
        change = self._context.memory.kept.get(action)
        return None if change is None else change | self._held.turned(action)

    def is_on_top(self, action: str) -> bool:
        """Whether an action was kept and its knobs still have its values: fixes are undone newest first."""
        change = self.kept_change(action)
        return change is not None and all(self._controls.get(knob) == after for knob, (_, after) in change.items())

    def release(self, view: RunView) -> None:
        """Undo a kept change that slows learning as soon as steps would have their usual size without it."""
        memory = self._context.memory
        for action, held in memory.holding.items() if self._context.acts else ():
            change = memory.kept[action]
            if self.is_on_top(action) and no_longer_needed(held.remedy, change, held.onset, memory, view):
                text = _over("the reason to keep it is over")
                self._undo_kept(action, held.remedy, text, "over", view, released=True)
                return

    def undo_for(self, action: str, by: str, view: RunView) -> None:
        """Undo the running trial or a kept change at a person's request."""
        text = f"undone by {by}"
        if self.trial and self.trial.action == action:
            trial, self.trial = self.trial, None
            self._revert(trial, view, text, "person")
            self._revert_under(trial, view)
        else:
            self._undo_kept(action, BY_HAND, text, "person", view)

    def _undo_kept(self, action: str, remedy: str, text: str, reason: Reason, view: RunView, **data: Any) -> None:
        change = self.kept_change(action) or {}
        self._undo(change)
        self._save_quietly(view)
        if remedy == BY_HAND:
            entry = Action(action, "reverted", remedy, view.step, change=change, text=text, origin="remedy")
            said = f"{action} {text}"
        else:
            entry = replace(self._ledger.latest()[action], entry="reverted", step=view.step, text=text, data=data)
            said = f"{remedy} undone: {text}"
        self._ledger.write(replace(entry, reason=reason))
        self._host.declare(view.step + 1, "intervention", said, action=action, origin="remedy")

    # --- undoing ----------------------------------------------------------------------------------------------------

    def _fail(self, trial: Trial, view: RunView, reason: str) -> None:
        self.trial = None
        self._put_back(trial, view, reason, **_measured(trial, view))
        self._revert_under(trial, view)
        if self._context.memory.failures[trial.incident] >= MAX_FAILURES:
            text = f"incident {trial.incident}: {MAX_FAILURES} fixes failed, so no more follow; a person should check"
            self._host.declare(view.step, "note", text, incident=trial.incident)

    def _revert_under(self, trial: Trial, view: RunView) -> None:
        """Undo the trials that a trial was built on."""
        for under in trial.chain():
            self._put_back(under, view, f"{trial.action}, which was built on it, was undone", ticks=under.ticks)

    def _put_back(self, trial: Trial, view: RunView, reason: str, **data: Any) -> None:
        """Undo a failed trial; a setting is not set back to the value with which the run broke."""
        if trial.back:
            text = f"it did not help ({reason}); the undeclared change stays undone"
            self._ledger.record(trial, "verified", view.step, text, "failed", put_right=True, **data)
        else:
            self._revert(trial, view, reason, "failed", **data)

    def _revert(self, trial: Trial, view: RunView, text: str, reason: Reason, **data: Any) -> None:
        self._undo(trial.change)
        words = f"{trial.remedy.id} undone: {text}"
        lost = self._back_to_snapshot(trial, view, words)
        if lost:
            data |= {"back_to": view.step - lost, "extra_steps": lost}
        else:
            self._save_quietly(view)
        self._ledger.record(trial, "reverted", view.step, text, reason, **data)
        if not lost:
            self._host.declare(view.step + 1, "intervention", words, action=trial.action, origin="remedy")

    def _back_to_snapshot(self, trial: Trial, view: RunView, text: str) -> int:
        """Restore the weights too, if the run got worse or an order has no other undo; returns the steps lost."""
        forgets = any(order.startswith("reset-") for order in trial.remedy.orders)
        if trial.snapshot is None or trial.target or not (trial.harmed or forgets):
            return 0  # the snapshot of a rollback holds the damaged state
        lost = view.step - trial.snapshot.step
        if why := too_expensive(self._context.memory, lost, view):
            self._host.declare(view.step, "note", f"{trial.action}: the weights stay as they are: {why.text}")
            return 0
        data: dict[str, Any] = {"action": trial.action, "incident": trial.incident, "origin": "remedy"}
        try:
            self._host.roll_back(trial.snapshot, text, **data)
        except OSError as error:
            self._host.declare(view.step, "note", f"snapshot {trial.snapshot.path.name} can't be used: {error}")
            return 0
        return lost

    def _undo(self, change: Change) -> None:
        for knob, (before, _) in change.items():
            if before is not None and knob in self._controls:
                self._controls.set(knob, before)

    def _save_quietly(self, view: RunView) -> None:
        """Save the current knobs so that they survive a crash; if that fails, the next regular checkpoint saves
        them."""
        try:
            self._controls.save_knobs()
        except OSError as error:
            self._host.declare(view.step, "note", f"knobs could not be saved: {error}")

    # --- after a restart --------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Undo changes that were in progress when the run was interrupted, so that all knobs agree with the journal."""
        latest = self._ledger.latest()
        self._undo_all([action for action in latest.values() if action.entry in ("applied", "approved")])
        for action in latest.values():
            if action.entry in CUT_OFF and (action.entry != "proposed" or self._waited(action)):
                self._close(action, *CUT_OFF[action.entry])
        memory = self._context.memory
        for name, change in memory.kept.items():
            if name in memory.rates and LR in change:
                self._held.begin(name, memory.rates[name], change[LR])

    def _undo_all(self, cut: list[Action]) -> None:
        """Undo changes, newest first, because one may be built on another."""
        for action in reversed(cut):
            self._undo(dict(action.change))
        if cut:  # before the journal entry: a second crash must not restore the change
            with contextlib.suppress(OSError):
                self._controls.save_knobs()

    def _waited(self, proposed: Action) -> bool:
        """Whether a proposal was waiting for a decision; suggestions and advice do not wait."""
        return self._context.mode != "suggest" and proposed.safety != "advice"

    def _close(self, action: Action, entry: JournalEntry, text: str) -> None:
        """Close an action at the step from which the run goes on, not at the one at which it was begun."""
        now: dict[str, Any] = {"step": max(action.step, self._context.watch.step), "data": {"interrupted": True}}
        self._ledger.write(replace(action, entry=entry, text=text, origin="remedy", reason="interrupted", **now))


def _probed(trial: Trial) -> list[str]:
    """The measured reward of the weights of a rollback's target, if known."""
    return [f"step {trial.target.step}: {trial.probe.words}"] if trial.target and trial.probe else []


def _over(reason: str) -> str:
    return f"{reason}; steps would have their usual size without it, so it is undone, and applied again if needed"


def _applied(trial: Trial, view: RunView) -> dict[str, Any]:
    """Fields of a change in the journal besides its knobs."""
    data: dict[str, Any] = {"guard": trial.level_before.metric, "guard_level": trial.level_before.level}
    if trial.course:
        data["course"] = trial.course
    if trial.remedy.orders:
        data["orders"] = [*trial.remedy.orders]
    if trial.holds is not None:
        data["holds"] = trial.holds
    if trial.target:
        lost = view.step - trial.target.step
        data |= {"back_to": trial.target.step, "back_for": trial.cause, "extra_steps": lost}
    return data


def _remembered(trial: Trial) -> dict[str, Any]:
    """Fields of a kept trial that the memory of a run needs."""
    data: dict[str, Any] = {"came": trial.came} if trial.came else {}
    if trial.back:
        data["put_right"] = True
        if not trial.target:
            data["restored"] = trial.began
    return data


def _measured(trial: Trial, view: RunView) -> dict[str, Any]:
    reward = progress(view)
    now = reward.now if reward else None
    guard = trial.level_before
    return {"reward": now, "guard": guard.metric, "guard_level": guard.level, "ticks": trial.ticks}
