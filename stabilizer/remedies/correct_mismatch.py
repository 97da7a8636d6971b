"""Weigh tokens by what the learner thinks of them."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy, switched


class CorrectMismatch(Remedy):
    """Weigh tokens by what the learner thinks of them.

    What it does
        Switches truncated importance sampling on: a token counts by the ratio of its probabilities under learner and
        engine, cut off at the configured cap (2).

    For
        An engine that gives tokens other probabilities than the model that learns.

    Preconditions
        The engine's log-probabilities are known.

    Dose and bounds
        A switch: none to tis_token.

    Undo
        The switch goes back.

    Side effects
        It corrects the bias and not the cause: precision, temperature and template should be made alike.

    References
        Yao et al. 2025 on truncated importance sampling for rollout engines; MiniMax-M1 (arXiv 2506.13585) on the
        precision of the head.
    """

    id = "correct-mismatch"
    safety = "soft"
    outlived_by = (
        "system/invariant",
        "policy/mismatch",
        "policy/stale-rollouts",
        "policy/router-shift",
        "policy/kl-estimator",
    )
    answers = ("engine-mismatch", "precision", "stale-weights")
    by_hand = (
        "weigh tokens by their probability ratio, cut off at 2 (truncated importance sampling), and make both sides"
        " alike: precision, temperature, top-p = 1, top-k off, the same chat template"
    )
    why = "the engine that writes the answers gives tokens other probabilities than the model that learns"
    expects = "the mismatch KL falls under 0.001 nats/token, or stays and does no harm"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return switched(knobs, "control/mismatch", "tis_token", when=("none",))
