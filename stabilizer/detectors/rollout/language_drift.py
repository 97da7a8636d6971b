"""Language drift: answers leave the language in which they are expected."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.records import Finding, Severity
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import departure, drift
from stabilizer.detectors.evidence.progress import level, progress
from stabilizer.detectors.evidence.worth import first_level, left, sudden, unheard_of, worth
from stabilizer.runs.history import RunView

SHARES = ("rollout/language_frac", "reward/language/mean", "reward/language_consistency/mean")


@dataclass(frozen=True, kw_only=True)
class LanguageDrift(Detector):
    """The share of answers in the expected language has fallen without any gain.

    Signature
        `rollout/language_frac`, or a reward component named `language` or `language_consistency`, is at most `kept` of
        what its trend predicts or of the start of the run. `info` while accuracy (the reward where accuracy is not
        logged) rises, `warn` when a relevant gain is excluded, `critical` when it has fallen.

    Why it matters
        A policy that mixes languages samples tokens that the generation engine rates far less likely than the trainer
        does. The mismatch between the two spikes, and the updates with it. People can no longer read the answers
        either.

    Look-alikes
        Reasoning in mixed languages while accuracy rises, as R1-Zero did: `info`, because only readability suffers. A
        bilingual task has a low share from the first step; only the fall counts. A fall entirely between two rows is a
        batch of prompts in another language: `info`.

    False alarms
        Short answers, code and formulas have no language: language identification guesses there, and the share wanders.

    Remedies
        `roll-back` once accuracy has fallen; `raise-beta` before that, where the reference keeps to one language.
        Manually: a reward for the share of words in the expected language, a prompt that states it.

    References
        DeepSeek-R1 (arXiv 2501.12948) on language mixing and a consistency reward.
    """

    id = "rollout/language-drift"
    needs = ("|".join(SHARES),)
    confirm = 5

    kept: float = 0.8
    """Share of the former level at or under which the language has drifted."""

    def check(self, view: RunView) -> Finding | None:
        name = next((name for name in SHARES if name in view), None)
        if name is None or len(series := view.series(name)) < 15:
            return None
        moved = departure(view, name, up=False)
        fell = moved is not None and 0 < moved.expected and moved.now <= self.kept * moved.expected
        if moved and fell and unheard_of(series, moved.onset_step, moved.expected, moved.now):
            before, now, onset = moved.expected, moved.now, moved.onset_step
        else:
            if level(series) > 1.1 * self.kept * first_level(view, series):
                return None
            slow = drift(view, name, now_rows=15)
            if slow is None or not slow.clear or slow.start <= 0 or slow.now > self.kept * slow.start:
                return None
            before, now = slow.start, slow.now
            onset = left(series, before, now, "fraction" if name == SHARES[0] else "real")
        verdict, reward = worth(view, onset), progress(view)
        fate = verdict.verdict if verdict else "unsure"
        severity: Severity
        if fate == "gained" or (reward and reward.solved) or sudden(series, onset, "real"):
            severity = "info"
        else:
            severity = "critical" if fate == "lost" else "warn" if fate == "flat" else "info"
        return self.finding(
            view, severity, onset,
            f"{name} fell from {before:.2f} (before step {onset}) to {now:.2f}"
            + (f"; {verdict.words}" if verdict else ""),
            metric=name, baseline=before, now=now,
        )  # fmt: skip
