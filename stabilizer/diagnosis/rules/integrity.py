"""Something is broken as a matter of fact: numbers, rewards, groups, engines, machines, data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stabilizer.detectors.reward.scale_shift import components
from stabilizer.diagnosis.case import LEAD, MARGIN, SOON, TOGETHER, Case, Shift
from stabilizer.diagnosis.rules.base import FITS, NO, PROOF, SIGNATURE, TURNED, UNLIKELY, WEAK, Table, Verdict
from stabilizer.records import Finding
from stabilizer.runs.history import Series

SPIKE_ROWS = 300
"""Rows back in which spikes that come back are looked for."""
SPREAD_ROWS = 5
"""Rows after which a step of the spread within groups is believed."""


def overflow(case: Case) -> Verdict:
    """Loss or gradient is no number."""
    found = case.find("numerics/non-finite")
    if found is None:
        return NO
    if "reward/mean" in _metrics(found):
        return 0.3, ["the reward itself is no number"]
    return 0.6, [f"{found.summary}: overflow, a division by zero, or a reward that is no number"]


def precision(case: Case) -> Verdict:
    """Too few bits: float16 overflows at 65,504, and bfloat16 weights swallow steps below 1/256 of their size."""
    words = case.words("precision", "dtype", "torch_dtype", "actor_rollout_ref.actor.fsdp_config.dtype")
    half = "float16" in words.replace("bfloat16", "") or case.view.config("fp16") is True
    if half and case.find("numerics/non-finite"):
        return SIGNATURE, ["training in float16, which overflows at 65,504, and a number stopped being one"]
    moved = case.recent("optim/update_ratio")
    idle = case.find("optim/no-update", "optim/lr-too-low")
    if words == "bfloat16" and idle and moved is not None and moved < 1e-6:
        return 0.75, [f"weights kept in bfloat16 hold 8 bits, and a step changes them by {moved:.1g} of their size"]
    if "16" in words and case.find("policy/mismatch"):
        return WEAK, [f"engine and trainer disagree, and the numbers are {words}"]
    return NO


def frozen(case: Case) -> Verdict:
    """Updates are made and the weights stay where they are: a gradient nobody gets, or an optimizer without them."""
    found = case.find("optim/no-update")
    if found is None or found.severity == "info" or case.recent("optim/lr") == 0:
        return NO
    silent, pull = case.recent("reward/zero_std_frac"), case.recent("optim/grad_norm")
    if silent is not None and silent >= 0.8:
        return NO
    broken = case.find("numerics/non-finite")
    if broken is not None and broken.onset_step <= found.onset_step + MARGIN * case.spacing:
        return UNLIKELY, [found.summary, "but what is no number can't be applied, which explains it"]
    spread = (
        [f"only {silent:.0%} of groups lack spread, so there is something to learn from"] if silent is not None else []
    )
    where = [f"the gradient norm is {pull:.3g}: it is computed, and not applied"] if pull else []
    return SIGNATURE, [found.summary, *spread, *where]


def reward_fails(case: Case) -> Verdict:
    """Rewards are missing, are no numbers, or changed their unit."""
    outage, scale = case.find("reward/outage"), case.find("reward/scale-shift")
    if outage is not None and _tool(case, outage):
        return WEAK, [outage.summary]
    if outage is not None:
        return TURNED, [outage.summary]
    broken = case.find("numerics/non-finite")
    if broken is not None and "reward/mean" in _metrics(broken):
        return TURNED, ["the reward is no number: a reward function returned NaN or infinity"]
    if scale is None:
        return NO
    if part := newly_paid(case, scale.onset_step):
        return FITS, [scale.summary, f"but {part}"]
    if scale.onset_step > case.onset + 3 * MARGIN * case.spacing:
        return UNLIKELY, [scale.summary, f"but what is wrong began at step {case.onset}"]
    return SIGNATURE, [scale.summary]


def newly_paid(case: Case, step: int) -> str:
    """In words, a part of the reward that is paid since about a step and makes most of what the reward changed by."""
    before, after = case.rows("reward/mean", step, -20, -SOON), case.rows("reward/mean", step, SOON, 15)
    if len(before) < 10 or len(after) < 3 or not (gained := float(np.median(after) - np.median(before))):
        return ""
    for name in components(case.view):
        series = case.view.series(name).finite()
        near = abs(int(series.steps[0]) - step) <= SOON * case.spacing if len(series) else False
        part = case.rows(name, step, SOON, 15) if near else ()
        if len(part) and float(np.median(part)) / gained > 0.7:
            words = f"{name} is part of the reward only since step {int(series.steps[0])}"
            return f"{words} and makes {np.median(part):.3g} of its change by {gained:.3g}"
    return ""


def reward_fell_alone(case: Case) -> Verdict:
    """The reward fell off an edge while the policy stood still: the price changed, not what was made."""
    reward = case.reward
    if reward is None or not reward.dropped or case.upstream(reward.drop_step):
        return NO
    edge = reward.drop_step
    before, after = (case.rows(reward.metric, edge, *span) for span in ((-8, -1), (2, 7)))
    if len(before) < 3 or len(after) < 3 or np.median(before) - np.median(after) < 0.6 * (reward.best - reward.now):
        return NO
    still = _still(case, edge)
    if not still:
        return NO
    words = f"the reward fell within a few rows at step {edge} while {', '.join(still)} did not move"
    if (silent := _silenced(case, edge)) and not _alike(case, edge, silent[1]):
        return UNLIKELY, [f"{words}, but groups fell silent as a whole"]
    if case.find("system/data-shift"):  # other prompts do the same to the reward, and they were seen to be others
        return UNLIKELY, [words]
    length = case.jumped("rollout/length_mean", edge, 1.08)
    if length:
        return UNLIKELY, [f"{words}, but answers went from {length[0]:.0f} to {length[1]:.0f} tokens at once"]
    score, held = min(0.45 + 0.1 * len(still), 0.75), case.held_out(edge)
    if held is not None and held.after < 0.85 * held.before - 0.03:
        fell = f"held-out accuracy fell as well ({held.before:.3g} to {held.after:.3g})"
        if len(still) < 3 or "policy/kl_ref" not in still or held.after > 0.5 * held.before:
            return UNLIKELY, [f"{words}, but {fell}"]
        return FITS, [f"{words}, and {fell}: what judges both, for a policy that stands loses nothing"]
    kept = [f"held-out accuracy is still {held.after:.3g}"] if held is not None else []
    return score + 0.1 * len(kept), [words, *kept]


def gradient_rescaled(case: Case) -> Verdict:
    """The gradient is on another scale, and neither the policy nor what it was paid: advantages or the loss are."""
    found = case.find("optim/grad-explosion")
    if found is None or case.turned("control/lr_scale", up=True):
        return NO
    still = _still(case, found.onset_step)
    if not found.evidence.get("rescaled"):
        jump, spread = (case.jumped(name, found.onset_step, 2.0) for name in ("optim/grad_norm", "reward/std_group"))
        later = case.shift("optim/update_ratio")
        if len(still) < 3 or jump is None or jump[1] < jump[0] or spread or later is None or later.ratio > 1.3:
            return NO
    return (FITS, [found.summary, f"{', '.join(still)} stood"]) if still else NO


def pushed_down(case: Case) -> Verdict:
    """Right answers lose ground by steps of the usual size, and the reward with them: credit has the wrong sign, or
    goes to others than earned it."""
    found, reward = case.find("policy/likelihood-displacement"), case.reward
    if found is None or found.severity == "info" or reward is None or not reward.dropped:
        return NO
    if case.upstream(found.onset_step, "source") or not _came_first(case, "policy/logp_correct"):
        return NO
    weights, policy = case.shift("optim/update_ratio"), case.shift("policy/kl_old")
    size, limit = (weights, 1.5) if weights is not None and weights.before > 0 else (policy, 2.0)
    if size is None or not size.before > 0 or size.ratio > limit:
        return NO
    name = "the weights change in a step" if size is weights else "a step moves the policy"
    reasons = [found.summary, f"while {name} as much as before, so each goes the wrong way, not too far"]
    halves = case.shift("optim/grad_cosine")
    if halves is not None and halves.before > 0.1 and halves.after < 0.3 * halves.before:
        words = f"({halves.before:.2g} to {halves.after:.2g}), as when credit is given at random"
        return SIGNATURE, [*reasons, f"and two halves of a batch no longer agree on where to go {words}"]
    return FITS, reasons


def _came_first(case: Case, name: str) -> bool:
    """A metric left its course, and nothing further down left it clearly before."""
    own = next((move for move in case.moves if move.metric == name), None)
    rows = TOGETHER * case.spacing
    return own is not None and not any(m.stage > own.stage and m.step < own.step - rows for m in case.moves)


def spikes_at_equal_distance(case: Case) -> Verdict:
    """Gradients are many times as long in one row of so many, in which answers, pay and steps are as in any other."""
    found = case.find("optim/grad-spike")
    if found is None or found.severity == "info":
        return NO
    series = case.view.series("optim/grad_norm")
    series = Series(series.steps[-SPIKE_ROWS:], series.values[-SPIKE_ROWS:]).finite()
    rows = np.flatnonzero(series.values > 3 * np.median(series.values))
    rows = rows[series.steps[rows] >= found.onset_step]
    gaps = np.diff(rows)
    if len(gaps) < 2 or gaps.min() < 3 or np.ptp(gaps) > 0:
        return NO
    usual = []
    for name in ("reward/mean", "reward/std_group", "policy/entropy", "policy/kl_old", "rollout/length_mean"):
        other = case.view.series(name)
        spiked = other.values[np.isin(other.steps, series.steps[rows])]
        between = other.values[(other.steps >= found.onset_step) & ~np.isin(other.steps, series.steps[rows])]
        if len(spiked) < 3 or len(between) < 10:
            continue
        if abs(np.median(spiked) - np.median(between)) > 2 * np.std(between):
            return NO
        usual.append(name)
    if len(usual) < 3:
        return NO
    words = f"{len(rows)} spikes, each {int(gaps[0])} rows after the one before, and in those rows {', '.join(usual)}"
    return FITS, [found.summary, f"{words} are as in any other: what weighs the answers is off whenever it comes back"]


def right_changed(case: Case) -> Verdict:
    """From one row to the next answers that count as right are far less likely, and no fewer: a policy that hardly
    moves can't do that, whoever says what is right can."""
    found = case.find("policy/likelihood-displacement", "reward/plateau", "reward/noise-floor", "reward/scale-shift")
    series = case.view.series("policy/logp_correct")
    if found is None or len(series) < 40 or case.find("system/data-shift"):
        return NO
    place = int(np.searchsorted(series.steps, min(f.onset_step for f in case.findings)))
    steps = series.steps[max(25, place - MARGIN) : place + 2 * MARGIN]
    falls = []
    for step in map(int, steps):
        before, after = case.rows("policy/logp_correct", step, -22, -1), case.rows("policy/logp_correct", step, 0, 8)
        if len(before) >= 12 and len(after) >= 5:
            falls.append((float(np.median(after) - np.median(before)) / (float(before.std()) + 0.02), step))
    if not falls or min(falls)[0] > -2.5:
        return NO
    edge = min(falls)[1]
    was, now = (float(np.median(case.rows("policy/logp_correct", edge, *span))) for span in ((-22, -1), (0, 8)))
    taken, entropy = case.rows("policy/kl_old", edge, -2, 3), case.jumped("policy/entropy", edge, 1.2)
    if len(taken) < 3 or 1.5 * float(np.sqrt(np.maximum(taken, 0.0)).sum()) > was - now:  # as far as steps can take it
        return NO
    paid = [case.rows("reward/mean", edge, *span) for span in ((-22, -1), (0, 8))]
    if entropy is not None or now > 1.5 * was or not all(map(len, paid)):
        return NO
    if float(np.median(paid[1])) < float(np.median(paid[0])) - 0.5 * float(paid[0].std()):
        return NO
    words = f"answers that count as right went from {was:.2g} to {now:.2g} nats/token at step {edge} while no fewer did"
    step = f"and steps moved the policy by {float(taken.max()):.2g} nats/token at most"
    return SIGNATURE, [f"{words} {step}: what is called right changed, not what is written"]


