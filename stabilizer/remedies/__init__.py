"""All remedies, in the order in which they are tried against one cause. A new remedy is a new file and a line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from stabilizer.core.knobs import KNOBS
from stabilizer.core.records import Cause, RemedyAdvice, Severity
from stabilizer.remedies.advice import BY_HAND, CHECK_REWARD, EASIER_PROMPTS
from stabilizer.remedies.base import Change, Remedy, in_words
from stabilizer.remedies.clip_updates import ClipUpdates
from stabilizer.remedies.correct_mismatch import CorrectMismatch
from stabilizer.remedies.early_stop import EarlyStop
from stabilizer.remedies.fewer_epochs import FewerEpochs
from stabilizer.remedies.filter_groups import FilterGroups
from stabilizer.remedies.grow_batch import GrowBatch
from stabilizer.remedies.grow_group import GrowGroup
from stabilizer.remedies.longer_answers import LongerAnswers
from stabilizer.remedies.lower_beta import LowerBeta
from stabilizer.remedies.lower_entropy_bonus import LowerEntropyBonus
from stabilizer.remedies.lower_lr import LowerLr
from stabilizer.remedies.mask_truncated import MaskTruncated
from stabilizer.remedies.mend_critic import MendCritic
from stabilizer.remedies.narrow_clip import NarrowClip
from stabilizer.remedies.other_kl_estimator import OtherKlEstimator
from stabilizer.remedies.other_normaliser import OtherNormaliser
from stabilizer.remedies.overlong_penalty import OverlongPenalty
from stabilizer.remedies.pause_and_ask import PauseAndAsk
from stabilizer.remedies.raise_beta import RaiseBeta
from stabilizer.remedies.raise_beta_further import RaiseBetaFurther
from stabilizer.remedies.raise_entropy import RaiseEntropy
from stabilizer.remedies.raise_lr import RaiseLr
from stabilizer.remedies.raise_temperature import RaiseTemperature
from stabilizer.remedies.reset_optimizer import ResetOptimizer
from stabilizer.remedies.reset_reference import ResetReference
from stabilizer.remedies.restore_setting import RestoreSetting
from stabilizer.remedies.reweight_prompts import ReweightPrompts
from stabilizer.remedies.roll_back import RollBack
from stabilizer.remedies.shrink_batch import ShrinkBatch
from stabilizer.remedies.skip_update import SkipUpdate
from stabilizer.remedies.target_entropy import TargetEntropy
from stabilizer.remedies.turns import NOBODY
from stabilizer.remedies.validate_more import ValidateMore
from stabilizer.remedies.widen_clip import WidenClip
from stabilizer.runs.history import RunView
from stabilizer.trainers.knobs import spelling_of
from stabilizer.trainers.settings import OWN, keys_of
from stabilizer.trainers.spelling import at

ROLL_BACK, LOWER_LR, RESTORE = RollBack(), LowerLr(), RestoreSetting()

REMEDIES: tuple[Remedy, ...] = (
    CHECK_REWARD,
    RESTORE,
    SkipUpdate(),
    ROLL_BACK,
    LOWER_LR,
    RaiseBeta(),
    NarrowClip(),
    FewerEpochs(),
    ClipUpdates(),
    LowerEntropyBonus(),
    CorrectMismatch(),
    ResetOptimizer(),
    MendCritic(),
    OtherKlEstimator(),
    RaiseBetaFurther(),
    GrowBatch(),
    GrowGroup(),
    FilterGroups(),
    TargetEntropy(),
    RaiseEntropy(),
    WidenClip(),
    RaiseTemperature(),
    LowerBeta(),
    ResetReference(),
    ReweightPrompts(),
    OtherNormaliser(),
    LongerAnswers(),
    MaskTruncated(),
    OverlongPenalty(),
    ValidateMore(),
    RaiseLr(),
    ShrinkBatch(),
    EarlyStop(),
    PauseAndAsk(),
    EASIER_PROMPTS,
    *BY_HAND,
)

BY_ID = {remedy.id: remedy for remedy in REMEDIES}

RATE = "control/lr_scale"
"""The knob that scales the learning rate: 1 in a new run."""
LIKELY = 0.5
"""Confidence from which a cause is more likely than not."""
RECOVERS = 3
"""Number of newest rows; one finite value among them means that finite numbers are back."""

LIVE = frozenset({"created", "running", "paused", "stalled"})
"""States of a run whose process can still receive an order."""

FIRST: dict[str, tuple[str, ...]] = {
    "no-kl-anchor": ("roll-back", "raise-beta"),
    "exploration-exhausted": ("target-entropy", "raise-entropy"),
    "optimizer-state": ("reset-optimizer",),
    "engine-mismatch": ("correct-mismatch",),
    "critic-broken": ("mend-critic",),
    "kl-estimator": ("other-kl-estimator",),
    "dead-groups": ("easier-prompts", "reweight-prompts", "other-normaliser"),
    "prompts-too-hard": ("easier-prompts", "reweight-prompts"),
    "saturated": ("stop-here",),
    "reward-hackable": ("patch-reward",),
    "wrong-groups": ("fix-groups",),
    "out-of-memory": ("save-memory",),
}
"""Remedies that come first against a cause, where that differs from the order above."""


def for_cause(cause: str) -> list[Remedy]:
    """Remedies against a cause, in order."""
    first = FIRST.get(cause, ())
    found = [remedy for remedy in REMEDIES if cause in remedy.answers]
    return sorted(found, key=lambda remedy: first.index(remedy.id) if remedy.id in first else len(first))


def fitting(cause: str, view: RunView) -> list[Remedy]:
    """Remedies against a cause that can help this run. A rollback repairs weights, so it is left out if they are
    intact."""
    unharmed = _unharmed(cause, view)
    return [r for r in for_cause(cause) if not (r.rollback and unharmed) and not r.unfit(view)]


def _unharmed(cause: str, view: RunView) -> bool:
    """Whether the trainer skipped every non-finite update (`optim/skipped`) and finite numbers came back.

    A single non-finite weight would make all numbers non-finite.
    """
    if cause != "numeric-overflow":
        return False
    left_out = view.series("optim/skipped").last(200)
    rows = [view.series(name).last(200) for name in ("policy/loss", "optim/grad_norm")]
    broken = {step for row in rows for step in row.steps[~np.isfinite(row.values)].tolist()}
    back = any(len(row) and np.isfinite(row.values[-RECOVERS:]).any() for row in rows)
    return bool(broken) and back and broken <= set(left_out.steps[left_out.values > 0].tolist())


def _is_sane(name: str, value: float) -> bool:
    """Whether a logged value is valid for a knob; a log may contain anything."""
    choices = KNOBS[name].choices
    return value in range(len(choices)) if choices else abs(value) < 1e18  # so no NaN either


def advise(causes: Sequence[Cause], view: RunView, onset: int | None = None) -> tuple[RemedyAdvice, ...]:
    """Advice against the most likely cause, with the current knobs of this run.

    An undeclared change of a setting around the onset is undone first, whatever the cause. A run that logs no knobs
    still has a learning rate, so its scale counts as 1. If a remedy needs a knob with an unknown value, its manual
    instruction is given, where it has one.
    """
    if not causes:
        return ()
    known = _known_knobs(view)
    ours = RATE in view
    configured = known if ours else known | _configured_elsewhere(view)
    mode = MODE.get(str(view.about("trainer", "stabilizer")), "")
    advice = []
    if ours and onset is not None and (back := RESTORE.given(causes[0].id, known, view, onset, NOBODY)):
        advice.append(RemedyAdvice(RESTORE.id, RESTORE.safety, back, RESTORE.why, _how(RESTORE, back, mode=mode)))
    for remedy in fitting(causes[0].id, view):
        change = remedy.against(causes[0].id, known)
        if not ours and (change is None or remedy.orders):
            done = remedy.turns in configured and remedy.against(causes[0].id, configured) is None
            if remedy.by_hand and remedy.turns not in known and not done:
                advice.append(RemedyAdvice(remedy.id, "advice", {}, remedy.why, remedy.by_hand))
        elif change is not None:
            how = _how(remedy, change, ours, mode=mode)
            advice.append(RemedyAdvice(remedy.id, remedy.safety, change, remedy.why, how))
    return tuple(advice)


def _known_knobs(view: RunView) -> dict[str, float]:
    """The newest value of each knob that the run logs or configures."""
    known = {RATE: 1.0}
    logged = {name: view.latest(name) for name in KNOBS}
    known |= {name: value for name, value in logged.items() if value is not None and _is_sane(name, value)}
    beta = view.config("policy.beta", view.config("beta"))
    if isinstance(beta, (int, float)) and abs(beta) < 1e18:  # whole numbers have no end, floats have
        known.setdefault("control/beta", float(beta))
    return known


def _configured_elsewhere(view: RunView) -> dict[str, float]:
    """The knobs in the configuration of another trainer, by its own keys."""
    config, spelling = view.about("config") or {}, spelling_of(str(view.about("trainer", "")))
    held = [(name, at(config, key)) for name in KNOBS.keys() - {RATE} for key in reversed(spelling.settings(name))]
    return {name: value for name, value in held if value is not None}


def fitted(
    advice: Sequence[RemedyAdvice],
    *,
    harm: Severity | None,
    state: str,
    ours: bool,
    cause: str = "",
    view: RunView | None = None,
) -> tuple[RemedyAdvice, ...]:
    """Advice that fits the state of a run: no hard change without harm, no return without damage, and no order to a
    process that has ended.

    `harm` is the worst severity of what is unresolved in the incident: information is none, and only what is critical
    is damage. `state` is that of a run directory. The run of a foreign log takes no orders, so a person makes a hard
    change in the next run. With the `view` of a run that ended, changes against the `cause` start from the values that
    the next run starts with, and name the keys of its configuration.
    """
    live = ours and state in LIVE
    fit = []
    for one in advice:
        hard = one.safety == "hard"
        remedy = BY_ID.get(one.id)
        if hard and (harm in (None, "info") or harm == "warn" and remedy is not None and remedy.rollback):
            continue
        if live or remedy is None and not hard:
            fit.append(one)
            continue
        if ours and remedy is not None and one.safety != "advice":
            if remedy.orders and not one.change:
                continue  # an order to a process that is gone
            one = _later(one, remedy, cause, view, state)
        fit.append(replace(one, safety="advice") if hard else one)
    return tuple(fit)


def _later(one: RemedyAdvice, remedy: Remedy, cause: str, view: RunView | None, state: str) -> RemedyAdvice:
    """Advice for the next run, or for a resumed one, from the values of the knobs that it begins with."""
    change: Change = dict(one.change)
    if view is None:
        return replace(one, how=_how(remedy, change, state=state))
    newest = _known_knobs(view)
    begin = newest | _configured_knobs(view) if state == "finished" else newest
    if any(begin.get(knob, before) != before for knob, (before, _) in change.items()):
        change = _as_it_ended(remedy.against(cause, begin) or change, newest)
    words = ", ".join(_in_keys(view, knob, *turn) for knob, turn in change.items()) if state == "finished" else ""
    return replace(one, change=change, how=_how(remedy, change, state=state, words=words))


def _key(view: RunView, knob: str) -> str:
    """The configuration key of our own trainer that holds a knob; "" where the run has none."""
    keys = keys_of("lr" if knob == RATE else knob.removeprefix("control/"), OWN)
    return next((key for key in keys if view.config(key) is not None), "")


def _configured_knobs(view: RunView) -> dict[str, float]:
    """The values that a run of ours starts with."""
    begin = {RATE: 1.0}
    for name in KNOBS.keys() - begin:
        value, choices = view.config(_key(view, name)), KNOBS[name].choices
        if isinstance(value, str) and value in choices:
            value = choices.index(value)
        if isinstance(value, (int, float)) and _is_sane(name, value):
            begin[name] = float(value)
    return begin


def _as_it_ended(change: Change, newest: Mapping[str, float]) -> Change:
    """The change, as far as the fixes of the run went in the same direction."""
    further = {}
    for knob, (before, after) in change.items():
        end = newest.get(knob, after)
        beyond = before is not None and after is not None and end is not None and (end - after) * (after - before) > 0
        further[knob] = (before, end if beyond and not KNOBS[knob].choices else after)
    return further


def _in_keys(view: RunView, knob: str, before: float | None, after: float | None) -> str:
    """A change in the configuration keys of our own trainer: the learning rate in place of its factor."""
    key = _key(view, knob)
    rate = view.config(key)
    if not key or knob != RATE or before is None or after is None or not isinstance(rate, (int, float)):
        return in_words({knob: (before, after)}).replace(knob, key or knob)
    return f"{key} {rate * before:g} → {rate * after:g}"


MODE = {"stabilizer": "--remedy {}", "trl": 'remedy="{}" in attach()'}
"""The setting that allows automatic fixes, by trainer. Loops that are not listed have none."""


def _how(
    remedy: Remedy, change: Change, ours: bool = True, *, state: str = "running", words: str = "",
    mode: str = MODE["stabilizer"],
) -> str:  # fmt: skip
    """How to apply it in this trainer; the readers of other trainers' logs name that trainer's settings."""
    turned = words or in_words(change)
    if remedy.safety == "advice":
        words = f"{remedy.by_hand or 'manually'}{f' ({turned})' if turned else ''}"
        return f"{words}; {remedy.restart or 'needs a restart'}" if ours else words
    setting = [f"set {turned}"] if turned else []
    if not ours or state not in LIVE:
        when = "in the next run" if state == "finished" or not ours else "when the run is resumed, or in the next one"
        first = ["start from a checkpoint from before the onset"] if remedy.rollback else []
        return f"{when}: {' and '.join([*first, *setting])}"
    back = ["return to a checkpoint from before the onset"] if remedy.rollback else []
    done = " and ".join([*back, *(ORDER_WORDS[order] for order in remedy.orders), *setting])
    if not mode:
        return f"{done} during the run, yourself; stabilizer fix RUN set changes a knob that the loop offers"
    asks = f"{mode.format('approve')} asks"
    if remedy.asks:
        return f"{done}; a person must approve it ({asks})"
    does = mode.format("auto-safe" if remedy.safety == "soft" else "auto-full")
    return f"{done} during the run ({does} does it, {asks} first)"


ORDER_WORDS = {
    "skip-update": "skip the updates of some steps (stabilizer fix RUN do skip-update skips one)",
    "reset-optimizer": "reset the optimizer's averages (stabilizer fix RUN do reset-optimizer)",
    "reset-reference": "make the current policy the reference (stabilizer fix RUN do reset-reference)",
    "pause": "pause the run (stabilizer fix RUN pause)",
    "stop": "end the run with its state saved (Ctrl-C or SIGTERM does)",
}
