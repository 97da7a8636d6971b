"""The updates are too large, too many, unconstrained, or go in the wrong direction."""

from __future__ import annotations

import numpy as np

from stabilizer.detectors.evidence.step_size import STEP_KL, STEP_RATIO
from stabilizer.incidents.diagnosis.case import Case
from stabilizer.incidents.diagnosis.graph import STAGES
from stabilizer.incidents.diagnosis.rules.base import FITS, NO, SIGNATURE, TURNED, UNLIKELY, WEAK, Table, Verdict

WIDE_CLIP = 0.5
"""Upper clip range that no published recipe uses (0.2 to 0.28 are usual)."""
LARGE_BONUS = 0.01
"""Entropy coefficient from which the bonus competes with the reward (recipes use 0 to 0.001)."""
SUDDEN = 2.0
"""Factor within eight rows by which entropy does not rise by a bonus that was constant before."""
MANY_UPDATES = 8
"""Updates from one batch of answers that count as many."""

DIVERGED = (
    "policy/kl-runaway", "optim/grad-explosion", "policy/overstepping", "policy/entropy-explosion",
    "policy/likelihood-displacement", "reward/collapse", "reward/oscillation",
)  # fmt: skip


def step_too_large(case: Case) -> Verdict:
    """Signs of updates that overshoot, weighed against the signs that this run could have shown."""
    if not diverged(case):
        return NO
    met = possible = 0.0
    reasons = []
    for name, limit, weight, words in (
        ("policy/kl_old", STEP_KL, 0.4, "one step moves the policy by {:.2g} nats/token"),
        ("optim/update_ratio", STEP_RATIO, 0.2, "the relative weight change of one step is {:.2g}"),
        ("policy/clip_frac", 0.15, 0.15, "{:.0%} of tokens are clipped"),
    ):
        peak = _peak(case, name)
        if peak is None:  # not logged, or switched off: no evidence either way
            continue
        possible += weight
        if peak > limit:
            met += weight
            reasons.append(f"{words.format(peak)} around step {case.onset} (limit {limit:g})")
    large, measured = met > 0, possible > 0.15  # with one update a batch hardly any token is clipped, whatever the step
    if moved := _moved_before_the_fall(case):
        possible += 0.3
        met += 0.3 if moved[0] else 0.0
        reasons += [*moved[1], *filter(None, [case.hastened])]
    rate = case.view.series("optim/lr").between(0, case.onset + 5).last(1)
    if reasons and len(rate):
        reasons.append(f"learning rate {rate.values[0]:.2g} at step {rate.steps[0]}")
    score = 0.85 * met / possible if possible else 0.0
    if not large:  # the policy moves first in every divergence, by many small steps too
        return min(score, UNLIKELY if measured else WEAK), reasons
    source = next((m for m in case.moves[:1] if m.stage == STAGES.index("source") and case.led(m.metric)), None)
    other = case.find("system/data-shift")
    if other is not None and "gap" not in other.evidence:  # new prompts move the policy too, whatever the step
        return min(score, UNLIKELY), [*reasons, f"but the prompts changed at step {other.onset_step}"]
    return (score * 0.6 if source else score), reasons


def steps_grew(case: Case) -> Verdict:
    """Steps many times as large as before without another known source, and a reward that suffers."""
    found = case.find("policy/overstepping")
    if found is None or found.severity == "info" or case.upstream(found.onset_step, "update"):
        return NO
    if any(move.stage == STAGES.index("source") and case.led(move.metric) for move in case.moves[:1]):
        return NO
    return WEAK, [found.summary, "nothing upstream moved first"]


def rate_turned_up(case: Case) -> Verdict:
    """The learning rate was raised and divergence followed."""
    turn = case.turned("control/lr_scale", up=True) or case.rate_jumped(up=True)
    if turn and case.find("system/resume-mismatch"):
        return NO  # the rate is not the saved one, and probably nothing else is
    return (TURNED, [f"{turn}, and the incident began at step {case.onset}"]) if turn and diverged(case) else NO


def no_anchor(case: Case) -> Verdict:
    """Nothing holds the policy to its reference, and it drifts."""
    found = case.find("policy/kl-runaway", "optim/grad-explosion")
    if case.setting("control/beta") != 0 or found is None:
        return NO
    if turn := case.turned("control/beta", up=False):
        return TURNED, [f"{turn}: since then nothing holds the policy to its reference"]
    if found.evidence.get("crept") and not case.find("policy/kl-runaway"):
        return UNLIKELY, ["beta = 0, but only the norm crept: no drift from the reference was seen"]
    confidence = 0.5 if case.onset > 100 else 0.3
    return confidence, [f"beta = 0: nothing holds the policy to its reference, and drift began at step {case.onset}"]


