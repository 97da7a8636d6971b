"""Weight answers by the learner's probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from stabilizer.core.stats import middle
from stabilizer.remedies.base import Change, Remedy
from stabilizer.remedies.doses import MOST_MORE, Switch, more_prompts
from stabilizer.remedies.lower_lr import HALF_RATE
from stabilizer.runs.history import RunView

APART, LENGTH = "policy/mismatch_kl", "rollout/length_mean"
WHOLE = math.log(MOST_MORE) / 2
"""Largest distance between engine and learner, in nats per answer, at which whole answers are weighted. With normally
distributed log-weights, the effective share of answers is `exp(-2 nats)`; more prompts make up for that loss."""
ROWS = 5
"""Most rows used to measure the current distance."""
TOKENS = Switch("control/mismatch", "tis_token", when=("none",))
WHOLE_ANSWERS = Switch("control/mismatch", "tis_sequence", when=("none",))
LITTLE, TELLING = 0.1, 3
"""Distance in nats per answer below which the remedy first waits, and the rows that show whether it grows."""


class CorrectMismatch(Remedy):
    """Weight answers by the learner's probabilities.

    What it does
        Switches on truncated importance sampling, cut off at the configured cap (2). If engine and learner are less
        than 0.7 nats apart per answer, each answer is weighted by its probability ratio, which corrects all of the
        bias. If they are further apart, each token is weighted by its own ratio, which corrects part of the bias and
        keeps more answers. Weights add variance, so the number of prompts is raised to make up for it. The remaining
        bias, and the distance to an engine with stale weights, grow with the learner's steps. If either remains, the
        learning rate is halved. If the distance is still small, the remedy waits three rows to see whether it grows.

    For
        An engine whose token probabilities differ from the learner's.

    Preconditions
        The engine's log-probabilities are known.

    Dose and bounds
        A switch: none to tis_sequence or tis_token. exp(2 nats) times the prompts, with nats per answer or per token;
        at most four times, and at most 128 prompts. Half the learning rate if tokens are weighted or weights are stale;
        at least a quarter of the configured rate.

    Undo
        The switch, the prompts and the learning rate are restored.

    Side effects
        A step takes longer in proportion to the added prompts. The bias is corrected, not its cause: precision,
        temperature and template should be made equal.

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
        "weight tokens by their probability ratio, cut off at 2 (truncated importance sampling), and make both sides"
        " equal: precision, temperature, top-p = 1, top-k off, the same chat template"
    )
    why = "the generation engine gives tokens other probabilities than the learner does"
    expects = "the mismatch KL falls below 0.001 nats/token, or stays and does no damage"
    dose = TOKENS

    def given(
        self, cause: str, knobs: Mapping[str, float], view: RunView, onset: int, ours: Mapping[str, int]
    ) -> Change | None:
        """The most exact weights that keep enough answers, more prompts for their variance, smaller steps for the
        remaining bias."""
        far, lengths = (view.series(name).between(onset, view.step).finite().values for name in (APART, LENGTH))
        if not min(len(far), len(lengths)):
            return self.change(knobs)
        apart = middle(far[-ROWS:])
        nats = apart * middle(lengths[-ROWS:])
        if nats < LITTLE and len(far) < TELLING:
            return None
        whole = nats <= WHOLE
        change = (WHOLE_ANSWERS if whole else TOKENS)(knobs)
        if change is None:
            return None
        biased = not whole or cause == "stale-weights" or _grows(far[:TELLING])
        return change | _made_up(knobs, 2 * (nats if whole else apart), biased)


def _made_up(knobs: Mapping[str, float], variance: float, biased: bool) -> Change:
    """More prompts for the variance of the weights, and smaller steps for a bias that they leave."""
    more = more_prompts(knobs, math.exp(min(variance, math.log(MOST_MORE))))  # avoids an overflow of the exponential
    return more | (HALF_RATE(knobs) or {}) if biased else more


def _grows(first: np.ndarray) -> bool:
    """Whether the distance doubles within the first rows and grows in each: the sign of an engine with stale
    weights."""
    return len(first) == TELLING and bool((np.diff(first) > 0).all() and first[-1] >= 2 * first[0])
