"""Length explosion: answers grow longer and longer without getting better."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.core.stats import median
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import departure, drift
from stabilizer.detectors.evidence.progress import level, progress
from stabilizer.detectors.evidence.since import stalled, unpaid
from stabilizer.detectors.evidence.stagnation import stagnation
from stabilizer.detectors.evidence.worth import Worth, first_level, left, smoothed, sudden, unheard_of, worth
from stabilizer.runs.history import RunView

LENGTH = "rollout/length_mean"


@dataclass(frozen=True, kw_only=True)
class LengthExplosion(Detector):
    """Answers have grown by half or more, and the growth was not earned.

    Signature
        Mean length is at least `growth` times what its own course made expect, or than at the start of the run, or than
        when accuracy stopped moving, and longer than anything the 300 rows before had. Earned is what accuracy gained
        since (the reward where nobody logs accuracy): nothing gained is `warn`, something lost is `critical`; `info`
        when neither can be told and the newer half of the run, or a young one since (`since.stalled`), shows no gain
        (`Progress.idle`). Where only the reward
        can say, and it rises because it pays for length (`length_reward_corr`, or rows that pay more whenever they are
        longer, at least `paid`), that is `warn` too, and said.

    Why it matters
        Padding costs generation time in proportion, fills the length limit until answers are cut, and is the commonest
        exploit there is: a mean over each answer's own tokens makes long wrong answers cheap.

    Look-alikes
        Reasoning that grows together with accuracy, however far: quiet. A solved task with long answers: `info`. All of
        the growth between two rows is another data set, limit or sampling, for nobody learns in one row: `info`.
        Epoch-ordered data comes back to lengths it has had before.

    False alarms
        A run that wanders between short and long answers by itself for longer than 300 rows.

    Remedies
        `check-reward`: does any term pay for length? `roll-back` after a loss. By hand: token-level loss instead of a
        mean over each answer, a soft penalty near the limit (`rollout.overlong_buffer`), a limit raised in stages.

    References
        Dr. GRPO (arXiv 2503.20783) on length bias; DAPO (arXiv 2503.14476) on token-level loss and overlong shaping.
    """

    id = "rollout/length-explosion"
    needs = (LENGTH, "accuracy/train|reward/mean")
    confirm = 5

    growth: float = 1.5
    """Factor by which answers must have grown."""
    young_growth: float = 2.0
    """The same while the run has fewer than `young` rows: how far it swings by itself is not known yet."""
    young: int = 150
    """Rows after which `growth` is enough."""
    paid: float = 0.65
    """Correlation of length and reward from which the reward is taken to pay for length."""

    def check(self, view: RunView) -> Finding | None:
        return self.held(self._swollen(view), view, self._swollen)

    def _swollen(self, view: RunView) -> Finding | None:
        grown = self._grown(view)
        if grown is None:
            return None
        before, now, onset, verdict = grown
        reward = progress(view)
        explained = f"and {verdict.words}"
        if verdict.verdict == "gained":
            paid = self._pays(view) if verdict.metric == "reward/mean" else 0.0
            if paid < self.paid:
                return None
            severity = "warn"
            explained = f"and the reward pays for it (correlation {paid:.2f}); nobody logs whether answers are right"
        elif reward is not None and reward.solved:
            severity, explained = "info", "on a task that is solved"
        elif sudden(view.series(LENGTH), onset, "positive"):
            severity, explained = "info", "within a row: other prompts, another limit or other sampling"
        elif verdict.verdict == "unsure":
            severity = "info"
        else:
            severity = "critical" if verdict.verdict == "lost" else "warn"
        return self.finding(
            view, severity, onset,
            f"answers are {now:.4g} tokens long, {now / before:.1f} times the {before:.4g} before step {onset},"
            f" {explained}",
            metric=LENGTH, baseline=before, now=now, guard=verdict.metric,
            guard_before=verdict.before, guard_now=verdict.now,
        )  # fmt: skip

    def _grown(self, view: RunView) -> tuple[float, float, int, Worth] | None:
        """(before, now, onset, what it was worth): against its course, the start, or a standstill of the reward."""
        series = view.series(LENGTH)
        moved = departure(view, LENGTH, up=True)
        growth = self.young_growth if len(series) < self.young else self.growth
        if (
            moved
            and moved.ratio >= growth
            and unheard_of(smoothed(series), moved.onset_step, moved.expected, moved.now)
        ):
            verdict = worth(view, moved.onset_step)
            if verdict and verdict.verdict in ("flat", "lost"):
                return moved.expected, moved.now, moved.onset_step, verdict
        if len(series) < 15 or level(series) < 0.9 * growth * first_level(view, series):
            return None
        slow = drift(view, LENGTH, now_rows=min(15, len(series) // 3))
        if slow is None or not slow.clear or slow.ratio < growth:
            return None
        onset = left(series, slow.start, slow.now, "positive")
        old = (series.last(505).values[:10] > slow.now / 1.2).mean() > 0.5
        if old or not unheard_of(smoothed(series), onset, slow.start, slow.now):
            return None
        if late := stalled(view, onset):
            return slow.start, slow.now, onset, Worth(late.metric, late.before, late.now, "unsure")
        if len(series) < 30:
            return None
        verdict, still = worth(view, onset), stagnation(view)
        if verdict and verdict.verdict in ("gained", "unsure") and still is not None:
            before = level(series.between(0, still.onset_step).last(20).finite(), 20)
            if slow.now >= self.growth * before:
                flat = Worth(verdict.metric, still.level, still.level, "flat")
                return before, slow.now, still.onset_step, flat
        told = verdict and (verdict.verdict != "unsure" or unpaid(view, onset))
        return (slow.start, slow.now, onset, verdict) if told else None

    @staticmethod
    def _pays(view: RunView) -> float:
        """How closely the reward follows length: within a step where that is logged, else from row to row."""
        within = view.series("rollout/length_reward_corr").last(20).finite().values
        if len(within) >= 5:
            return median(within)
        lengths, rewards = view.series(LENGTH).last(61), view.series("reward/mean").last(61)
        if len(lengths) < 31 or not np.array_equal(lengths.steps, rewards.steps):
            return 0.0
        changes = np.diff(np.log(np.maximum(lengths.values, 1e-9))), np.diff(rewards.values)
        known = np.isfinite(changes[0]) & np.isfinite(changes[1])
        if known.sum() < 30 or min(change[known].std() for change in changes) < 1e-12:
            return 0.0
        return float(np.corrcoef(changes[0][known], changes[1][known])[0, 1])
