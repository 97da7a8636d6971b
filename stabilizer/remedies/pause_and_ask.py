"""Pause, and ask a person."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy


class PauseAndAsk(Remedy):
    """Pause, and ask a person.

    What it does
        The run waits after the present step, with its state saved, until somebody says `stabilizer fix RUN resume`.

    For
        What no knob mends, and each step makes worse.

    Preconditions
        Somebody to ask: it is only ever done on a person's word.

    Dose and bounds
        Once.

    Undo
        `stabilizer fix RUN resume`.

    Side effects
        The machine is idle meanwhile.

    References
        None needed.
    """

    id = "pause-and-ask"
    safety = "hard"
    answers = ("wrong-groups", "reward-hackable", "reward-fault")
    orders = ("pause",)
    asks = True
    harmless = True
    horizon = 0
    why = "what no knob can mend should not cost more steps"
    expects = "a person has looked at it"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return {} if knobs else None
