"""Entropy explosion: the policy becomes less certain and drifts towards noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.core.stats import median
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import departure, drift
from stabilizer.detectors.evidence.progress import level, progress
from stabilizer.detectors.evidence.since import began, gained_nothing, outcome, steady
from stabilizer.runs.history import RunView, Series


@dataclass(frozen=True, kw_only=True)
class EntropyExplosion(Detector):
    """Token entropy has grown far above its trend without any gain in reward.

    Signature
        The median of the last 5 entropies is at least `small` times, and `material` nats above, what the run's own past
        predicts (`departure`) or what it began with (`drift`), and the reward has fallen since: `warn`. At `large`
        times (`sudden` where entropy has left its trend) it is enough that the reward has not risen in `answer` rows.
        `critical` when the reward has lost what it had gained. A rise that stays below the entropy of the run's start
        is a return, and counts only when the reward has fallen. In a log of 15 to 100 rows, a steady rise to twice the
        first rows is `info` while the reward has gained nothing, and `warn` where it falls.

    Why it matters
        Every token becomes a little more likely to be wrong, so long answers break first: length grows, languages mix,
        and within tens of rows the text is gibberish whose gradients have no direction. A lower entropy bonus later
        does not restore the lost certainty.

    Look-alikes
        Useful exploration: entropy and reward rise together (clip-higher does this on purpose). Harder data: entropy
        and reward jump within `abrupt` rows and then stay; a policy that breaks takes longer and continues. A return
        after an early collapse. A wide swing at a tiny level, which `material` rules out.

    False alarms
        Undeclared harder data that is phased in over tens of rows and raises entropy by more than half.

    Remedies
        `roll-back` when the reward is lost, `lower-lr` and `raise-beta` before. Manually: entropy bonus to 0, upper
        clip range back to 0.2, mask negative completions that have become unlikely, temperature back to 1.

    References
        MAI-Thinking-1 report on upper clip bounds; Skywork-OR1 (arXiv 2505.22312) on rises that pay off; DeepSeek-V3.2
        (arXiv 2512.02556) on masking negative off-policy sequences.
    """

    id = "policy/entropy-explosion"
    needs = ("policy/entropy", "reward/mean|accuracy/train")

    small: float = 1.5
    """Factor that matters once the reward has fallen."""
    large: float = 2.0
    """Factor that matters while the reward is flat."""
    sudden: float = 1.75
    """The same where entropy has left its trend."""
    material: float = 0.05
    """Nats per token of growth below which nothing is reported."""
    answer: int = 8
    """Rows that the reward gets to respond to a rise before it counts as unrewarded."""
    abrupt: int = 4
    """Rows within which new data change a metric; a policy takes longer."""

    def check(self, view: RunView) -> Finding | None:
        return self._grown(view) or self._growing(view)

    def _growing(self, view: RunView) -> Finding | None:
        """A log of a few dozen rows in which entropy only rises: a hint, or more where the reward falls."""
        found = steady(view, "policy/entropy", up=True, material=self.material)
        useless = gained_nothing(view) if found else None
        if found is None or useless is None:
            return None
        falls, fate = useless
        return self.finding(
            view, "warn" if falls else "info", found.step,
            f"token entropy has grown steadily from {found.was:.3g} to {found.now:.3g} nats in {found.rows} rows, and"
            f" {fate}",
            metric="policy/entropy", baseline=found.was, now=found.now,
        )  # fmt: skip

    def _grown(self, view: RunView) -> Finding | None:
        series = view.series("policy/entropy")
        recent = series.last(8).finite()
        if len(recent) < 5:
            return None
        now = level(recent)
        first = int(series.steps.searchsorted(view.baseline_start()))
        start = level(series.part(first, first + 20).finite(), 20)
        moved = departure(view, "policy/entropy", up=True)
        normal = moved.expected if moved else start
        if not now >= max(self.small * normal, normal + self.material):
            return None
        reward = progress(view)
        if reward is None or reward.solved or reward.rising:
            return None
        if not moved and not ((known := drift(view, "policy/entropy")) and known.clear):
            return None
        onset = began(series, "positive")
        since = outcome(view, onset)
        if since is None or since.paid or self._came_with_the_data(series, onset, normal, now):
            return None
        lost = reward.dropped and since.fell
        if not (lost or since.fell) and (
            now < (self.sudden if moved else self.large) * normal or now < start or since.rows < self.answer
        ):
            return None
        fate = f"fell from {since.before:.3g} to" if since.fell else "has not risen:"
        times = f", {now / normal:.1f} times the" if normal > 0 else ", instead of the"
        return self.finding(
            view, "critical" if lost else "warn", onset,
            f"token entropy is {now:.3g} nats{times} {normal:.3g} expected from the rows before step {onset}, and"
            f" {since.metric} {fate} {since.now:.3g}",
            metric="policy/entropy", baseline=normal, now=now, reward_before=since.before, reward_now=since.now,
        )  # fmt: skip

    def _came_with_the_data(self, series: Series, onset: int, normal: float, now: float) -> bool:
        """Nearly all of a moderate rise came at once, and it does not continue."""
        after = np.log(np.maximum(series.between(onset, series.steps[-1]).finite().values[:60], 1e-12))
        if now > 3 * normal:
            return False
        if len(after) < 2 * self.abrupt:
            return True  # too early to tell
        return bool(median(after[self.abrupt : 2 * self.abrupt]) - np.log(normal) > 0.7 * np.log(now / normal))
