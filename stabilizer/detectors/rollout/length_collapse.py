"""Length collapse: answers become much shorter without getting better."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.records import Finding, Severity
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import departure, drift
from stabilizer.detectors.evidence.progress import level, progress
from stabilizer.detectors.evidence.since import outcome, stalled, unpaid
from stabilizer.detectors.evidence.worth import Worth, first_level, left, sudden, unheard_of, worth
from stabilizer.runs.history import RunView

LENGTH = "rollout/length_mean"
ANSWER = 15
"""Rows that the reward gets to respond to a sudden fall."""


@dataclass(frozen=True, kw_only=True)
class LengthCollapse(Detector):
    """Answers have lost much of their length without any gain.

    Signature
        Mean length is at most `share` of what its trend predicts, or of the start of the run, and shorter than anything
        in the 300 rows before. `warn` when accuracy (the reward where accuracy is not logged) has gained nothing since
        and the task is not solved, `critical` when it has fallen. Where accuracy fell too, `hurt` of the trend is
        enough: two signs of one fall. The same `hurt` is `info` where a gain cannot be excluded but none is visible:
        the newer half of the run shows no gain of the reward (`Progress.idle`), or a young run none since
        (`since.stalled`), or length left its trend and the reward's gain in 15 rows cannot be told from chance.
        `bare` is `info` even where the reward gained, once it no longer rises: one part of it may pay for bare results.

    Why it matters
        Answers without room to reason cannot improve again: long ones are no longer sampled, so nothing can reward
        them. In PPO it is the first effect of a critic that undervalues late tokens; elsewhere look for a penalty per
        token or an end token that is rewarded.

    Look-alikes
        Efficient answers: accuracy rises while they shrink, as when a base model learns the format in its first steps.
        A solved task that is answered ever more briefly. A lower length limit, which shows in the share of truncated
        answers (`rollout/truncation`). A fall entirely between two rows is other data: `info`.

    False alarms
        A policy that says the same in fewer words at the same accuracy, in a run that has stopped improving.

    Remedies
        `check-reward`: which term punishes length? `roll-back` after a loss. Manually, for PPO: lambda 1 for the
        critic's returns and some steps of critic training before the policy moves.

    References
        VC-PPO (arXiv 2503.01491) on value initialisation, GAE decay and collapsing lengths.
    """

    id = "rollout/length-collapse"
    needs = (LENGTH, "accuracy/train|reward/mean")
    confirm = 3

    share: float = 0.5
    """Share of the earlier length, at or under which it has collapsed."""
    hurt: float = 0.7
    """The same where accuracy fell too, and for information where the reward shows no gain either."""
    bare: float = 0.1
    """Share of the earlier length at which hardly more than a result is left, whatever it earns: for information."""
    cut: float = 0.1
    """Growth of the truncated share from which the limit explains shorter answers."""

    def check(self, view: RunView) -> Finding | None:
        return self.confirmed(self._shrunk(view), view, self._shrunk)

    def _shrunk(self, view: RunView) -> Finding | None:
        series = view.series(LENGTH)
        if len(series) < 15:
            return None
        moved = departure(view, LENGTH, up=False)
        if moved and moved.ratio <= self.hurt and unheard_of(series, moved.onset_step, moved.expected, moved.now):
            before, now, onset = moved.expected, moved.now, moved.onset_step
        else:
            if level(series) > 1.1 * self.hurt * first_level(view, series):
                return None
            slow = drift(view, LENGTH, now_rows=min(15, len(series) // 3))
            if slow is None or not slow.clear or slow.ratio > self.hurt:
                return None
            before, now, onset = slow.start, slow.now, left(series, slow.start, slow.now, "positive")
            if (series.last(505).values[:10] < slow.now * 1.2).mean() > 0.5:
                return None  # the fall is old
        verdict, reward = worth(view, onset), progress(view)
        if verdict is None or reward is None or reward.solved:
            return None
        late = stalled(view, onset) if now <= self.share * before else None
        bare = now <= self.bare * before and not reward.rising
        if verdict.verdict == "gained":
            if not (late or bare):
                return None
            verdict = Worth(late.metric, late.before, late.now, "unsure") if late else verdict
        proven = verdict.verdict == "lost" or now <= self.share * before and verdict.verdict == "flat"
        hardly = bare or late or unpaid(view, onset) or (moved and self._hardly_paid(view, onset))
        if not proven and not hardly:
            return None
        if not unheard_of(series, onset, before, now) or self._limited(view, onset):
            return None
        newest = series.steps[-20:]
        sparse = int(newest[-1] - newest[0]) >= 5 * (
            len(newest) - 1
        )  # rows are so far apart that any fall lies between two
        severity: Severity
        if sudden(series, onset, "positive") and not (
            sparse and verdict.verdict == "lost" or verdict.verdict == "gained"
        ):
            severity, words = "info", "within one row: other prompts, another limit or other sampling"
        else:
            severity = "critical" if verdict.verdict == "lost" else "warn" if proven else "info"
            words = f"and {verdict.words}"
        return self.finding(
            view, severity, onset,
            f"answers are {now:.4g} tokens long, {now / before:.0%} of the {before:.4g} before step {onset}, {words}",
            metric=LENGTH, baseline=before, now=now, guard=verdict.metric,
            guard_before=verdict.before, guard_now=verdict.now,
        )  # fmt: skip

    @staticmethod
    def _hardly_paid(view: RunView, onset: int) -> bool:
        """Whether the reward's gain, in enough rows since, cannot be told from chance: less than two standard
        errors."""
        since = outcome(view, onset)
        return since is not None and since.rows >= ANSWER and since.now - since.before <= 2 * since.error

    def _limited(self, view: RunView, onset: int) -> bool:
        """Whether more answers are truncated than before: they are short because of the limit."""
        shares = view.series("rollout/truncated_frac")
        return level(shares.last(10)) > level(shares.between(0, onset).last(10)) + self.cut
