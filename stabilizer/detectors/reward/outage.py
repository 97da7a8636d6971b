"""Outage: the reward function raises, hangs or returns no number, so answers get no reward."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.records import Finding, Severity
from stabilizer.core.stats import median
from stabilizer.detectors.base import Detector
from stabilizer.runs.history import RunView, Series


@dataclass(frozen=True, kw_only=True)
class Outage(Detector):
    """Some completions got no reward, because a reward function failed on them.

    Signature
        The median of the last `window` rows of `reward/failed_frac` is at least `much`, or two consecutive rows are
        where none failed in the `long_window` before. Critical from `most`. A smaller share, down to `some` over the
        last `long_window` rows, is `info`.

    Why it matters
        A completion without a reward teaches nothing, so the batch is smaller than it looks; when all of them fail, the
        step makes no update at all. Failures are seldom spread evenly. A verifier that times out on long answers, or
        raises on unusual ones, hides those answers from training and biases it.

    Look-alikes
        A reward of zero is a judgement and no failure: when all answers fail the problem, that is `reward/no-signal`. A
        reward function that returns wrong numbers is not seen here; a sudden fall of the reward is (`reward/collapse`).
        One row is no outage: a restarted service is back at the next.

    False alarms
        Where a few rows of the data are broken, a small share always fails: it is `info`, and those rows should be
        removed.

    Remedies
        `check-reward`. Manually: the run's notes hold every distinct reason of failure; set `reward.timeout_s` when
        calls take too long, and request fewer completions a step when a service cannot keep up.

    References
        verl pull request 5635 (an exception swallowed by the scorer made every mathematics reward 0); simpleRL-reason
        issue 95 (a verifier's timeout ended the training run).
    """

    id = "reward/outage"
    needs = ("reward/failed_frac",)
    confirm = 1

    window: int = 5
    """Rows whose median is the share."""
    much: float = 0.1
    """Share of completions without a reward that is worth a warning."""
    most: float = 0.5
    """Share from which a step learns from a minority of its answers."""
    long_window: int = 20
    """Rows over which a small share is judged."""
    some: float = 0.005
    """Mean share that is worth reporting."""

    def check(self, view: RunView) -> Finding | None:
        whole = view.series("reward/failed_frac")
        if not len(whole.values[-self.long_window :].nonzero()[0]):
            return None  # no recent failure: the usual case, and cheap to see
        series = whole.last(200).finite()
        if len(series) < self.window:
            return None
        share = median(series.values[-self.window :])
        if self._broke_down(series):
            share = float(series.values[-2:].mean())
        elif share < self.much:
            recent = series.values[-self.long_window :]
            share = float(recent.mean())
            if len(recent) < self.long_window or median(recent) <= 0 or share < self.some:
                return None
        severity: Severity = "critical" if share >= self.most else "warn" if share >= self.much else "info"
        calm = (series.values < share / 2).nonzero()[0]
        onset = series.steps[calm[-1] + 1 if len(calm) and calm[-1] + 1 < len(series) else 0]
        worst = self._worst(view)
        return self.finding(
            view, severity, onset,
            f"{share:.1%} of completions have had no reward since step {onset}{worst}; the notes in events.jsonl"
            " give the reasons",
            metric="reward/failed_frac", baseline=0.0, now=share,
        )  # fmt: skip

    def _broke_down(self, series: Series) -> bool:
        """Two rows of failures after none: there is no need to wait for the median."""
        before = series.values[-2 - self.long_window : -2]
        return bool(series.values[-2:].min() >= self.much and len(before) and before.max() <= self.some)

    @staticmethod
    def _worst(view: RunView) -> str:
        """The reward function that fails most, where there are several, in words."""
        shares = {
            name.split("/")[1]: view.latest(name) or 0.0
            for name in view.names()
            if name.startswith("reward/") and name.endswith("/failed_frac") and name.count("/") == 2
        }
        worst = max(shares, key=lambda name: shares[name], default=None)
        return f" (most by {worst!r})" if worst is not None and shares[worst] > 0 else ""
