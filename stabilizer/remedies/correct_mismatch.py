"""Weigh answers by what the learner thinks of them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from stabilizer.core.stats import middle
from stabilizer.remedies.base import MOST_MORE, NOBODY, Change, Remedy, more_prompts, scaled, switched
from stabilizer.remedies.lower_lr import LOWEST, LR
from stabilizer.runs.history import RunView

APART, LENGTH = "policy/mismatch_kl", "rollout/length_mean"
WHOLE = math.log(MOST_MORE) / 2
"""Nats between engine and learner over an answer up to which it can be weighed as a whole: of `exp(-2 nats)` of the
answers a weight is left, were the logarithms of the weights normally distributed, and prompts make good for so many."""
ROWS = 5
"""Rows, at most, that say how far they are apart now."""
LITTLE, TELLING = 0.1, 3
"""Nats over an answer below which there is time to see, and rows that tell, whether it grows."""


class CorrectMismatch(Remedy):
    """Weigh answers by what the learner thinks of them.

    What it does
        Switches truncated importance sampling on, cut off at the configured cap (2). Where engine and learner are less
        than 0.7 nats apart over an answer, an answer counts by the ratio of its probabilities under both, which
        corrects all of the bias; where they are further apart, each token by its own, which corrects some and keeps the
        answers. Weights cost variance, so prompts are made as many more as make good for it. What weights leave of the
        bias, and the distance to an engine whose weights stay behind, grow with the steps of the learner, so that where
        either is left the learning rate is halved. Where they are hardly apart yet, three rows are waited for to see it
        grow.

    For
        An engine that gives tokens other probabilities than the model that learns.

    Preconditions
        The engine's log-probabilities are known.

    Dose and bounds
        A switch: none to tis_sequence or tis_token; exp(2 nats) times the prompts, nats by the answer or by the token,
        four times at most, and 128 prompts; half the learning rate where tokens are weighed or weights are stale, a
        quarter of the configured one at the lowest.

    Undo
        The switch goes back, and prompts and learning rate with it.

    Side effects
        A step takes up to that many times as long as there are more prompts. The bias is corrected and not its cause:
        precision, temperature and template should be made alike.

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

    def given(
        self, cause: str, knobs: Mapping[str, float], view: RunView, onset: int, ours: Mapping[str, int] = NOBODY
    ) -> Change | None:
        """The finest weights that leave enough answers, prompts for what they cost, smaller steps for the rest."""
        change = self.change(knobs)
        rows = [view.series(name).between(onset, view.step).finite().values for name in (APART, LENGTH)]
        if change is None or not all(map(len, rows)):
            return change
        apart, length = (middle(values[-ROWS:]) for values in rows)
        nats = apart * length
        if nats < LITTLE and len(rows[0]) < TELLING:
            return None
        whole = nats <= WHOLE
        if whole:
            change = switched(knobs, "control/mismatch", "tis_sequence", when=("none",)) or change
        variance = min(2 * (nats if whole else apart), math.log(MOST_MORE))  # an exponent may be beyond any number
        behind = cause == "stale-weights" or _grows(rows[0][:TELLING])
        smaller_steps = scaled(knobs, LR, 0.5, low=LOWEST, high=1.0) if behind or not whole else None
        return change | more_prompts(knobs, math.exp(variance)) | (smaller_steps or {})


def _grows(first: np.ndarray) -> bool:
    """Twice as far apart within the first rows, and further in each: so does an engine whose weights stay behind."""
    return len(first) == TELLING and bool((np.diff(first) > 0).all() and first[-1] >= 2 * first[0])
