"""All remedies, in the order in which they are tried against one cause. A new remedy is a new file and a line here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stabilizer.records import Cause, RemedyAdvice
from stabilizer.remedies.advice import BY_HAND, CHECK_REWARD, EASIER_PROMPTS, RaiseLr
from stabilizer.remedies.base import Remedy
from stabilizer.remedies.controls import KNOBS
from stabilizer.remedies.grow_batch import GrowBatch
from stabilizer.remedies.lower_beta import LowerBeta
from stabilizer.remedies.lower_lr import LowerLr
from stabilizer.remedies.raise_beta import RaiseBeta
from stabilizer.remedies.raise_entropy import RaiseEntropy
from stabilizer.remedies.roll_back import RollBack
from stabilizer.runs.history import RunView

REMEDIES: tuple[Remedy, ...] = (
    CHECK_REWARD,
    RollBack(),
    LowerLr(),
    RaiseBeta(),
    GrowBatch(),
    RaiseEntropy(),
    LowerBeta(),
    EASIER_PROMPTS,
    RaiseLr(),
    *BY_HAND,
)


def for_cause(cause: str) -> list[Remedy]:
    """Remedies against a cause, in order."""
    return [remedy for remedy in REMEDIES if cause in remedy.answers]


def fitting(cause: str, view: RunView) -> list[Remedy]:
    """Those of them that can help this run: going back mends weights, and is no use where they are unharmed."""
    remedies = for_cause(cause)
    return [remedy for remedy in remedies if not remedy.rollback] if _unharmed(cause, view) else remedies


def _unharmed(cause: str, view: RunView) -> bool:
    """The trainer left out every update that was no number (`optim/skipped`)."""
    if cause != "numeric-overflow":
        return False
    left_out = view.series("optim/skipped").last(200)
    rows = [view.series(name).last(200) for name in ("policy/loss", "optim/grad_norm")]
    broken = {step for row in rows for step in row.steps[~np.isfinite(row.values)].tolist()}
    return bool(broken) and broken <= set(left_out.steps[left_out.values > 0].tolist())


def advise(causes: Sequence[Cause], view: RunView) -> tuple[RemedyAdvice, ...]:
    """What to change against the likeliest cause, with the knobs as they stand in this run.

    A run that logs no knobs still has a learning rate, so its scale counts as 1; a remedy that needs a knob whose
    value nobody knows is left out.
    """
    if not causes:
        return ()
    known = {"control/lr_scale": 1.0}
    known |= {name: value for name in KNOBS if (value := view.latest(name)) is not None}
    beta = view.config("policy.beta", view.config("beta"))
    if isinstance(beta, (int, float)):
        known.setdefault("control/beta", float(beta))
    advice = []
    for remedy in fitting(causes[0].id, view):
        change = remedy.change(known)
        if change is None:
            continue
        advice.append(
            RemedyAdvice(id=remedy.id, safety=remedy.safety, change=change, why=remedy.why, how=_how(remedy, change))
        )
    return tuple(advice)


def _how(remedy: Remedy, change: dict[str, tuple[float | None, float | None]]) -> str:
    """How to do it in our own trainer; readers of other trainers' logs say it in that trainer's words."""
    turned = ", ".join(f"{knob} {before:g} → {after:g}" for knob, (before, after) in change.items())
    if remedy.safety == "advice":
        words = remedy.by_hand or "by hand"
        return f"{words} ({turned})" if turned else words
    back = "return to a checkpoint from before the onset and set " if remedy.rollback else "set "
    mode = "auto-safe" if remedy.safety == "soft" else "auto-full"
    return f"{back}{turned} while the run goes on (--remedy {mode} does it, --remedy approve asks first)"