def groups_mixed(case: Case) -> Verdict:
    """From one row to the next answers to one prompt differ as much as answers to all, and no more are right: rewards
    no longer stand beside the answers that earned them."""
    within, between = case.view.series("reward/std_group"), case.view.series("reward/std")
    if len(within) < 40 or not case.loud or not np.array_equal(within.steps, between.steps):
        return NO
    with np.errstate(divide="ignore", invalid="ignore"):
        share = within.values / between.values
    place = int(np.searchsorted(within.steps, case.onset))
    rises = []
    for row in range(max(25, place - LEAD), min(place + MARGIN, len(share) - 12)):
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
    still = _still(case, edge)
    if len(still) < 2:
        return NO
    words = f"rewards within a group differ by {now:.0%} of what they do in the batch since step {edge}, {was:.0%} before"
    reasons = [f"{words}, while their mean and spread over the batch, {', '.join(still)} stood"]
    at_random = _at_random(case)
    if at_random is not None and abs(at_random.step - edge) <= 2 * MARGIN * case.spacing:
        return 0.75, [*reasons, at_random.words]
    return (FITS, reasons) if clear >= 4 else NO


def credit_at_random(case: Case) -> Verdict:
    """From some row on the halves of a batch no longer agree on where to go, steps are as long as before, rewards
    differ as before, and what was learned is lost: advantages are not those of the answers they stand beside."""
    lost, reward = _at_random(case), case.reward
    if lost is None or reward is None or not reward.dropped or reward.drop_step < lost.step - SOON * case.spacing:
        return NO
    if case.upstream(lost.step, "source"):
        return NO
    return FITS, [lost.words, f"and {reward.metric} fell from step {reward.drop_step} on"]


