"""Use the current policy as the reference."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.objections import drift_that_grows


class ResetReference(Remedy):
    """Use the current policy as the reference.

    What it does
        Makes the current policy the reference.

    For
        A policy held at an outdated reference, after a smaller penalty did not help.

    Preconditions
        There is a penalty: beta above 0.

    Dose and bounds
        Once per incident.

    Undo
        The run returns to the snapshot, with its former reference.

    Side effects
        The policy is no longer held near its start: forgotten abilities do not come back.

    References
        ProRL (arXiv 2505.24864).
    """

    id = "reset-reference"
    safety = "hard"
    answers = ("pinned-by-kl",)
    orders = ("reset-reference",)
    horizon = 60
    by_hand = "start again from the current weights, with them as the reference"
    why = "the policy is held at an outdated reference"
    expects = "the reward rises again"
    objections = (drift_that_grows,)

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return {} if knobs.get("control/beta", 0.0) > 0 else None
