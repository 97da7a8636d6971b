"""Leave groups out that have nothing to compare."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, switched
from stabilizer.remedies.evidence import nothing_to_compare
from stabilizer.runs.history import RunView


class FilterGroups(Remedy):
    """Leave groups out that have nothing to compare.

    What it does
        Drops groups whose answers were all paid the same from the updates.

    For
        Batches most of whose groups have no spread: they take part in averages and bring only the pull of KL and
        entropy.

    Preconditions
        Advantages that compare the answers of a group; some groups must have spread.

    Dose and bounds
        A switch: off to drop.

    Undo
        The switch goes back.

    Side effects
        The effective batch is smaller and changes from step to step.

    References
        DAPO (arXiv 2503.14476).
    """

    id = "filter-groups"
    safety = "soft"
    answers = ("dead-groups", "batch-too-small")
    horizon = 60
    by_hand = "leave groups whose answers were all paid the same out of the updates"
    why = "groups without spread dilute the gradient of those that have some"
    expects = "the reward rises again"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return switched(knobs, "control/filter_groups", "drop", when=("off",))

    def unfit(self, view: RunView) -> str:
        """Of a batch of silent groups nothing would be left."""
        return nothing_to_compare(view)
