"""Estimate the KL so that no token outweighs the rest."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, switched


class OtherKlEstimator(Remedy):
    """Estimate the KL so that no token outweighs the rest.

    What it does
        Puts k2, half of the squared log-ratio, in place of an estimator with an exponential in it.

    For
        A few tokens that make most of the estimated KL.

    Preconditions
        The KL is a term of the loss.

    Dose and bounds
        A switch: to k2.

    Undo
        The switch goes back.

    Side effects
        k2's value is biased where policies are far apart; its gradient is the one that is meant.

    References
        Schulman 2020, approximating KL divergence.
    """

    id = "other-kl-estimator"
    safety = "hard"
    answers = ("kl-estimator",)
    by_hand = "use k2 in the loss or k1 in the reward, and clip log-ratios at 20"
    why = "a few tokens make most of the estimated KL, so its gradient is theirs alone"
    expects = "the largest token's KL is within a hundred times the mean"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return switched(knobs, "control/kl_kind", "k2", when=("k1", "k3", "k3_is", "k3_k2grad"))
