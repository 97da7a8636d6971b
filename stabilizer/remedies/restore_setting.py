"""Put back a setting that was changed just before things broke."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import NOBODY, Change, Remedy
from stabilizer.remedies.turns import turned_back
from stabilizer.runs.history import RunView


class RestoreSetting(Remedy):
    """Put back a setting that was changed just before things broke.

    What it does
        Gives every knob that changed shortly before the onset, and that nobody declared to have changed, its former
        value. A learning rate that left its schedule upward is held where it was, by its knob, for as long as it is up.
        A trial of something else that was begun before the change could be seen gives way.

    For
        Whatever is found after a setting was changed: what changed last is the first suspect, and what it was before
        has been tried out by this very run.

    Preconditions
        The knob stood still before the change, no event declares the change (a person's word, a stage, a fix), and no
        remedy has turned the knob meanwhile.

    Dose and bounds
        Exactly the former value, which is within the knob's bounds because it has been in force.

    Undo
        By a person (fix RUN revert). It is kept unless something else works better, for the burden of proof is on what
        was changed without a word; a run that does not recover under it goes back to before the onset on top of it.

    Side effects
        Takes back what somebody may have meant, and did not declare.

    References
        The first question of every incident review: what changed?
    """

    id = "restore-setting"
    safety = "soft"
    answers = ()
    horizon = 15
    by_hand = "put back what was changed before the onset"
    why = "this was changed shortly before things broke, and the run was well with what it was before"
    expects = "the incident's findings are quiet and the reward is no lower than before"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return None  # only the course of the run tells

    def given(
        self, cause: str, knobs: Mapping[str, float], view: RunView, onset: int, ours: Mapping[str, int] = NOBODY
    ) -> Change | None:
        """The former values of what was changed around the onset."""
        return turned_back(view, onset, ours) or None
