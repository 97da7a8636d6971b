"""Tool collapse: a policy that used its tool stops using it, or uses it wrongly, without any gain."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stabilizer.core.records import Finding, Severity
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import departure
from stabilizer.detectors.evidence.progress import level, progress
from stabilizer.detectors.evidence.worth import Worth, levels, unheard_of, worth
from stabilizer.runs.history import RunView, Series

CALLS, WRONG = "rollout/searches_mean", "rollout/invalid_calls_frac"


@dataclass(frozen=True, kw_only=True)
class ToolCollapse(Detector):
    """Tool calls that were in use have ended or become invalid, or decline together with correct answers.

    Signature
        Given up: the level of answered calls per episode is at most `left_over` of the highest it held for `held` rows
        (at least `used` calls) within the last 500. Broken: the share of invalid calls has risen to at least `broken`
        from less than half of that. `warn` when accuracy (the reward where accuracy is not logged) gained nothing
        since, `critical` when it has fallen. Declining: calls have fallen to `fewer` of what their trend predicts,
        lower than anything in the 300 rows before, and accuracy fell with them: `warn`, because the decline can still
        be reversed.

    Why it matters
        A tool that is never called is never rewarded, so there is no way back: runs have gone from 10 % grounded
        answers to none within 50 steps, on every seed. Invalid calls have the same effect more slowly: calling is never
        rewarded.

    Look-alikes
        A policy that has learned to answer without the tool, with accuracy rising. A solved task. A young policy that
        calls wrongly and is learning the format: the share falls. Calls that were never made in the first place.

    False alarms
        Undeclared prompts that need no tool, in a run that has stopped improving.

    Remedies
        `roll-back` to before the fall, with `raise-entropy` where one wording has won. Manually: check what the tool
        returns (empty results, time-outs, a changed format), reward a well-formed call, mix in demonstrations.

    References
        Peak-then-collapse of grounded tool use (arXiv 2605.26037); Search-R1 (arXiv 2503.09516) on masking what the
        tool returns.
    """

    id = "rollout/tool-collapse"
    needs = (f"{CALLS}|{WRONG}",)
    confirm = 3

    used: float = 0.2
    """Calls per episode that count as use."""
    left_over: float = 0.15
    """Share of the former use at or under which the tool is given up."""
    held: int = 20
    """Rows over which the former use must have held."""
    broken: float = 0.5
    """Share of invalid calls from which calling no longer works."""
    fewer: float = 0.75
    """Share of the expected use at or under which a fall of accuracy is attributed to the tool."""

    def check(self, view: RunView) -> Finding | None:
        for name, look in ((CALLS, self._given_up), (WRONG, self._broken)):
            recent = view.series(name).last(500).finite()
            seen = look(recent) if len(recent) >= self.held + 5 else None
            if seen is None:
                continue
            reward = progress(view)
            if reward is not None and reward.solved:
                return None
            before, now, onset = seen
            verdict = worth(view, onset)
            if verdict is None or verdict.verdict in ("flat", "lost"):
                return self._said(view, name, before, now, onset, verdict)
        return self._going(view)

    def _going(self, view: RunView) -> Finding | None:
        moved = departure(view, CALLS, up=False) if CALLS in view else None
        if moved is None or moved.expected < self.used or moved.ratio > self.fewer:
            return None
        if not unheard_of(view.series(CALLS), moved.onset_step, moved.expected, moved.now):
            return None
        verdict = worth(view, moved.onset_step)
        if verdict is None or verdict.verdict != "lost":
            return None
        found = self._said(view, CALLS, moved.expected, moved.now, moved.onset_step, verdict)
        return replace(found, severity="warn")

    def _given_up(self, calls: Series) -> tuple[float, float, int] | None:
        now = level(calls)
        if now > self.left_over * float(calls.values.max()):
            return None
        before = float(levels(calls, self.held).max())
        if before < self.used or now > self.left_over * before:
            return None
        return before, now, int(calls.steps[_after_last(calls.values > 0.75 * before)])

    def _broken(self, shares: Series) -> tuple[float, float, int] | None:
        now = level(shares, 10)
        if now < self.broken:
            return None
        before = float(levels(shares, self.held).min())
        if before > self.broken / 2:
            return None
        return before, now, int(shares.steps[_after_last(shares.values < (before + now) / 2)])

    def _said(self, view: RunView, name: str, before: float, now: float, onset: int, verdict: Worth | None) -> Finding:
        severity: Severity = "critical" if verdict and verdict.verdict == "lost" else "warn"
        fate = f"; {verdict.words}" if verdict else ""
        text = (
            f"{now:.2g} tool calls per episode, {before:.2g} before step {onset}"
            if name == CALLS
            else f"{now:.0%} of tool calls are invalid, {before:.0%} before step {onset}"
        )
        return self.finding(view, severity, onset, text + fate, metric=name, baseline=before, now=now)


def _after_last(inside: np.ndarray) -> int:
    """The row after the last that is inside. Three rows in a row are needed, so that one odd row is ignored."""
    held = np.convolve(inside, np.ones(3), "same") >= 2
    rows = held.nonzero()[0]
    return min(int(rows[-1]) + 1, len(inside) - 1) if len(rows) else 0
