"""Settings that are not what they should be: changed without a declaration, or not in force.

A log that holds a run's settings answers this exactly. Our own trainer declares every change of a knob (by a person, a
remedy, a schedule or a resume) and logs the value in force beside the knob, so every other change is a mistake. A
foreign log declares nothing: its own schedule may change anything, so there a change counts only once the reward has
suffered. So it is in a foreign trainer that we are attached to, whose knobs we read at every step; only a leap by a
factor of `LEAP`, of one knob or of several at one step, counts at once there.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stabilizer.detectors.evidence.since import outcome, slowed
from stabilizer.runs.history import RunView, Series

SETTINGS = (
    "control/epsilon_high", "control/epsilon_low", "control/inner_epochs", "control/minibatches", "control/beta",
    "control/entropy_coef", "control/entropy_target", "control/temperature", "control/prompts", "control/group_size",
    "control/max_completion", "control/max_grad_norm", "control/lr_scale",
)  # fmt: skip
"""Knobs that training depends on, the most informative first where several changed at once."""
COSTLY = ("control/prompts", "control/group_size", "control/max_completion")
"""A higher value of these costs time and no learning, so only a lower one is a mistake."""
FOREIGN = (*SETTINGS[:-1], "optim/lr")
RATE, KNOB_OF_RATE = "optim/lr", "control/lr_scale"
REACH = 300
"""Rows for which an undeclared change is reported; then it is the new normal."""
STEADY = 5
"""Rows of one value before a change: a value that always moves has a controller."""
JUMP = 1.25
"""Factor below which a change is not reported; the learning rate of a foreign log needs `RATE_JUMP`."""
RATE_JUMP = 1.5
LEAP = 3.0
"""Factor from which a change in a trainer that we are attached to counts at once. A choice: an intended stage should be
a smaller step, and a smaller one counts once the reward has suffered."""
STANDS = 3
"""Rows for which the value in force must differ from the setting: a controller that is switched off takes one."""

PENALISED = ("critic/rewards/mean", "objective/rlhf_reward")
"""Columns of the reward after its KL penalty, beside the reward itself: veRL's, TRL's PPO."""


def penalised(view: RunView) -> str | None:
    """The column of the reward after its KL penalty; None in a log without one."""
    return next((name for name in view.names() if name.endswith(PENALISED)), None)


class Change(NamedTuple):
    """A setting that is not what it was, or not what it was set to."""

    metric: str
    step: int
    """Step since when."""
    was: float
    now: float


def undeclared(view: RunView) -> list[Change]:
    """Knobs that were constant, changed without a declaration in the last `REACH` rows, and are not back."""
    own = _own(view)
    attached = not own and KNOB_OF_RATE in view
    found: list[Change] = []
    for name in SETTINGS if own else (*SETTINGS, RATE) if attached else FOREIGN:
        recent = view.series(name).last(REACH)
        if not len(recent) or recent.values[0] == recent.values[-1]:
            continue
        if name == RATE and any(change.metric == KNOB_OF_RATE for change in found):
            continue
        if change := _turn(view, name, recent, gradual=attached and name == KNOB_OF_RATE):
            found.append(change)
    leaps = _leaps(found) if attached else set()
    return [change for change in found if own or change.step in leaps or _harmed(view, change.step)]


def _leaps(changes: list[Change]) -> set[int]:
    """Steps whose changes multiply to a leap: half the prompts at twice the rate is one of four times."""
    sizes: dict[int, float] = {}
    for change in changes:
        if change.metric != RATE:
            sizes[change.step] = sizes.get(change.step, 0.0) + _size(change.was, change.now)
    return {step for step, size in sizes.items() if size >= math.log(LEAP)}


def not_in_force(view: RunView) -> list[Change]:
    """Values that our own trainer logs as in force where they differ from knobs and configuration: (set, in force)."""
    return _overridden(view) if _own(view) else []


def _own(view: RunView) -> bool:
    return KNOB_OF_RATE in view and view.about("trainer") == "stabilizer"


def _turn(view: RunView, name: str, series: Series, *, gradual: bool) -> Change | None:
    """The first change after constant rows. A gradual one counts where the knob has no controller."""
    values = series.values
    least = math.log(RATE_JUMP if name == RATE else JUMP)
    knob, now = KNOB_OF_RATE if name == RATE else name, float(values[-1])
    for row in _after_rest(values, 1.02 if name == RATE else 1.0).tolist():
        was = float(values[row - 1])
        up = now > was
        if (up and name in COSTLY) or (not up and name == RATE):
            continue
        if _size(was, now) < least or (not gradual and _size(was, float(values[row])) < least):
            continue
        if not view.declared(int(series.steps[row]), knob):
            return Change(name, int(series.steps[row]), was, now)
    return None


def _after_rest(values: np.ndarray, factor: float) -> np.ndarray:
    """Rows whose value differs from the one before, where the `STEADY` rows before were within a factor."""
    if len(values) <= STEADY:
        return np.empty(0, int)
    low = high = values[STEADY - 1 : -1]
    for back in range(1, STEADY):
        before = values[STEADY - 1 - back : -1 - back]
        low, high = np.minimum(low, before), np.maximum(high, before)
    alike = (low == high) | ((factor > 1) & (high > 0) & (high <= factor * low))
    rows: np.ndarray = (alike & (values[STEADY:] != values[STEADY - 1 : -1])).nonzero()[0] + STEADY
    return rows


def _size(was: float, now: float) -> float:
    """The distance between two values of a setting, as the logarithm of a factor; infinite from or through 0."""
    if was * now > 0 and math.isfinite(was * now):
        return abs(math.log(now / was))
    return 0.0 if was == now else math.inf


def _harmed(view: RunView, step: int) -> bool:
    since = outcome(view, step)
    return bool(since and (since.fell or (not since.paid and slowed(view, step))))


_CUT = "rollout/truncated_frac"
_PAIRS = (
    (RATE, "control/lr_scale"), ("policy/beta", "control/beta"), ("policy/entropy_coef", "control/entropy_coef"),
    ("batch/prompts_drawn", "control/prompts"), ("batch/group_size", "control/group_size"),
    ("rollout/length_max", "control/max_completion"),
)  # fmt: skip
"""The value in force, and the knob that defines what it should be."""
_LOOKED_AT = (*(name for pair in _PAIRS for name in pair), "control/entropy_target", _CUT, "rollout/turns_mean")


class _Way(NamedTuple):
    """How a metric may leave its knob's value, or a multiple of it: upward, downward, only where `beside` is above
    0."""

    times: float
    up: bool
    down: bool
    beside: str = ""


_EITHER, _DOWN, _DOWN_WHERE_CUT = _Way(1.0, True, True), _Way(1.0, False, True), _Way(1.0, False, True, _CUT)


def _overridden(view: RunView) -> list[Change]:
    newest = [view.latest(name) for name in _LOOKED_AT]
    target, cut, turns = newest[-3:]
    peak, rate = view.config("optim.lr"), None
    if isinstance(peak, (int, float)) and peak > 0:
        rests = view.config("optim.schedule") == "constant" and view.step > (view.config("optim.warmup_steps") or 0)
        rate = _Way(float(peak), True, rests)
    ways = (
        rate, None if view.config("policy.kl_target") else _EITHER, None if target else _EITHER, _DOWN, _EITHER,
        _DOWN_WHERE_CUT if cut and turns is None else None,
    )  # fmt: skip
    found = []
    for place, way in enumerate(ways):
        now, wanted = newest[2 * place], newest[2 * place + 1]
        if way is None or now is None or wanted is None or not _apart(now, wanted * way.times, way.up, way.down):
            continue  # the usual case
        if change := _differs(view, *_PAIRS[place], way, now, wanted):
            found.append(change)
    return found


def _differs(view: RunView, name: str, knob: str, way: _Way, now: float, wanted: float) -> Change | None:
    """Whether a metric has differed from its knob's value for `STANDS` rows."""
    times, up, down, beside = way
    wanted_at = {int(step): times * float(value) for step, value in zip(*view.series(knob).last(REACH), strict=True)}
    cut_at = {int(step) for step, value in zip(*view.series(beside or name).last(REACH), strict=True) if value > 0}
    real = view.series(name).last(REACH)
    rows = [(int(step), float(value)) for step, value in zip(*real, strict=True) if int(step) in wanted_at]
    apart = np.array([
        _apart(value, wanted_at[step], up, down) and (not beside or step in cut_at) for step, value in rows
    ])  # fmt: skip
    if len(apart) < STANDS or not apart[-STANDS:].all():
        return None
    kept = (~apart).nonzero()[0]
    first = int(kept[-1]) + 1 if len(kept) else 0
    return Change(name, rows[first][0], wanted * times, now)


def _apart(now: float, wanted: float, up: bool, down: bool) -> bool:
    slack = 0.01 * abs(wanted) + 1e-12
    return (up and now > wanted + slack) or (down and now < wanted - slack)