class _Random(NamedTuple):
    step: int
    words: str


def _at_random(case: Case) -> _Random | None:
    """Where the gradients of two halves of a batch ceased to agree, with steps, spread and batch as they were."""
    series = case.view.series("optim/grad_cosine").finite()
    place = int(np.searchsorted(series.steps, case.onset))
    falls = []
    for row in range(max(25, place - LEAD), min(place + MARGIN, len(series) - 20)):
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
        if not len(before) or not len(after) or not low <= float(after.mean()) / max(float(before.mean()), 1e-12) <= high:
            return None
    words = f"two halves of a batch no longer agree on where to go ({was:.2g} to {now:.2g} since step {edge})"
    return _Random(edge, f"{words}, by steps as long and rewards as different as before")


def groups_silenced(case: Case) -> Verdict:
    """From one row to the next many groups are paid alike, while the policy stood still: prompts that teach nothing."""
    lost = _spread_lost(case)
    if lost is None or lost.failing or (silent := _silent(case, lost.step)) is None or silent[1] < silent[0] + 0.25:
        return NO
    return 0.85, [f"groups without any spread went from {silent[0]:.0%} to {silent[1]:.0%}", lost.words]


def prompts_beyond(case: Case) -> Verdict:
    """From one row to the next many groups fail as a whole, while the policy stood still: prompts beyond it."""
    lost = _spread_lost(case)
    if lost is None or not lost.failing or not (silent := _silenced(case, lost.step)):
        return NO
    cut = [case.rows("rollout/truncated_frac", lost.step, *span) for span in ((-20, -1), (1, 9))]
    if all(map(len, cut)) and float(np.median(cut[1])) > float(np.median(cut[0])) + 0.1:
        return UNLIKELY, [lost.words, "but answers are cut from then on, and what is cut is not judged"]
    if (alike := _alike(case, lost.step, silent[1])) is not None:
        words = f"so few right answers ({alike:.1%}) leave as many groups without one, whichever prompts they are to"
        return UNLIKELY, [lost.words, words]
    return 0.8, [f"groups without any spread went from {silent[0]:.0%} to {silent[1]:.0%}", lost.words]


