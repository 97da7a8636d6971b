"""Limit the size of single updates."""

from __future__ import annotations

from stabilizer.remedies.base import Remedy
from stabilizer.remedies.doses import Scale


class ClipUpdates(Remedy):
    """Limit the size of single updates.

    What it does
        Halves the gradient norm above which an update is scaled down.

    For
        Single updates that are far too large while the others are usual.

    Preconditions
        None.

    Dose and bounds
        Times 0.5; at least a quarter of the configured limit, and not below 0.05.

    Undo
        The limit is restored, also automatically once a kept trial no longer limits anything.

    Side effects
        If most updates are above the limit, it acts as a smaller learning rate, except with Adam, which cancels a
        constant factor.

    References
        Pascanu et al. 2013 (arXiv 1211.5063); AdaGC (arXiv 2502.11034).
    """

    id = "clip-updates"
    safety = "soft"
    answers = ("numeric-overflow", "lr-too-high")
    slows = True
    by_hand = "halve the norm to which gradients are scaled down"
    why = "one bad batch can undo a hundred good ones"
    expects = "the incident's findings clear and the reward is no lower than before"
    dose = Scale("control/max_grad_norm", 0.5, low=0.05, high=1e6)
