"""Use more prompts per update."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from stabilizer.remedies.base import SILENCE, Change, Remedy
from stabilizer.remedies.doses import MOST_PROMPTS, Scale, more_prompts
from stabilizer.remedies.evidence import beyond_reach, nothing_to_compare, recent, taught
from stabilizer.remedies.objections import AGREE, agreement
from stabilizer.remedies.situation import Situation
from stabilizer.runs.history import RunView

SILENCING = ("dead-groups", "prompts-too-hard")
"""Causes that leave fewer groups with a gradient, whatever other remedy is used."""


class GrowBatch(Remedy):
    """Use more prompts per update.

    What it does
        Doubles the prompts of a step; if they are at their maximum, halves the number of updates per step. The learning
        rate does not change. A warning of `reward/noise-floor` is answered during warm-up too: the noise of a batch
        does not depend on the rate. If groups fell silent, for example because prompts became too hard, prompts are
        increased until as many groups have spread as before. This helps as long as groups are silent, so the change is
        kept unless the run gets worse.

    For
        A reward that is flat or swings because the gradient is mostly noise. A batch in which fewer groups have spread.

    Preconditions
        Time and memory for it. Some groups must have spread: if all are silent, twice as many are silent too. Against
        prompts that are too hard, at least three in ten groups are silent because all answers fail.

    Dose and bounds
        Times 2, or up to 4 against silent groups; at most 128 prompts and eight times the configured number.

    Undo
        The number is restored.

    Side effects
        A step takes longer: with twice the prompts, nearly twice the time.

    References
        McCandlish et al. 2018 (arXiv 1812.06162) on the gradient noise scale.
    """

    id = "grow-batch"
    safety = "soft"
    answers = ("batch-too-small", "noise-floor", *SILENCING)
    in_warm_up = MappingProxyType({"batch-too-small": "reward/noise-floor"})
    horizon = 60
    by_hand = "use twice as many prompts per update"
    why = "twice the prompts halve the variance of the gradient"
    expects = "the reward rises again"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        more = Scale("control/prompts", 2.0, low=1, high=MOST_PROMPTS)(knobs)
        return more or Scale("control/minibatches", 0.5, low=1, high=256)(knobs)

    def given(
        self, cause: str, knobs: Mapping[str, float], view: RunView, onset: int, ours: Mapping[str, int]
    ) -> Change | None:
        """Add as many prompts as fell silent, if some did."""
        groups = taught(view, onset) if cause in SILENCING else None
        if cause == "prompts-too-hard" and not (groups and beyond_reach(view)):
            return None
        more = more_prompts(knobs, groups[0] / groups[1]) if groups and groups[0] > 2 * groups[1] > 0 else {}
        return more or self.change(knobs)

    def outlived(self, cause: str) -> tuple[str, ...]:
        return SILENCE if cause in SILENCING else ()

    def unfit(self, view: RunView) -> str:
        """More prompts do not help if all groups are silent; a critic compares single answers across prompts."""
        single = recent(view, "batch/group_size") == 1 and "value/loss" in view
        return "" if single else nothing_to_compare(view)

    def objection(self, now: Situation) -> str | None:
        if now.cause.id == "noise-floor" and (cosine := agreement(now.view)) >= AGREE:
            return f"the gradients of both halves of a batch agree (cosine {cosine:.2f}): it is large enough"
        return None
