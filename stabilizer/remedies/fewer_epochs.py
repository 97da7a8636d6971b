"""Make fewer passes over each batch of answers."""

from __future__ import annotations

from stabilizer.remedies.base import Remedy
from stabilizer.remedies.doses import Scale


class FewerEpochs(Remedy):
    """Make fewer passes over each batch of answers.

    What it does
        Halves the passes over a batch of answers, down to one.

    For
        A policy that moves too far from the sampled answers within a step.

    Preconditions
        More than one pass.

    Dose and bounds
        Times 0.5, at least one.

    Undo
        The number is restored, also automatically once a kept trial no longer limits anything.

    Side effects
        Less is learned from each answer.

    References
        Schulman et al. 2017 (arXiv 1707.06347); MiniMax-M1 (arXiv 2506.13585) on reuse.
    """

    id = "fewer-epochs"
    safety = "soft"
    answers = ("too-many-epochs", "lr-too-high")
    slows = True
    turns = "control/inner_epochs"
    by_hand = "one pass over each batch of answers, or larger minibatches"
    why = "after some updates the policy is too far from the answers it learns from"
    expects = "KL between the sampling and the updated policy falls below 0.01 nats/token"
    dose = Scale("control/inner_epochs", 0.5, low=1, high=16)
