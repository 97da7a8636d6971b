"""Checks whether a planned trial is allowed: budgets, the gain of a rollback and the result of a copy of the run."""

from __future__ import annotations

import math
from typing import Any

from stabilizer.control.budget import Refusal, refusal, too_expensive, too_often
from stabilizer.control.context import Context
from stabilizer.control.fork import Fork
from stabilizer.control.guard import BEFORE, Guard
from stabilizer.control.probe import COST
from stabilizer.control.trial import Trial, targets
from stabilizer.core.knobs import Checkpoint
from stabilizer.remedies.base import Change
from stabilizer.runs.history import RunView

CHANGED = "system/invariant"
"""The finding of a setting that changed."""
NO_CHANGE = "no change"
"""Name of the unchanged copy."""


def refused(trial: Trial, context: Context, view: RunView) -> Refusal | None:
    """Why the automatic modes must not make a trial now; None if they may."""
    memory, orders = context.memory, trial.remedy.orders
    if why := refusal(memory, trial.change, context.controls, view.step, back=trial.back, orders=orders):
        return why
    if trial.returns:
        return too_expensive(memory, view.step - trial.returns.step, view)
    if not trial.remedy.rollback:
        return _learns_on(trial, context, view) if trial.back else None
    lost = view.step - trial.target.step if trial.target else 0
    why = too_often(memory, trial.cause) or too_expensive(memory, lost + COST, view)
    return why or wins_nothing(trial, context, view)


def wins_nothing(trial: Trial, context: Context, view: RunView) -> Refusal | None:
    """Why a rollback would gain nothing, by the level of the run and the rewards of both sets of weights; None if it
    may."""
    if not trial.remedy.rollback:
        return None
    return no_better_there(trial, view) or _compare_weights(trial, context, view)


def no_better_there(trial: Trial, view: RunView) -> Refusal | None:
    """Whether the run, after some damage, is no worse than it was at the checkpoint.

    At the very start, its first rows count.
    """
    if trial.target is None or view.step - trial.onset < BEFORE:
        return None
    there = Guard.of(view.at(max(trial.target.step, BEFORE)), trial.remedy.horizon)
    state, level = there.verdict(view, view.step - BEFORE + 1, BEFORE)
    if state != "holds" or level is None or not math.isfinite(there.level):
        return None
    where = f"{there.level:.3g} around step {trial.target.step}"
    text = f"{there.metric} is {level:.3g} and was {where}: a rollback would gain nothing"
    return Refusal("no-better", text)


def _compare_weights(trial: Trial, context: Context, view: RunView) -> Refusal | None:
    """Whether a rollback's weights get no higher reward than the current ones.

    The journal records it, and each further measurement waits longer: damage may still follow.
    """
    if trial.target is None or not _measured(trial, trial.target, context, view):
        return None
    reason = trial.probe.nothing_won if trial.probe else ""
    return Refusal("no-gain", reason) if reason else None


def _learns_on(trial: Trial, context: Context, view: RunView) -> Refusal | None:
    """Whether only the reward has fallen since a setting was changed, and the weights have improved meanwhile.

    Hotter sampling lowers the reward of any weights. Those from before the change then get less under the same
    settings, and the run loses nothing: a person decides about the setting, and the question is asked again later.
    """
    older = targets(context.controls.checkpoints(), trial.onset, trial.margin)
    members = [f.id for f in context.members(trial.incident) if f.id != CHANGED]
    fell = members and all(name.startswith("reward/") for name in members)
    if not older or not fell or too_expensive(context.memory, COST, view):
        return None
    if context.probed and context.probed[0] == _place(view, older[0]):  # for a rollback, in this step
        trial.probe = context.probed[1]
    elif not _measured(trial, older[0], context, view):
        return None
    if trial.probe is None or not trial.probe.learned:
        return None
    text = f"the run still learns under the changed setting, compared with step {older[0].step}: {trial.probe.words}"
    return Refusal("no-gain", f"{text}; a person should decide", needs_person=True)


def _place(view: RunView, checkpoint: Checkpoint) -> tuple[int, int, int]:
    return view.attempt, view.step, checkpoint.step


def _measured(trial: Trial, checkpoint: Checkpoint, context: Context, view: RunView) -> bool:
    """Let the checkpoint's weights and the current ones answer the next prompts; False if that fails."""
    trial.asked = COST
    try:
        trial.probe = context.host.probe(checkpoint)
    except Exception as error:  # weights that fail to answer are no reason against a fix
        text = f"{trial.action}: the gain of a rollback could not be measured: {type(error).__name__}: {error}"
        context.host.declare(view.step, "note", text)
        return False
    context.probed = _place(view, checkpoint), trial.probe
    return True


def tried_on_a_copy(trial: Trial, context: Context, view: RunView) -> Refusal | None:
    """Run the next steps with and without the change; why it should not be made, or None.

    For a rollback, the copy only shows whether the run recovers without it. If a person has decided, the comparison is
    only recorded.
    """
    steps = context.fork_steps
    if not steps or not trial.remedy.horizon or (trial.remedy.orders and not trial.change):
        return None
    left_alone: dict[str, dict[str, float]] = {NO_CHANGE: {}}
    changes = left_alone | ({} if trial.remedy.rollback else {trial.remedy.id: turned_to(trial.change)})
    cost = steps * len(changes)
    if why := too_expensive(context.memory, cost, view, pending=trial.asked):
        context.host.declare(view.step, "note", f"{trial.action}: not tried on a copy: {why.text}")
        return None
    try:
        fork = context.host.fork(changes, steps)
    except Exception as error:  # a copy that can't run is no evidence against the change
        context.host.declare(view.step, "note", f"{trial.action}: no copy could be run: {error}")
        return None
    trial.twin = fork.record() | {"extra_steps": cost}
    decides = context.acts and not trial.remedy.rollback
    return _worse_on_the_copy(trial, trial.twin, fork, view) if decides else None


def turned_to(change: Change) -> dict[str, float]:
    """The values of knobs after a change."""
    return {knob: after for knob, (_, after) in change.items() if after is not None}


def _worse_on_the_copy(trial: Trial, twin: dict[str, Any], fork: Fork, view: RunView) -> Refusal | None:
    """Compare both copies and record the result; why the change should not be made, or None."""
    reward = Guard.of(view, 0)  # validations are too rare for a copy
    found = fork.compare(trial.remedy.id, NO_CHANGE, reward.metric)
    verdict = found.verdict(reward.tolerance)
    twin["said"] = found.words
    if verdict == "undetermined":  # then the trial decides, as without a copy
        twin["said"] = f"undetermined: {found.steps} steps are too few to decide ({found.words})"
    if verdict not in ("worse", "no better"):
        return None
    return Refusal("copy", f"on a copy of the run it was {verdict}: {found.words}")
