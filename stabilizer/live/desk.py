"""What people ask of a training run, heeded once each and put on record: knobs turned by hand, orders, answers, pauses.

A change by hand is made like a remedy's, so that a death at any point leaves it done or not begun, never in doubt:

    the journal says what will be done (`approved`)  ->  it is done  ->  the state is saved  ->  it is declared
    ->  the journal says that it was done (`applied`)  ->  the request is taken away

After a restart, what was begun is finished, what the journal holds is not done again, and a knob that differs from
what the journal says is put where the journal says. Answers to proposals are the policy's business; what it can no
longer heed (the proposal expired, was answered already, or is another one) is answered here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stabilizer.core.knobs import Checkpoint, Controls, in_words, parse_order, parse_turn
from stabilizer.core.records import Action, JournalEntry
from stabilizer.runs import journal
from stabilizer.runs.journal import BY_HAND
from stabilizer.runs.requests import Request, look, settle, waits

if TYPE_CHECKING:
    from stabilizer.live.session import Session

MAX_COMPLAINTS = 20
"""Files in `requests/` that are no requests and are reported; more are left unsaid."""


_THE_LINK = {"follow_symlinks": False} if os.access in os.supports_follow_symlinks else {}


def _check_batch(controls: Controls) -> None:
    """What a configuration may not ask for, nobody may turn it to either."""
    parts = controls.get("control/minibatches")
    rows = controls.get("control/prompts") * controls.get("control/group_size")
    if parts > rows:
        raise ValueError(
            f"control/minibatches = {parts:g} would be more than prompts x group_size = {rows:g}, and a minibatch be"
            " empty: turn the others first"
        )


@dataclass(frozen=True)
class _Return:
    """A state somebody wants back."""

    entry: Action
    checkpoint: Checkpoint
    by: str


class Desk:
    """The people's side of one session, at the step boundary. `earlier`: the journal's entries of former attempts."""

    def __init__(self, session: Session, earlier: list[Action]):
        self._session = session
        self._folder = f"{session.writer.path}/requests"
        self._entries = list(earlier)
        self._open: dict[str, Request] = {}
        """Answers that were handed on and are not on record yet; their files stay."""
        self._asked: list[Request] = []
        self._complained: set[str] = set()
        self._stuck: set[str] = set()
        """Requests that were answered and whose files can't be taken away: they are not answered again."""
        self._return: _Return | None = None

    def note(self, entry: Action) -> None:
        """An entry was added to the journal."""
        self._entries.append(entry)

    @property
    def waited_for(self) -> bool:
        """Whether anything came that was not taken in: a cheap look."""
        return os.access(self._folder, os.F_OK, **_THE_LINK) and waits(self._session.writer.path, self._known())

    def look(self) -> None:
        """Take in what came. Pausing and turning by hand happen at once, answers wait for `answers`."""
        if not os.access(self._folder, os.F_OK, **_THE_LINK):  # nobody ever asked for anything, mostly
            return
        session = self._session
        seen = look(session.writer.path, self._known())
        for name, why in seen.refused.items():
            self._complained.add(name)
            if len(self._complained) <= MAX_COMPLAINTS:
                self._say(f"requests/{name[:80]} is not heeded: {why}")
        if not seen.requests:
            return
        done = {entry.data.get("request") for entry in self._entries if entry.entry in ("applied", "failed")}
        for request in seen.requests:
            if request.id in done:  # it died between acting on it and taking it away
                self._take_away(request)
                continue
            try:
                answered = self._answer(request)
            except Exception as error:  # whatever one request does, the others are heard, and training goes on
                answered = True
                why = f"{type(error).__name__}: {error}"
                self._say(f"{request.kind} {request.action!r} by {request.by} could not be done: {why}", by=request.by)
            if answered:
                self._take_away(request)

    def _answer(self, request: Request) -> bool:
        """Do at once what can be; False when the policy is to answer it."""
        if request.kind in ("pause", "resume"):
            self._session.hold(request.kind == "pause")
            self._say(f"{request.kind} asked for by {request.by}", by=request.by)
        elif request.kind in ("set", "do"):
            self._by_hand(request)
        elif why := self._too_late(request):
            self._say(f"request to {request.kind} {request.action} by {request.by}: {why}", by=request.by)
        elif request.kind == "revert" and self._newest(request.action).remedy == BY_HAND:
            self._undo(request)
        else:
            self._open[request.id] = request
            self._asked.append(request)
            return False
        return True

    def _known(self) -> set[str]:
        """Files in `requests/` that were looked at."""
        return {f"{id}.json" for id in self._open} | self._complained | self._stuck

    def _take_away(self, request: Request) -> None:
        if not settle(self._session.writer.path, request):
            self._stuck.add(f"{request.id}.json")

    def answers(self) -> list[Request]:
        """Answers for the policy, each handed on once."""
        asked, self._asked = self._asked, []
        return asked

    def settle(self) -> None:
        """Take away what the policy has heeded. An approval that waits its turn stays: it outlives a restart."""
        for request in list(self._open.values()):
            newest = self._newest(request.action)
            waits = request.kind == "approve" and newest.entry == "proposed" and newest.safety != "advice"
            if request in self._asked or (waits and self._session.arbiter.mode == "approve"):
                continue
            del self._open[request.id]
            self._take_away(request)

    def return_if_asked(self) -> None:
        """Go back after everything else of the step is done: the view the others judged by is of the old branch."""
        if self._return is None:
            return
        wanted, self._return = self._return, None
        text = f"returned to step {wanted.checkpoint.step}, asked for by {wanted.by}"
        try:
            self._session.roll_back(wanted.checkpoint, text, by=wanted.by, action=wanted.entry.action, origin="person")
        except OSError as error:
            self._close(wanted.entry, "failed", f"restore of {wanted.checkpoint.path.name} failed: {error}")
        else:
            self._close(wanted.entry, "applied", text, step=wanted.checkpoint.step)

    def recover(self, initial: dict[str, float]) -> None:
        """After a restart: finish what was begun, and put knobs where the journal says. `initial`: as configured."""
        controls, session = self._session.trainer.controls, self._session
        for entry in journal.newest(self._entries).values():
            if entry.remedy == BY_HAND and entry.entry == "approved":
                self._finish(entry)
            elif entry.data.get("order") == "skip-update" and entry.entry == "applied":
                if entry.step == session.trainer.step:  # the step it was meant for is yet to be made
                    controls.obey("skip-update")
        told = journal.knobs(initial, self._entries)
        moved = {knob for entry in self._entries for knob in journal.turned(entry)}
        wrong = {knob: told[knob] for knob in sorted(moved) if knob in controls and controls.get(knob) != told[knob]}
        if wrong:
            words = ", ".join(f"{knob} {in_words(knob, value)}" for knob, value in wrong.items())
            controls.set_all(wrong)
            session.declare(session.trainer.step + 1, "note", f"put back where the journal has them: {words}")
            session.save_checkpoint()

    # --- by hand ----------------------------------------------------------------------------------------------------

    def _by_hand(self, request: Request) -> None:
        """Turn a knob, or carry out an order, as somebody asked."""
        try:
            if request.kind == "set":
                self._turn(request, *parse_turn(request.action))
            elif request.action == "snapshot":  # a copy disturbs nothing
                saved = self._session.trainer.controls.snapshot(keep=True)
                self._declare("checkpoint", f"snapshot of step {saved.step}, asked for by {request.by}", by=request.by)
            else:
                order, _ = parse_order(request.action)
                state = self._state_before(request.action) if order == "restore" else None
                data = {"order": request.action} | ({"state": state.path.name} if state else {})
                self._finish(self._begin(request, {}, f"{request.action}, asked for by {request.by}", **data))
        except (ValueError, OSError) as error:
            self._say(f"{request.kind} {request.action!r} refused: {error}", by=request.by)

    def _turn(self, request: Request, knob: str, value: float | str) -> None:
        controls = self._session.trainer.controls
        before, after = controls.set(knob, value)
        try:
            if after != before:
                _check_batch(controls)
        finally:
            controls.set(knob, before)  # it can be done; now it is written down, and then done
        words = f"{knob} {in_words(knob, before)} → {in_words(knob, after)}, set by {request.by}"
        if after == before:
            self._declare("note", words, by=request.by)
            return
        self._finish(self._begin(request, {knob: (before, after)}, words))

    def _undo(self, request: Request) -> None:
        """Turn a knob back that a person had turned: a change by hand like any other."""
        made, controls = self._newest(request.action), self._session.trainer.controls
        if made.entry != "applied" or not made.change:
            why = f"{made.text or made.action} can't be undone" if made.entry == "applied" else f"it is {made.entry}"
            self._say(f"request to revert {made.action} by {request.by}: {why}", by=request.by)
            return
        if any(controls.get(knob) != after for knob, (_, after) in made.change.items()):
            why = "its knob was turned again since; undo that first"
            self._say(f"request to revert {made.action} by {request.by}: {why}", by=request.by)
            return
        change = {knob: (after, before) for knob, (before, after) in made.change.items()}
        if self._finish(self._begin(request, change, f"{made.action} undone by {request.by}", undoes=made.action)):
            self._close(made, "reverted", f"undone by {request.by}")

    def _begin(self, request: Request, change: dict[str, Any], text: str, **data: Any) -> Action:
        """The journal says what is about to be done."""
        began = journal.first(self._entries).values()
        number = 1 + sum(journal.origin_of(entry) == "person" for entry in began)
        step = self._session.trainer.step
        data = {"request": request.id, "by": request.by, **data}
        return self._session.journal(
            Action(f"h{number}", "approved", BY_HAND, step, change=change, text=text, data=data, origin="person")
        )

    def _finish(self, entry: Action) -> bool:
        """Do what the journal says is to be done. May be called again after a death in the middle of it."""
        session, controls = self._session, self._session.trainer.controls
        order = str(entry.data.get("order", ""))
        by = str(entry.data.get("by", "somebody"))
        if order.startswith("restore"):
            return self._plan_return(entry, by)
        try:
            before = {knob: controls.get(knob) for knob in entry.change}
            for knob, (_, after) in entry.change.items():
                controls.set(knob, after)
            if order:
                controls.obey(order)
        except ValueError as error:
            self._close(entry, "failed", f"could not be done: {error}")
            return False
        try:
            controls.snapshot()  # so that the knobs of a run that is killed now are what its journal says
        except OSError as error:
            controls.set_all(before)
            if not order:
                self._close(entry, "failed", f"the state could not be saved, so nothing was changed: {error}")
                return False
            self._say(f"the state after {order} could not be saved: {error}")
        if not any(event.data.get("action") == entry.action for event in session.history.events):
            change = {knob: list(values) for knob, values in entry.change.items()}
            more = {"change": change} if change else {}
            self._declare("intervention", entry.text, by=by, action=entry.action, origin="person", **more)
        self._close(entry, "applied", entry.text)
        return True

    def _plan_return(self, entry: Action, by: str) -> bool:
        states = {state.path.name: state for state in self._session.trainer.checkpoints()}
        state = states.get(str(entry.data.get("state")))
        if state is None:
            self._close(entry, "failed", f"checkpoint {entry.data.get('state')} is gone")
            return False
        if self._return:
            self._close(self._return.entry, "failed", f"another return was asked for after it, {entry.action}")
        self._return = _Return(entry, state, by)
        return True

    def _state_before(self, order: str) -> Checkpoint:
        """The state a person wants back; ValueError when there is none, or when it would cut into a trial."""
        session = self._session
        if trial := session.arbiter.trial:
            raise ValueError(f"{trial.action} is on trial; revert it first (fix RUN revert {trial.action})")
        _, wanted = parse_order(order)
        states = [state for state in session.trainer.checkpoints() if state.step < session.trainer.step]
        found = [state for state in states if wanted in (None, state.step)]
        if not found:
            there = ", ".join(str(state.step) for state in states) or "none yet"
            raise ValueError(
                f"no checkpoint {'to return to' if wanted is None else f'of step {wanted}'}; there are: {there}"
            )
        return found[-1]

    # --- answers ----------------------------------------------------------------------------------------------------

    def _too_late(self, request: Request) -> str:
        """Why an answer can't be heeded any more, or is not for this proposal; empty when the policy shall see it."""
        life = [entry for entry in self._entries if entry.action == request.action]
        if not life:
            return ""
        if request.proposal and request.proposal not in {entry.hash for entry in life}:
            return "it answers another proposal, which this run did not make; see `fix RUN list`"
        newest = life[-1]
        if request.kind in ("approve", "reject") and newest.entry != "proposed":
            if newest.entry == "expired":
                return f"it has expired: {newest.text}"
            return f"it is {newest.entry} already, at step {newest.step}"
        return ""

    # --- inside -----------------------------------------------------------------------------------------------------

    def _newest(self, action: str) -> Action:
        return journal.newest(self._entries).get(action, Action(action, "failed", "", 0))

    def _close(self, entry: Action, how: JournalEntry, text: str, step: int | None = None) -> None:
        at = self._session.trainer.step if step is None else step
        closed = Action(
            entry.action, how, BY_HAND, at, change=entry.change, text=text, data=entry.data, origin="person"
        )  # fmt: skip
        self._session.journal(closed)

    def _declare(self, kind: str, text: str, **data: Any) -> None:
        self._session.declare(self._session.trainer.step + 1, kind, text, **data)

    def _say(self, text: str, **data: Any) -> None:
        self._session.writer.event(self._session.trainer.step, "note", text, **data)
