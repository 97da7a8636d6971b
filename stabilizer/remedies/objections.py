"""Objections that several remedies share.

Most symptoms have two opposite fixes. A flat reward needs larger steps and an exploding one smaller steps; a large KL
needs a stronger anchor and a pinned one a weaker anchor. Each remedy checks the condition that separates them. The
journal records its objection.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.core.stats import middle, trend
from stabilizer.detectors.evidence.progress import RECENT, progress
from stabilizer.remedies.evidence import leapt_far, recent, settling, steps_usual
from stabilizer.remedies.situation import OVERSHOT, Situation
from stabilizer.runs.history import RunView

TARGET_ENTROPY = 0.45
"""Share of its early level that entropy should keep: the middle of the 0.3 to 0.6 in published runs."""
DEAD_BAND = 0.25
"""Tolerance around the target, as a share of it."""
FALL = 5
"""Rows on either side that show whether a reward still falls."""
PINNED_KL = 0.05
"""KL to the reference, in nats/token, up to which a policy may be pinned although it drifts."""


def slowing_objection(now: Situation, answers: tuple[str, ...]) -> str | None:
    """Why a remedy that slows learning and treats the causes in `answers` would not help.

    Such a remedy can stop a fall of the reward but can't undo one.
    """
    if now.incident in now.memory.put_right:
        return "the settings are those of the healthy run, and smaller steps do not repair weights"
    if now.cause.id not in OVERSHOT and now.cause.id in answers:
        return None
    if _recovers(now.members, now.view):
        return "the reward has risen since the onset: smaller steps would slow the recovery"
    if now.members and steps_usual(now.view, now.since):
        return "steps are as small as before the onset again: smaller ones would only slow learning"
    if now.members and settling(now.view, now.since):
        return "steps grew at a constant learning rate and shrink without help: the learning rate is not the cause"
    if _fell_already(now.view):
        return "the reward has fallen and falls no further: smaller steps do not restore it"
    return None


def _recovers(members: Sequence[Finding], view: RunView) -> bool:
    """Whether the reward rises since the onset: a rise before it may be followed by a fall."""
    reward = progress(view)
    if reward is None or not reward.rising:
        return False
    return reward.dropped or all(finding.onset_step <= view.step - RECENT for finding in members)


def _fell_already(view: RunView) -> bool:
    """Whether a fall is over: then the policy must learn again, and smaller steps would delay that."""
    reward = progress(view)
    if reward is None or not reward.dropped:
        return False
    values = view.series(reward.metric).between(reward.drop_step, view.step).finite().values
    if len(values) < 2 * FALL:
        return False
    last, before = values[-FALL:], values[-2 * FALL : -FALL]
    return bool(before.mean() - last.mean() <= reward.noise / np.sqrt(FALL))


def drift_that_pays(now: Situation) -> str | None:
    """KL that grows while accuracy rises, without other findings, is learning."""
    reward = progress(now.view)
    only_kl = all(finding.id.startswith("policy/kl-") for finding in now.members)
    if only_kl and reward and reward.rising and not now.critical:
        return f"{reward.metric} rises: the drift is useful"
    return None


def drift_that_grows(now: Situation) -> str | None:
    """A policy that is not pinned needs no weaker penalty."""
    drift = now.view.series("policy/kl_ref").last(30).finite().values
    if len(drift) >= 12 and trend(drift).rising and middle(drift[-5:]) > PINNED_KL:
        return f"KL to the reference rises and is {middle(drift[-5:]):.2g} nats/token: the policy is not pinned"
    return None


def _entropy_share(view: RunView) -> float | None:
    early, now = view.series("policy/entropy").finite().values[:20], recent(view, "policy/entropy")
    return None if len(early) < 10 or now is None or not middle(early) > 0 else now / middle(early)


def entropy_is_fine(now: Situation) -> str | None:
    """Entropy near its target needs no raising."""
    share = _entropy_share(now.view)
    if share is not None and share > TARGET_ENTROPY * (1 - DEAD_BAND):
        return f"entropy is at {share:.0%} of its early level: too high to need a raise"
    return None


def entropy_is_low(now: Situation) -> str | None:
    """Entropy below its target rules out a narrower clip range."""
    share = _entropy_share(now.view)
    if share is not None and share < TARGET_ENTROPY * (1 + DEAD_BAND):
        return f"entropy is at {share:.0%} of its early level: a narrower clip range would lower it further"
    return None


AGREE = 0.5
"""Cosine of the gradients of two halves of a batch above which the batch is large enough."""


def agreement(view: RunView) -> float:
    """Cosine of the gradients of two halves of a batch; 0 if not measured, which allows a larger batch."""
    return recent(view, "optim/grad_cosine") or 0.0


def leapt_at_onset(now: Situation) -> bool:
    """Whether the policy moved too far in a few steps when the incident began, so that its weights are damaged."""
    return leapt_far(now.view, now.since)


def no_room_wanted(now: Situation) -> str | None:
    """Answers of a damaged policy do not end, so a higher limit would not help."""
    if now.members and leapt_at_onset(now):
        return "the policy moved too far when the incident began: answers are long because the weights are damaged"
    return None


def held_out_holds(view: RunView) -> str | None:
    """Held-out accuracy, if it is known and not below its best.

    Then nothing is being lost: an early end would save nothing, and a long rollback would lose recent learning.
    """
    held = view.series("accuracy/val").finite().values
    if len(held) < 3:
        return None
    pairs = (held[1:] + held[:-1]) / 2
    best, now = float(pairs.max()), float(pairs[-1])
    problems = view.config("validation.problems")
    count = problems if isinstance(problems, int) and problems > 0 else 256
    noise = float(np.sqrt(max(best * (1 - best), 0.01) / count))  # of the difference of two averages
    return None if best - now > 3 * noise else f"held-out accuracy is {now:.3g}; its best was {best:.3g}"
