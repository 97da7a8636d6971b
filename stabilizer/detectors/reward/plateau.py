"""Plateau: the reward has stopped improving although there is room and budget left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.core.stats import median, step_noise, trend
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.progress import Progress, progress
from stabilizer.detectors.evidence.stagnation import (
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

GAINS = 0.15
"""Share of its gain so far that a reward at its ceiling may still gain with as much training again."""
SINKS = 0.2
"""Share of its level that a reward may have lost while it still counts as being at its ceiling."""
HELD = 10
"""Share of the rows, as one in so many, for which a hint must have held."""
SURPRISE = 0.15
"""Share of hints that are wrong because rewards rise in steps, which no smooth curve foresees. Of 40 healthy runs of
the detection benchmark (develop half) that seemed to have levelled off, 6 gained what matters in as many steps."""
FEW = 12
"""Held-out measurements up to which all of them are used to judge their noise."""
Rate = Literal["", "warm-up", "decay"]
"""What the learning rate did that explains a flat reward; "" for nothing."""
RATE_WORDS: dict[Rate, str] = {
    "": "",
    "warm-up": "; the learning rate was warming up",
    "decay": "; the learning rate was decayed for much of that time",
}


@dataclass(frozen=True, kw_only=True)
class Plateau(Detector):
    """The reward has clearly been flat for long enough, and there is room above it.

    Signature
        All plausible learning curves are weighed by the run (`growth`), because absence of evidence for growth is not
        enough. A gain matters if it is 5 % of the gain so far and of the level (or the spread of rewards, where that is
        more), or a fifth of these in a run that never rose. The reward is flat for sure when the chance that as many
        steps again bring such a gain is below 5 %, for 30 rows and 90 steps. After a rise, 98 % of the weight must
        belong to curves that stopped, or had nearly reached their limit in the middle of the run, and 60 % of a shorter
        run is enough where the 95 % interval of the trend excludes such a gain. Without a rise, that interval must
        exclude it. Accuracy on held-out problems, where there is any, must not have risen.

        A run that never rose is `info` until a third of the planned steps (100 at least, but half of a short plan), or
        `patience` steps, have passed. A hint is always `info`: the chance has been below 10 % for a tenth of the rows.

        A reward whose ceiling is only assumed (`Progress.ceiling`), because no logged metric counts correct answers, is
        `info` beside `reward/saturated`: over 30 rows since it got there it gained, continued for as long as the run
        has had, less than 15 % of the gain before, or nothing beyond a standard error.

    Why it matters
        Every further step costs and brings nothing until the reason is found: exploration used up, groups without
        signal, a KL term that pins the policy, a learning rate too low, a batch too small for its noise, or a real
        ceiling.

    Look-alikes
        A solved task: where accuracy, groups that all pass, or rows that all earn the maximum prove it, only
        `reward/saturated` is reported. A reward that stays at 0.94 out of 1 has probably arrived as well, which is
        `info` in both. A warm-up that is not over, or lasted for much of the flat stretch: after a rise nothing is
        reported and no hint is given, and a reward that never rose is `info` and says so. A schedule that has ended
        (the rate is down to a tenth of its peak, and was low for most of the stretch) explains a flat reward after a
        rise, which is then `info` and says so. A format learned first: `info` while the task itself has not begun, or
        while the reward has several components and the run is younger than `patience`. Slow but steady growth keeps
        the chance high. A collapse: the reward is flat at the bottom, and other detectors name it.

    False alarms
        Hints: of a hundred curves with visible growth, up to ten get a hint at their end. Delayed generalisation: some
        runs are flat for hundreds of steps before they improve. A ceiling below 90 % that comes with the data (wrong
        labels, unsolvable prompts) looks the same from here. With much noise, a run that has learned most of what it
        can is reported early: one in twenty small-batch runs near its end.

    Remedies
        By cause, one at a time: `grow-batch` first, `raise-entropy` when exploration is used up, `lower-beta` when the
        KL term pins the policy, `easier-prompts` when groups are dead; `raise-lr` only manually.

    References
        ScaleRL (arXiv 2510.13786) on sigmoid reward curves.
    """

    id = "reward/plateau"
    needs = ("reward/mean|accuracy/train",)
    confirm = 5

    patience: int = PATIENCE
    """Steps a run gets to begin to rise where its planned length is unknown."""

    def check(self, view: RunView) -> Finding | None:
        reward, still = progress(view), standstill(view)
        if reward is not None and reward.ceiling == "taken":
            return self._at_ceiling(view, reward)
        if reward is None or still is None or self._validation_rises(view, still.onset_step):
            return None
        rate = self._schedule(view, still.onset_step)
        if not still.sure and not self._lasted(view, reward.metric):
            return None
        if rate and still.grew == (rate == "warm-up") or rate == "warm-up" and not still.sure:
            return None  # it rose too recently to be flat, or the schedule ended before it could rise
        begun = patience(view, self.patience)
        early = not still.grew and view.step - still.onset_step < begun
        alone = view.once(unearned)  # the easy part was learned; the hard part gets its time too
        early = early or alone is not None and view.step - alone.first < begun
        age = view.step - max(view.baseline_start(), int(view.series(reward.metric).steps[0]))
        # components are learned one after the other
        early = early or age < min(begun, self.patience) and len(components(view)) > 1
        quiet = early or rate or not still.sure or not self._held(view, reward.metric)
        change = still.change
        return self.finding(
            view, "info" if quiet else "warn", still.onset_step,
            f"{self._words(reward, still)}: change {change.change:+.2g} (95 % interval {change.low:+.2g} to"
            f" {change.high:+.2g}){self._reservation(still)}{RATE_WORDS[rate]}",
            metric=reward.metric, baseline=reward.start, now=still.level,
            change_low=change.low, change_high=change.high, sure=still.sure,
        )  # fmt: skip

    def _at_ceiling(self, view: RunView, reward: Progress) -> Finding | None:
        """It is flat where, by its look alone, nothing is left to gain."""
        there = view.once(_saturated)
        if there is None:
            return None
        since = view.series(reward.metric).between(there.onset_step, view.step).last(STILL_MOST).finite()
        if len(since) < STILL:
            return None
        change, level = trend(since.values), median(since.values)
        error = (change.high - change.change) / 1.96
        gain = max(level - reward.start, 0.0) * len(since) / reward.rows
        if change.change > max(error, GAINS * gain) or change.falling and -change.change > SINKS * abs(level):
            return None
        return self.finding(
            view, "info", there.onset_step,
            f"{reward.metric} has been flat at {level:.3g} over {len(since)} rows: change {change.change:+.2g} (95 %"
            f" interval {change.low:+.2g} to {change.high:+.2g}). This is assumed to be its ceiling, but no logged"
            " metric counts correct answers: if a higher reward is possible, the run is stuck",
            metric=reward.metric, baseline=reward.start, now=level, change_low=change.low, change_high=change.high,
            sure=False,
        )  # fmt: skip

    def _held(self, view: RunView, metric: str) -> bool:
        """Whether it was certain at the rows before too, so that a hint is no shortcut to a warning."""
        steps = view.series(metric).steps
        if len(steps) < self.confirm:
            return False
        return all(stagnation(view.at(int(steps[-row]))) is not None for row in (self.confirm - 1, 2))

    @staticmethod
    def _lasted(view: RunView, metric: str) -> bool:
        """Whether it was flat some rows ago too: a chance that is computed at every row is small now and then by
        luck."""
        steps = view.series(metric).steps
        return all(standstill(view.at(int(steps[-1 - len(steps) // back]))) is not None for back in (2 * HELD, HELD))

    @staticmethod
    def _words(reward: Progress, still: Stagnation) -> str:
        history = f"after rising from {reward.start:.3g}" if still.grew else "and has never risen"
        if still.sure:
            return f"{reward.metric} has been flat at {still.level:.3g} over {still.rows} rows {history}"
        if still.change.falling:
            return f"{reward.metric} has fallen to {still.level:.3g} over {still.rows} rows {history}"
        if still.reached:
            return f"{reward.metric} seems to have levelled off at {still.level:.3g} over {still.rows} rows {history}"
        began = " since it rose" if still.grew else ""
        if still.change.rising:
            began = " that matters"
        return f"{reward.metric} shows no gain{began} over {still.rows} rows at {still.level:.3g}"

    @staticmethod
    def _reservation(still: Stagnation) -> str:
        """What a hint leaves open."""
        if still.sure:
            return ""
        curve = still.reached and not still.change.falling
        far = f"; it has covered {still.reached:.0%} of the way to the limit of its curve" if curve else ""
        far += "; the chance of a gain that matters from as many steps again is about"
        return f"{far} {max(still.chance, SURPRISE):.0%}, because a reward may rise in steps"

    @staticmethod
    def _schedule(view: RunView, since: int) -> Rate:
        """How the learning rate explains it: still warming up, warming up for much of the stretch, or decayed."""
        rates = view.series("optim/lr").between(since, view.step).finite().values
        if len(rates) < 2:
            return ""
        peak = view.causal("optim/lr", "peak", _peak)[-1]
        if not peak > 0:
            return ""
        if rates[-1] > rates[len(rates) // 2] * 1.05 or rates[len(rates) // 4] < 0.5 * rates[-1]:
            return "warm-up"
        wound = rates[-1] < 0.1 * peak and median(rates) < 0.4 * peak  # and had been low for much of the stretch
        return "decay" if wound else ""

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
    """The finding of `reward/saturated`."""
    return Saturated().check(view)


def _spread_of_steps(values: np.ndarray) -> float:
    """Noise of a value by all differences of neighbours. With too few of them a median deviation is unreliable:
    three that happen to be alike give almost nothing."""
    return float(np.diff(values).std()) / np.sqrt(2) if 3 <= len(values) <= FEW else 0.0


def _peak(values: np.ndarray, known: int, last: float | None) -> list[float]:
    """The highest value so far, NaN ignored: a causal signal."""
    peaks: list[float] = np.fmax.accumulate(np.append(np.nan if last is None else last, values[known:]))[1:].tolist()
    return peaks
