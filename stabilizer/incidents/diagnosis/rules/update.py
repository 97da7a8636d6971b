"""The updates are too large, too many, unconstrained, or go in the wrong direction."""

from __future__ import annotations

import numpy as np

from stabilizer.core.stats import middle
from stabilizer.detectors.evidence.step_size import STEP_KL, STEP_RATIO
from stabilizer.incidents.diagnosis.case import MARGIN, Case
from stabilizer.incidents.diagnosis.graph import STAGES
from stabilizer.incidents.diagnosis.rules.base import FITS, NO, SIGNATURE, TURNED, UNLIKELY, WEAK, Table, Verdict

WIDE_CLIP = 0.5
"""Upper clip range that no published recipe uses (0.2 to 0.28 are usual)."""
LARGE_BONUS = 0.01
"""Entropy coefficient from which the bonus competes with the reward (recipes use 0 to 0.001)."""
SUDDEN = 2.0
"""Factor within eight rows by which entropy does not rise by a bonus that was constant before."""
UNCLIPPED = 0.002
"""Share of clipped tokens under which a clip range has no effect although one token in a hundred is far outside it."""
FEW_ROWS = 5
"""Rows between two levels of three rows each, from the first of one to the last of the other."""
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
        reasons += moved[1]
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


def reference_jumped(case: Case) -> Verdict:
    """The distance to the reference jumped by far more than the policy moved: the measurement changed."""
    found = case.find("policy/kl-runaway", "policy/kl-estimator")
    jump = case.jumped("policy/kl_ref", found.onset_step, 3.0) if found else None
    if found is None or jump is None or jump[1] < jump[0]:
        return NO
    steps, entropy = case.rows("policy/kl_old", found.onset_step, -3, 6), case.shift("policy/entropy")
    if len(steps) < 3 or float(steps.max()) > 0.05 * (jump[1] - jump[0]):
        return NO
    if not _sudden(case, found.onset_step, jump, max(float(steps.max()), 0.0)):
        return NO
    if entropy is None or not 0.8 < entropy.ratio < 1.25:
        return NO
    lost = case.find("policy/likelihood-displacement", "reward/collapse")
    near = lost is not None and abs(lost.onset_step - found.onset_step) <= 2 * MARGIN * case.spacing
    if lost is not None and near and lost.severity != "info":
        return UNLIKELY, [found.summary, f"but {lost.id} shows that the policy did move"]
    words = f"KL to the reference went from {jump[0]:.2g} to {jump[1]:.2g} within a few rows, and steps were"
    return SIGNATURE, [f"{words} {float(steps.max()):.2g} nats/token at most, which is too little to get that far"]


def _sudden(case: Case, step: int, jump: tuple[float, float], largest: float) -> bool:
    """Whether half of a jump of the KL came within a few rows, and is larger than steps of the largest size add up
    to in them. The root of a KL adds up like a distance: small steps over twenty rows go far."""
    rows = np.maximum(case.rows("policy/kl_ref", step, -MARGIN - 3, MARGIN + 3), 0.0)
    if len(rows) < 7:
        return False
    levels = np.median(np.lib.stride_tricks.sliding_window_view(rows, 3), axis=1)
    at = int((levels[3:] - levels[:-3]).argmax())
    was, now = levels[at], levels[at + 3]
    return bool(now - was >= (jump[1] - jump[0]) / 2 and now > (np.sqrt(was) + FEW_ROWS * np.sqrt(largest)) ** 2)


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


def clip_not_in_force(case: Case) -> Verdict:
    """Ratios lie far outside the clip range and hardly any token was clipped: the setting is not applied."""
    wide, rows = case.setting("control/epsilon_high"), int(30 * case.spacing)
    if wide is None or wide <= 0 or case.words("policy.surrogate") not in ("", "clip", "cispo"):
        return NO
    far, bitten = (
        case.view.series(name).between(case.onset, case.onset + rows).finite().values
        for name in ("policy/ratio_p99", "policy/clip_frac")
    )
    if len(far) < 5 or len(bitten) < 5 or middle(far) < 1 + 1.2 * wide:
        return NO
    if np.mean(bitten) > (UNCLIPPED if middle(far) > 1 + 2 * wide else UNCLIPPED / 4):
        return NO
    words = f"one token in a hundred has a ratio of {middle(far):.2g} or more with a limit of {1 + wide:.3g}"
    return TURNED, [f"{words}, and {np.mean(bitten):.2%} are clipped: the clip range is not applied"]


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


def displaced(case: Case) -> Verdict:
    """Correct answers become less likely while wrong ones are pushed down: steps too large for shared prefixes."""
    found = case.find("policy/likelihood-displacement")
    first = case.led("policy/logp_correct")
    if found is None or not first or case.find("policy/entropy-explosion"):  # uncertainty makes all answers less likely
        return NO
    return WEAK, [found.summary, first]


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
    ("lr-too-high", displaced),
    ("no-kl-anchor", no_anchor),
    ("entropy-bonus-too-large", entropy_bonus),
    ("clip-too-wide", clip_too_wide),
    ("clip-too-wide", clip_not_in_force),
    ("too-many-epochs", too_many_epochs),
    ("kl-estimator", kl_estimator),
    ("kl-estimator", reference_jumped),
)
