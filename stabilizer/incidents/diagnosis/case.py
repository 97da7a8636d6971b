"""The facts that a rule may ask about an incident: its findings, the run around its onset, knobs, and what moved
first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from stabilizer.core.metrics import metric
from stabilizer.core.records import Finding
from stabilizer.core.stats import deviation, finite, inflation, line, mean, median, middle
from stabilizer.detectors.evidence.departure import scaled
from stabilizer.detectors.evidence.progress import Progress, progress
from stabilizer.detectors.reward.scale_shift import components
from stabilizer.incidents.diagnosis.graph import METRICS, STAGES, is_integrity, stage
from stabilizer.runs.history import RunView, Series
from stabilizer.trainers.settings import configured, keys_of

RECENT = 20
"""Rows whose median is "now"."""
BEFORE = 100
"""Rows before the onset in which a changed knob can be the cause, and which define the earlier level of a metric."""
MARGIN = 10
"""Rows by which an onset may be estimated too early."""
SOON = 3
"""Rows by which an onset may be estimated too late."""
LEAD = 60
"""Rows before the onset from which a leading metric is looked for."""
CLIMB = 40
"""Rows within which a learning rate that rises by half counts as raised."""
AROUND = 300
"""Rows before and after the onset of a plateau in which a changed knob can be the cause: that onset is imprecise."""
TOGETHER = 8
"""Rows within which two metrics count as moving at the same time."""
PACE = 10
"""Rows over which the speed of the policy is measured."""
FASTER = 3.0
"""Times by which the policy's way from the reference has to become faster to count as larger steps."""
UNDATED = ("reward/plateau",)
"""Findings whose onset is where a curve bent, which can be long after the cause began or before it ended."""


class Turn(NamedTuple):
    """A knob that changed shortly before the onset."""

    knob: str
    step: int
    before: float
    after: float

    def __str__(self) -> str:
        name = self.knob.removeprefix("control/")
        return f"{name} went from {self.before:.3g} to {self.after:.3g} at step {self.step}"


class Move(NamedTuple):
    """A metric that left its trend around the onset."""

    metric: str
    stage: int
    step: int
    up: bool


class Shift(NamedTuple):
    """Medians of a metric before and since the onset."""

    before: float
    after: float

    @property
    def ratio(self) -> float:
        """After over before; infinite from zero."""
        return self.after / self.before if self.before else np.inf


