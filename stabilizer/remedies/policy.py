"""Which fix, when, and whether at all: arbitration, budget and modes.

One trial at a time. Incidents are served in the order integrity > divergence > signal > exploration > efficiency; a
lower class waits while a higher one is open. Two failed trials of one incident end the automatic handling of it: then
a person is asked. A knob that was just moved one way is not moved the other way by a machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, get_args

from stabilizer.detectors.progress import progress
from stabilizer.records import Action, Finding, JournalEntry
from stabilizer.remedies import fitting
from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.controls import Checkpoint, Controls
from stabilizer.remedies.trial import Trial
from stabilizer.runs.history import RunView
from stabilizer.runs.requests import LIFE, Request
from stabilizer.watch import Watch

Mode = Literal["off", "suggest", "approve", "auto-safe", "auto-full"]
MODES: tuple[Mode, ...] = get_args(Mode)

MAX_ACTIONS = 5
"""Fixes applied in one run."""
MAX_FAILURES = 2
"""Failed trials of one incident before a person is asked."""
COOLDOWN = 20
"""Ticks of rest after a trial; a divergence that goes on does not wait."""
LOCK = 100
"""Steps within which a knob is not turned back by another remedy."""
ONSET_MARGIN = 10
"""Steps a rollback's target should be older than the onset, whose estimate is about that uncertain."""

_CLASSES = (
    ("numerics/", "system/", "reward/outage"),
    ("optim/", "policy/kl-runaway", "policy/mismatch", "policy/overstepping", "reward/collapse"),
    ("reward/no-signal",),
    ("policy/",),
    ("",),
)


class Host(Protocol):
    """What the policy needs of the training process around it."""

    def journal(self, action: Action) -> Action:
        """Write an entry of the journal, durably, before returning."""

    def declare(self, step: int, kind: str, text: str, **data: Any) -> None:
        """Write an event."""

    def roll_back(self, checkpoint: Checkpoint, text: str, **data: Any) -> None:
        """Return the run to a checkpoint and begin a new attempt."""


@dataclass
class _Question:
    """A proposal that waits for a person."""

    trial: Trial
    approved_by: str = ""
    asked: int = 0
    """The step it was asked at."""


