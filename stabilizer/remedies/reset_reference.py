"""Measure the KL from the present policy on."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.objections import drift_that_grows
from stabilizer.remedies.situation import Situation


class ResetReference(Remedy):
    """Measure the KL from the present policy on.

    What it does
        Makes the present policy the reference.

    For
        A policy held at a reference it has outgrown, when a smaller penalty did not free it.

    Preconditions
        There is a penalty: beta above 0.

    Dose and bounds
        Once an incident.

    Undo
        The run returns to the snapshot, with the reference it had.

    Side effects
        Nothing holds the policy to where it started any more: what it forgot since is not brought back.

    References
        ProRL (arXiv 2505.24864).
    """

    id = "reset-reference"
    safety = "hard"
    answers = ("pinned-by-kl",)
    orders = ("reset-reference",)
    horizon = 60
    by_hand = "start anew from the present weights, with them as the reference"
    why = "the policy is held to a place it has outgrown"
    expects = "the reward rises again"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return {} if knobs.get("control/beta", 0.0) > 0 else None

    def objection(self, now: Situation) -> str | None:
        return drift_that_grows(now)
