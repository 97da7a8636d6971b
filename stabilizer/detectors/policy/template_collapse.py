"""Template collapse: every prompt gets the same answer in varying words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import departure, drift
from stabilizer.detectors.evidence.progress import level, progress
from stabilizer.detectors.evidence.since import began, outcome
from stabilizer.runs.history import RunView


@dataclass(frozen=True, kw_only=True)
class TemplateCollapse(Detector):
    """Answers depend less and less on the prompt although entropy is as high as ever, and the reward does not gain.

    Signature
        The median of the last 15 rows of `rollout/prompt_dependence` is at most `share` of what its past predicts
        (`departure`) or of the run's start (`drift`), and `material` below it. At most `beside` of it is enough where
        the variety over all answers of the step (`rollout/distinct_2`) has fallen below its trend as well. Entropy is
        above half of its earlier level. At least `patience` rows after the onset the reward has not risen: `warn`.
        `critical` when it has lost what it had gained.

    Why it matters
        Entropy, distinct answers and repetition all look healthy, so nobody looks. But variety within a prompt is
        useless if the prompt is ignored. The policy has found one text that works equally badly everywhere. Rewards
        hardly differ between its versions, so noise and penalties drive training from here.

    Look-alikes
        Learning a common format lowers the dependence and raises the reward. If entropy collapsed as well, the answers
        are alike because they are all one: `policy/entropy-collapse`. A batch of two prompts that happen to be alike:
        the level is a median of 15. A random policy at the start depends on nothing yet: only a fall counts.

    False alarms
        Undeclared data whose prompts, or whose correct answers, are much more alike.

    Remedies
        `lower-beta` (the penalty rewards ignoring the prompt), `grow-batch`, `roll-back` once the reward is lost.
        Manually: train only on the prompts with the largest spread of rewards, and remove the entropy bonus.

    References
        RAGEN-2 (arXiv 2604.06268): mutual information between prompt and reasoning follows performance, entropy does
        not.
    """

    id = "policy/template-collapse"
    needs = ("rollout/prompt_dependence", "reward/mean|accuracy/train")
    confirm = 5

    share: float = 0.6
    """Share of the usual dependence that is a collapse."""
    beside: float = 0.75
    """The same, where the step's answers have become alike too."""
    material: float = 0.08
    """Fall of the dependence below which nothing is reported."""
    patience: int = 25
    """Rows after which a rising reward can be told from a flat one."""

    def check(self, view: RunView) -> Finding | None:
        series = view.series("rollout/prompt_dependence")
        recent = series.last(20).finite()
        if len(recent) < 10:
            return None
        now = level(recent, 15)
        first = int(series.steps.searchsorted(view.baseline_start()))
        moved = departure(view, "rollout/prompt_dependence", up=False)
        usual = moved.expected if moved else np.nan
        if not moved and now + self.material <= float(series.values[first : first + 20].max(initial=-np.inf)):
            start = drift(view, "rollout/prompt_dependence")
            usual = start.start if start and start.clear else np.nan
        if not now <= min(self.beside * usual, usual - self.material):
            return None
        if now > self.share * usual and departure(view, "rollout/distinct_2", up=False) is None:
            return None
        reward = progress(view)
        if reward is None or reward.solved or reward.rising:
            return None
        onset = began(series)
        since = outcome(view, onset)
        if since is None or since.paid or since.rows < self.patience:
            return None
        entropy = view.series("policy/entropy")
        before, after = level(entropy.between(0, onset).last(20).finite(), 20), level(entropy.last(8).finite())
        if after < 0.5 * before:
            return None
        lost = reward.dropped and since.fell
        fate = f"fell from {since.before:.3g} to" if since.fell else "has not risen:"
        return self.finding(
            view, "critical" if lost else "warn", onset,
            f"prompt dependence of answers fell from {usual:.2g} (before step {onset}) to {now:.2g} while entropy held;"
            f" {since.metric} {fate} {since.now:.3g}",
            metric="rollout/prompt_dependence", baseline=usual, now=now, entropy_before=before, entropy_now=after,
        )  # fmt: skip
