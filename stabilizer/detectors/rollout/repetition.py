"""Repetition: answers begin to repeat themselves before the reward shows it."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.records import Finding, Severity
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import departure, drift
from stabilizer.detectors.evidence.progress import level, progress
from stabilizer.detectors.evidence.worth import first_level, left, unheard_of, worth
from stabilizer.runs.history import RunView

REPEATED, VARIETY = "rollout/repetition", "rollout/distinct_2"


@dataclass(frozen=True, kw_only=True)
class Repetition(Detector):
    """Answers repeat their own word pairs far more than they did, without any gain.

    Signature
        The share of repeated bigrams within an answer has risen by at least `material` over its trend or over the start
        of the run. Where only the variety over the step is logged, that has fallen by as much. A long answer repeats
        more words than a short one, so `material` must remain beyond what the growth of length explains. `warn` while
        accuracy (the reward where accuracy is not logged) gained nothing, `critical` once it has fallen, `info` while
        it gains. Once it has fallen, half of `material` over its trend is enough: two signs of one fall.

    Why it matters
        An echo is the policy's own most likely text fed back to it. The spread of rewards falls first, then entropy,
        then the gradient spikes and the reward falls. By then the weights are seldom worth saving, so act on this
        finding early.

    Look-alikes
        Tasks with repetitive correct answers (tables, counting, code): high from the first step, only the rise counts.
        A correct answer that happens to repeat, learned while accuracy rises. Fewer distinct answers to one prompt, as
        the policy becomes certain, are no repetition within an answer (`policy/entropy-collapse` covers that).

    False alarms
        Answers of a few tokens have a handful of bigrams, so the share is coarse: the level is a median of five rows.

    Remedies
        `raise-entropy` while the reward holds, `roll-back` once it has fallen. Manually: stop generation at a repeat,
        drop groups without spread of reward, look for a reward term that counts words.

    References
        RAGEN (arXiv 2504.20073) on the echo trap: reward spread falls before the reward; MiniMax-M1 (arXiv 2506.13585)
        on stopping generation that repeats.
    """

    id = "rollout/repetition"
    needs = (f"{REPEATED}|{VARIETY}",)
    confirm = 3

    material: float = 0.15
    """Change of the share of bigrams that is reported; text of one style varies by a few % at most."""

    def check(self, view: RunView) -> Finding | None:
        name, up = (REPEATED, True) if REPEATED in view else (VARIETY, False)
        series = view.series(name)
        if len(series) < 15:
            return None
        sign = 1.0 if up else -1.0
        moved = departure(view, name, up=up)
        far = moved is not None and sign * (moved.now - moved.expected) >= self.material / 2
        if moved and far and unheard_of(series, moved.onset_step, moved.expected, moved.now):
            before, now, onset = moved.expected, moved.now, moved.onset_step
        else:
            if sign * (level(series) - first_level(view, series)) < 0.8 * self.material:
                return None
            slow = drift(view, name)
            if slow is None or not slow.clear or sign * (slow.now - slow.start) < self.material:
                return None
            before, now, onset = slow.start, slow.now, left(series, slow.start, slow.now, "fraction")
            if not unheard_of(series, onset, before, now):
                return None
        rise = sign * (now - before) - self._by_length(view, onset, before, up)
        if rise < self.material / 2:
            return None
        verdict, reward = worth(view, onset), progress(view)
        fate = verdict.verdict if verdict else "unsure"
        if rise < self.material and fate != "lost":
            return None
        if reward is not None and reward.solved and fate != "lost":
            return None
        severity: Severity = "critical" if fate == "lost" else "warn" if fate == "flat" else "info"
        what = "of the word pairs in an answer are repeats" if up else "of the word pairs of a step are distinct"
        return self.finding(
            view, severity, onset,
            f"{now:.0%} {what}, {before:.0%} before step {onset}" + (f"; {verdict.words}" if verdict else ""),
            metric=name, baseline=before, now=now,
        )  # fmt: skip

    @staticmethod
    def _by_length(view: RunView, onset: int, before: float, up: bool) -> float:
        """How much longer answers repeat by themselves: the distinct share falls with the square root of length."""
        lengths = view.series("rollout/length_mean")
        was, now = level(lengths.between(0, onset).last(20).finite(), 20), level(lengths.last(10).finite(), 10)
        if not (was > 0 and now > was):
            return 0.0
        distinct = 1 - before if up else before
        return float(distinct * (1 - (was / now) ** 0.5))
