"""Gradients on a scale that neither answers nor rewards explain: advantages or the loss changed theirs."""

from __future__ import annotations

import numpy as np

from stabilizer.core.stats import middle
from stabilizer.incidents.diagnosis.case import Case
from stabilizer.incidents.diagnosis.rules.base import FITS, NO, WEAK, Table, Verdict
from stabilizer.runs.history import Series

SPIKE_ROWS = 300
"""Rows back in which recurring spikes are looked for."""


def gradient_rescaled(case: Case) -> Verdict:
    """The gradient changed its scale from one row to the next while steps and rewards did not: advantages or the
    loss did."""
    found = case.find("optim/grad-explosion")
    knobs = ("control/lr_scale", "control/beta", "control/entropy_coef", "policy/beta", "policy/entropy_coef")
    if found is None or not case.same_steps or any(case.turned(knob, up=True) for knob in knobs):
        return NO
    jump, spread = (case.jumped(name, found.onset_step, 2.0) for name in ("optim/grad_norm", "reward/std_group"))
    if spread or (not found.evidence.get("rescaled") and (jump is None or jump[1] < jump[0])):
        return NO
    lost = case.reward is not None and case.reward.dropped
    return (WEAK if lost else FITS), [found.summary, case.same_steps]


def spikes_in_usual_rows(case: Case) -> Verdict:
    """Gradients are many times larger in single rows whose answers, rewards and steps are like those of any other
    row."""
    found = case.find("optim/grad-spike")
    if found is None or found.severity == "info":
        return NO
    series = case.view.series("optim/grad_norm")
    series = Series(series.steps[-SPIKE_ROWS:], series.values[-SPIKE_ROWS:]).finite()
    rows = (series.values > 3 * middle(series.values)).nonzero()[0]
    rows = rows[series.steps[rows] >= found.onset_step]
    gaps = np.diff(rows)
    if not len(gaps) or gaps.min() < 3:
        return NO
    usual = []
    for name in ("reward/mean", "reward/std_group", "policy/entropy", "policy/kl_old", "rollout/length_mean"):
        other = case.view.series(name)
        spiked = other.values[np.isin(other.steps, series.steps[rows])]
        between = other.values[(other.steps >= found.onset_step) & ~np.isin(other.steps, series.steps[rows])]
        if len(spiked) < 2 or len(between) < 10:
            continue
        if abs(middle(spiked) - middle(between)) > 2 * np.std(between):
            return NO
        usual.append(name)
    if len(usual) < 3:
        return NO
    words = f"in the {len(rows)} rows with spikes {', '.join(usual)} are as usual"
    reasons = [found.summary, f"{words}, so the weights of the answers are wrong in those rows"]
    if len(gaps) < 2 or np.ptp(gaps) > 0:
        return WEAK, reasons
    return FITS, [*reasons, f"the spikes recur every {int(gaps[0])} rows"]


RULES: Table = (
    ("reward-fault", gradient_rescaled),
    ("reward-fault", spikes_in_usual_rows),
)