def entropy_bonus(case: Case) -> Verdict:
    """Uncertainty is rewarded more than the task."""
    entropy = case.shift("policy/entropy")
    rose = entropy is not None and entropy.after > 1.3 * entropy.before
    if not (case.find("policy/entropy-explosion") or rose):
        return NO
    reasons = [f"entropy went from {entropy.before:.2g} to {entropy.after:.2g} nats/token"] if entropy else []
    for knob in ("control/entropy_coef", "policy/entropy_coef", "control/entropy_target"):
        if turn := case.turned(knob, up=True):
            return TURNED, [str(turn), *reasons]
    paid = case.view.latest("policy/entropy_coef")
    paid = case.setting("control/entropy_coef") if paid is None else paid
    if paid is None or paid < LARGE_BONUS or case.jumped("policy/entropy", case.onset, SUDDEN):
        return NO  # a constant bonus raises entropy little by little
    return FITS, [f"the entropy bonus is {paid:g} (recipes use 0 to 0.001)", *reasons]


def clip_too_wide(case: Case) -> Verdict:
    """Tokens may move without effective limit in one step."""
    if not diverged(case):
        return NO
    if turn := case.turned("control/epsilon_high", up=True):
        return TURNED, [f"{turn}, and the incident began at step {case.onset}"]
    wide = case.setting("control/epsilon_high")
    if wide is None or wide < WIDE_CLIP:
        return NO
    ratio = _peak(case, "policy/ratio_max")
    reasons = [f"the upper clip range is {wide:g} (0.2 to 0.28 are usual)"]
    if ratio is not None and ratio > 1 + wide:
        return 0.75, [*reasons, f"ratios reach {ratio:.2g}"]
    return FITS, reasons


def too_many_epochs(case: Case) -> Verdict:
    """One batch of answers is reused so often that the policy has left it."""
    larger = case.find("optim/optimizer-state")
    if not diverged(case) and (larger is None or not case.multiplied):
        return NO
    for knob in ("control/inner_epochs", "control/minibatches"):
        if turn := case.turned(knob, up=True):
            return TURNED, [f"{turn}, and the incident began at step {case.onset}"]
    if more := case.multiplied:
        words = f"a step makes {more.after:.0f} updates from one batch"
        return TURNED, [f"{words}, {more.before:.0f} before step {case.onset}"]
    passes, updates = case.setting("control/inner_epochs"), case.recent("batch/updates")
    reused = (passes or 1) >= 4 or (updates or 1) >= MANY_UPDATES
    moved = _peak(case, "policy/kl_old")
    if not reused or not (case.find("policy/overstepping") or (moved is not None and moved > STEP_KL)):
        return NO
    often = f"{passes:.0f} passes over one batch" if (passes or 1) >= 4 else f"{updates:.0f} updates from one batch"
    far = [f"together they move the policy by {moved:.2g} nats/token"] if moved is not None else []
    return SIGNATURE, [often, *far]


def kl_estimator(case: Case) -> Verdict:
    """The KL in the loss is not the intended KL: a few tokens make up most of it."""
    found = case.find("policy/kl-estimator")
    if found is None:
        return NO
    if first := case.upstream(found.onset_step, "source"):
        return UNLIKELY, [found.summary, f"but {first.id} occurred with it"]
    return SIGNATURE if found.severity != "info" or len(case.findings) == 1 else WEAK, [found.summary]


def diverged(case: Case) -> bool:
    """Whether the policy left the data it learned from, or the reward fell."""
    found = any(f.id in DIVERGED and f.severity != "info" for f in case.findings)
    return found or bool(case.reward and case.reward.dropped)


def _moved_before_the_fall(case: Case) -> tuple[bool, list[str]] | None:
    """Whether the policy moved before the reward fell; None when either is unknown."""
    far = ("policy/kl-runaway", "optim/grad-explosion")
    moved = [f.onset_step for f in case.findings if f.id in far and f.severity != "info"]
    if not moved or not case.reward or not case.reward.dropped:
        return None
    fell = case.reward.drop_step
    if min(moved) > fell:
        return False, []
    return True, [f"the policy moved (step {min(moved)}) before the reward fell (step {fell})"]


def _peak(case: Case, name: str) -> float | None:
    """The largest value that held for three rows around the onset; one odd row is no step size."""
    rows = case.spacing
    near = case.view.series(name).between(case.onset - int(15 * rows), case.onset + int(30 * rows)).finite().values
    if len(near) < 3 or not near.any():
        return None
    return float(np.median(np.lib.stride_tricks.sliding_window_view(near, 3), axis=1).max())


RULES: Table = (
    ("lr-too-high", step_too_large),
    ("lr-too-high", rate_turned_up),
    ("lr-too-high", steps_grew),
    ("no-kl-anchor", no_anchor),
    ("entropy-bonus-too-large", entropy_bonus),
    ("clip-too-wide", clip_too_wide),
    ("too-many-epochs", too_many_epochs),
    ("kl-estimator", kl_estimator),
)
