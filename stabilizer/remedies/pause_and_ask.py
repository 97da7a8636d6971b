"""Pause and ask a person."""

from __future__ import annotations

from stabilizer.remedies.base import Remedy


class PauseAndAsk(Remedy):
    """Pause and ask a person.

    What it does
        The run waits after the current step, with its state saved, until a person runs `stabilizer fix RUN resume`.

    For
        A fault that no knob can fix and that each step makes worse.

    Preconditions
        A person who can answer: it always needs approval.

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
    why = "no knob can fix this, so more steps would be wasted"
    expects = "a person has checked the run"
