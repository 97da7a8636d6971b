"""The reason why a reward stopped rising: each possible reason is checked, and those that the numbers exclude are
named.

The remedy for a plateau depends on its reason, and half of the possible remedies make another reason worse. So a reason
counts only when its numbers were logged, and "undetermined" is an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from stabilizer.core.stats import median, trend
from stabilizer.detectors.evidence.progress import CEILING
from stabilizer.incidents.diagnosis.case import Case
from stabilizer.incidents.diagnosis.rules.base import (
    FITS,
    NO,
    SIGNATURE,
    UNLIKELY,
    WEAK,
    Table,
    Verdict,
    few_prompts,
)

FEWEST = 4
"""Prompts behind an update below which the direction of the gradient is mostly chance: a group that is all right or all
wrong adds nothing, so often one or two groups are left."""
LEAST_FIRST = 5
"""Rows at the start of a run that define the entropy it began with: a quarter of them, at most 20."""
ROOM = 0.8
"""Share of right answers below which a task is not solved, though most groups may be all right: a policy that has
become certain gives every prompt one answer, right or wrong."""
FLAT = ("reward/plateau", "optim/lr-too-low", "optim/no-update", "policy/kl-pinned", "reward/saturated")


class Answer(NamedTuple):
    """How likely a reason is. 0 with words excludes it; 0 without words means unknown."""

    confidence: float
    words: str = ""


UNKNOWN = Answer(0.0)
Question = Callable[[Case], Answer]


def warming_up(case: Case) -> Answer:
    """The learning rate is still rising."""
    rates = case.view.series("optim/lr").last(20).finite().values
    if len(rates) < 10:
        return UNKNOWN
    if rates[-1] > 1.02 * rates[0] and trend(rates).rising:
        return Answer(0.8, f"the learning rate is still being warmed up ({rates[0]:.2g} to {rates[-1]:.2g} in 20 rows)")
    return Answer(0.0, "the learning rate no longer rises, which excludes warm-up")


def saturated(case: Case) -> Answer:
    """Almost everything is solved."""
    if case.find("reward/hacking"):
        return Answer(0.0, "the reward rises while fewer problems are solved, which excludes a solved task")
    found = case.find("reward/saturated")
    passing, right = case.recent("reward/all_pass_frac"), case.recent("accuracy/train")
    unsolved = right is not None and right < ROOM
    if found is not None or (passing is not None and passing >= 0.5 and not unsolved):
        summary = found.summary if found is not None else ""
        share = f"all answers pass in {passing:.0%} of groups" if passing is not None else summary
        certain = case.find("policy/entropy-collapse")
        if passing is None and certain is not None and certain.severity != "info":
            return UNKNOWN  # a policy that tries nothing new is flat as well
        looks = passing is None and case.reward is not None and case.reward.ceiling != "known"
        return Answer(SIGNATURE if not looks else FITS if _nearly_full(case) else WEAK, share)
    if case.reward and case.reward.solved:
        sure = SIGNATURE if case.reward.ceiling == "known" else WEAK
        return Answer(sure, f"the task is solved ({case.reward.metric} {case.reward.now:.3g})")
    if right is not None and right < 0.9:
        return Answer(0.0, f"accuracy {right:.0%} leaves room, which excludes a solved task")
    return UNKNOWN


def _nearly_full(case: Case) -> bool:
    """Whether a reward that never left 0..1 is near 1, and nothing logged says how many answers are right."""
    if case.reward is None or case.reward.now < CEILING or case.recent("accuracy/train") is not None:
        return False
    paid = case.view.series(case.reward.metric).finite().values
    return bool(paid.min() >= 0 and paid.max() <= 1)


def exploration(case: Case) -> Answer:
    """Entropy is used up."""
    values, now = case.view.series("policy/entropy").finite().values, case.recent("policy/entropy")
    first = values[: min(20, len(values) // 4)]
    if len(first) < LEAST_FIRST or now is None:
        return UNKNOWN
    share = now / median(first) if median(first) > 0 else 1.0
    if share < 0.3:
        words = f"entropy is {now:.2g} nats/token, {share:.0%} of its initial value"
        return Answer(UNLIKELY, f"{words}, as that of a solved task is") if _nearly_full(case) else Answer(FITS, words)
    return Answer(0.0, f"entropy {now:.2g} nats/token ({share:.0%} of its initial value) excludes lost exploration")


def dead_groups(case: Case) -> Answer:
    """Groups without spread, for any reason."""
    silent = case.recent("reward/zero_std_frac")
    if silent is None:
        return UNKNOWN
    if silent >= 0.6:
        return Answer(FITS, f"{silent:.0%} of groups have no spread of reward")
    return Answer(0.0, f"only {silent:.0%} of groups lack spread, which excludes a missing signal")


def too_hard(case: Case) -> Answer:
    """Groups that fail completely."""
    failing = case.recent("reward/all_fail_frac")
    if case.find("reward/hacking", "reward/component-dominance"):
        return UNKNOWN  # something else is rewarded, so it is unknown what would be solved otherwise
    return (
        Answer(0.6, f"every answer fails in {failing:.0%} of groups")
        if failing is not None and failing >= 0.6
        else UNKNOWN
    )


def pinned(case: Case) -> Answer:
    """The KL term outweighs the reward."""
    found = case.find("policy/kl-pinned")
    beta, drift = case.setting("control/beta"), case.recent("policy/kl_ref")
    if found is not None:
        return Answer(SIGNATURE, found.summary)
    if beta and beta >= 0.1 and drift is not None and drift <= 0.05:
        return Answer(FITS, f"beta = {beta:g} holds KL to the reference at {drift:.2g} nats/token")
    return Answer(0.0, "beta = 0 excludes the KL term") if beta == 0 else UNKNOWN


def step_too_small(case: Case) -> Answer:
    """Updates that hardly move the policy."""
    found = case.find("optim/lr-too-low", "optim/no-update")
    moved, drift = case.recent("policy/kl_old"), case.recent("policy/kl_ref")
    if turn := case.turned("control/lr_scale", up=False) or case.rate_jumped(up=False):
        return Answer(0.8, f"{turn}, and the reward has been flat since")
    if found is not None and found.id == "optim/lr-too-low":
        return Answer(SIGNATURE, found.summary)
    if found is not None and case.recent("optim/lr") == 0:
        return Answer(0.8, f"the learning rate is 0: {found.summary}")
    if found is not None:
        return UNKNOWN
    steps = case.view.series("policy/kl_old").last(20).finite().values
    if moved is None or not steps.any() or steps.min() < 0:
        return UNKNOWN  # of a single update per batch only the rounding is logged, with either sign
    if moved <= 1e-5 and (drift is None or drift <= 0.01):
        return Answer(0.5, f"one step moves the policy by only {moved:.1g} nats/token")
    return Answer(0.0, f"one step moves the policy by {moved:.1g} nats/token, which excludes steps that are too small")


def small_batch(case: Case) -> Answer:
    """Too few prompts per update."""
    each = case.prompts_per_update
    if each is None:
        return UNKNOWN
    noisy = case.find("reward/noise-floor")
    if each < 16 and noisy is not None:
        return Answer(SIGNATURE if each < FEWEST else FITS, f"{noisy.summary}; {few_prompts(each)}")
    if each < 16:
        return Answer(WEAK, few_prompts(each))
    return Answer(0.0, f"{each:.0f} prompts per update exclude a batch that is too small") if each >= 64 else UNKNOWN


QUESTIONS: dict[str, Question] = {
    "still-warming-up": warming_up,
    "saturated": saturated,
    "exploration-exhausted": exploration,
    "dead-groups": dead_groups,
    "prompts-too-hard": too_hard,
    "pinned-by-kl": pinned,
    "lr-too-low": step_too_small,
    "batch-too-small": small_batch,
}
"""The reasons for a flat reward."""


def _because(cause: str, case: Case) -> Verdict:
    """One reason for a plateau, with the evidence against the others."""
    flat = case.find(*FLAT)
    if flat is None:
        return NO
    best = QUESTIONS[cause](case)
    if not best.confidence > 0:
        return NO
    surest = max(question(case).confidence for question in QUESTIONS.values())
    if best.confidence <= WEAK and surest >= SIGNATURE:
        return NO  # a reason that fits every run is no alternative to one that was observed
    if case.upstream(flat.onset_step) not in (None, flat):  # then the plateau is a consequence
        return 0.6 * best.confidence, [best.words]
    return best.confidence, [best.words, *(_excluded(case, cause) if best.confidence == surest else [])]


def _excluded(case: Case, cause: str) -> list[str]:
    answers = [question(case) for name, question in QUESTIONS.items() if name != cause]
    return [answer.words for answer in answers if answer.confidence == 0 and answer.words]


RULES: Table = tuple((cause, partial(_because, cause)) for cause in QUESTIONS)
