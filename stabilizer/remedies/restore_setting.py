"""Restore a setting that was changed just before the run broke."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.turns import turned_back
from stabilizer.runs.history import RunView


class RestoreSetting(Remedy):
    """Restore a setting that was changed just before the run broke.

    What it does
        Restores the former value of every knob that changed shortly before the onset without a declaration. If the
        learning rate rose above its schedule, its knob keeps it at the former rate while the schedule is too high. A
        trial of another remedy that started before the change was visible is undone.

    For
        Any findings after a change of a setting: the latest change is the first suspect, and its former value has
        worked in this run.

    Preconditions
        The knob was constant before the change, no event declares the change (a person, a stage, a fix), and no remedy
        has changed the knob since. If only the reward fell, weights from before the change answer the same prompts. It
        waits while the current weights get more reward, because then the run still learns.

    Dose and bounds
        Exactly the former value, which is within the knob's bounds because the run used it.

    Undo
        By a person (fix RUN revert). It is kept unless another remedy works better, because the undeclared change is
        the suspect. If the run does not recover, a rollback to before the onset follows in addition.

    Side effects
        It may undo an intended change that nobody declared.

    References
        The first question of every incident review: what changed?
    """

    id = "restore-setting"
    safety = "soft"
    answers = ()
    horizon = 15
    by_hand = "restore the setting that was changed before the onset"
    why = "this setting was changed shortly before the run broke, and the run was healthy with the former value"
    expects = "the incident's findings clear and the reward is no lower than before"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return None  # the change depends on the history of the run

    def given(
        self, cause: str, knobs: Mapping[str, float], view: RunView, onset: int, ours: Mapping[str, int]
    ) -> Change | None:
        """The former values of the settings that were changed around the onset."""
        return turned_back(view, onset, ours) or None