@dataclass(frozen=True)
class Case:
    """One incident as the rules see it."""

    findings: Sequence[Finding]
    view: RunView

    @cached_property
    def onset(self) -> int:
        """First step of the findings that are more than information, if there are any.

        Findings that cannot be dated count only when there are no others.
        """
        loud = [f for f in self.findings if f.severity != "info"] or self.findings
        dated = [f for f in loud if f.id not in UNDATED] or loud
        return min(finding.onset_step for finding in dated)

    @cached_property
    def latest(self) -> int:
        """The last onset among the first findings: onsets are estimates, and the first may be too early.

        What cannot be dated may have begun at any time until it was detected.
        """
        if self._undated:
            return max(f.detected_step for f in self.findings if f.severity != "info")
        soon = self.onset + LEAD * self.spacing
        return max(f.onset_step for f in self.findings if f.onset_step <= soon and f.onset_step >= self.onset)

    @cached_property
    def loud(self) -> bool:
        """Whether any finding is more than information."""
        return any(finding.severity != "info" for finding in self.findings)

    @cached_property
    def reward(self) -> Progress | None:
        """The state of the reward."""
        return progress(self.view)

    def find(self, *ids: str) -> Finding | None:
        """The first finding of the incident with one of these ids, information included."""
        return next((f for f in sorted(self.findings, key=lambda f: f.onset_step) if f.id in ids), None)

    def upstream(self, step: int, of: str = "reward") -> Finding | None:
        """The first warning from an earlier stage that began by a step: what follows may be its consequence.

        Onsets are estimates, and a broken fact counts even when it is dated a few rows later.
        """
        for found in sorted(self.findings, key=lambda f: f.onset_step):
            late = step + (MARGIN if is_integrity(found.id) else SOON) * self.spacing
            known = found.severity != "info" and found.id not in UNDATED and found is not self.untaught
            if known and stage(found.id) < STAGES.index(of) and found.onset_step <= late:
                return found
        return None

    @property
    def untaught(self) -> Finding | None:
        """The finding of a critic that never learned, where batches hide any progress: they teach a critic as little
        as they teach the policy."""
        noisy, critic = self.find("reward/noise-floor"), self.find("value/critic-failure")
        hidden = noisy is not None and noisy.severity != "info"
        return critic if hidden and critic is not None and critic.evidence.get("baseline") == 0.0 else None

    def recent(self, name: str) -> float | None:
        """The median of a metric's newest rows; the mean of a share of groups, 0 or 1 in a row of one group."""
        values = self.view.series(name).last(RECENT).finite().values
        level = mean if metric(name).unit == "share of groups" else median
        return level(values) if len(values) else None

    def shift(self, name: str) -> Shift | None:
        """A metric in the rows before the onset and in those since (30 rows at most)."""
        before, after = self._around(name, BEFORE, 30)
        before = before[:-TOGETHER] if len(before) > 2 * TOGETHER else before
        return Shift(median(before), median(after)) if len(before) >= 5 and len(after) >= 3 else None

    def held_out(self, step: int) -> Shift | None:
        """Held-out accuracy in the three evaluations before a step, and in those after it (five at most)."""
        series = self.view.series("accuracy/val").finite()
        place = int(series.steps.searchsorted(step))
        before, after = series.values[max(0, place - 3) : place], series.values[place + 1 : place + 6]
        after = after if len(after) else series.values[place:]
        return Shift(median(before), median(after)) if len(before) >= 2 and len(after) else None

    def setting(self, knob: str) -> float | None:
        """The present value of a knob: logged, or as configured."""
        live = self.view.latest(knob)
        trainer = str(self.view.about("trainer"))
        return live if live is not None else self.number(*keys_of(knob.removeprefix("control/"), trainer))

    @cached_property
    def prompts_per_update(self) -> float | None:
        """Prompts behind one update: logged, or as configured."""
        prompts = self.recent("batch/prompts")
        if prompts is None:
            return configured(self.view.about("config"), str(self.view.about("trainer")), "prompts_update")
        return prompts / max(self.recent("batch/updates") or 1, 1)

    def number(self, *keys: str) -> float | None:
        """The first of some configuration keys that holds a number."""
        for key in keys:
            value = self.view.config(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return float(value)
        return None

    def words(self, *keys: str) -> str:
        """The values of some configuration keys as lower-case text, such as names of precisions."""
        values: list[Any] = [self.view.config(key) for key in keys]
        return " ".join(str(value).lower() for value in values if value is not None)

    @cached_property
    def same_steps(self) -> str:
        """A sentence when steps are no larger than before the onset; empty when they are or when it is unknown.

        Weight changes are preferred where they are logged, because a diverging policy moves further by equal steps.
        """
        for name, most in (("optim/update_ratio", 1.5), ("policy/kl_old", 2.0)):
            size = self.shift(name)
            if size is not None and size.before > 0:
                words = f"{name} did not grow ({size.before:.2g} to {size.after:.2g})"
                return words if size.ratio <= most else ""
        return ""

    @cached_property
    def _undated(self) -> bool:
        """Whether the onset of the incident is unknown."""
        loud = [f for f in self.findings if f.severity != "info"]
        return bool(loud) and all(f.id in UNDATED for f in loud)

    def _knob(self, name: str) -> Series:
        """A knob in the rows in which a change of it can be the cause."""
        return self._window(name, AROUND, AROUND) if self._undated else self._window(name, BEFORE, MARGIN)

    def turned(self, knob: str, *, up: bool) -> Turn | None:
        """The newest change of a knob in one direction before the onset, to a value it did not have before. A return
        to an earlier value, as when a lowered rate warms up again, does not count."""
        series = self._knob(knob)
        values = series.values
        if len(values) < 2:
            return None
        known = np.maximum.accumulate(values[:-1]) if up else np.minimum.accumulate(values[:-1])
        least = 0.001 * np.abs(known) + 1e-12
        changed = values[1:] > known + least if up else values[1:] < known - least
        rows = changed.nonzero()[0]
        if not len(rows):
            return None
        row = int(rows[-1])
        return Turn(knob, int(series.steps[row + 1]), float(values[row]), float(values[row + 1]))

    def rate_jumped(self, *, up: bool) -> Turn | None:
        """A change of the learning rate by half or more after a constant stretch. Downward it must happen between
        two rows, because schedules end in a slope; upward within `CLIMB` rows, because no schedule climbs after it
        has been constant."""
        series = self._knob("optim/lr")
        values = series.values
        if len(values) and values.min() == values.max():
            return None  # true of most runs
        for row in range(len(values) - 1, 4, -1):
            was, ahead = values[row - 5 : row], values[row : row + (CLIMB if up else 1)]
            steady = was.min() > 0 and was.max() < 1.2 * was.min() and not (up and was[-1] > 1.02 * was[0])
            jumped = ahead.max() > 1.5 * was[-1] if up else values[row] < was[-1] / 1.5
            if steady and jumped and (not up or values[row] > 1.02 * was[-1]):
                to = ahead.max() if up else values[row]
                return Turn("optim/lr", int(series.steps[row]), float(was[-1]), float(to))
        return None

    def jumped(self, name: str, step: int, factor: float) -> tuple[float, float] | None:
        """(median of 20 rows before a step, median of 8 since) where they differ by a factor and beyond noise."""
        old, new = self.rows(name, step, -22, -2), self.rows(name, step, 1, 9)
        if len(old) < 8 or len(new) < 4 or not (was := median(old)) > 0:
            return None
        now = median(new)
        clear = abs(now - was) > 2 * deviation(old)
        return (was, now) if clear and not 1 / factor < now / was < factor else None

    @cached_property
    def hastened(self) -> str:
        """A sentence when the policy suddenly left its reference several times as fast as before; else empty.

        The root of a KL adds up like a distance, so its rise per step is a speed. A policy that only becomes certain
        slows down, because certainty has an end.
        """
        found = self.find("policy/kl-runaway")
        if found is None:
            return ""
        kl = self.view.series("policy/kl_ref").finite()
        place = int(kl.steps.searchsorted(found.onset_step))
        first, last = max(0, place - LEAD), min(len(kl), place + LEAD)
        if place - first < PACE or last - place <= SOON:
            return ""
        level = np.array([median(kl.values[max(0, at - SOON) : at + 1]) for at in range(first, last)])
        way, steps, place = np.sqrt(np.maximum(level, 0.0)), kl.steps[first:last], place - first
        span = min(PACE, last - first - place - 1)
        before = max(float(way[place] - way[0]), 0.0) / float(steps[place] - steps[0])
        speeds = (way[place + span :] - way[place:-span]) / (steps[place + span :] - steps[place:-span])
        at = place + int(speeds.argmax())
        since, began, now = float(speeds.max()), level[at], level[at + span]
        if since <= FASTER * before or now < 2 * began:
            return ""
        times = f"{since / before:.1f} times as fast as" if before > 0 else "while it stood still"
        return (
            f"KL to the reference rose from {began:.2g} to {now:.2g} nats/token between steps {steps[at]} and"
            f" {steps[at + span]}: as a distance (its root), {times} before"
        )

    @cached_property
    def multiplied(self) -> Shift | None:
        """Updates per batch, where they were constant before the onset and at least half as many again since."""
        before, after = self._around("batch/updates", 30, 15)
        if len(before) < 15 or len(after) < 3:
            return None
        was, now = median(before[:-MARGIN]), median(after[SOON:] if len(after) > 2 * SOON else after[-3:])
        steady = float(np.ptp(before[:-MARGIN])) == 0.0
        return Shift(was, now) if steady and was > 0 and now >= 1.5 * was else None

    @cached_property
    def newly_paid(self) -> str:
        """A sentence about a component of the reward that began mid-run, around the onset or in the rows before; else
        empty.

        Where no component was logged before, the one nearest to the earlier reward is the reward as it was.
        """
        series = {name: self.view.series(name).finite() for name in components(self.view)}
        began = {name: int(rows.steps[0]) for name, rows in series.items() if len(rows)}
        first = int(self.onset - BEFORE * self.spacing)
        new = [name for name, step in began.items() if first <= step <= self.latest + MARGIN * self.spacing]
        if not new or len(self.rows("reward/mean", step := max(began[name] for name in new), -BEFORE, 0)) < 20:
            return ""
        before = median(self.rows("reward/mean", step, -20, 0))
        level = {name: median(self.rows(name, step, 0, 15)) for name in new}
        if len(new) == len(began):
            new.remove(min(new, key=lambda name: abs(level[name] - before)))
        if not new:
            return ""
        name = max(new, key=lambda name: abs(level[name]))
        return f"{name} ({level[name]:.3g}) became part of the reward only at step {began[name]}"

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """Metrics that left their trend around the onset, the earliest first; of simultaneous ones the upstream
        first."""
        found = []
        for name, level, direction in METRICS:
            series = self._window(name, BEFORE + LEAD, 60)
            place = int(series.steps.searchsorted(self.onset))
            moved = _departs(
                scaled(series.values, metric(name).kind), max(place - LEAD, min(place - 10, 25)), direction
            )
            if moved:
                found.append(Move(name, STAGES.index(level), int(series.steps[moved[0]]), moved[1]))
        return tuple(sorted(found, key=lambda move: (move.step, move.stage)))

    def led(self, name: str) -> str:
        """A sentence when a metric was the first to leave its trend; empty when it was not or when it is unknown."""
        own = next((move for move in self.moves if move.metric == name), None)
        if own is None:
            return ""
        others = [move for move in self.moves if move.stage > own.stage]
        rows = TOGETHER * self.spacing
        if not others or any(move.step < own.step - rows for move in others):
            return ""
        after = others[0].step - own.step
        return f"{name} left its trend first (step {own.step}), {others[0].metric} {max(after, 0)} steps later"

    @cached_property
    def spacing(self) -> float:
        """Steps between rows around the onset."""
        steps = self._window("reward/mean", BEFORE, MARGIN).steps
        return middle(np.diff(steps)) if len(steps) > 2 else 1.0

    def rows(self, name: str, step: int, first: int, end: int) -> np.ndarray:
        """The finite values of a metric in rows counted from a step: `first` to `end` - 1."""
        series = self.view.series(name)
        place = int(series.steps.searchsorted(step))
        values = series.values[max(0, place + first) : max(0, place + end)]
        return finite(values)

    def _window(self, name: str, before: int, after: int) -> Series:
        """The finite rows of a metric around the onset."""
        series = self.view.series(name)
        place = int(series.steps.searchsorted(self.onset))
        span = slice(max(0, place - before), place + after)
        return Series(series.steps[span], series.values[span]).finite()

    def _around(self, name: str, before: int, after: int) -> tuple[np.ndarray, np.ndarray]:
        series = self._window(name, before, after)
        place = int(series.steps.searchsorted(self.onset))
        return series.values[:place], series.values[place:]


def _departs(values: np.ndarray, reference: int, direction: str) -> tuple[int, bool] | None:
    """(first row of a lasting departure from the trend of the first `reference` rows, whether upward), or None."""
    if reference < 15 or len(values) - reference < 5:
        return None
    rows = np.arange(len(values)) - (reference - 1) / 2
    known = values[:reference]
    slope, residuals = line(known)
    noise = max(float(residuals.std()) * inflation(residuals), 0.05 * (1 + abs(float(known.mean())) * 0.1), 1e-9)
    spread = noise * np.sqrt(1 + 12 * rows**2 / reference**3)
    ahead = known.mean() + slope * rows
    found = []
    for up in (True, False):
        if direction not in ("either", "up" if up else "down"):
            continue
        beyond = values - np.maximum(ahead, known.mean()) if up else np.minimum(ahead, known.mean()) - values
        far = np.minimum(np.maximum(beyond[reference:] / spread[reference:], -4.0), 6.0).tolist()
        total, began = 0.0, reference
        for row, deviations in enumerate(far, reference):
            total = max(0.0, total + deviations - 1.0)
            began = row + 1 if total == 0 else began
            if total > 12:
                found.append((began, up))
                break
    return min(found) if found else None
