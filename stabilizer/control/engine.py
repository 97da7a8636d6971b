"""The remedies of one run: at every step, judge the running trial, handle requests or choose the next fix.

    incident -> Situation -> choose(situation) -> Proposal | Refusal -> plan -> Executor -> journal -> fold -> memory

One trial runs at a time. Two failed trials of one incident end its automatic handling; then a person is asked. The
trials and their cost are the fold of the journal, so a restart has the same memory as a live run.
"""

from __future__ import annotations

from collections.abc import Iterable

from stabilizer.control.budget import Refusal, resting
from stabilizer.control.choose import Proposal, change_of, choose
from stabilizer.control.context import Context, Ledger
from stabilizer.control.executor import Executor
from stabilizer.control.host import Host
from stabilizer.control.permission import refused, wins_nothing
from stabilizer.control.questions import Question, Questions, worth_asking_again
from stabilizer.control.trial import Trial, plan
from stabilizer.core.knobs import Controls
from stabilizer.core.records import Action, Cause
from stabilizer.incidents.watch import Watch
from stabilizer.remedies.situation import MODES, Mode, Situation
from stabilizer.remedies.urgency import most_urgent
from stabilizer.runs.history import RunView
from stabilizer.runs.journal import Memory
from stabilizer.runs.requests import Request

__all__ = ["MODES", "Mode", "RemedyEngine"]


class RemedyEngine:
    """The remedies of one run. Call `tick` after every step, at the step boundary; a failed fix never raises."""

    def __init__(
        self,
        mode: Mode,
        controls: Controls,
        watch: Watch,
        host: Host,
        earlier: Iterable[Action] = (),
        *,
        fork_steps: int = 0,
    ):
        self._ledger = Ledger(host, earlier)
        self.context = Context(mode, controls, watch, host, self._ledger, fork_steps)
        self.executor = Executor(self.context)
        self.questions = Questions(self.context)
        self.executor.recover()

    @property
    def mode(self) -> Mode:
        """Which fixes are applied without asking."""
        return self.context.mode

    @property
    def trial(self) -> Trial | None:
        """The running trial."""
        return self.executor.trial

    @property
    def memory(self) -> Memory:
        """The trials so far and their cost."""
        return self.context.memory

    def tick(self, view: RunView, requests: Iterable[Request] = ()) -> None:
        """Judge the running trial, handle requests and start a fix if one is needed."""
        for request in requests:
            self._answer(request, view)
        if self.mode == "off":
            return
        self.executor.hold_rates(view)
        if self.executor.trial:
            self.executor.follow(self.executor.trial, view)
            return
        self.questions.expire(view)
        if self._apply_approved(view):
            return
        if not resting(self.memory, view.step):
            self.executor.release(view)
        number = most_urgent(self.context.watch.active())
        if number is not None:
            self._serve(number, view)

    # --- choosing ---------------------------------------------------------------------------------------------------

    def _serve(self, number: int, view: RunView) -> None:
        """Apply or propose the first fix that fits an incident; only one proposal is open at a time."""
        if not self.context.watch.incident(number).causes:
            return
        asked = self.questions.about(number)
        while True:
            now = self.context.situation(number, view, asked=asked.trial.remedy.id if asked else "")
            if asked and not worth_asking_again(asked, now.critical, view.step):
                return
            found = choose(now)
            if asked and self._replaced(asked, found, now):
                asked = None
            if isinstance(found, Refusal) or found.remedy.id == now.asked or self.carry_out(found, now):
                return

    def _replaced(self, asked: Question, found: Proposal | Refusal, now: Situation) -> bool:
        """Withdraw a proposal if another fix or none is needed by now. Advice replaces no proposal."""
        if isinstance(found, Refusal):
            if found.reason == "outdated":
                self.questions.withdraw(asked, now)
            return False
        if found.remedy.safety == "advice" or found.remedy.id == now.asked:
            return False
        self.questions.withdraw(asked, now, instead=found.remedy.id)
        return True

    def carry_out(self, found: Proposal, now: Situation) -> bool:
        """Propose a fix and, if the mode allows, apply it. True if no other fix should be considered now."""
        view, step = now.view, now.view.step
        trial = plan(self._ledger.next_id(), found.remedy, found.change, now, found.onset)
        asks = found.handling == "ask"
        why = wins_nothing(trial, self.context, view) if asks else None  # a person sees the measured gain
        evidence = trial.evidence() if asks and not why else {}
        self._ledger.record(trial, "proposed", step, _promise(trial, found), hypothesis=trial.hypothesis(), **evidence)
        if found.handling == "apply":
            why = refused(trial, self.context, view)
            if why is None:
                return self.executor.apply(trial, view)
        if why:
            self._reject(trial, why, step)
        elif asks:
            self.questions.ask(trial, step)
        return asks and not why

    def _reject(self, trial: Trial, why: Refusal, step: int) -> None:
        self._ledger.record(trial, "rejected", step, why.text, why.reason, **trial.evidence())
        if why.needs_person and self.context.acts:
            text = f"{trial.action} ({trial.remedy.id}): {why.text}"
            self.context.host.declare(step, "note", text, incident=trial.incident)

    # --- people -----------------------------------------------------------------------------------------------------

    def _answer(self, request: Request, view: RunView) -> None:
        """Carry out a person's request for a proposal, the running trial or a kept change."""
        action, by = request.action, request.by
        if request.kind == "approve" and self.questions.approve(action, by):
            return
        if request.kind == "reject" and self.questions.reject(action, by, view.step):
            return
        if request.kind == "revert" and self._can_undo(action):
            self.executor.undo_for(action, by, view)
        elif request.kind in ("approve", "reject", "revert"):
            kept = action in self.memory.kept
            why = "its knob was changed again since; undo that first" if kept else f"nothing to {request.kind}"
            text = f"request to {request.kind} {action or '(nothing)'} by {by}: {why}"
            self.context.host.declare(view.step, "note", text)

    def _can_undo(self, action: str) -> bool:
        running = self.executor.trial is not None and self.executor.trial.action == action
        return running or self.executor.is_on_top(action)

    def _apply_approved(self, view: RunView) -> bool:
        """Apply an approved fix with the current knobs and checkpoints."""
        question = self.questions.approved()
        if question is None:
            return False
        asked = question.trial
        if why := self.questions.lapsed(asked, view):
            self.questions.lapse(question, view.step, why)
            return False
        now = self.context.situation(asked.incident, view, cause=Cause(asked.cause, 0.0, ""))
        change = change_of(asked.remedy, now, asked.onset)
        if change is None:
            text = "the knobs have changed since it was proposed; it no longer applies"
            self.questions.lapse(question, view.step, text)
            return False
        trial = plan(asked.action, asked.remedy, change, now, asked.onset)
        if nothing := wins_nothing(trial, self.context, view):
            reason = nothing.reason if nothing.reason == "no-gain" else "no-need"
            self.questions.lapse(question, view.step, nothing.text, reason, **trial.evidence())
            return False
        del self.questions.open[asked.action]
        self.executor.apply(trial, view)
        return True


def _promise(trial: Trial, found: Proposal) -> str:
    """The text of a proposal in the journal."""
    text = f"{trial.remedy.why}; expected within {trial.window} steps: {trial.remedy.expects}"
    return f"{text}; not applied automatically: {found.withheld}" if found.withheld else text
