"""Hold the policy closer to its reference."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, scaled

START = 0.001


class RaiseBeta(Remedy):
    """Start the KL penalty at 0.001, or double it, at most to 0.01.

    For drift that does not pay. The reference model is loaded when beta first leaves zero and costs one more forward
    pass a step from then on. Undo: beta goes back; the reference stays in memory.
    """

    id = "raise-beta"
    safety = "soft"
    answers = ("no-kl-anchor", "lr-too-high")
    why = "a KL penalty makes drift that buys no reward cost something"
    expects = "KL to the reference stops growing and the reward is no lower than before"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        if knobs.get("control/beta") == 0:
            return {"control/beta": (0.0, START)}
        return scaled(knobs, "control/beta", 2.0, low=0.0, high=max(0.01, knobs.get("control/beta", 0.0)))