def spread_shrunk(case: Case) -> Verdict:
    """From one row to the next the groups differ by less, and no more of them are alike: what differs is next to
    nothing in some, and dividing by it makes it as loud as the rest."""
    lost = _spread_lost(case)
    if lost is None or case.view.latest("control/advantage") not in (None, 0.0):
        return NO
    silent = _silent(case, lost.step)
    if (silent is None and lost.failing) or (silent is not None and silent[1] > silent[0] + 0.15):
        return NO
    return 0.85, [f"no more groups are without spread than before: {lost.words}"]


class _Lost(NamedTuple):
    """Spread of reward within groups that went in a few rows."""

    step: int
    failing: bool
    """The reward went with it."""
    words: str


def _spread_lost(case: Case) -> _Lost | None:
    """Where the spread within groups stepped down by a third and stayed there, while the policy stood still."""
    series = case.view.series("reward/std_group")
    if len(series) < 40 or case.find("reward/outage"):
        return None
    steps = series.steps[max(20, int(np.searchsorted(series.steps, case.onset)) - MARGIN) : -SPREAD_ROWS]
    shifts = ((int(step), case.jumped("reward/std_group", int(step), 1.5)) for step in steps)
    falls = [(now / was, step, was, now) for step, shift in shifts if shift for was, now in [shift] if now < was]
    if not falls:
        return None
    _, edge, was, now = min(falls)
    level, still = case.recent("reward/std_group"), _still(case, edge)
    if edge > case.onset + 2 * MARGIN * case.spacing and case.upstream(edge - MARGIN * int(case.spacing), "behaviour"):
        return None  # a policy that went wrong long before has lost it by now
    if level is None or 1.5 * level > was or len(still) < 2 or _solves(case, edge):
        return None
    paid, failed = case.jumped("reward/mean", edge, 1.5), _failed(case, edge)
    words = (
        f"reward differs by {now:.2g} within a group, by {was:.2g} before step {edge}, while {', '.join(still)} stood"
    )
    return _Lost(edge, (paid is not None and paid[1] < paid[0]) or failed, words)


