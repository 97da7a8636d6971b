"""Skip updates while the reward can't be trusted."""

from __future__ import annotations

import numpy as np

from stabilizer.core.stats import middle
from stabilizer.detectors.evidence.progress import progress
from stabilizer.remedies.base import BACK, Remedy
from stabilizer.remedies.evidence import silent_groups
from stabilizer.remedies.objections import leapt_at_onset
from stabilizer.remedies.situation import Situation
from stabilizer.runs.history import RunView

MOSTLY = 0.5
"""Share of silent groups above which updates do no damage, so skipping them gains nothing."""
CLEAR = 3.0
"""Standard deviations by which the reward must change under the same weights to count as changed."""


class SkipUpdate(Remedy):
    """Skip updates while the reward can't be trusted.

    What it does
        Rollouts are generated, scored and logged, but the weights stay the same for 20 steps or until the reward
        changes. With constant weights, a change of the reward means that the reward function has changed.

    For
        A reward that fails for a while: an outage, a verifier that times out.

    Preconditions
        Most groups have spread, or there is a critic: without a critic, a group with equal rewards gives no gradient,
        so there is nothing to skip. No step leapt at the start: damaged weights recover only by learning. The fault has
        lasted fewer than 20 steps: a longer one is unlikely to end within 20 more. It is more than spikes of single
        rows with usual rows in between.

    Dose and bounds
        At most 20 steps; then it ends automatically. Once in 100 steps: if the fault raised the reward, its end looks
        like a fall of the reward under constant weights.

    Undo
        It ends automatically: the weights do not change.

    Side effects
        Nothing is learned in those steps. If the reward is back but lower than before the onset, `auto-full` returns to
        a checkpoint from before the onset, because the policy has learned from wrong rewards since.

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
    why = "updates from unreliable rewards damage the policy"
    expects = "the reward returns to its level, with unchanged weights"

    def over(self, view: RunView, began: int) -> str:
        """Whether the reward has changed under constant weights."""
        reward = progress(view)
        if reward is None or view.step >= began + self.repeats:
            return ""  # the weights change again from there on
        values = view.series(reward.metric).between(began, view.step).values
        first, last = values[:-BACK], values[-BACK:]
        if len(first) < BACK or not np.isfinite(last).all():
            return ""
        known = first[np.isfinite(first)]
        if len(known) < BACK:
            return "" if len(known) else f"{reward.metric} is a number again"
        was, now = float(known.mean()), middle(last)
        noise = reward.noise * float(np.sqrt(1 / len(known) + 1 / BACK))
        apart = (last - was) * np.sign(now - was)  # for every row: a single one may be chance or an earlier value
        if apart.min() <= reward.noise or abs(now - was) <= CLEAR * noise:
            return ""
        return f"{reward.metric} went from {was:.3g} to {now:.3g} under constant weights: the reward itself has changed"

    def unfit(self, view: RunView) -> str:
        """Groups with equal rewards, from an outage or a broken policy, do no damage in an update. With a critic that
        expects a higher reward, they still do."""
        silent = None if "value/loss" in view else silent_groups(view)
        return f"{silent:.0%} of groups have equal rewards: they do no damage" if (silent or 0.0) > MOSTLY else ""

    def objection(self, now: Situation) -> str | None:
        """Steps without learning are worth their cost only if the reward soon recovers."""
        if leapt_at_onset(now):
            return "the policy moved too far when the incident began: only learning repairs damaged weights"
        if now.members and all(finding.id == "optim/grad-spike" for finding in now.members):
            return "only single rows spike, and the rows between them are usual"
        lasts = now.view.step - now.since
        if lasts >= self.repeats:
            return f"it has lasted {lasts} steps and is unlikely to end within {self.repeats} more"
        return None