class Arbiter:
    """The remedy side of one run. `tick` after every step, at the step boundary; it never raises for a failed fix."""

    def __init__(self, mode: Mode, controls: Controls, watch: Watch, host: Host, earlier: Iterable[Action] = ()):
        self.mode = mode
        self.controls = controls
        self.watch = watch
        self.host = host
        self.trial: Trial | None = None
        self._questions: dict[str, _Question] = {}
        self._kept: dict[str, Change] = {}
        self._tried: set[tuple[int, str]] = set()
        self._failures: dict[int, int] = {}
        self._moves: dict[str, tuple[int, float]] = {}
        self._applied = 0
        self._rest = 0
        self._actions = 0
        self._take_over(earlier)

    def tick(self, view: RunView, requests: Iterable[Request] = ()) -> None:
        """Judge the running trial, heed requests, and see whether something should be tried."""
        for request in requests:
            self._heed(request, view)
        if self.mode == "off":
            return
        if self.trial:
            self._follow(view)
            return
        self._expire(view)
        if self._apply_approved(view):
            return
        self._rest = max(0, self._rest - 1)
        incident = self._most_urgent()
        if incident is not None:
            self._serve(incident, view)

    # --- choosing ---------------------------------------------------------------------------------------------------

    def _most_urgent(self) -> int | None:
        """The incident to serve: gravest class first; incidents that only inform are nobody's business here."""
        ranked = [
            (_class(finding), finding.incident)
            for finding in self.watch.active()
            if finding.severity != "info" and finding.state != "recovering"
        ]
        return min(ranked)[1] if ranked else None

    def _serve(self, number: int, view: RunView) -> None:
        findings = [f for f in self.watch.active() if f.incident == number and f.severity != "info"]
        critical = any(f.severity == "critical" for f in findings)
        if self._failures.get(number, 0) >= MAX_FAILURES or (self._rest and not critical):
            return
        if any(question.trial.incident == number for question in self._questions.values()):
            return  # one question at a time
        incident = self.watch.incident(number)
        if not incident.causes:
            return
        onset = min(finding.onset_step for finding in findings)
        for remedy in fitting(incident.causes[0].id, view):
            if (number, remedy.id) in self._tried or (remedy.rollback and not critical):
                continue
            change = self._change(remedy)
            if change is not None and self._consider(remedy, change, number, onset, view):
                return

    def _change(self, remedy: Remedy) -> Change | None:
        """What the remedy would change as the knobs stand now; None when it can't help this run."""
        change = remedy.change(self.controls.values())
        return None if change is None or any(knob not in self.controls for knob in change) else change

    def _consider(self, remedy: Remedy, change: Change, number: int, onset: int, view: RunView) -> bool:
        """Propose a remedy and, where the mode allows, apply it. True when nothing else should be considered now."""
        trial = self._trial(self._next_id(), remedy, change, number, onset, view)
        self._tried.add((number, remedy.id))
        text = f"{remedy.why}; expected within {remedy.horizon} steps: {remedy.expects}"
        self._journal(trial, "proposed", view.step, text, hypothesis=trial.hypothesis())
        if remedy.safety == "advice":
            return False
        if self.mode == "approve":
            self._questions[trial.action] = _Question(trial, asked=view.step)
            return True
        allowed = self.mode == "auto-full" or (self.mode == "auto-safe" and remedy.safety == "soft")
        if not allowed:
            return False
        if reason := self._refused(change, view.step):
            self._journal(trial, "rejected", view.step, reason)
            return False
        self._apply(trial, view)
        return True

    def _trial(self, action: str, remedy: Remedy, change: Change, number: int, onset: int, view: RunView) -> Trial:
        target = next(iter(self._targets(onset)), None) if remedy.rollback else None
        # What the run could do at the checkpoint; one too early to tell is measured by what it could before the onset.
        reward = (progress(view.at(target.step)) or progress(view.at(onset - 1))) if target else progress(view)
        return Trial(
            action=action,
            remedy=remedy,
            incident=number,
            onset=onset,
            critical=any(f.severity == "critical" for f in self.watch.active() if f.incident == number),
            change=change,
            guard=reward.metric if reward else "reward/mean",
            guard_level=reward.now if reward else float("-inf"),
            guard_noise=reward.noise if reward else 0.0,
            target=target,
        )

    def _targets(self, onset: int) -> list[Checkpoint]:
        """Checkpoints older than the onset, those safely older first, the newest of each kind first."""
        older = [checkpoint for checkpoint in self.controls.checkpoints() if checkpoint.step < onset]
        return sorted(older, key=lambda c: (c.step <= onset - ONSET_MARGIN, c.step, c.attempt), reverse=True)

    def _refused(self, change: Change, step: int) -> str:
        """Why the automatic modes must not do this now; empty when they may."""
        if self._applied >= MAX_ACTIONS:
            return f"{MAX_ACTIONS} fixes were applied already; a person should look"
        for knob, (before, after) in change.items():
            moved_at, direction = self._moves.get(knob, (-LOCK, 0.0))
            if before is not None and after is not None and (after - before) * direction < 0 and step - moved_at < LOCK:
                return f"{knob} was moved the other way {step - moved_at} steps ago; a person should decide"
        return ""

    # --- the life of a trial ----------------------------------------------------------------------------------------

    def _apply(self, trial: Trial, view: RunView) -> None:
        try:
            snapshot = self.controls.snapshot()
        except OSError as error:
            self._journal(trial, "failed", view.step, f"no snapshot could be made, so nothing was changed: {error}")
            return
        targets = self._targets(trial.onset)  # anew: saving the snapshot may have thinned out older states
        if trial.remedy.rollback and not targets:
            reason = f"no checkpoint is older than the onset at step {trial.onset}"
            self._journal(trial, "failed", view.step, reason)
            return
        self._journal(trial, "approved", view.step, f"snapshot at step {snapshot.step}", snapshot=snapshot.path.name)
        try:
            for knob, (_, after) in trial.change.items():
                self.controls.set(knob, after)
            if trial.remedy.rollback:
                trial.target = self._roll_back(trial, targets)
            else:
                text = f"{trial.remedy.id}: {_words(trial.change)}"
                self.host.declare(view.step + 1, "intervention", text, action=trial.action, incident=trial.incident)
        except Exception as error:  # half a change is no change: back to the snapshot, and say so
            self._undo(trial.change)
            self.controls.restore(snapshot, vary_data=False)
            self._journal(trial, "failed", view.step, f"could not be applied: {type(error).__name__}: {error}")
            return
        for knob, (before, after) in trial.change.items():
            self._moves[knob] = (view.step, (after or 0.0) - (before or 0.0))
        self._applied += 1
        self.trial = trial
        where = f"returned to step {trial.target.step} and set" if trial.target else "set"
        self._journal(trial, "applied", view.step, f"{where} {_words(trial.change)}")

    def _roll_back(self, trial: Trial, targets: list[Checkpoint]) -> Checkpoint:
        """Return to the first of `targets` that is sound; damage shows in loading, before anything is touched."""
        text = f"{trial.remedy.id}: {_words(trial.change)}"
        for target in targets[:-1]:
            try:
                self.host.roll_back(target, text, action=trial.action, incident=trial.incident)
                return target
            except OSError as error:
                self.host.declare(target.step, "note", f"checkpoint {target.path.name} can't be used: {error}")
        self.host.roll_back(targets[-1], text, action=trial.action, incident=trial.incident)
        return targets[-1]

    def _follow(self, view: RunView) -> None:
        trial = self.trial
        outcome, reason = trial.judge(self.watch, view)
        if outcome == "running":
            return
        self.trial = None
        self._rest = COOLDOWN
        reward = progress(view)
        data = {"reward": reward.now if reward else None, "guard_level": trial.guard_level, "ticks": trial.ticks}
        if outcome == "verified":
            self._kept[trial.action] = trial.change
            self._save_quietly(view)
            self._journal(trial, "verified", view.step, reason, **data)
            return
        self._failures[trial.incident] = self._failures.get(trial.incident, 0) + 1
        self._revert(trial, view, reason, **data)
        if self._failures[trial.incident] >= MAX_FAILURES:
            text = f"incident {trial.incident}: {MAX_FAILURES} fixes failed, so no more are tried; a person should look"
            self.host.declare(view.step, "note", text, incident=trial.incident)

    def _revert(self, trial: Trial, view: RunView, reason: str, **data: Any) -> None:
        self._undo(trial.change)
        self._save_quietly(view)
        self._journal(trial, "reverted", view.step, reason, **data)
        self.host.declare(view.step + 1, "intervention", f"{trial.remedy.id} undone: {reason}", action=trial.action)

    def _undo(self, change: Change) -> None:
        for knob, (before, _) in change.items():
            if before is not None and knob in self.controls:
                self.controls.set(knob, before)

    def _save_quietly(self, view: RunView) -> None:
        """Make the knobs as they now stand survive a crash; when that fails, the next regular checkpoint does it."""
        try:
            self.controls.snapshot()
        except OSError as error:
            self.host.declare(view.step, "note", f"knobs could not be saved: {error}")

    # --- people -----------------------------------------------------------------------------------------------------

    def _heed(self, request: Request, view: RunView) -> None:
        question = self._questions.get(request.action)
        if request.kind == "approve" and question:
            question.approved_by = request.by or "somebody"  # applied as soon as no other trial is running
        elif request.kind == "reject" and question:
            del self._questions[request.action]
            self._journal(question.trial, "rejected", view.step, f"rejected by {request.by}")
        elif request.kind == "revert" and self.trial and self.trial.action == request.action:
            trial, self.trial = self.trial, None
            self._lock(trial.change, view.step)
            self._revert(trial, view, f"undone by {request.by}")
        elif request.kind == "revert" and self._is_on_top(request.action):
            self._revert_kept(request, view)
        elif request.kind in ("approve", "reject", "revert"):
            why = "its knob was turned again since; undo that first"
            why = why if request.action in self._kept else f"nothing to {request.kind}"
            text = f"request to {request.kind} {request.action or '(nothing)'} by {request.by}: {why}"
            self.host.declare(view.step, "note", text)

    def _is_on_top(self, action: str) -> bool:
        """It was kept and its knobs are still where it put them: fixes are undone newest first."""
        change = self._kept.get(action)
        return change is not None and all(self.controls.get(knob) == after for knob, (_, after) in change.items())

    def _revert_kept(self, request: Request, view: RunView) -> None:
        change = self._kept.pop(request.action)
        self._undo(change)
        self._lock(change, view.step)
        self._save_quietly(view)
        text = f"undone by {request.by}"
        self.host.journal(Action(request.action, "reverted", "by-hand", view.step, change=change, text=text))
        self.host.declare(view.step + 1, "intervention", f"{request.action} {text}", action=request.action)

    def _lock(self, change: Change, step: int) -> None:
        """A person's word: no machine turns these knobs back soon."""
        for knob, (before, after) in change.items():
            self._moves[knob] = (step, (before or 0.0) - (after or 0.0))

    def _apply_approved(self, view: RunView) -> bool:
        """Apply what a person approved, with the knobs and checkpoints as they are now."""
        approved = next((a for a, question in self._questions.items() if question.approved_by), None)
        if approved is None:
            return False
        asked = self._questions.pop(approved).trial
        change = self._change(asked.remedy)
        if change is None:
            self._journal(
                asked, "expired", view.step, "the knobs have changed since it was proposed; it no longer applies"
            )
            return False
        self._apply(self._trial(approved, asked.remedy, change, asked.incident, asked.onset, view), view)
        return True

    def _expire(self, view: RunView) -> None:
        standing = {finding.incident for finding in self.watch.active()}
        for action, question in list(self._questions.items()):
            if question.trial.incident not in standing:
                del self._questions[action]
                self._journal(question.trial, "expired", view.step, "the incident is over, so it is no longer needed")
            elif not question.approved_by and view.step - question.asked >= LIFE:
                del self._questions[action]
                self._journal(question.trial, "expired", view.step, f"nobody answered within {LIFE} steps")

    # --- after a restart --------------------------------------------------------------------------------------------

    def _take_over(self, earlier: Iterable[Action]) -> None:
        """Know what was known; what was in flight is undone, so that no knob differs from what the journal says."""
        latest: dict[str, Action] = {}
        for action in earlier:
            latest[action.action] = action
            self._actions = max(self._actions, int(action.action.removeprefix("a") or 0))
            self._tried.add((action.incident, action.remedy))
            if action.entry == "applied":
                self._applied += 1
                for knob, (before, after) in action.change.items():
                    self._moves[knob] = (action.step, (after or 0.0) - (before or 0.0))
            elif action.entry == "reverted" and action.remedy == "by-hand":
                self._lock(dict(action.change), action.step)
            elif action.entry == "reverted" and "ticks" in action.data:
                self._failures[action.incident] = self._failures.get(action.incident, 0) + 1
        cut = [action for action in latest.values() if action.entry in ("applied", "approved")]
        for action in cut:
            self._undo(dict(action.change))
        if cut:  # before the journal says so: a second crash must not bring the change back
            with contextlib.suppress(OSError):
                self.controls.snapshot()
        for action in latest.values():
            if action.entry == "verified":
                self._kept[action.action] = dict(action.change)
            elif action.entry in ("applied", "approved"):
                self._tried.discard((action.incident, action.remedy))
                made = (
                    "during the trial, so the change was"
                    if action.entry == "applied"
                    else "while it was made, so it was"
                )
                entry: JournalEntry = "reverted" if action.entry == "applied" else "failed"
                self._close(action, entry, f"the run was interrupted {made} undone")
            elif action.entry == "proposed" and self.mode == "approve":
                self._tried.discard((action.incident, action.remedy))
                self._close(action, "expired", "the run was restarted; it will be proposed again if the need remains")

    def _close(self, action: Action, entry: JournalEntry, text: str) -> None:
        self.host.journal(replace(action, entry=entry, text=text, data={}))

    def _next_id(self) -> str:
        self._actions += 1
        return f"a{self._actions}"

    def _journal(self, trial: Trial, entry: JournalEntry, step: int, text: str, **data: Any) -> None:
        self.host.journal(
            Action(
                trial.action, entry, trial.remedy.id, step, trial.incident,
                safety=trial.remedy.safety, change=trial.change, text=text, data=data,
            )
        )  # fmt: skip


def _class(finding: Finding) -> int:
    return next(rank for rank, prefixes in enumerate(_CLASSES) if finding.id.startswith(prefixes))


def _words(change: Change) -> str:
    return ", ".join(f"{knob} {before:g} → {after:g}" for knob, (before, after) in change.items())
