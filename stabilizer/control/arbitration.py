"""Which incident first, and which of two opposite fixes: decided by evidence, never by the symptom alone.

Most symptoms have two fixes that are each other's opposite (a flat reward wants a larger step, an exploding one a
smaller; a large KL wants a stronger anchor, a pinned one a weaker). Each pair has one question that tells them apart,
asked here; a fix whose question is answered against it is objected to, in words that go into the journal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stabilizer.core.records import Cause, Finding
from stabilizer.core.stats import middle, trend
from stabilizer.detectors.evidence.progress import RECENT, progress
from stabilizer.detectors.evidence.stagnation import stagnation
from stabilizer.incidents.watch import Watch
from stabilizer.remedies.base import Remedy
from stabilizer.remedies.evidence import leapt_far, recent, settling, steps_usual
from stabilizer.runs.history import RunView

INTEGRITY, DIVERGENCE, STARVATION, EXPLORATION, EFFICIENCY = range(5)
"""Classes of findings: a lower one waits while a higher one is open."""
_CLASSES = (
    ("numerics/", "system/", "reward/outage"),
    ("optim/grad", "optim/optimizer", "policy/kl-runaway", "policy/kl-estimator", "policy/mismatch",
     "policy/overstepping", "policy/stale", "policy/likelihood", "policy/router", "reward/collapse",
     "reward/std-blowup", "value/"),
    ("reward/no-signal",),
    ("policy/entropy", "policy/template", "rollout/"),
    ("",),
)  # fmt: skip
_LOWER_CLASSES = ("policy/kl-pinned",)

AFTER_DIVERGENCE = 100
"""Steps after a divergence in which no fix may raise the learning rate."""
TARGET_ENTROPY = 0.45
"""Share of its early level that entropy is meant to keep: the middle of the 0.3 to 0.6 that published runs hold."""
SMALLER_STEPS = ("lower-lr", "narrow-clip", "clip-updates", "fewer-epochs")
"""Remedies that hold an update back: they keep from falling, and raise nothing that fell."""
HOLD_BACK = (*SMALLER_STEPS, "raise-beta")
"""Those and the anchor, which slow learning for as long as they last."""
OVERSHOT = ("lr-too-high", "undetermined")
"""Causes against which they are of use only while steps are too large; others last, whatever the steps are."""
OUTSIDE = ("prompts-too-hard", "data-shift", "reward-fault", "reward-hackable", "wrong-groups", "tool-broken")
"""Causes in the data or the reward, which no knob of the trainer takes away. What an engine gets wrong is measured by
the token, so it can be corrected where it is learned from; dead groups leave a batch too small, which can be larger."""
MORE_ROOM = ("longer-answers", "mask-truncated", "overlong-penalty")
"""Remedies of a limit that cuts answers which would have ended."""
IN_DOUBT = ("reward-fault", "reward-hackable")
"""Causes while which last the reward is no measure of what was learned, and after which it falls back to what it is."""
LIKELY = 0.5
"""Confidence of a cause from which it is more likely than not."""
DEAD_BAND = 0.25
"""Share of the target around it in which entropy is left alone."""
JUST_SEEN = 5
"""Steps since its onset within which a broken fact has taught the policy nothing worth going back from."""
GAIN = 10
"""Rows on either side that say whether anything was gained."""
FALL = 5
"""Rows on either side that say whether a reward still falls."""
AGREE = 0.5
"""Cosine of the gradients of two halves of a batch above which the batch is large enough."""


def rank(finding: Finding) -> int:
    """The class of a finding, gravest first."""
    if finding.id in _LOWER_CLASSES:
        return EFFICIENCY
    return next(rank for rank, prefixes in enumerate(_CLASSES) if finding.id.startswith(prefixes))


def most_urgent(findings: Sequence[Finding]) -> int | None:
    """The incident to serve; incidents that only inform, or are going away, are nobody's business here."""
    ranked = [(rank(f), f.incident) for f in findings if f.severity != "info" and f.state != "recovering"]
    return min(ranked)[1] if ranked else None


