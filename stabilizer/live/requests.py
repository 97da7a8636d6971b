"""User requests to a live run: each is applied exactly once and journaled.

A user turns a knob, gives an order, answers a proposal, pauses or resumes. A change made on request is journaled like a
remedy's, so that after a crash at any point it is either done or not begun:

    journal `approved`  ->  make the change  ->  save the state  ->  declare it  ->  journal `applied`
    ->  remove the request

A restart finishes what was begun, does not repeat what the journal holds, and resets a knob that differs from the
journal. Answers to proposals go to the arbiter; those that come too late (the proposal expired, was answered already,
or is another one) are refused here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stabilizer.core.knobs import Checkpoint, Controls, in_words, parse_order, parse_turn, turned
from stabilizer.core.records import Action, JournalEntry
from stabilizer.runs import journal
from stabilizer.runs.journal import BY_HAND
from stabilizer.runs.requests import Request, look, settle

MAX_COMPLAINTS = 20
"""Files in `requests/` that are no requests and are reported; further ones are ignored silently."""


class RequestHost(Protocol):
    """What requests need of the run they are for."""

    entries: list[Action]
    """The journal; grows with every entry."""

    @property
    def step(self) -> int:
        """The last finished step."""

    def hold(self, paused: bool) -> None:
        """Pause before the next step, or continue."""

    def journal(self, action: Action) -> Action:
        """Write an entry of the journal, durably, before returning."""

    def note(self, text: str, **data: Any) -> None:
        """Write a note that detectors do not see."""

    def declare(self, step: int, kind: str, text: str, **data: Any) -> None:
        """Write an event; detectors see it from that step on."""

    def declared(self, action: str) -> bool:
        """Whether an event of this action is on record."""

    def save_checkpoint(self) -> None:
        """Save the present state; a failure is put on record."""

    def roll_back(self, checkpoint: Checkpoint, text: str, *, vary_data: bool = True, **data: Any) -> None:
        """Return the run to a checkpoint and begin a new attempt."""


def _check_batch(controls: Controls) -> None:
    """ValueError when the knobs together are not a valid configuration; a guest may have only some of them."""
    if not all(f"control/{knob}" in controls for knob in ("minibatches", "prompts", "group_size")):
        return
    parts = controls.get("control/minibatches")
    rows = controls.get("control/prompts") * controls.get("control/group_size")
    if parts > rows:
        raise ValueError(
            f"control/minibatches = {parts:g} would be more than prompts x group_size = {rows:g}, so that a"
            " minibatch would be empty: change the others first"
        )


@dataclass(frozen=True)
class _Return:
    """A requested return to a checkpoint."""

    entry: Action
    checkpoint: Checkpoint
    by: str


class Requests:
    """The requests of one run, handled between two steps."""

    def __init__(self, host: RequestHost, run: Path, controls: Controls):
        self._host = host
        self._run = run
        self._folder = str(run / "requests")
        self._controls = controls
        self._open: dict[str, Request] = {}
        """Answers that went to the arbiter and are not on record yet; their files stay."""
        self._asked: list[Request] = []
        self._complained: set[str] = set()
        self._stuck: set[str] = set()
        """Answered requests whose files can't be removed: they are not answered again."""
        self._return: _Return | None = None

    def look(self, *, on_trial: str = "") -> None:
        """Take in new requests. Answers wait for `answers`; everything else happens at once.

        `on_trial` is the action that is on trial, which no return to a checkpoint may cut into.
        """
        if not os.path.lexists(self._folder):  # most runs never get a request
            return
        seen = look(self._run, self._known())
        for name, why in seen.refused.items():
            self._complained.add(name)
            if len(self._complained) <= MAX_COMPLAINTS:
                self._host.note(f"requests/{name[:80]} is ignored: {why}")
        if not seen.requests:
            return
        done = {entry.data.get("request") for entry in self._host.entries if entry.entry in ("applied", "failed")}
        for request in seen.requests:
            # A request that is done already was left by a crash between acting on it and removing it.
            if request.id in done or self._answered(request, on_trial):
                self._remove(request)

    def _answered(self, request: Request, on_trial: str) -> bool:
        """Answer a request; a failure is the answer too, and costs neither other requests nor training."""
        try:
            return self._answer(request, on_trial)
        except Exception as error:
            asked, why = f"{request.kind} {request.action!r} by {request.by}", f"{type(error).__name__}: {error}"
            self._host.note(f"{asked} could not be done: {why}", by=request.by)
            return True

    def _answer(self, request: Request, on_trial: str) -> bool:
        """Carry out a request; False when the arbiter is to answer it."""
        if request.kind in ("pause", "resume"):
            self._host.hold(request.kind == "pause")
            self._host.note(f"{request.kind} requested by {request.by}", by=request.by)
        elif request.kind in ("set", "do"):
            self._change(request, on_trial)
        elif why := self._too_late(request):
            self._host.note(f"request to {request.kind} {request.action} by {request.by}: {why}", by=request.by)
        elif request.kind == "revert" and self._newest(request.action).remedy == BY_HAND:
            self._undo(request)
        else:
            self._open[request.id] = request
            self._asked.append(request)
            return False
        return True

    def _known(self) -> set[str]:
        """Names of the files in `requests/` that were read already."""
        return {f"{id}.json" for id in self._open} | self._complained | self._stuck

    def _remove(self, request: Request) -> None:
        if not settle(self._run, request):
            self._stuck.add(f"{request.id}.json")

    def answers(self) -> list[Request]:
        """Answers for the arbiter, each handed over once."""
        asked, self._asked = self._asked, []
        return asked

    def settle(self, *, approvals_wait: bool) -> None:
        """Remove the requests the arbiter has answered. With `approvals_wait` an approval whose proposal is still open
        stays, so that it survives a restart."""
        for request in list(self._open.values()):
            newest = self._newest(request.action)
            waits = request.kind == "approve" and newest.entry == "proposed" and newest.safety != "advice"
            if request in self._asked or (waits and approvals_wait):
                continue
            del self._open[request.id]
            self._remove(request)

    def return_if_asked(self) -> None:
        """Return to a requested checkpoint, after everything that judges by the old branch is done."""
        if self._return is None:
            return
        wanted, self._return = self._return, None
        text = f"returned to step {wanted.checkpoint.step}, requested by {wanted.by}"
        try:
            self._host.roll_back(wanted.checkpoint, text, by=wanted.by, action=wanted.entry.action, origin="person")
        except OSError as error:
            self._close(wanted.entry, "failed", f"restore of {wanted.checkpoint.path.name} failed: {error}")
        else:
            self._close(wanted.entry, "applied", text, step=wanted.checkpoint.step)

    def recover(self, initial: dict[str, float]) -> None:
        """After a restart, finish what was begun and reset the knobs in `initial`, as configured, to the journal."""
        host = self._host
        for entry in journal.newest(host.entries).values():
            if entry.remedy == BY_HAND and entry.entry == "approved":
                self._finish(entry)
            elif _skips_update_after(host.step, entry):
                self._controls.obey("skip-update")
        self._reset_knobs(initial)

    def _reset_knobs(self, initial: dict[str, float]) -> None:
        """Set knobs that differ from the journal to what it says."""
        controls, host = self._controls, self._host
        journaled = journal.knobs(initial, host.entries)
        moved = sorted({knob for entry in host.entries for knob in journal.turned(entry) if knob in initial})
        wrong = {k: journaled[k] for k in moved if k in controls and controls.get(k) != journaled[k]}
        if wrong:
            words = ", ".join(f"{knob} {in_words(knob, value)}" for knob, value in wrong.items())
            controls.set_all(wrong)
            host.declare(host.step + 1, "note", f"knobs reset to the journal: {words}")
            host.save_checkpoint()

    # --- changes -----------------------------------------------------------------------------------------------------

    def _change(self, request: Request, on_trial: str) -> None:
        """Set a knob or carry out an order."""
        try:
            if request.kind == "set":
                self._set(request, *parse_turn(request.action))
            elif request.action == "snapshot":  # it changes nothing, so no journal entry
                saved = self._controls.snapshot(keep=True)
                self._declare("checkpoint", f"snapshot of step {saved.step}, requested by {request.by}", by=request.by)
            else:
                order, _ = parse_order(request.action)
                state = self._state_before(request.action, on_trial) if order == "restore" else None
                data = {"order": request.action} | ({"state": state.path.name} if state else {})
                self._finish(self._begin(request, {}, f"{request.action}, requested by {request.by}", **data))
        except (ValueError, OSError) as error:
            self._host.note(f"{request.kind} {request.action!r} refused: {error}", by=request.by)

    def _set(self, request: Request, knob: str, value: float | str) -> None:
        controls = self._controls
        before, after = controls.set(knob, value)
        try:
            if after != before:
                _check_batch(controls)
        finally:
            controls.set(knob, before)  # it is valid: first journal it, then set it
        words = f"{turned(knob, before, after)}, set by {request.by}"
        if after == before:
            self._declare("note", words, by=request.by)
            return
        self._finish(self._begin(request, {knob: (before, after)}, words))

    def _undo(self, request: Request) -> None:
        """Undo a user's change of a knob, which is a change like any other."""
        made, controls = self._newest(request.action), self._controls
        if made.entry != "applied" or not made.change:
            why = f"{made.text or made.action} can't be undone" if made.entry == "applied" else f"it is {made.entry}"
            self._host.note(f"request to revert {made.action} by {request.by}: {why}", by=request.by)
            return
        if any(controls.get(knob) != after for knob, (_, after) in made.change.items()):
            why = "its knob was changed again since; undo that first"
            self._host.note(f"request to revert {made.action} by {request.by}: {why}", by=request.by)
            return
        change = {knob: (after, before) for knob, (before, after) in made.change.items()}
        if self._finish(self._begin(request, change, f"{made.action} undone by {request.by}", undoes=made.action)):
            self._close(made, "reverted", f"undone by {request.by}")

    def _begin(self, request: Request, change: dict[str, Any], text: str, **data: Any) -> Action:
        """Journal what is about to be done."""
        began = journal.first(self._host.entries).values()
        number = 1 + sum(journal.origin_of(entry) == "person" for entry in began)
        data = {"request": request.id, "by": request.by, **data}
        step = self._host.step
        entry = Action(f"h{number}", "approved", BY_HAND, step, change=change, text=text, data=data, origin="person")
        return self._host.journal(entry)

    def _finish(self, entry: Action) -> bool:
        """Do what the journal says is to be done. It may be repeated after a crash in the middle."""
        controls = self._controls
        order = str(entry.data.get("order", ""))
        by = str(entry.data.get("by", "a user"))
        if order.startswith("restore"):
            return self._plan_return(entry, by)
        try:
            before = {knob: controls.get(knob) for knob in entry.change}
            controls.set_all({knob: after for knob, (_, after) in entry.change.items() if after is not None})
            if order:
                controls.obey(order)
        except ValueError as error:
            self._close(entry, "failed", f"could not be done: {error}")
            return False
        try:
            controls.save_knobs()  # so that a crash now leaves the knobs as journaled
        except OSError as error:
            controls.set_all(before)
            if not order:
                self._close(entry, "failed", f"the state could not be saved, so nothing was changed: {error}")
                return False
            self._host.note(f"the state after {order} could not be saved: {error}")
        if not self._host.declared(entry.action):
            change = {knob: list(values) for knob, values in entry.change.items()}
            more = {"change": change} if change else {}
            self._declare("intervention", entry.text, by=by, action=entry.action, origin="person", **more)
        self._close(entry, "applied", entry.text)
        return True

    def _plan_return(self, entry: Action, by: str) -> bool:
        states = {state.path.name: state for state in self._controls.checkpoints()}
        state = states.get(str(entry.data.get("state")))
        if state is None:
            self._close(entry, "failed", f"checkpoint {entry.data.get('state')} is gone")
            return False
        if self._return:
            self._close(self._return.entry, "failed", f"replaced by a later return, {entry.action}")
        self._return = _Return(entry, state, by)
        return True

    def _state_before(self, order: str, on_trial: str) -> Checkpoint:
        """The checkpoint to return to; ValueError when there is none, or while a fix is on trial."""
        if on_trial:
            raise ValueError(f"{on_trial} is on trial; revert it first (fix RUN revert {on_trial})")
        _, wanted = parse_order(order)
        states = [state for state in self._controls.checkpoints() if state.step < self._host.step]
        found = [state for state in states if wanted in (None, state.step)]
        if not found:
            there = ", ".join(str(state.step) for state in states) or "none yet"
            raise ValueError(
                f"no checkpoint {'to return to' if wanted is None else f'of step {wanted}'}; available: {there}"
            )
        return found[-1]

    # --- answers ----------------------------------------------------------------------------------------------------

    def _too_late(self, request: Request) -> str:
        """Why an answer comes too late or is for another proposal; empty when the arbiter is to see it."""
        life = [entry for entry in self._host.entries if entry.action == request.action]
        if not life:
            return ""
        if request.proposal and request.proposal not in {entry.hash for entry in life}:
            return "it answers another proposal, not one of this run; see `fix RUN list`"
        newest = life[-1]
        if request.kind in ("approve", "reject") and newest.entry != "proposed":
            if newest.entry == "expired":
                return f"it has expired: {newest.text}"
            return f"it was {newest.entry} already, at step {newest.step}"
        return ""

    # --- inside -----------------------------------------------------------------------------------------------------

    def _newest(self, action: str) -> Action:
        return journal.newest(self._host.entries).get(action, Action(action, "failed", "", 0))

    def _close(self, entry: Action, how: JournalEntry, text: str, step: int | None = None) -> None:
        at = self._host.step if step is None else step
        closed = Action(
            entry.action, how, BY_HAND, at, change=entry.change, text=text, data=entry.data, origin="person"
        )
        self._host.journal(closed)

    def _declare(self, kind: str, text: str, **data: Any) -> None:
        self._host.declare(self._host.step + 1, kind, text, **data)


def _skips_update_after(step: int, entry: Action) -> bool:
    """Whether the entry ordered the update after this step to be skipped, which then is still to come."""
    return entry.data.get("order") == "skip-update" and entry.entry == "applied" and entry.step == step
