"""Switch to a KL estimator that single tokens can't dominate."""

from __future__ import annotations

from stabilizer.remedies.base import Remedy
from stabilizer.remedies.doses import Switch


class OtherKlEstimator(Remedy):
    """Switch to a KL estimator that single tokens can't dominate.

    What it does
        Replaces an estimator that contains an exponential with k2, half of the squared log-ratio.

    For
        A few tokens that make up most of the estimated KL.

    Preconditions
        The KL is a term of the loss.

    Dose and bounds
        A switch: to k2.

    Undo
        The switch is restored.

    Side effects
        The value of k2 is biased if the policies are far apart; its gradient is that of the true KL.

    References
        Schulman 2020, approximating KL divergence.
    """

    id = "other-kl-estimator"
    safety = "hard"
    answers = ("kl-estimator",)
    by_hand = "use k2 in the loss or k1 in the reward, and clip log-ratios at 20"
    why = "a few tokens make up most of the estimated KL and of its gradient"
    expects = "the KL of the largest token is at most a hundred times the mean"
    dose = Switch("control/kl_kind", "k2", when=("k1", "k3", "k3_is", "k3_k2grad"))