def objection(remedy: Remedy, cause: str, members: Sequence[Finding], watch: Watch, view: RunView) -> str:
    """What speaks against a remedy beside its own preconditions; empty when nothing does."""
    if remedy.id in HOLD_BACK and (cause in OVERSHOT or cause not in remedy.answers):
        if _recovers(members, view):
            return "the reward rises since: smaller steps would slow what comes back by itself"
        if _overshoot_is_over(members, view):
            return "steps are as large as before the onset again: smaller ones hold nothing back, and learn more slowly"
        if members and settling(view, min(finding.onset_step for finding in members)):
            return "steps leapt at the same learning rate and come down by themselves: it is not what made them large"
        if _fell_already(view):
            return "the reward has fallen and falls no further: smaller steps bring nothing back"
    if remedy.id == "skip-update":
        return _skips_in_vain(remedy, members, view)
    if remedy.id == "raise-lr":
        return _diverged_lately(watch, view)
    if remedy.id in ("raise-beta", "raise-beta-further"):
        return _drift_that_pays(members, view)
    if remedy.id in ("lower-beta", "reset-reference"):
        return _drift_that_grows(view)
    if remedy.id in ("raise-entropy", "target-entropy", "widen-clip", "raise-temperature"):
        return _entropy_is_fine(view)
    if remedy.id == "narrow-clip" and cause != "clip-too-wide":
        return _entropy_is_low(view)
    if remedy.id == "lower-lr" and cause == "noise-floor":
        return "" if _agreement(view) >= AGREE else "the noise of the gradient, not the step, is what is too large"
    if remedy.id == "grow-batch" and cause == "noise-floor" and _agreement(view) >= AGREE:
        return f"halves of a batch agree on the gradient (cosine {_agreement(view):.2f}): it is large enough"
    if remedy.id == "mend-critic":
        return _mends_itself(view)
    if remedy.id == "early-stop":
        return held_out_holds(view)
    if remedy.id in MORE_ROOM and members and leapt_far(view, min(finding.onset_step for finding in members)):
        return "the policy leapt when it began: answers run on because it is damaged, not for want of room"
    if remedy.id == "longer-answers":
        return _length_not_earned(view)
    return ""


def left_to_people(remedy: Remedy, cause: Cause) -> str:
    """Why a soft fix is proposed and not made by itself, whatever the mode; empty where it may be.

    Turning a knob against a trouble that lies elsewhere is a guess, and every guess costs something: two runs that
    differ in anything end apart, so that of those fixes that help nothing about half do harm. What slows learning costs
    more, and asks for more than the likeliest of many causes. What touches neither weights nor data costs nothing, and
    what makes harmless that which it can't take away is meant for just that.
    """
    if remedy.safety != "soft" or remedy.harmless:
        return ""
    if cause.id not in remedy.answers:
        return f"it contains what {cause.id} does and answers nothing"
    if cause.id in OUTSIDE and not remedy.outlived(cause.id):
        return f"{cause.id} lies outside of the trainer"
    if remedy.id in HOLD_BACK and cause.confidence < LIKELY:
        return f"it slows learning, and the cause is {cause.id} by {cause.confidence:.0%} only"
    return ""


def just_seen(findings: Sequence[Finding], step: int) -> bool:
    """Facts about the world around the policy that broke a moment ago: what corrects them leaves nothing to undo.

    A number that is none is no such fact, for it may be in the weights by then.
    """
    around = all(rank(f) == INTEGRITY or f.id == "policy/mismatch" for f in findings)
    broken = any(f.id.startswith("numerics/") for f in findings)
    return around and not broken and step - min(f.onset_step for f in findings) <= JUST_SEEN


def gained(view: RunView, since: int) -> bool:
    """Whether the reward since a step is above what it was in the rows before, by more than its noise explains."""
    reward = progress(view)
    if reward is None:
        return False
    before = view.series(reward.metric).between(0, since - 1).finite().last(GAIN).values
    after = view.series(reward.metric).between(since, view.step).finite().last(GAIN).values
    if not len(before) or not len(after):
        return False
    noise = reward.noise * float(np.sqrt(1 / len(before) + 1 / len(after)))
    return float(after.mean() - before.mean()) > 2 * noise


def _diverged_lately(watch: Watch, view: RunView) -> str:
    """A flat reward asks for a larger step only where no larger step just broke something."""
    for finding in watch.findings():
        fresh = view.step - finding.last_step < AFTER_DIVERGENCE
        if rank(finding) <= DIVERGENCE and finding.severity != "info" and fresh:
            return f"{finding.id} was seen {view.step - finding.last_step} steps ago"
    return ""


def _overshoot_is_over(members: Sequence[Finding], view: RunView) -> bool:
    return bool(members) and steps_usual(view, min(finding.onset_step for finding in members))


