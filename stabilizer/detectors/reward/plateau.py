"""Plateau: the reward has stopped improving although there is room and budget left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.core.stats import median, step_noise, trend
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.progress import Progress, progress
from stabilizer.detectors.evidence.stagnation import (
    MATTERS,
    PATIENCE,
    STILL,
    STILL_MOST,
    Stagnation,
    patience,
    stagnation,
    standstill,
)
from stabilizer.detectors.reward.component_dominance import unearned
from stabilizer.detectors.reward.saturated import Saturated
from stabilizer.detectors.reward.scale_shift import components
from stabilizer.runs.history import RunView

SINKS = 0.2
"""Share of its level that a reward may have lost while it still counts as standing at its ceiling."""
FEW = 12
"""Held-out measurements up to which their noise is judged by all of them."""


@dataclass(frozen=True, kw_only=True)
class Plateau(Detector):
    """The reward has been flat for long enough to be sure, and there is room above it.

    Signature
        `stagnation`, a test of equivalence, for absence of evidence for growth is not enough. After growth: if the
        trend of the newer half or three quarters of the run (at least 30 rows) went on for as many rows as the run has
        had, even the upper end of its 95 % interval would gain less than 15 % of what was gained so far (20 % while the
        run is short). Sooner where growth broke off: the newest quarter or third of the run, 90 steps at least, for
        sure gains less than 30 % of that and of the pace before it, which no curve that bends of its own does; or a
        curve that stops (`halt`) explains the run for sure better than any that saturates or goes on after a fall, and
        it has for sure gained less than 35 % of what the latter would have since. Among much noise, by the whole run:
        two joined lines are fitted to it, and what it can have gained since their bend (in its first 40 %) is less than
        30 % of the least pace before the bend and, gone on for as long as the run has had, less than 30 % of the rise.
        A run that never rose: gone on as long again, the interval would lie within a fifth of its level, and it lies
        within its noise; that is `info` until a third of the planned steps (100 at least, but half of a short plan), or
        `patience` steps, have passed. Where a row is mostly luck (its noise more than 15 % of the spread of single
        rewards, as with a few prompts a step): over 145 rows and 100 steps at least, the whole run or its newer three
        quarters, the upper end of the interval is below 25 % of that spread, and no gain of half a standard error is
        seen. Accuracy on held-out problems, where there is any, must not have risen.

        Where nothing of that is sure, a hint (`unseen`), always `info`, from 20 rows and 30 steps (150 of a long plan)
        on, up to 2,000 rows (under 40 rows only of a run that never gained, when half its level is excluded): "shows no
        gain" when none is seen beyond a standard error over a run that excludes a gain of its whole level or spread, or
        beyond half of one since a rise of which half the pace would have shown; "has levelled off" when the exponential
        that fits best, and any that fits as well, has come 95 % (88 %) of its way. It says what it leaves open, and how
        many times the rows or the batch would settle it.

        A reward whose ceiling is only taken to be one (`Progress.ceiling`), because nothing that is logged says how
        many answers are right, is told of as `info` beside `reward/saturated`: over 30 rows since it came there it
        gained, gone on for as long as the run has had, less than 15 % of what was gained before, or nothing beyond a
        standard error.

    Why it matters
        From here on every step costs and nothing comes back, unless the reason is found: exploration used up, groups
        without signal, a KL term that pins the policy, a learning rate too low, a batch too small for its noise, or a
        ceiling that is really there.

    Look-alikes
        A solved task: where accuracy, groups that all pass, or rows that are all paid the very best prove it, only
        `reward/saturated` is said. A reward of 0.94 out of 1 that stays there has arrived as well, as far as anybody
        can tell, which is `info` in both. Warm-up that is not over, or was not for much of the flat stretch: after a
        rise nothing is said, and a reward that never rose is `info` and says so. A schedule that has ended (the
        rate has come down to a tenth of its peak, and was low for most of the stretch) explains a stand after a rise,
        which is then `info` and says so. A format learned first: while the task itself has not begun, or while the
        reward has several components, and the run is younger than `patience`, `info`. Slow but steady growth, which the
        equivalence test leaves alone. A collapse: the reward is flat at the bottom, and other detectors name it.

    False alarms
        A hint is one: of a hundred curves whose growth can be seen up to ten are told, at some time, that it can't yet,
        and none of them at its end. Delayed generalisation: some runs stand still for hundreds of steps before they
        improve. A ceiling below 90 % that comes with the data (wrong labels, unsolvable prompts) looks the same from
        here. Among much noise, a run that has learned most of what it can is told so early: one in twenty small-batch
        runs near its end.

    Remedies
        By cause, one at a time: `grow-batch` first, `raise-entropy` when exploration is used up, `lower-beta` when the
        KL term pins the policy, `easier-prompts` when groups are dead; `raise-lr` only by hand.

    References
        Equivalence testing after Schuirmann 1987; ScaleRL (arXiv 2510.13786) on sigmoid reward curves.
    """

    id = "reward/plateau"
    needs = ("reward/mean|accuracy/train",)
    confirm = 5

    patience: int = PATIENCE
    """Steps a run gets to begin to rise where nobody says how long it is to be."""

    def check(self, view: RunView) -> Finding | None:
        reward, still = progress(view), standstill(view)
        if reward is not None and reward.ceiling == "taken":
            return self._at_ceiling(view, reward)
        if reward is None or still is None or self._validation_rises(view, still.onset_step):
            return None
        rate = self._schedule(view, still.onset_step)
        if rate and still.grew == (rate == "warming up"):
            return None  # it rose too early to stand already, or the schedule ended before it could rise
        begun = patience(view, self.patience)
        early = not still.grew and view.step - still.onset_step < begun
        alone = view.once(unearned)  # what is easy was learned; what is hard gets its time too
        early = early or alone is not None and view.step - alone.first < begun
        age = view.step - max(view.baseline_start(), int(view.series(reward.metric).steps[0]))
        early = early or age < min(begun, self.patience) and len(components(view)) > 1  # one after the other
        quiet = early or rate or not still.sure or still.grew and not self._held(view, reward.metric)
        change = still.change
        return self.finding(
            view, "info" if quiet else "warn", still.onset_step,
            f"{self._words(reward, still)}: change {change.change:+.2g} (95 % interval {change.low:+.2g} to"
            f" {change.high:+.2g}){self._reservation(still)}{f'; the learning rate was {rate}' if rate else ''}",
            metric=reward.metric, baseline=reward.start, now=still.level,
            change_low=change.low, change_high=change.high, sure=still.sure,
        )  # fmt: skip

    def _at_ceiling(self, view: RunView, reward: Progress) -> Finding | None:
        """It stands where nothing is left to gain by the look of it alone."""
        there = view.once(_saturated)
        if there is None:
            return None
        since = view.series(reward.metric).between(there.onset_step, view.step).last(STILL_MOST).finite()
        if len(since) < STILL:
            return None
        change, level = trend(since.values), median(since.values)
        error = (change.high - change.change) / 1.96
        gain = max(level - reward.start, 0.0) * len(since) / reward.rows
        if change.change > max(error, MATTERS[0] * gain) or change.falling and -change.change > SINKS * abs(level):
            return None
        return self.finding(
            view, "info", there.onset_step,
            f"{reward.metric} has stood at {level:.3g} over {len(since)} rows: change {change.change:+.2g} (95 %"
            f" interval {change.low:+.2g} to {change.high:+.2g}); taken for its ceiling, though nothing that is logged"
            " says how many answers are right: if more can be had, it is stuck",
            metric=reward.metric, baseline=reward.start, now=level, change_low=change.low, change_high=change.high,
            sure=False,
        )  # fmt: skip

    def _held(self, view: RunView, metric: str) -> bool:
        """Whether it was sure at the rows before too: what stands as a hint is no shorter way to a warning."""
        steps = view.series(metric).steps
        if len(steps) < self.confirm:
            return False
        return all(stagnation(view.at(int(steps[-row]))) is not None for row in (self.confirm - 1, 2))

    @staticmethod
    def _words(reward: Progress, still: Stagnation) -> str:
        history = f"after rising from {reward.start:.3g}" if still.grew else "and has never risen"
        if still.sure:
            return f"{reward.metric} has been flat at {still.level:.3g} over {still.rows} rows {history}"
        if still.reached:
            return f"{reward.metric} has levelled off at {still.level:.3g} over {still.rows} rows {history}"
        began = " since it rose" if still.grew else ""
        gained = "gained next to nothing" if still.change.low > 0 else "shows no gain"
        return f"{reward.metric} {gained}{began} over {still.rows} rows at {still.level:.3g}"

    @staticmethod
    def _reservation(still: Stagnation) -> str:
        """What a hint leaves open, and what would settle it."""
        if still.sure:
            return ""
        if still.reached:
            return f"; {still.reached:.0%} of the way to what its curve tends to lies behind it"
        if still.change.low > 0:
            return "; it gains, but by a few hundredths of its level"
        if still.more < 1.2:
            return "; a slow gain is not excluded"
        if still.more > 20:
            return "; far too noisy to exclude a slow gain"
        return f"; too noisy to exclude a slow gain: {still.more:.2g} times the rows, or the batch, would show it"

    @staticmethod
    def _schedule(view: RunView, since: int) -> str:
        """How the learning rate explains it: still warming up, or in warm-up for much of the stretch, or wound down."""
        rates = view.series("optim/lr").between(since, view.step).finite().values
        if len(rates) < 2:
            return ""
        peak = view.causal("optim/lr", "peak", _peak)[-1]
        if not peak > 0:
            return ""
        if rates[-1] > rates[len(rates) // 2] * 1.05 or rates[len(rates) // 4] < 0.5 * rates[-1]:
            return "warming up"
        wound = rates[-1] < 0.1 * peak and median(rates) < 0.4 * peak  # and had been for much of the stretch
        return "wound down for much of that" if wound else ""

    @staticmethod
    def _validation_rises(view: RunView, since: int) -> bool:
        """Held-out accuracy gained more than its own noise over the flat stretch."""
        values = view.series("accuracy/val").between(since, view.step).last(100).finite().values
        third = max(1, len(values) // 3)
        if len(values) < 2:
            return False
        noise = max(step_noise(values), _spread_of_steps(values), 0.01) * np.sqrt(2 / third)
        return bool(values[-third:].mean() - values[:third].mean() > max(0.02, 2 * noise))


def _saturated(view: RunView) -> Finding | None:
    """What `reward/saturated` says of it."""
    return Saturated().check(view)


def _spread_of_steps(values: np.ndarray) -> float:
    """The noise of a value by all differences of neighbours, where there are too few for the middle of them to mean
    anything: of three that happen to be alike the median deviation is nearly nothing."""
    return float(np.diff(values).std()) / np.sqrt(2) if 3 <= len(values) <= FEW else 0.0


def _peak(values: np.ndarray, known: int, last: float | None) -> np.ndarray:
    """The highest value so far, NaN passed over: a causal signal."""
    return np.fmax.accumulate(np.concatenate(([np.nan if last is None else last], values[known:])))[1:]
