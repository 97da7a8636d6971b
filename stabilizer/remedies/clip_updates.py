"""Hold single updates back."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, scaled


class ClipUpdates(Remedy):
    """Hold single updates back.

    What it does
        Halves the gradient norm above which an update is scaled down.

    For
        Single updates that are far too large while the rest is calm.

    Preconditions
        None.

    Dose and bounds
        Times 0.5; a quarter of the configured limit at the least, and not under 0.05.

    Undo
        The limit goes back, by itself too once a kept trial holds nothing back any more.

    Side effects
        Where most updates are above the limit it acts as a smaller learning rate, except on Adam, which undoes a
        constant factor.

    References
        Pascanu et al. 2013 (arXiv 1211.5063); AdaGC (arXiv 2502.11034).
    """

    id = "clip-updates"
    safety = "soft"
    answers = ("numeric-overflow", "lr-too-high")
    slows = True
    by_hand = "halve the norm to which gradients are scaled down"
    why = "one bad batch must not undo a hundred good ones"
    expects = "the incident's findings are quiet and the reward is no lower than before"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return scaled(knobs, "control/max_grad_norm", 0.5, low=0.05, high=1e6)
