"""Length explosion: answers grow longer and longer without getting better."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding, Severity
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
    """Answers have grown by half or more without any gain.

    Signature
        Mean length is at least `growth` times what its own trend predicts, or its value at the start of the run, or its
        value when accuracy stopped moving, and longer than anything in the 300 rows before. The gain is what accuracy
        gained since (the reward where accuracy is not logged). No gain is `warn`, a loss is `critical`. `info` when
        neither is certain and the newer half of the run shows no gain (`Progress.idle`), or a young run none since
        (`since.stalled`). Where only the reward is logged and it rises because it rewards length (`length_reward_corr`,
        or rows with longer answers have higher rewards, at least `paid`), that is `warn` too, and the summary says so.
        With a gain it is `info` once the limit cuts `cut` more of the answers than before.

    Why it matters
        Padding costs generation time in proportion and fills the length limit until answers are truncated. It is the
        commonest exploit: a mean over each answer's own tokens makes long wrong answers cheap.

    Look-alikes
        Reasoning that grows together with accuracy, however far, within its limit: silent. A solved task with long
        answers: `info`. Growth entirely between two rows is another data set, limit or sampling, because a policy does
        not learn within one row: `info`. Data in epoch order return to earlier lengths.

    False alarms
        A run that wanders between short and long answers by itself for longer than 300 rows.

    Remedies
        `check-reward`: does any term reward length? `roll-back` after a loss. Manually: token-level loss instead of a
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
    """The same while the run has fewer than `young` rows: the size of its swings is not known yet."""
    young: int = 150
    """Rows after which `growth` is enough."""
    paid: float = 0.65
    """Correlation of length and reward from which the reward counts as rewarding length."""

    cut: float = 0.1
    """Growth of the truncated share from which answers that gain are too long for their limit."""

    def check(self, view: RunView) -> Finding | None:
        return self.confirmed(self._swollen(view), view, self._swollen)

    def _swollen(self, view: RunView) -> Finding | None:
        grown = self._grown(view)
        if grown is None:
            return None
        before, now, onset, verdict = grown
        reward = progress(view)
        explained = f"and {verdict.words}"
        severity: Severity
        if verdict.verdict == "gained":
            paid = self._pays(view) if verdict.metric == "reward/mean" else 0.0
            severity = "warn"
            explained = (
                f"and the reward rewards length (correlation {paid:.2f}); no logged metric counts correct answers"
            )
            if paid < self.paid:
                shares = view.series("rollout/truncated_frac")
                was, cut = level(shares.between(0, onset).last(10)), level(shares.last(10))
                if not cut > was + self.cut:
                    return None
                severity, explained = "info", f"{verdict.words}, and {cut:.0%} of them are cut, {was:.0%} before"
        elif reward is not None and reward.solved:
            severity, explained = "info", "on a solved task"
        elif sudden(view.series(LENGTH), onset, "positive"):
            severity, explained = "info", "within one row: other prompts, another limit or other sampling"
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
        """(before, now, onset, gain) against its trend, the start of the run, or the point where the reward stopped
        moving."""
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
        return (slow.start, slow.now, onset, verdict) if verdict and told else None

    @staticmethod
    def _pays(view: RunView) -> float:
        """Correlation of reward and length: within a step where that is logged, else from row to row."""
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