def _failed(case: Case, edge: int) -> bool:
    """The groups that fell silent are groups that fail, and the reward went down with them."""
    failing = [case.rows("reward/all_fail_frac", edge, *span) for span in ((-22, -2), (1, 13))]
    paid = [case.rows("reward/mean", edge, *span) for span in ((-22, -2), (1, 13))]
    silent = _silent(case, edge)
    if silent is None or not all(len(part) >= 4 for part in (*failing, *paid)):
        return False
    more = float(failing[1].mean() - failing[0].mean())
    noise = float(paid[0].std()) * np.sqrt(1 / len(paid[0]) + 1 / len(paid[1]))
    return more > 0.6 * (silent[1] - silent[0]) > 0 and bool(float(paid[0].mean() - paid[1].mean()) > 1.5 * noise)


def _solves(case: Case, edge: int) -> bool:
    """Answers are alike because they are right: nothing is lost."""
    before, after = (case.rows("reward/all_pass_frac", edge, *span) for span in ((-20, -1), (1, 9)))
    return bool(len(before) and len(after)) and float(np.median(after)) > float(np.median(before)) + 0.2


def _silenced(case: Case, edge: int) -> tuple[float, float] | None:
    """(before, after) of the share of groups without spread, where it stepped up and some groups are left."""
    silent = _silent(case, edge)
    return silent if silent is not None and silent[0] + 0.25 <= silent[1] < 0.97 else None


def _silent(case: Case, edge: int) -> tuple[float, float] | None:
    """(before, after) of the share of groups without spread."""
    before, after = (case.rows("reward/zero_std_frac", edge, *span) for span in ((-22, -2), (1, 9)))
    return (float(np.median(before)), float(np.median(after))) if len(before) >= 8 and len(after) >= 4 else None


def _alike(case: Case, edge: int, silent: float) -> float | None:
    """The share of right answers, where it explains the silent groups by itself: a verifier that fails, fails for some
    answers of a group as for others, while prompts that are too hard fail as groups and leave the others alone."""
    right, size = case.rows("accuracy/train", edge, 1, 9), case.recent("batch/group_size")
    if len(right) < 4 or not size:
        return None
    share = float(np.mean(right))
    return share if silent < (1 - share) ** size + share**size + 0.1 else None


