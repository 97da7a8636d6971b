"""Throw updates away while the reward can't be trusted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stabilizer.core.stats import middle
from stabilizer.detectors.evidence.progress import progress
from stabilizer.remedies.base import BACK, Change, Remedy
from stabilizer.remedies.evidence import silent_groups
from stabilizer.remedies.objections import leapt_at_onset
from stabilizer.remedies.situation import Situation
from stabilizer.runs.history import RunView

MOSTLY = 0.5
"""Share of silent groups from which there is more to wait for than to be kept from."""
CLEAR = 3.0
"""Standard deviations of the difference by which it is elsewhere than it was under the same weights."""


class SkipUpdate(Remedy):
    """Throw updates away while the reward can't be trusted.

    What it does
        Rollouts are made, scored and logged, and the weights stay, for 20 steps, or until the reward moves: of a policy
        that stands that can only be the doing of what judges it.

    For
        A reward that fails for a while: an outage, a verifier that times out.

    Preconditions
        Most groups have spread, or a critic judges: beside its group alone, what is all paid alike teaches nothing,
        right or wrong, and needs no skipping. No step leapt when it began: weights that are damaged mend by learning
        alone. It has gone on for fewer than 20 steps: what lasts longer does not pass within 20 more. There is
        more than spikes of single rows, between which all is as usual.

    Dose and bounds
        20 steps at most; then it ends by itself. Once in 100 steps: the end of it is a fall of the reward while the
        policy stands, where what fails paid too much.

    Undo
        It ends by itself: the weights are what they were.

    Side effects
        Those steps are lost to learning. Where the reward is back and lower than before the onset, `auto-full` returns
        to a checkpoint from before it: what was learned since was learned from what failed.

    References
        PaLM (arXiv 2204.02311) skipped batches around spikes.
    """

    id = "skip-update"
    safety = "soft"
    answers = ("reward-fault",)
    orders = ("skip-update",)
    repeats = 20
    horizon = 26
    harmless = True
    why = "what can't be judged must not be learned from"
    expects = "the reward is back at its level, with the weights as they were"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return {} if knobs else None

    def over(self, view: RunView, began: int) -> str:
        """The reward has moved while the weights stood."""
        reward = progress(view)
        if reward is None or view.step >= began + self.repeats:
            return ""  # from there on the weights move again
        values = view.series(reward.metric).between(began, view.step).values
        first, last = values[:-BACK], values[-BACK:]
        if len(first) < BACK or not np.isfinite(last).all():
            return ""
        known = first[np.isfinite(first)]
        if len(known) < BACK:
            return "" if len(known) else f"{reward.metric} is a number again"
        was, now = float(known.mean()), middle(last)
        noise = reward.noise * float(np.sqrt(1 / len(known) + 1 / BACK))
        apart = (last - was) * np.sign(now - was)  # of every row, for one may be chance, or from before
        if apart.min() <= reward.noise or abs(now - was) <= CLEAR * noise:
            return ""
        return f"{reward.metric} went from {was:.3g} to {now:.3g} while the weights stood: what judges them has changed"

    def unfit(self, view: RunView) -> str:
        """Groups that are all paid alike, by an outage or as the policy is broken, do no harm in an update; a critic,
        who expected more of them, makes them teach all the same."""
        silent = None if "value/loss" in view else silent_groups(view)
        return f"{silent:.0%} of groups are paid alike: they teach nothing wrong" if (silent or 0.0) > MOSTLY else ""

    def objection(self, now: Situation) -> str | None:
        """Steps without learning are a price worth paying only for a reward that will soon be well again."""
        if leapt_at_onset(now):
            return "the policy leapt when it began: what fails is in the weights, and only learning mends them"
        if now.members and all(finding.id == "optim/grad-spike" for finding in now.members):
            return "single rows spike, and those between them teach what they should"
        lasts = now.view.step - now.since
        if lasts >= self.repeats:
            return f"it has gone on for {lasts} steps: it will not pass within {self.repeats} more"
        return None