def _recovers(members: Sequence[Finding], view: RunView) -> bool:
    """Whether the reward rises since the onset: before one it may have risen, and be about to fall."""
    reward = progress(view)
    if reward is None or not reward.rising:
        return False
    return reward.dropped or all(finding.onset_step <= view.step - RECENT for finding in members)


def _fell_already(view: RunView) -> bool:
    """A fall that is over: what is left to do is to learn again, for which steps should be no smaller."""
    reward = progress(view)
    if reward is None or not reward.dropped:
        return False
    values = view.series(reward.metric).between(reward.drop_step, view.step).finite().values
    if len(values) < 2 * FALL:
        return False
    last, before = values[-FALL:], values[-2 * FALL : -FALL]
    return float(before.mean() - last.mean()) <= reward.noise / float(np.sqrt(FALL))


def _drift_that_pays(members: Sequence[Finding], view: RunView) -> str:
    """KL that grows while accuracy rises, with nothing else conspicuous, is learning."""
    reward = progress(view)
    only_kl = all(finding.id.startswith("policy/kl-") for finding in members)
    if only_kl and reward and reward.rising and not any(f.severity == "critical" for f in members):
        return f"{reward.metric} rises: the drift buys something"
    return ""


def _drift_that_grows(view: RunView) -> str:
    """A policy that is not pinned needs no more room."""
    drift = view.series("policy/kl_ref").last(30).finite().values
    if len(drift) >= 12 and trend(drift).rising and middle(drift[-5:]) > 0.05:
        return f"KL to the reference rises and is {middle(drift[-5:]):.2g} nats/token: nothing pins it"
    return ""


def _entropy_share(view: RunView) -> float | None:
    early, now = view.series("policy/entropy").finite().values[:20], recent(view, "policy/entropy")
    return None if len(early) < 10 or now is None or not middle(early) > 0 else now / middle(early)


def _entropy_is_fine(view: RunView) -> str:
    share = _entropy_share(view)
    if share is not None and share > TARGET_ENTROPY * (1 - DEAD_BAND):
        return f"entropy is at {share:.0%} of its early level: not low enough to be raised"
    return ""


def _entropy_is_low(view: RunView) -> str:
    share = _entropy_share(view)
    if share is not None and share < TARGET_ENTROPY * (1 + DEAD_BAND):
        return f"entropy is at {share:.0%} of its early level: a narrower range would lower it further"
    return ""


def _agreement(view: RunView) -> float:
    """Cosine of the gradients of two halves of a batch; 0 where nobody measured it, which speaks for a larger batch."""
    return recent(view, "optim/grad_cosine") or 0.0


def _skips_in_vain(remedy: Remedy, members: Sequence[Finding], view: RunView) -> str:
    """Steps without learning are a price worth paying for a reward that fails and will soon be well again."""
    onset = min((finding.onset_step for finding in members), default=view.step)
    if leapt_far(view, onset):
        return "the policy leapt when it began: what fails is in the weights, and only learning mends them"
    if members and all(finding.id == "optim/grad-spike" for finding in members):
        return "single rows spike, and those between them teach what they should"
    if view.step - onset >= remedy.repeats:
        return f"it has gone on for {view.step - onset} steps: it will not pass within {remedy.repeats} more"
    return ""


def _mends_itself(view: RunView) -> str:
    """A critic that misjudges learns at every step; a policy that waits for it loses those steps for sure."""
    reward = progress(view)
    if reward is None or reward.dropped or stagnation(view):
        return ""
    return f"{reward.metric} has neither fallen nor stopped rising: the critic learns beside it"


def held_out_holds(view: RunView) -> str:
    """Where held-out accuracy is known and not lower nothing is being lost, so that ending early would save nothing,
    and going back far would lose what was learned since; empty where it fell, or nobody knows."""
    held = view.series("accuracy/val").finite().values
    if len(held) < 3:
        return ""
    pairs = (held[1:] + held[:-1]) / 2
    best, now = float(pairs.max()), float(pairs[-1])
    problems = view.config("validation.problems")
    count = problems if isinstance(problems, int) and problems > 0 else 256
    noise = float(np.sqrt(max(best * (1 - best), 0.01) / count))  # of the difference of two pairs
    return "" if best - now > 3 * noise else f"held-out accuracy is {now:.3g}, and was {best:.3g} at best"


def _length_not_earned(view: RunView) -> str:
    earns = recent(view, "rollout/length_reward_corr")
    if earns is not None and earns < -0.2:
        return f"longer answers are paid worse (correlation {earns:.2f}): more room would be wasted"
    return ""