def _still(case: Case, edge: int) -> list[str]:
    """What measures the policy and did not move around a step; nothing when any of it did."""
    still = []
    for name in ("policy/entropy", "policy/kl_ref", "policy/kl_old", "optim/update_ratio"):
        usual, then = case.rows(name, edge, -40, -9), case.rows(name, edge, -3, 5)
        if len(usual) < 5 or len(then) < 3:
            continue
        moved = float(np.median(then) - np.median(usual))
        if name in ("policy/kl_old", "optim/update_ratio"):
            moved = max(moved, 0.0)  # with less to learn from, steps get smaller
        if abs(moved) > max(3 * np.std(usual), 0.3 * abs(np.median(usual))):
            return []
        still.append(name)
    return still


def wrong_groups(case: Case) -> Verdict:
    """Advantages of a group do not add up to nothing: they compare answers to different prompts."""
    error = _invariant(case, "reward/advantage_center_error")
    return (PROOF, [f"{error.summary}; advantages of one group must add up to 0"]) if error else NO


def stale_weights(case: Case) -> Verdict:
    """The answers were written by older weights than those that learn."""
    error = _invariant(case, "rollout/sync_error", "rollout/sync_retries") or _off_after_sync(case)
    if error:
        return PROOF, [error.summary]
    reasons = [found.summary for found in case.findings if found.id == "policy/stale-rollouts"]
    late = case.shift("rollout/staleness")
    if late is not None and late.after > max(2 * late.before, late.before + 1):
        reasons.append(f"answers are {late.after:.0f} updates old, {late.before:.0f} before step {case.onset}")
        reasons += [first] if (first := case.led("rollout/staleness")) else []
    elif not reasons and _disagree(case) and _grows(case, "policy/mismatch_kl"):
        return FITS, ["engine and trainer disagree more with every step, as when the engine's weights stay behind"]
    return (min(0.6 + 0.15 * (len(reasons) - 1), 0.9), reasons) if reasons else NO


def engine_mismatch(case: Case) -> Verdict:
    """Generation and training give the same token different probabilities on the same weights."""
    error = _invariant(case, "policy/ratio_first_error", "policy/mismatch_kl")
    found = _disagree(case)
    first = case.led("policy/mismatch_kl")
    if not (error or found or first):
        return NO
    reasons = [f.summary for f in (error, found) if f] + ([first] if first else [])
    if _off_after_sync(case):
        return FITS, [*reasons, "but the engine does not have the newest weights, which explains it"]
    old = case.shift("rollout/staleness")
    if old is not None and old.after <= old.before:
        reasons.append(f"staleness ({old.after:.0f} updates) did not change, which excludes old weights")
    turn = case.turned("control/temperature", up=True) or case.turned("control/temperature", up=False)
    return min(0.5 + 0.1 * len(reasons) + (0.1 if turn else 0), 0.9), reasons + ([str(turn)] if turn else [])


def tool_broken(case: Case) -> Verdict:
    """The tool gives nothing back, so using it stopped paying."""
    found = case.find("rollout/tool-collapse")
    if found is None:
        return NO
    invalid, read = case.shift("rollout/invalid_calls_frac"), case.shift("rollout/retrieved_frac")
    reasons = [found.summary]
    if invalid is not None and invalid.after > invalid.before + 0.1:
        reasons.append(f"{invalid.after:.0%} of calls are invalid, {invalid.before:.0%} before step {case.onset}")
    if read is not None and read.after < 0.5 * read.before:
        reasons.append(f"{read.after:.0%} of tokens come from the tool, {read.before:.0%} before")
    return min(0.45 + 0.15 * (len(reasons) - 1), 0.8), reasons


