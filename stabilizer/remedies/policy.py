"""Which fix, when, and whether at all: arbitration, budget and modes.

One trial at a time. Incidents are served in the order integrity > divergence > signal > exploration > efficiency; a
lower class waits while a higher one is open. Two failed trials of one incident end the automatic handling of it: then
a person is asked. A knob that was just moved one way is not moved the other way by a machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Protocol, get_args

from stabilizer.detectors.progress import progress
from stabilizer.records import Action, Finding
from stabilizer.remedies import for_cause
from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.controls import Checkpoint, Controls
from stabilizer.remedies.trial import Trial
from stabilizer.runs.history import RunView
from stabilizer.runs.requests import Request
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
EXPIRES = 100
"""Ticks an unanswered proposal waits for approval."""
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


class Policy:
    """The remedy side of one run. `tick` after every step, at the step boundary; it never raises for a failed fix."""

    def __init__(self, mode: Mode, controls: Controls, watch: Watch, host: Host, earlier: Iterable[Action] = ()):
        self.mode = mode
        self.controls = controls
        self.watch = watch
        self.host = host
        self.trial: Trial | None = None
        self._waiting: dict[str, tuple[Trial, int]] = {}
        self._kept: dict[str, Change] = {}
        self._tried: set[tuple[int, str]] = set()
        self._failures: dict[int, int] = {}
        self._moves: dict[str, tuple[int, float]] = {}
        self._given_up: set[int] = set()
        self._applied = 0
        self._rest = 0
        self._actions = 0
        self._take_over(earlier)

    def tick(self, view: RunView, requests: Iterable[Request] = ()) -> None:
        """Judge the running trial, heed requests, and see whether something should be tried."""
        if self.mode == "off":
            return
        for request in requests:
            self._heed(request, view)
        self._expire(view)
        if self.trial:
            self._follow(view)
            return
        self._rest = max(0, self._rest - 1)
        incident = self._most_urgent()
        if incident is not None:
            self._serve(incident, view)

    # --- choosing ---------------------------------------------------------------------------------------------------

    def _most_urgent(self) -> int | None:
        """The incident to serve: gravest class first; incidents that only inform are nobody's business here."""
        best: tuple[int, int] | None = None
        for finding in self.watch.active():
            if finding.severity == "info" or finding.state == "recovering":
                continue
            rank = (_class(finding), finding.incident)
            best = rank if best is None else min(best, rank)
        return None if best is None else best[1]

    def _serve(self, number: int, view: RunView) -> None:
        findings = [f for f in self.watch.active() if f.incident == number]
        critical = any(f.severity == "critical" for f in findings)
        if number in self._given_up or (self._rest and not critical):
            return
        if any(trial.incident == number for trial, _ in self._waiting.values()):
            return  # one question at a time
        incident = self.watch.incident(number)
        if not incident.causes:
            return
        for remedy in for_cause(incident.causes[0].id):
            if (number, remedy.id) in self._tried:
                continue
            if remedy.rollback and not critical:
                continue
            change = remedy.change(self.controls.values())
            if change is None or any(knob not in self.controls for knob in change):
                continue
            if self._consider(remedy, change, number, incident.onset_step, view):
                return

    def _consider(self, remedy: Remedy, change: Change, number: int, onset: int, view: RunView) -> bool:
        """Propose a remedy and, where the mode allows, apply it. True when nothing else should be considered now."""
        target = self._target(onset) if remedy.rollback else None
        # What the run could do at the checkpoint; one too early to tell is measured by what it could before the onset.
        reward = (progress(view.at(target.step)) or progress(view.at(onset - 1))) if target else progress(view)
        trial = Trial(
            action=self._next_id(),
            remedy=remedy,
            incident=number,
            change=change,
            guard=reward.metric if reward else "reward/mean",
            guard_level=reward.now if reward else float("-inf"),
            guard_noise=reward.noise if reward else 0.0,
            target=target,
        )
        self._tried.add((number, remedy.id))
        self._journal(trial, "proposed", view.step, remedy.why, hypothesis=trial.hypothesis())
        if remedy.safety == "advice":
            return False
        if remedy.rollback and target is None:
            self._journal(trial, "failed", view.step, f"no verified checkpoint is older than the onset at step {onset}")
            return False
        if self.mode == "approve":
            self._waiting[trial.action] = (trial, EXPIRES)
            return True
        allowed = self.mode == "auto-full" or (self.mode == "auto-safe" and remedy.safety == "soft")
        if not allowed:
            return False
        if reason := self._refused(change, view.step):
            self._journal(trial, "rejected", view.step, reason)
            return False
        self._apply(trial, view)
        return True

    def _target(self, onset: int) -> Checkpoint | None:
        """The newest checkpoint safely older than the onset; one just older when there is none safely older."""
        for limit in (onset - ONSET_MARGIN, onset - 1):
            older = [checkpoint for checkpoint in self.controls.checkpoints() if checkpoint.step <= limit]
            if older:
                return max(older, key=lambda checkpoint: (checkpoint.step, checkpoint.attempt))
        return None

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
        self._journal(trial, "approved", view.step, f"snapshot at step {snapshot.step}", snapshot=snapshot.path.name)
        try:
            for knob, (_, after) in trial.change.items():
                self.controls.set(knob, after)
            text = f"{trial.remedy.id}: {_words(trial.change)}"
            if trial.target:
                self.host.roll_back(trial.target, text, action=trial.action, incident=trial.incident)
            else:
                self.host.declare(view.step + 1, "intervention", text, action=trial.action, incident=trial.incident)
        except Exception as error:  # half a change is no change: back to the snapshot, and say so
            self._undo(trial)
            self.controls.restore(snapshot, vary_data=False)
            self._journal(trial, "failed", view.step, f"could not be applied: {type(error).__name__}: {error}")
            return
        for knob, (before, after) in trial.change.items():
            self._moves[knob] = (view.step, (after or 0.0) - (before or 0.0))
        self._applied += 1
        self.trial = trial
        where = f"returned to step {trial.target.step} and set" if trial.target else "set"
        self._journal(trial, "applied", view.step, f"{where} {_words(trial.change)}")

    def _follow(self, view: RunView) -> None:
        trial = self.trial
        outcome, reason = trial.judge(self.watch.active(), view)
        if outcome == "running":
            return
        self.trial = None
        self._rest = COOLDOWN
        reward = progress(view)
        data = {"reward": reward.now if reward else None, "guard_level": trial.guard_level, "ticks": trial.ticks}
        if outcome == "verified":
            self._kept[trial.action] = trial.change
            self._save_quietly()
            self._journal(trial, "verified", view.step, reason, **data)
            return
        self._failures[trial.incident] = self._failures.get(trial.incident, 0) + 1
        self._revert(trial, view, reason, **data)
        if self._failures[trial.incident] >= MAX_FAILURES:
            self._given_up.add(trial.incident)
            text = f"incident {trial.incident}: {MAX_FAILURES} fixes failed, so no more are tried; a person should look"
            self.host.declare(view.step, "note", text, incident=trial.incident)

    def _revert(self, trial: Trial, view: RunView, reason: str, **data: Any) -> None:
        self._undo(trial)
        self._save_quietly()
        self._journal(trial, "reverted", view.step, reason, **data)
        self.host.declare(view.step + 1, "intervention", f"{trial.remedy.id} undone: {reason}", action=trial.action)

    def _undo(self, trial: Trial) -> None:
        for knob, (before, _) in trial.change.items():
            if before is not None:
                self.controls.set(knob, before)

    def _save_quietly(self) -> None:
        """Make the knobs as they now stand survive a crash; when that fails, the next regular checkpoint does it."""
        try:
            self.controls.snapshot()
        except OSError as error:
            self.host.declare(0, "note", f"knobs could not be saved: {error}")

    # --- people -----------------------------------------------------------------------------------------------------

    def _heed(self, request: Request, view: RunView) -> None:
        if request.kind in ("approve", "reject") and request.action in self._waiting:
            trial, _ = self._waiting.pop(request.action)
            if request.kind == "reject":
                self._journal(trial, "rejected", view.step, f"rejected by {request.by}")
            elif self.trial:
                self._waiting[request.action] = (trial, EXPIRES)  # one change at a time: it keeps its place
            else:
                self._apply(trial, view)
        elif request.kind == "revert":
            if self.trial and self.trial.action == request.action:
                trial, self.trial = self.trial, None
                self._revert(trial, view, f"undone by {request.by}")
            elif change := self._kept.pop(request.action, None):
                for knob, (before, after) in change.items():
                    self.controls.set(knob, before)
                    self._moves[knob] = (view.step, before - after)  # a person's word: no machine turns it back soon
                self._save_quietly()
                self.host.journal(
                    Action(
                        request.action, "reverted", "by-hand", view.step, change=change, text=f"undone by {request.by}"
                    )
                )
                self.host.declare(view.step + 1, "intervention", f"{request.action} undone", action=request.action)

    def _expire(self, view: RunView) -> None:
        for action, (trial, left) in list(self._waiting.items()):
            if left > 1:
                self._waiting[action] = (trial, left - 1)
            else:
                del self._waiting[action]
                self._journal(trial, "expired", view.step, f"nobody answered within {EXPIRES} steps")

    def _take_over(self, earlier: Iterable[Action]) -> None:
        """After a restart: what was in flight is undone, so that no knob differs from what the journal says."""
        latest: dict[str, Action] = {}
        for action in earlier:
            latest[action.action] = action
            self._actions = max(self._actions, int(action.action.removeprefix("a") or 0))
            self._applied += action.entry == "applied"
        for action in latest.values():
            if action.entry == "applied":
                for knob, (before, _) in action.change.items():
                    if before is not None and knob in self.controls:
                        self.controls.set(knob, before)
                self._close(action, "reverted", "the run was interrupted during the trial, so the change was undone")
            elif action.entry == "verified":
                self._kept[action.action] = dict(action.change)
            elif action.entry == "approved":
                self._close(action, "failed", "the run was interrupted before the change was made")
            elif action.entry == "proposed" and self.mode == "approve":
                self._close(action, "expired", "the run was restarted; it will be proposed again if the need remains")

    def _close(self, action: Action, entry: Any, text: str) -> None:
        self.host.journal(
            Action(
                action.action, entry, action.remedy, action.step, action.incident,
                safety=action.safety, change=action.change, text=text,
            )
        )  # fmt: skip

    def _next_id(self) -> str:
        self._actions += 1
        return f"a{self._actions}"

    def _journal(self, trial: Trial, entry: Any, step: int, text: str, **data: Any) -> None:
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
