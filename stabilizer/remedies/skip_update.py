"""Throw updates away while the reward can't be trusted."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.evidence import silent_groups
from stabilizer.runs.history import RunView

MOSTLY = 0.5
"""Share of silent groups from which there is more to wait for than to be kept from."""


class SkipUpdate(Remedy):
    """Throw updates away while the reward can't be trusted.

    What it does
        Rollouts are made, scored and logged, and the weights stay, for 20 steps.

    For
        A reward that fails for a while: an outage, a verifier that times out.

    Preconditions
        Most groups have spread, or a critic judges: beside its group alone, what is all paid alike teaches nothing,
        right or wrong, and needs no skipping.

    Dose and bounds
        20 steps; then it ends by itself.

    Undo
        It ends by itself: the weights are what they were.

    Side effects
        Those steps are lost to learning.

    References
        PaLM (arXiv 2204.02311) skipped batches around spikes.
    """

    id = "skip-update"
    safety = "soft"
    answers = ("reward-fault",)
    orders = ("skip-update",)
    repeats = 20
    horizon = 26
    harmless = True
    why = "what can't be judged must not be learned from"
    expects = "the reward is back at its level, with the weights as they were"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return {} if knobs else None

    def unfit(self, view: RunView) -> str:
        """Groups that are all paid alike, by an outage or as the policy is broken, do no harm in an update; a critic,
        who expected more of them, makes them teach all the same."""
        silent = None if "value/loss" in view else silent_groups(view)
        return f"{silent:.0%} of groups are paid alike: they teach nothing wrong" if (silent or 0.0) > MOSTLY else ""
