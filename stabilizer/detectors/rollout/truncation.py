"""Truncation: the length limit cuts answers before they are finished."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding, Severity
from stabilizer.core.stats import deviation, mean
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import departure
from stabilizer.detectors.evidence.progress import LEVEL, level, progress
from stabilizer.detectors.evidence.worth import GUARDS, last_came, unheard_of, worth
from stabilizer.runs.history import RunView, Series

CUT, LENGTH = "rollout/truncated_frac", "rollout/length_mean"
ROUND = (32, 50)
"""Tokens of which length limits are multiples, in practice."""


@dataclass(frozen=True, kw_only=True)
class Truncation(Detector):
    """Many answers never reach their end, without any gain for training.

    Signature
        The median of the last `window` rows of the truncated share. Either it has risen: at least `risen` and twice
        what its trend predicts; the onset is when it last got there and stayed. Or it is high: at least `most` for
        `patience` rows, or `nearly_all` for a third of that. Or it is `risen` all along, by two standard errors of
        `patience` rows or more: `info`. `info` while accuracy or reward gains, and while it is too
        early to judge; `warn` once a relevant gain is excluded; `critical` once the reward has fallen, and when
        `nearly_all` are truncated for `patience` rows of a flat reward. In a log that ends within 25 rows, all answers
        of all rows: `warn` (`system/first-rows`). Where no share is logged, lengths show it: `info` where the greatest
        mean length is a round number that `pile` of the rows reach exactly.

    Why it matters
        A truncated answer is judged without its ending: correct reasoning scores zero, and the policy learns that it
        was wrong. When almost all are truncated, the reward measures only how soon an answer stops.

    Look-alikes
        A short limit by design in a first stage: many are truncated, the reward rises, the share falls (`info`). A base
        model that does not know its end token yet learns it, and the share falls. A solved task whose answers continue
        after the result (`info`). A single row of long answers does not move a median of ten.

    False alarms
        A reward that starts at zero for more than `patience` rows while most answers are truncated is reported before
        its first success.

    Remedies
        Manually: a longer limit first, when memory allows. Then a soft penalty near it (`rollout.overlong_buffer`), or
        leaving truncated answers out of the loss, which helped some runs and hurt others: one at a time. `roll-back` if
        the reward fell; `check-reward` where a term rewards length.

    References
        DAPO (arXiv 2503.14476) on overlong filtering; ScaleRL (arXiv 2510.13786) and Skywork-OR1 (arXiv 2505.22312),
        which disagree about masking.
    """

    id = "rollout/truncation"
    needs = (f"{CUT}|{LENGTH}",)

    window: int = 10
    """Rows in the level."""
    risen: float = 0.15
    """Share from which a rise is reported."""
    most: float = 0.5
    """Share that is too high whenever it began."""
    nearly_all: float = 0.95
    """Share from which the reward no longer depends on the answers."""
    patience: int = 60
    """Rows for which a high share is tolerated."""
    pile: float = 0.05
    """Share of rows at exactly the greatest length from which a limit must have cut all answers of these rows."""
    short: int = 64
    """Tokens of length below which answers of a fixed form may end at the same length by themselves."""

    def check(self, view: RunView) -> Finding | None:
        if CUT not in view:
            return self._piled_up(view)
        shares = view.series(CUT)
        recent = shares.last(self.window).finite()
        if len(recent) < self.window or (now := level(recent, self.window)) < self.risen:
            return None
        rise, reward = departure(view, CUT, up=True), progress(view)
        high = self._high_since(view, self.most)
        came = last_came(shares, rise.onset_step, rise.expected, now) if rise and rise.ratio >= 2 else None
        if rise and came is not None and unheard_of(shares, came, rise.expected, now):
            onset, before = came, rise.expected
        elif now >= self.most:
            onset, before = high, level(shares.between(0, high).last(20).finite(), 20)
        else:
            return self._steady(view, shares.last(300).finite())
        verdict = worth(view, onset)
        fate = verdict.verdict if verdict else "flat"
        rows = len(shares.between(onset, view.step))
        logged = any(len(view.series(name)) for name in GUARDS)
        said = verdict.words if verdict else "it is too early to judge the reward" if logged else "no reward is logged"
        long = rows >= (self.patience // 3 if now >= self.nearly_all else self.patience)
        severity: Severity
        if fate == "gained":
            severity = "info"
        elif fate == "lost":
            severity = "critical"
        elif fate == "flat" and (long or onset != high):
            severity = "critical" if now >= self.nearly_all and rows >= self.patience else "warn"
        else:
            severity = "warn" if rows >= 3 * self.patience else "info"
        if severity != "info" and reward and (reward.solved or reward.rising):
            severity = "info"
        before = 0.0 if np.isnan(before) else before
        return self.finding(
            view, severity, onset,
            f"{now:.0%} of answers have been truncated by the length limit for {rows} rows ({before:.0%} before"
            f" step {onset}); {said}",
            metric=CUT, baseline=before, now=now,
        )  # fmt: skip

    def _steady(self, view: RunView, shares: Series) -> Finding | None:
        """A part of all answers has been cut all along: no rise, and too little to spoil the reward."""
        usual, error = mean(shares.values), 2 * deviation(shares.values) / math.sqrt(len(shares))
        if len(shares) < self.patience or usual - error < self.risen:
            return None
        return self.finding(
            view, "info", int(shares.steps[0]),
            f"{usual:.0%} of answers are truncated by the length limit (mean of {len(shares)} rows), without a trend:"
            " they are judged without their ending",
            metric=CUT, baseline=level(shares.part(0, LEVEL)), now=usual,
        )  # fmt: skip

    def _piled_up(self, view: RunView) -> Finding | None:
        """Mean lengths that reach one round number exactly, and never more."""
        lengths = view.series(LENGTH).last(5 * self.patience).finite()
        if len(lengths) < 2 * self.window:
            return None
        limit = float(lengths.values.max())
        piled = lengths.values == limit
        share = float(piled.mean())
        if limit < self.short or all(limit % size for size in ROUND) or share < self.pile or piled.sum() < LEVEL:
            return None
        return self.finding(
            view, "info", int(lengths.steps[piled.argmax()]),
            f"in {share:.0%} of {len(lengths)} rows the mean length is exactly {limit:.0f} tokens, and never more: a"
            f" limit cuts every answer of these rows, and many others at a mean of {lengths.values.mean():.0f}",
            metric=LENGTH, baseline=float(lengths.values[:LEVEL].mean()), now=limit,
        )  # fmt: skip

    @staticmethod
    def _high_since(view: RunView, share: float) -> int:
        """The first step of the stretch over which the share has been high; rows of a few prompts may dip."""
        recent = view.series(CUT).last(300).finite()
        low = (recent.values < share / 2).nonzero()[0]
        return int(recent.steps[min(int(low[-1]) + 1, len(recent) - 1)]) if len(low) else int(recent.steps[0])
