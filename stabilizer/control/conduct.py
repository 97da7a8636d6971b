"""The life of a trial: snapshot, a try on a copy, the change, its course, and keeping it or putting everything back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol, get_args

from stabilizer.control.arbitration import HOLD_BACK, IN_DOUBT, OVERSHOT
from stabilizer.control.fork import Fork
from stabilizer.control.guard import BEFORE, Guard
from stabilizer.control.hold import Held
from stabilizer.control.limits import COOLDOWN, MAX_FAILURES, Limits
from stabilizer.control.probe import COST, Probe
from stabilizer.control.trial import SETTLE, Trial
from stabilizer.core.knobs import Checkpoint, Controls
from stabilizer.core.records import Action, Finding, JournalEntry
from stabilizer.detectors.evidence.progress import progress
from stabilizer.incidents.watch import RESOLVED, Watch
from stabilizer.remedies import LOWER_LR, RESTORE, ROLL_BACK
from stabilizer.remedies.base import Change, Remedy, in_words
from stabilizer.remedies.evidence import steps_usual
from stabilizer.remedies.turns import LR, turns
from stabilizer.runs.history import RunView

Mode = Literal["off", "suggest", "approve", "auto-safe", "auto-full"]
MODES: tuple[Mode, ...] = get_args(Mode)

ONSET_MARGIN = 10
"""Steps a rollback's target should be older than the onset, whose estimate is uncertain by that at most."""
DEEPEST = 3
"""Trials that are built on one another."""
NO_CHANGE = "no change"
"""Name of the twin that is left alone."""


class Wait(NamedTuple):
    """When a way back that would have won nothing is looked at anew."""

    until: float
    """Step; infinite once it was looked at."""
    steps: int
    """How long the wait is, or was."""


class Host(Protocol):
    """What the policy needs of the training process around it."""

    def journal(self, action: Action) -> Action:
        """Write an entry of the journal, durably, before returning."""

    def declare(self, step: int, kind: str, text: str, **data: Any) -> None:
        """Write an event."""

    def roll_back(self, checkpoint: Checkpoint, text: str, *, vary_data: bool = True, **data: Any) -> None:
        """Return the run to a checkpoint and begin a new attempt, with other prompts ahead unless asked not to."""

    def pause(self, text: str) -> None:
        """Wait after the present step until a person says that the run may go on."""

    def stop(self, text: str) -> None:
        """End the run after the present step, with its state saved."""

    def fork(self, changes: Mapping[str, Mapping[str, float]], steps: int) -> Fork:
        """Run some steps under each of some changes from the present state, and come back as if nothing had been."""

    def probe(self, checkpoint: Checkpoint) -> Probe:
        """How the weights of a checkpoint are paid now, beside the present ones; training goes on as it would have."""


