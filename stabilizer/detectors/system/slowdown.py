"""Slowdown: steps take much longer than they did, for the same work."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.durations import spoken
from stabilizer.core.records import Finding
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.departure import departure, drift
from stabilizer.detectors.evidence.progress import level
from stabilizer.detectors.evidence.worth import first_level, left, unheard_of
from stabilizer.runs.history import RunView

TIME = "time/step_s"
PARTS = {
    "time/rollout_s": "generation and scoring",
    "time/scoring_s": "advantages, reference and values",
    "time/update_s": "updates",
    "time/sync_s": "the weight transfer",
    "time/metrics_s": "metrics",
}
"""Parts of a step's time, where they are logged."""
WORK = ("rollout/length_max", "rollout/length_mean", "rollout/turns_mean", "batch/prompts_drawn", "batch/prompts")
"""Measures of work per step: answers twice as long take twice as long with any engine."""


@dataclass(frozen=True, kw_only=True)
class Slowdown(Detector):
    """Steps take much longer than they did, lastingly, and not because there is more to do.

    Signature
        The median step time is at least `jump` times what its trend predicts, or `factor` times that of the start of
        the run, for `lasting` rows. `stalled` rows are enough where it is `factor` times its trend, and `stopped` rows
        where it is twice that. Before, it is divided by the growth of the work in a step: answer length (mean or
        longest), turns, prompts, group size. A creep must be larger, because much that grows is not logged. Always
        `info`: it is a note about the machine, and the training is unaffected.

    Why it matters
        It costs a third of the money and more. A slowdown that creeps ends in a crash (memory that fragments or leaks,
        a disk that fills). One that jumps comes from the machine: a neighbour on the GPU, a throttled card, a lost
        worker, a verifier that times out.

    Look-alikes
        Longer answers, more turns, a larger batch and resampled groups are divided out. Validation, checkpoints and a
        first compiled step are single rows. A resumed run on other hardware declares it. Twice a very short step is
        nothing: steps under `short` seconds are not judged.

    False alarms
        Work that grows without being logged: longer prompts, slower tools, a verifier with more to read.

    Remedies
        `check-reward` where generation and scoring grew and lengths did not: a verifier that times out. Manually: check
        the machine (nvidia-smi, memory, disk), then the part that the summary names.

    References
        TraceML and verl's `timing_s/*` split a step into the same parts.
    """

    id = "system/slowdown"
    needs = (TIME,)

    jump: float = 1.4
    """Multiple of the step time that its trend predicts, for the same work."""
    factor: float = 2.0
    """Multiple of the step time at the start, for the same work."""
    lasting: int = 24
    """Rows that a slowdown must last."""
    stalled: int = 18
    """Rows it must last where a step takes `factor` times what its trend predicts ..."""
    stopped: int = 8
    """... and where it takes twice `factor` times that."""
    short: float = 0.05
    """Seconds under which a step is too short to be judged."""

    def check(self, view: RunView) -> Finding | None:
        series = view.series(TIME)
        moved = departure(view, TIME, up=True)
        lasting = self._rows(moved.ratio) if moved else self.lasting
        recent = series.last(lasting)
        if len(recent) < lasting or recent.values[-1] < self.short:
            return None
        slower = moved is not None and moved.rows >= lasting and moved.ratio >= self.jump
        if moved and slower and unheard_of(series, moved.onset_step, moved.expected, moved.now):
            least = next(times for times, rows in self._tiers() if moved.rows >= rows)
            before, onset, usual = moved.expected, moved.onset_step, (0, moved.onset_step)
        else:
            if level(series) < 0.9 * self.factor * first_level(view, series):
                return None
            lasting, recent = self.lasting, series.last(self.lasting)
            slow = drift(view, TIME, now_rows=lasting)
            if slow is None or not slow.clear or slow.ratio < self.factor:
                return None
            least, before, onset = self.factor, slow.start, left(series, slow.start, slow.now, "positive")
            first = int(series.steps.searchsorted(view.baseline_start()))
            usual = (view.baseline_start(), int(series.steps[first + 20]))
        now = level(recent.finite(), lasting)
        times = now / before
        work = max(1.0, self._grown(view, usual, lasting, WORK[:2]) * self._grown(view, usual, lasting, WORK[2:]))
        if not min(times, level(series) / before) >= least * work or len(series.between(onset, view.step)) < lasting:
            return None
        return self.finding(
            view, "info", onset,
            f"a step takes {spoken(now)}, {times:.1f} times the {spoken(before)} before step {onset}, with"
            f" {work:.1f} times the work{self._part(view, usual, lasting, now - before)}",
            metric=TIME, baseline=before, now=now, work=work,
        )  # fmt: skip

    def _tiers(self) -> tuple[tuple[float, int], ...]:
        """(multiple of its trend, rows), the smallest first: the larger the multiple, the fewer rows rule out a
        passing delay."""
        return (self.jump, self.lasting), (self.factor, self.stalled), (2 * self.factor, self.stopped)

    def _rows(self, ratio: float) -> int:
        """Rows that a step time of this multiple of its trend must last."""
        return next((rows for times, rows in reversed(self._tiers()) if ratio >= times), self.lasting)

    @staticmethod
    def _grown(view: RunView, usual: tuple[int, int], rows: int, names: tuple[str, ...]) -> float:
        """The largest growth of some measures of work, in the newest rows, since the steps `usual` was measured in."""
        grown = [1.0]
        for name in names:
            series = view.series(name)
            was, now = level(series.between(*usual).last(20).finite(), 20), level(series.last(rows).finite(), rows)
            if was > 0 and now > 0:
                grown.append(now / was)
        return max(grown)

    @staticmethod
    def _part(view: RunView, usual: tuple[int, int], rows: int, lost: float) -> str:
        """The part of the step that took most of the added time, in words, where one did."""
        added = {}
        for name, words in PARTS.items():
            series = view.series(name)
            was, now = level(series.between(*usual).last(20).finite(), 20), level(series.last(rows).finite(), rows)
            if now > was:
                added[words] = now - was
        most = max(added, key=lambda words: added[words], default=None)
        return f"; most of the added time is in {most}" if most is not None and added[most] > 0.5 * lost else ""
