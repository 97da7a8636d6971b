"""Drop groups without spread from the update."""

from __future__ import annotations

from stabilizer.remedies.base import Remedy
from stabilizer.remedies.doses import Switch
from stabilizer.remedies.evidence import nothing_to_compare
from stabilizer.runs.history import RunView


class FilterGroups(Remedy):
    """Drop groups without spread from the update.

    What it does
        Drops groups whose answers all got the same reward from the updates.

    For
        Batches in which most groups have no spread: such groups count in averages and add only the KL and entropy
        terms.

    Preconditions
        Advantages that compare the answers of a group; some groups must have spread.

    Dose and bounds
        A switch: off to drop.

    Undo
        The switch is restored.

    Side effects
        The effective batch is smaller and changes from step to step.

    References
        DAPO (arXiv 2503.14476).
    """

    id = "filter-groups"
    safety = "soft"
    answers = ("dead-groups", "batch-too-small")
    horizon = 60
    by_hand = "drop groups whose answers all got the same reward from the updates"
    why = "groups without spread dilute the gradient of the others"
    expects = "the reward rises again"
    dose = Switch("control/filter_groups", "drop", when=("off",))

    def unfit(self, view: RunView) -> str:
        """Nothing would be left of a batch of silent groups."""
        return nothing_to_compare(view)