def tool_misleads(case: Case) -> Verdict:
    """The tool is asked as often as before and what is learned from it is worth less, in training as held out."""
    asked, reward = case.shift("rollout/searches_mean"), case.reward
    if asked is None or reward is None or not reward.dropped or case.find("rollout/tool-collapse"):
        return NO
    if (held := case.held_out(case.onset)) is None:
        return NO
    if asked.before < 0.3 or asked.after < 0.7 * asked.before or held.after > 0.7 * held.before - 0.05:
        return NO
    sizes = {name: case.shift(name) for name in ("optim/update_ratio", "policy/kl_old")}
    known = {name: shift for name, shift in sizes.items() if shift is not None and shift.before > 0}
    if not known or any(shift.ratio > 1.5 for shift in known.values()) or case.upstream(case.onset, "source"):
        return NO
    words = f"held-out accuracy went from {held.before:.3g} to {held.after:.3g} and {reward.metric} to {reward.now:.3g}"
    how = f"the tool is asked as often ({asked.after:.2g} times an answer) and {', '.join(known)} did not grow"
    return 0.65, [f"{words}, while {how}: what both share is the tool"]


def critic_broken(case: Case) -> Verdict:
    """The critic misleads, and advantages are made of what it says."""
    found = case.find("value/critic-failure")
    if found is None:
        return NO
    first = case.led("value/explained_variance")
    return (0.8, [found.summary, first]) if first else (SIGNATURE, [found.summary])


def optimizer_state(case: Case) -> Verdict:
    """The optimizer's running averages are not those of this run."""
    found = case.find("optim/optimizer-state", "system/resume-mismatch")
    if found is None:
        return NO
    resumed = [e for e in case.view.events(("resume",)) if abs(e.step - found.onset_step) <= 20 * case.spacing]
    if found.onset_step > case.onset + 3 * MARGIN * case.spacing:
        return UNLIKELY, [found.summary, f"but what is wrong began at step {case.onset}"]
    if not resumed and (more := case.multiplied):
        return UNLIKELY, [found.summary, f"but a step makes {more.after:.0f} updates since, {more.before:.0f} before"]
    reasons = [found.summary, *(f"the run was resumed at step {event.step}" for event in resumed[-1:])]
    return (0.85 if resumed else SIGNATURE), reasons


def data_shift(case: Case) -> Verdict:
    """Other prompts than before."""
    found = case.find("system/data-shift")
    staged = [e for e in case.view.events(("data-stage",)) if abs(e.step - case.onset) <= 20 * case.spacing]
    if staged:
        return 0.85, [f"a data stage began at step {staged[-1].step}: {staged[-1].text}"]
    if found is None:
        return NO
    if "gap" in found.evidence:  # learned by heart, which a hole in the reward looks like from outside
        return (0.6 if case.find("reward/hacking") else SIGNATURE), [found.summary]
    cut = case.find("rollout/truncation")
    if cut is not None and cut.onset_step <= found.onset_step + 2 * case.spacing:
        return UNLIKELY, [found.summary, "but answers are cut from then on, which shortens them and costs the reward"]
    return 0.75, [found.summary, *_same_policy(case)]


def learned_by_heart(case: Case) -> Verdict:
    """What pays ever more is right, on these prompts alone, and answers hang on the prompt as never before: the same
    prompts come back. Whoever finds what a reward overlooks says one thing to all prompts."""
    found = case.find("reward/hacking")
    if found is None:
        return NO
    since = found.onset_step
    solved, held = _since(case, "accuracy/train", since), _since(case, "accuracy/val", since)
    hangs = _since(case, "rollout/prompt_dependence", since)
    if solved is None or held is None or hangs is None:
        return NO
    if solved.after < solved.before + 0.15 or held.after > held.before + 0.1 or hangs.ratio < 1.2:
        return NO
    words = f"training problems are solved ({solved.before:.3g} to {solved.after:.3g}), held-out ones are not"
    how = f"answers depend on their prompt by {hangs.after:.2g}, {hangs.before:.2g} before: each has its own by heart"
    return 0.8, [f"{words} ({held.before:.3g} to {held.after:.3g})", how]


def _since(case: Case, name: str, step: int) -> Shift | None:
    """A metric around a step (the first 20 rows, where it is early), and now."""
    before, now = case.view.series(name).between(step - 20, step + 20).finite().values, case.recent(name)
    return Shift(float(np.median(before)), now) if len(before) and now is not None else None


