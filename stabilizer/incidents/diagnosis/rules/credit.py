"""Credit does not go to the answers that earned it: wrong sign, wrong size, wrong answer, or a wrong notion of
correct."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stabilizer.core.stats import middle
from stabilizer.incidents.diagnosis.case import LEAD, MARGIN, SOON, Case
from stabilizer.incidents.diagnosis.rules.base import FITS, NO, SIGNATURE, WEAK, Table, Verdict
from stabilizer.incidents.diagnosis.rules.edge import still_around
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


def learned_the_wrong_way(case: Case) -> Verdict:
    """What was learned is lost without a known source, by steps no larger than before, so the steps go in the wrong
    direction: correct answers become less likely, or the halves of a batch no longer agree. Credit has the wrong
    sign, or goes to answers that did not earn it."""
    reward, lost = case.reward, _at_random(case)
    if reward is None or not reward.dropped or not case.same_steps:
        return NO
    falls = next((f for f in case.findings if f.id == "policy/likelihood-displacement" and f.severity != "info"), None)
    if lost is not None and lost.step > reward.drop_step + SOON * case.spacing:
        lost = None
    began = [f.onset_step for f in (falls,) if f] + [random.step for random in (lost,) if random]
    if not began or case.upstream(min(began), "source"):
        return NO
    reasons = [
        f"{reward.metric} has fallen since step {reward.drop_step}",
        f"{case.same_steps}: steps go in the wrong direction",
    ]
    reasons += [falls.summary] if falls else []
    reasons += [lost.words] if lost else []
    return (SIGNATURE if falls and lost else FITS), reasons


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


def right_changed(case: Case) -> Verdict:
    """From one row to the next the answers that count as correct are far less likely, and no fewer. A policy that
    hardly moves cannot do that; a change of what counts as correct can."""
    found = case.find("policy/likelihood-displacement", "reward/plateau", "reward/noise-floor", "reward/scale-shift")
    series = case.view.series("policy/logp_correct")
    if found is None or len(series) < 40 or case.find("system/data-shift"):
        return NO
    place = int(series.steps.searchsorted(min(f.onset_step for f in case.findings)))
    steps = series.steps[max(25, place - MARGIN) : place + 2 * MARGIN]
    falls = []
    for step in map(int, steps):
        before, after = case.rows("policy/logp_correct", step, -22, -1), case.rows("policy/logp_correct", step, 0, 8)
        if len(before) >= 12 and len(after) >= 5:
            falls.append((float(middle(after) - middle(before)) / (float(before.std()) + 0.02), step))
    if not falls or min(falls)[0] > -2.5:
        return NO
    edge = min(falls)[1]
    was, now = (middle(case.rows("policy/logp_correct", edge, *span)) for span in ((-22, -1), (0, 8)))
    taken, entropy = case.rows("policy/kl_old", edge, -2, 3), case.jumped("policy/entropy", edge, 1.2)
    if len(taken) < 3 or 1.5 * float(np.sqrt(np.maximum(taken, 0.0)).sum()) > was - now:  # as far as steps can move it
        return NO
    paid = [case.rows("reward/mean", edge, *span) for span in ((-22, -1), (0, 8))]
    if entropy is not None or now > 1.5 * was or not all(map(len, paid)):
        return NO
    if middle(paid[1]) < middle(paid[0]) - 0.5 * float(paid[0].std()):
        return NO
    words = (
        f"answers that count as correct went from {was:.2g} to {now:.2g} nats/token at step {edge}, and no fewer count"
    )
    largest = f"steps moved the policy by {float(taken.max()):.2g} nats/token at most"
    return SIGNATURE, [f"{words}; {largest}: the notion of correct changed, not the answers"]


def groups_mixed(case: Case) -> Verdict:
    """From one row to the next answers to one prompt differ as much as answers to all, and no more are correct:
    rewards are no longer matched to the answers that earned them."""
    within, between = case.view.series("reward/std_group"), case.view.series("reward/std")
    if len(within) < 40 or not case.loud or not np.array_equal(within.steps, between.steps):
        return NO
    with np.errstate(divide="ignore", invalid="ignore"):
        share = within.values / between.values
    first, last = (int(within.steps.searchsorted(step)) for step in (case.onset, case.latest))
    rises = []
    for row in range(max(25, first - LEAD), min(last + MARGIN, len(share) - 12)):
        before, after = share[row - 25 : row], share[row : row + 12]
        before, after = before[np.isfinite(before)], after[np.isfinite(after)]
        if len(before) >= 15 and len(after) >= 8:
            noise = float(before.std()) * np.sqrt(1 / len(before) + 1 / len(after))
            rises.append((float(after.mean() - before.mean()) / max(noise, 0.01), row, before.mean(), after.mean()))
    if not rises:
        return NO
    clear, row, was, now = max(rises)
    edge = int(within.steps[row])
    if clear < 2.5 or was > 0.88 or now < 0.9 or case.upstream(edge, "source"):
        return NO
    for name in ("reward/mean", "reward/std"):
        before, after = case.rows(name, edge, -25, 0), case.rows(name, edge, 0, 12)
        noise = float(before.std()) * np.sqrt(1 / len(before) + 1 / len(after)) if len(before) and len(after) else 0.0
        if abs(float(after.mean() - before.mean())) > 2.5 * noise:
            return NO
    still = still_around(case, edge)
    if len(still) < 2:
        return NO
    words = f"rewards within a group differ by {now:.0%} of the batch's spread since step {edge}, {was:.0%} before"
    reasons = [f"{words}, while their mean and spread over the batch, {', '.join(still)} did not change"]
    at_random = _at_random(case)
    if at_random is not None and abs(at_random.step - edge) <= 2 * MARGIN * case.spacing:
        return 0.75, [*reasons, at_random.words]
    return (FITS, reasons) if clear >= 4 else NO


class _Random(NamedTuple):
    step: int
    words: str


def _at_random(case: Case) -> _Random | None:
    """The step at which the gradients of two halves of a batch ceased to agree, with steps, spread and batch
    unchanged."""
    series = case.view.series("optim/grad_cosine").finite()
    first, last = (int(series.steps.searchsorted(step)) for step in (case.onset, case.latest))
    falls = []
    for row in range(max(25, first - LEAD), min(last + MARGIN, len(series) - 20)):
        before, after = series.values[row - 25 : row], series.values[row : row + 25]
        noise = float(before.std()) * np.sqrt(1 / len(before) + 1 / len(after))
        falls.append((float(before.mean() - after.mean()) / max(noise, 0.01), row, before.mean(), after.mean()))
    if not falls or max(falls)[0] < 3.3:
        return None
    _, row, was, now = max(falls)
    edge = int(series.steps[row])
    if was < 0.1 or now > 0.25 * was:
        return None
    for name, low, high in (("optim/update_ratio", 0.0, 1.3), ("reward/std_group", 0.85, 9.0), ("batch/prompts", 1, 9)):
        before, after = case.rows(name, edge, -25, 0), case.rows(name, edge, 0, 12)
        if not len(before) or not len(after):
            if name == "optim/update_ratio":
                return None
        elif not low <= float(after.mean()) / max(float(before.mean()), 1e-12) <= high:
            return None
    words = f"the gradients of two halves of a batch no longer agree (cosine {was:.2g} to {now:.2g} since step {edge})"
    return _Random(edge, f"{words}, while step size and spread of rewards are unchanged")


RULES: Table = (
    ("reward-fault", gradient_rescaled),
    ("reward-fault", spikes_in_usual_rows),
    ("reward-fault", right_changed),
    ("wrong-groups", learned_the_wrong_way),
    ("wrong-groups", groups_mixed),
)