class Conduct:
    """One trial at a time on one run. It decides nothing but whether what was begun stands."""

    def __init__(self, mode: Mode, controls: Controls, watch: Watch, host: Host, fork_steps: int = 0):
        self.mode = mode
        self.controls = controls
        self.watch = watch
        self.host = host
        self.fork_steps = fork_steps
        """Steps for which a fix is tried on a copy of the run, beside one without it, before it is applied; 0: none."""
        self.trial: Trial | None = None
        self.limits = Limits()
        self._kept: dict[str, Change] = {}
        self._held = Held(controls)
        self._outlived: set[tuple[int, str]] = set()
        """Incident and finding that were made harmless and go on."""
        self._came: dict[int, int] = {}
        """Incident -> the first step at which the reward that had failed was back."""
        self._restored: int | None = None
        """The first step under a setting that was put back and kept."""
        self._put_right: set[int] = set()
        """Incidents in which what was changed without a word has been put back for good."""
        self._tried: set[tuple[int, str]] = set()
        """Incident and remedy."""
        self._waits: dict[tuple[int, str], Wait] = {}
        """By incident and remedy. A restart forgets them, and asks at once."""
        self._released: set[str] = set()
        """Remedies that were put back because what they were for was over."""
        self._holding: dict[str, Trial] = {}
        """Trials that were kept to hold steps back, until it is over."""
        self._actions = 0

    @property
    def _acts(self) -> bool:
        """Whether fixes are applied without asking."""
        return self.mode in ("auto-safe", "auto-full")

    def _trial(
        self, action: str, remedy: Remedy, change: Change, number: int, onset: int, view: RunView, cause: str = "",
        *, margin: int | None = None,
    ) -> Trial:  # fmt: skip
        turned = turns(view, onset, self.limits.courses)
        back = bool(change) and change == {turn.knob: (turn.now, turn.was) for turn in turned}
        if back:
            onset, margin = min(turn.step for turn in turned), 1
        if margin is None:  # the sooner it was seen, the less it can be off
            margin = min(ONSET_MARGIN, max(1, (view.step - onset) // 2))
        target = next(iter(self._targets(onset, margin)), None) if remedy.rollback else None
        # What the run could do at the checkpoint; one too early to tell is measured by what it could before the onset.
        before = view
        if target:
            before = view.at(target.step) if progress(view.at(target.step)) else view.at(onset - 1)
        now = Guard.of(view, remedy.horizon)
        guard = Guard.of(before, remedy.horizon) if target else now
        knobs = self.controls.values()
        steps = {} if back else remedy.course(change, knobs)
        course = {knob: values for knob, values in steps.items() if knob in self.controls}
        return Trial(
            action=action,
            remedy=remedy,
            incident=number,
            onset=onset,
            critical=any(f.severity == "critical" for f in self.watch.active() if f.incident == number),
            change={knob: (knobs[knob], knobs[knob]) for knob in course if knob not in change} | change,
            guard=guard,
            before=now if target else None,
            in_doubt=bool(target) and bool(self._doubted(onset)),
            findings=tuple(dict.fromkeys(finding.id for finding in self._standing(number))),
            cause=cause,
            course=course,
            back=back,
            replays=back,
            margin=margin,
            outlived=tuple(name for name in remedy.outlived(cause) if name in self._members(number)),
            holds=next((turn.rate for turn in turned if back and turn.rate), None),
            target=target,
            began=view.step + 1,
            window=guard.window(remedy.horizon),
        )

    def _standing(self, number: int) -> list[Finding]:
        """Findings of an incident that call for something: neither information nor what a fix has made harmless."""
        members = [f for f in self.watch.active() if f.incident == number and f.severity != "info"]
        members = [f for f in members if not (self._own_step(f) or self._is_back(f))]
        return [f for f in members if (number, f.id) not in self._outlived]

    def _own_step(self, finding: Finding) -> bool:
        """A reward that stepped when a setting was put back: another temperature is paid otherwise, and is no loss."""
        near = self._restored is not None and abs(finding.onset_step - self._restored) <= SETTLE
        return near and finding.id.startswith("reward/")

    def _doubted(self, onset: int) -> list[int]:
        """Onsets of what put the reward in doubt and was not over when an incident began."""
        late = [f for f in self.watch.findings() if f.severity != "info" and f.last_step >= onset - RESOLVED]
        return [f.onset_step for f in late if f.causes and f.causes[0].id in IN_DOUBT]

    def _members(self, number: int) -> set[str]:
        """Findings that an incident ever had."""
        return set(self.watch.incident(number).findings)

    def _change(self, remedy: Remedy, cause: str, view: RunView, onset: int) -> Change | None:
        """What the remedy would change as the knobs stand now; None when it can't help this run."""
        change = remedy.given(cause, self.controls.values(), view, onset, self.limits.courses)
        return None if change is None or any(knob not in self.controls for knob in change) else change

    def _refused(self, trial: Trial, view: RunView) -> str:
        """Why the automatic modes must not do this now; empty when they may."""
        orders = trial.remedy.orders
        if reason := self.limits.refusal(trial.change, self.controls, view.step, back=trial.back, orders=orders):
            return reason
        if trial.returns:
            return self.limits.too_dear(view.step - trial.returns.step, view)
        if not trial.remedy.rollback:
            return ""
        lost = view.step - trial.target.step if trial.target else 0
        reason = self.limits.too_often(trial.cause) or self.limits.too_dear(lost + COST, view)
        return reason or self._wins_nothing(trial, view)

    def _wins_nothing(self, trial: Trial, view: RunView) -> str:
        """Why there is nothing to be had by going back, as the run stands and as both weights are paid now."""
        if not trial.remedy.rollback:
            return ""
        return self._no_better(trial, view) or self._ask_both(trial, view)

    def _ask_both(self, trial: Trial, view: RunView) -> str:
        """Let the weights to go back to and the present ones answer the prompts that come next; why there is nothing to
        be had by going back, if so. Then it is looked at again after ever longer waits: what goes on may do its damage
        yet."""
        if trial.target is None:
            return ""
        trial.asked = COST
        self.limits.extra += COST
        try:
            trial.probe = self.host.probe(trial.target)
        except Exception as error:  # weights that can't answer at all are no reason to stay
            text = f"{trial.action}: what going back would win could not be measured: {type(error).__name__}: {error}"
            self.host.declare(view.step, "note", text)
            return ""
        reason = trial.probe.nothing_won
        if reason:
            looked = (trial.incident, trial.remedy.id)
            steps = 2 * self._waits[looked].steps if looked in self._waits else COOLDOWN
            self._waits[looked] = Wait(view.step + steps, steps)
            self._tried.add(looked)
        return reason

    @staticmethod
    def _no_better(trial: Trial, view: RunView) -> str:
        """Why there is nothing to be had by going back: the run stands, after a while of damage, no lower than it did
        there. Of the very start its first rows tell."""
        if trial.target is None or view.step - trial.onset < BEFORE:
            return ""
        there = Guard.of(view.at(max(trial.target.step, BEFORE)), trial.remedy.horizon)
        state, level = there.verdict(view, view.step - BEFORE + 1, BEFORE)
        if state != "holds" or level is None or not math.isfinite(there.level):
            return ""
        where = f"{there.level:.3g} around step {trial.target.step}"
        return f"{there.metric} is {level:.3g} and was {where}: to go back would win nothing"

    def _targets(self, onset: int, margin: int) -> list[Checkpoint]:
        """Checkpoints older than the onset, those safely older first, the newest of each kind first."""
        older = [checkpoint for checkpoint in self.controls.checkpoints() if checkpoint.step < onset]
        return sorted(older, key=lambda c: (c.step <= onset - margin, c.step, c.attempt), reverse=True)

    def _ways_back(self, trial: Trial) -> list[Checkpoint]:
        """States a trial may begin from, best first; none for one that begins where the run is."""
        if trial.returns:
            return [trial.returns]
        return self._targets(trial.onset, trial.margin) if trial.remedy.rollback else []

    def _apply(self, trial: Trial, view: RunView) -> bool:
        """Snapshot, try on a copy where that is wanted, change. False when the copy speaks for something else."""
        try:
            trial.snapshot = self.controls.snapshot()
        except OSError as error:
            reason = f"no snapshot could be made, so nothing was changed: {error}"
            self._journal(trial, "failed", view.step, reason, **self._evidence(trial))
            return True
        targets = self._ways_back(trial)  # anew: saving the snapshot may have thinned out older states
        if trial.remedy.rollback and not targets:
            reason = f"no checkpoint is older than the onset at step {trial.onset}"
            self._journal(trial, "failed", view.step, reason, **self._evidence(trial))
            return True
        if reason := self._tried_on_a_copy(trial, view):
            self._journal(trial, "rejected", view.step, reason, **self._evidence(trial))
            return False
        words = f"snapshot at step {trial.snapshot.step}"
        if trial.target and trial.probe:
            words += f"; step {trial.target.step}: {trial.probe.words}"
        self._journal(trial, "approved", view.step, words, snapshot=trial.snapshot.path.name, **self._evidence(trial))
        try:
            for knob, (_, after) in trial.change.items():
                self.controls.set(knob, trial.course[knob][0] if knob in trial.course else after)
            words = f"{trial.remedy.id}: {_words(trial)}"
            if targets:
                trial.target = self._roll_back(trial, targets, words)
                trial.began = trial.target.step + 1
            else:
                self._declare(trial, view, words)
            self._give_orders(trial)
        except Exception as error:  # half a change is no change: back to the snapshot, and say so
            self._undo(trial.change)
            self.controls.restore(trial.snapshot, vary_data=False)
            self._journal(trial, "failed", view.step, f"could not be applied: {type(error).__name__}: {error}")
            return True
        self.limits.note(trial.change, view.step, trial.remedy.orders)
        self.limits.note_course(trial.course, trial.began - 1)
        data: dict[str, Any] = {"guard": trial.level_before.metric, "guard_level": trial.level_before.level}
        if trial.course:
            data["course"] = trial.course
        if trial.remedy.orders:
            data["orders"] = [*trial.remedy.orders]
        if trial.holds is not None:
            self._held.begin(trial.action, trial.holds, trial.change[LR])
            data["holds"] = trial.holds
        if trial.target:
            lost = view.step - trial.target.step
            data |= {"back_to": trial.target.step, "back_for": trial.cause, "extra_steps": lost}
            self.limits.rollbacks[trial.cause] += 1
            self.limits.extra += lost
        self.trial = trial
        where = f"returned to step {trial.target.step}" if trial.target else ""
        self._journal(trial, "applied", view.step, " and ".join(filter(None, (where, _words(trial)))), **data)
        if not trial.remedy.horizon:
            self._keep(trial, view, "there is nothing to wait for")
        return True

    def _declare(self, trial: Trial, view: RunView, words: str) -> None:
        """Say what is changed; numbers before a change that touches neither weights nor data compare with those after,
        so that one is a note, and detectors go on from what they know."""
        data = {"action": trial.action, "incident": trial.incident}
        if trial.remedy.harmless and not trial.remedy.orders:
            turned = {knob: list(turn) for knob, turn in trial.change.items()}
            self.host.declare(view.step + 1, "note", words, **data, change=turned)
        else:
            self.host.declare(view.step + 1, "intervention", words, **data)

    def _give_orders(self, trial: Trial) -> None:
        for order in trial.remedy.orders:
            text = f"{trial.remedy.id}: {trial.remedy.why}"
            if order == "pause":
                self.host.pause(text)
            elif order == "stop":
                self.host.stop(text)
            else:
                self.controls.obey(order)

    def _tried_on_a_copy(self, trial: Trial, view: RunView) -> str:
        """Run the next steps with and without the change; why it should not be made, or nothing."""
        if not self.fork_steps or not trial.remedy.horizon or (trial.remedy.orders and not trial.change):
            return ""
        turned = {knob: after for knob, (_, after) in trial.change.items() if after is not None}
        changes = {NO_CHANGE: {}} | ({} if trial.remedy.rollback else {trial.remedy.id: turned})
        cost = self.fork_steps * len(changes)
        if reason := self.limits.too_dear(cost, view):
            self.host.declare(view.step, "note", f"{trial.action}: not tried on a copy: {reason}")
            return ""
        try:
            fork = self.host.fork(changes, self.fork_steps)
        except Exception as error:  # a copy that can't run says nothing about the change
            self.host.declare(view.step, "note", f"{trial.action}: no copy could be run: {error}")
            return ""
        self.limits.extra += cost
        trial.twin = fork.record() | {"extra_steps": cost}
        if trial.remedy.rollback or not self._acts:
            return ""  # from here a copy shows only whether the run recovers by itself; and a person has decided
        reward = Guard.of(view, 0)  # held-out problems are asked too seldom for a copy
        found = fork.compare(trial.remedy.id, NO_CHANGE, reward.metric)
        said = found.verdict(reward.tolerance)
        trial.twin["said"] = found.words
        if said == "undetermined":  # then the trial tells, as it would have without a copy
            trial.twin["said"] = f"undetermined: {found.steps} steps cannot tell ({found.words})"
        return f"on a copy of the run it was {said}: {found.words}" if said in ("worse", "no better") else ""

    @staticmethod
    def _evidence(trial: Trial) -> dict[str, Any]:
        """What was tried and measured before the change, and the steps it cost."""
        found: dict[str, Any] = {}
        if trial.twin:
            found = {"twin": trial.twin, "extra_steps": trial.twin["extra_steps"]}
        if trial.asked:
            probe = trial.probe.record() if trial.probe else {}
            found |= {"probe": probe, "extra_steps": found.get("extra_steps", 0) + trial.asked}
        return found

    def _roll_back(self, trial: Trial, targets: list[Checkpoint], text: str) -> Checkpoint:
        """Return to the first of `targets` that is sound; damage shows in loading, before anything is touched."""
        varied = not trial.replays
        for target in targets[:-1]:
            try:
                self.host.roll_back(target, text, vary_data=varied, action=trial.action, incident=trial.incident)
                return target
            except OSError as error:
                self.host.declare(target.step, "note", f"checkpoint {target.path.name} can't be used: {error}")
        self.host.roll_back(targets[-1], text, vary_data=varied, action=trial.action, incident=trial.incident)
        return targets[-1]

    def _follow(self, view: RunView) -> None:
        trial = self.trial
        assert trial is not None
        if self._came_to_light(trial, view):
            self.trial = None
            self._revert(trial, view, "a setting was changed without a word, as is seen by now: that comes first")
            return
        outcome, reason = trial.judge(self.watch, view)
        if outcome == "running":
            self._go_on(trial)
        elif outcome == "verified" and self._spared(trial, view):
            self._release(trial, view, reason)
        elif outcome == "verified":
            self._keep(trial, view, reason)
        elif not self._escalate(trial, view, reason):
            self._fail(trial, view, reason)

    def _came_to_light(self, trial: Trial, view: RunView) -> bool:
        """Whether a trial was begun before it could be seen that a setting had been changed: a rate that runs away does
        so row by row, and whatever else is tried meanwhile is tried against the wrong cause."""
        alone = not (trial.back or trial.target or trial.under or trial.returns)
        known = (trial.incident, RESTORE.id) in self._tried
        return self._acts and alone and not known and bool(turns(view, trial.onset, self.limits.courses))

    def _escalate(self, trial: Trial, view: RunView, reason: str) -> bool:
        """Damage in spite of a change that goes the right way asks for more of it, from the state before; such trials
        stand or fall together.

        Putting the knob back first would be to go on with what did the damage. `auto-full` returns to before the
        onset, once more if it has to; what only `auto-safe` may return to is the snapshot of its own trial.
        """
        way = trial.target is not None or trial.remedy is LOWER_LR or trial.back
        own = self.mode == "auto-safe" and trial.remedy is LOWER_LR and not trial.critical and not trial.under
        hurt = trial.harmed or (self.mode == "auto-full" and not trial.outlived and self._critical(trial))
        if not hurt or trial.depth >= DEEPEST or not (own or (self.mode == "auto-full" and way)):
            return False
        if self._goes_on_outside(trial):
            return False
        for knob, values in trial.course.items():  # it may not have arrived where it was going
            self.controls.set(knob, values[-1])
        remedy = LOWER_LR if own else ROLL_BACK
        change = remedy.against(trial.cause, self.controls.values())
        if trial.back and (change is None or not trial.target):
            change = {}  # the cause is gone already: what is left to mend are the weights
        if change is None or any(knob not in self.controls for knob in change):
            return False
        # what was saved since going back was trained under the change that is not enough
        onset, margin = (trial.target.step + 1, 1) if trial.target else (trial.onset, trial.margin)
        more = self._trial(self._next_id(), remedy, change, trial.incident, onset, view, trial.cause, margin=margin)
        more.under = trial
        more.replays = trial.back and not trial.target
        if own:
            more.returns = trial.snapshot
        text = f"{trial.action} was not enough ({reason}), so the run goes back with what it changed, and more of it"
        self._journal(more, "proposed", view.step, text, hypothesis=more.hypothesis(), builds_on=trial.action)
        if refused := self._refused(more, view):
            self._journal(more, "rejected", view.step, refused, **self._evidence(more))
            return False
        self._apply(more, view)
        return self.trial is more

    def _goes_on_outside(self, trial: Trial) -> bool:
        """Whether damage is back after a return that changed nothing but the prompts ahead, from no cause that going
        back could take away: then it was not in the weights, and a second return would lose as much for as little."""
        if not trial.target or trial.change or trial.back:
            return False
        cause = next((cause.id for cause in self.watch.incident(trial.incident).causes), "undetermined")
        if cause != "undetermined":
            return cause not in ROLL_BACK.answers
        standing = [f for f in self.watch.active() if f.incident == trial.incident and f.severity != "info"]
        return not any(f.id.startswith(("policy/", "optim/", "numerics/", "value/")) for f in standing)

    def _holds_back(self, trial: Trial) -> bool:
        """Whether it slows learning for as long as it lasts, against what may pass: then it need not last."""
        alone = not (trial.back or trial.target or trial.under or trial.returns)
        return self._acts and alone and trial.remedy.id in HOLD_BACK and trial.cause in OVERSHOT

    def _spared(self, trial: Trial, view: RunView) -> bool:
        """Steps would be as usual without it too: what it held back is over, and now it is a price for nothing.

        Once a run and remedy, lest what it holds back come again and again.
        """
        if not self._holds_back(trial) or trial.remedy.id in self._released:
            return False
        before, after = trial.change.get(LR, (1.0, 1.0))
        rate = before / after if before and after else 1.0
        return steps_usual(view, trial.onset, rows=SETTLE, rate=rate)

    def _let_go(self, view: RunView) -> None:
        """What was kept to hold steps back is put back as soon as they would be as usual without it."""
        for action, trial in list(self._holding.items()):
            if not self._is_on_top(action):
                del self._holding[action]  # somebody turned it since
            elif self._spared(trial, view):
                del self._holding[action]
                del self._kept[action]
                self._release(trial, view, "what it was kept for is over")
                return

    def _is_on_top(self, action: str) -> bool:
        """It was kept and its knobs are still where it put them: fixes are undone newest first."""
        change = self._kept.get(action)
        return change is not None and all(self.controls.get(knob) == after for knob, (_, after) in change.items())

    def _release(self, trial: Trial, view: RunView, reason: str) -> None:
        """Put back what has done its work; it is made anew, and kept then, should the trouble come again."""
        self.trial, self.limits.rest = None, COOLDOWN
        self._released.add(trial.remedy.id)
        self._tried.discard((trial.incident, trial.remedy.id))
        text = f"{reason}; steps would be as usual without it too, so it is put back, and made again if it is needed"
        self._revert(trial, view, text, released=True)

    def _mend(self, trial: Trial, view: RunView) -> None:
        """What is kept stopped the damage; where the run is still worse than before the onset, its weights go back, but
        not while it learns again: what comes back by itself costs less than the steps since then."""
        harmless = trial.remedy.harmless and not trial.came  # what came to an end has left its damage
        if self.mode != "auto-full" or trial.target or trial.outlived or harmless:
            return
        before = Guard.of(view.at(trial.onset - 1), trial.remedy.horizon)
        since = trial.came or max(trial.began, view.step - trial.window // 2)
        state, level = before.verdict(view, since, trial.window)
        reward = progress(view)
        learns = reward and reward.rising and not trial.came  # what rose until it came was what failed
        if not self._critical(trial) and (state != "worse" or learns):
            return
        more = self._trial(
            self._next_id(), ROLL_BACK, {}, trial.incident, trial.onset, view, trial.cause, margin=trial.margin
        )
        more.replays = trial.back
        text = f"{trial.action} is kept, and {before.metric} is {level:.3g}, {before.level:.3g} before the onset"
        self._journal(more, "proposed", view.step, text, hypothesis=more.hypothesis(), builds_on=trial.action)
        if refused := self._refused(more, view):
            self._journal(more, "rejected", view.step, refused, **self._evidence(more))
        else:
            self._apply(more, view)

    def _critical(self, trial: Trial) -> bool:
        standing = [f for f in self.watch.active() if f.incident == trial.incident and f.state != "recovering"]
        return any(finding.severity == "critical" and not self._is_back(finding) for finding in standing)

    def _is_back(self, finding: Finding) -> bool:
        """It is of a reward that failed and has come back since: it stands until it has been quiet for long enough, and
        whether the policy took harm is told by the reward that is back."""
        came = self._came.get(finding.incident, 0)
        return finding.id.startswith("reward/") and finding.onset_step < came

    def _hold(self, view: RunView) -> None:
        """A knob that keeps a schedule that ran away where it was goes with it; the change it belongs to does too."""
        for moved in self._held.follow(view):
            if self.trial and self.trial.action == moved.action:
                self.trial.change = self.trial.change | {LR: moved.turn}
            elif moved.action in self._kept:
                self._kept[moved.action] = self._kept[moved.action] | {LR: moved.turn}
            after = moved.turn[1]
            words = f"{LR} {moved.was:.3g} → {after:.3g}, so that the learning rate stays at {moved.rate:.2g}"
            data = {"action": moved.action, "change": {LR: [moved.was, after]}}
            self.host.declare(view.step + 1, "note", f"{moved.action}: {words}", **data)

    def _go_on(self, trial: Trial) -> None:
        """The next step of what does not happen at once; a knob that somebody turned meanwhile is theirs."""
        for knob, values in trial.course.items():
            last = values[min(trial.ticks - 1, len(values) - 1)]
            if trial.ticks < len(values) and self.controls.get(knob) == last:
                self.controls.set(knob, values[trial.ticks])
        if trial.ticks < trial.remedy.repeats:
            self._give_orders(trial)

    def _keep(self, trial: Trial, view: RunView, reason: str) -> None:
        self.trial, self.limits.rest = None, COOLDOWN
        self._save_quietly(view)
        for under in reversed(trial.chain()):
            self._kept[under.action] = under.change
            self._journal(under, "verified", view.step, f"together with {trial.action}")
        self._kept[trial.action] = trial.change
        data = self._measured(trial, view)
        if trial.came:
            self._came[trial.incident] = data["came"] = trial.came
        if self._holds_back(trial):
            self._holding[trial.action] = trial
            data["against"] = {"cause": trial.cause, "onset": trial.onset}
        if trial.outlived:
            early = [f for f in self.watch.active() if f.onset_step <= trial.began + SETTLE]
            ids = {f.id for f in early if f.incident == trial.incident} | set(trial.remedy.outlived(trial.cause))
            self._outlived |= {(trial.incident, name) for name in ids}
            data["outlived"] = sorted(ids)
        if trial.back and not trial.target:
            self._restored = data["restored"] = trial.began
        self._journal(trial, "verified", view.step, reason, **data)
        if trial.back:
            self._put_right.add(trial.incident)
        self._mend(trial, view)

    def _fail(self, trial: Trial, view: RunView, reason: str) -> None:
        self.trial, self.limits.rest = None, COOLDOWN
        self.limits.failures[trial.incident] += 1
        self._put_back(trial, view, reason, **self._measured(trial, view))
        self._revert_under(trial, view)
        if self.limits.failures[trial.incident] >= MAX_FAILURES:
            text = f"incident {trial.incident}: {MAX_FAILURES} fixes failed, so no more are tried; a person should look"
            self.host.declare(view.step, "note", text, incident=trial.incident)

    @staticmethod
    def _measured(trial: Trial, view: RunView) -> dict[str, Any]:
        reward = progress(view)
        now = reward.now if reward else None
        guard = trial.level_before
        return {"reward": now, "guard": guard.metric, "guard_level": guard.level, "ticks": trial.ticks}

    def _revert(self, trial: Trial, view: RunView, reason: str, **data: Any) -> None:
        self._undo(trial.change)
        text = f"{trial.remedy.id} undone: {reason}"
        lost = self._back_to_snapshot(trial, view, text)
        if lost:
            data |= {"back_to": view.step - lost, "extra_steps": lost}
        else:
            self._save_quietly(view)
        self._journal(trial, "reverted", view.step, reason, **data)
        if not lost:
            self.host.declare(view.step + 1, "intervention", text, action=trial.action)

    def _revert_under(self, trial: Trial, view: RunView) -> None:
        """What a trial was built on goes with it."""
        for under in trial.chain():
            self.limits.failures[trial.incident] += 1
            self._put_back(under, view, f"what was built on it, {trial.action}, was undone", ticks=under.ticks)

    def _put_back(self, trial: Trial, view: RunView, reason: str, **data: Any) -> None:
        """Undo a trial that failed; a setting is not given back the value after whose coming things broke."""
        if trial.back:
            self._kept[trial.action] = trial.change
            self._put_right.add(trial.incident)
            text = f"not enough ({reason}); what was changed without a word stays as it was before"
            self._journal(trial, "verified", view.step, text, **data)
        else:
            self._revert(trial, view, reason, **data)

    def _back_to_snapshot(self, trial: Trial, view: RunView, text: str) -> int:
        """Put the weights back too, where the run got worse or an order has no other undo; returns the steps lost."""
        forgets = any(order.startswith("reset-") for order in trial.remedy.orders)
        if trial.snapshot is None or trial.target or not (trial.harmed or forgets):
            return 0  # the snapshot of a rollback holds what was gone back from
        lost = view.step - trial.snapshot.step
        if reason := self.limits.too_dear(lost, view):
            self.host.declare(view.step, "note", f"{trial.action}: the weights stay as they are: {reason}")
            return 0
        try:
            self.host.roll_back(trial.snapshot, text, action=trial.action, incident=trial.incident)
        except OSError as error:
            self.host.declare(view.step, "note", f"snapshot {trial.snapshot.path.name} can't be used: {error}")
            return 0
        self.limits.extra += lost
        return lost

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


def _words(trial: Trial) -> str:
    """What a trial does, in words."""
    turned = in_words({knob: turn for knob, turn in trial.change.items() if turn[0] != turn[1]})
    warming = "warmed up again over 20 steps" if "control/lr_scale" in trial.course else ""
    return ", ".join(filter(None, [*trial.remedy.orders, f"set {turned}" if turned else "", warming]))