def crash(case: Case) -> Verdict:
    """The process or a worker died, or the machine is slower than it was."""
    found = case.find("system/crashed", "system/stalled", "system/slowdown")
    if found is None or _memory(found) or found.evidence.get("cause") == "program-error":
        return NO
    return (FITS if found.id == "system/slowdown" else 0.8), [found.summary]


def program(case: Case) -> Verdict:
    """The program stopped with an exception of its own."""
    found = case.find("system/crashed")
    told = found is not None and found.evidence.get("cause") == "program-error"
    return (PROOF, [found.summary]) if found is not None and told else NO


def memory(case: Case) -> Verdict:
    """Memory ran out, by the words of the error."""
    found = case.find("system/crashed")
    return (PROOF, [found.summary]) if found is not None and _memory(found) else NO


def config_error(case: Case) -> Verdict:
    """The trainer refused its configuration."""
    found = case.find("system/config-error")
    return (PROOF, [found.summary]) if found is not None else NO


def _memory(found: Finding) -> bool:
    text = f"{found.evidence.get('kind', '')} {found.summary}".lower().replace("-", " ")
    return any(words in text for words in ("out of memory", "outofmemory", "oom", "memory killed"))


def _metrics(found: Finding) -> tuple[str, ...]:
    several = found.evidence.get("metrics", ())
    return (str(found.evidence.get("metric", "")), *(several if isinstance(several, (list, tuple)) else ()))


def _invariant(case: Case, *names: str) -> Finding | None:
    """The broken invariant, when it is about one of these metrics."""
    return next((f for f in case.findings if f.id == "system/invariant" and set(names) & set(_metrics(f))), None)


def _off_after_sync(case: Case) -> Finding | None:
    """Weights that were handed over and did not arrive: the engine's answer to a fixed text says so."""
    return next(
        (f for f in case.findings if f.id == "policy/stale-rollouts" and "rollout/sync_error" in _metrics(f)), None
    )


def _same_policy(case: Case) -> list[str]:
    """What speaks for other prompts rather than another policy: held-out problems stay the same."""
    held = case.shift("accuracy/val")
    if held is None or abs(held.after - held.before) > 0.05:
        return []
    return [f"held-out accuracy, whose problems stay the same, is still {held.after:.3g}"]


def _tool(case: Case, outage: Finding) -> bool:
    """The tool collapsed no later than rewards went missing, so what fails is most likely the tool."""
    tool = case.find("rollout/tool-collapse")
    return tool is not None and tool.onset_step <= outage.onset_step + TOGETHER * case.spacing


def _disagree(case: Case) -> Finding | None:
    return case.find("policy/mismatch", "policy/router-shift")


def _grows(case: Case, name: str) -> bool:
    """It kept growing since the onset, rather than stepping up to a new level."""
    since = case.view.series(name).between(case.onset, case.view.step).finite().values
    thirds = np.array_split(since, 3)
    return len(since) >= 15 and bool(1.5 * np.median(thirds[0]) < np.median(thirds[1]) < np.median(thirds[2]) / 1.3)


RULES: Table = (
    ("config-error", config_error),
    ("out-of-memory", memory),
    ("infrastructure", crash),
    ("program-error", program),
    ("numeric-overflow", overflow),
    ("precision", precision),
    ("weights-frozen", frozen),
    ("reward-fault", reward_fails),
    ("reward-fault", reward_fell_alone),
    ("reward-fault", gradient_rescaled),
    ("reward-fault", spikes_at_equal_distance),
    ("reward-fault", right_changed),
    ("wrong-groups", pushed_down),
    ("wrong-groups", groups_mixed),
    ("wrong-groups", credit_at_random),
    ("dead-groups", groups_silenced),
    ("dead-groups", spread_shrunk),
    ("prompts-too-hard", prompts_beyond),
    ("wrong-groups", wrong_groups),
    ("stale-weights", stale_weights),
    ("engine-mismatch", engine_mismatch),
    ("tool-broken", tool_broken),
    ("tool-broken", tool_misleads),
    ("critic-broken", critic_broken),
    ("optimizer-state", optimizer_state),
    ("data-shift", data_shift),
    ("data-shift", learned_by_heart),
)
