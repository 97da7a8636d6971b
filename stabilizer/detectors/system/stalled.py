"""Stalled: a run that calls itself running has written nothing for far longer than its steps take."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.records import Finding
from stabilizer.core.stats import median
from stabilizer.core.text import spoken
from stabilizer.detectors.base import Detector
from stabilizer.runs.history import RunView


@dataclass(frozen=True, kw_only=True)
class Stalled(Detector):
    """No sign of life for many times the longest step of the run, while its status still says `running`.

    Signature
        Whoever reads a run directory compares its last heartbeat with the clock and leaves the silence in
        `RunView.about` (`silent_s` seconds after step `silent_step`); nothing here reads a clock, and a view of an
        earlier step knows of no silence. It is a stall from `least` seconds on that are also `longest` times the
        longest of the last 200 steps, validation and checkpoints included.

    Why it matters
        A hung job costs what a working one does. A process that was killed can't say so: its status stays `running`.

    Look-alikes
        A run that waits for a person (`paused`), has ended or was stopped says so. A step that is slow by nature, with
        its validation, is among those the silence is measured by. A log of another trainer has no heartbeat: it may end
        for any reason, and nothing is said.

    False alarms
        A run directory copied from a machine while the run went on looks like a run that went silent then. Clocks of
        two machines that differ by minutes.

    Remedies
        By hand: is the process (`status.json`: pid, host) alive? If not, resume it (`--resume`). If it is, look where
        it waits (`py-spy dump`): a collective that one rank never entered, an engine that died, or a reward call
        without a time limit (`check-reward`).

    References
        torch.distributed's flight recorder and NCCL watchdog, for a hang between ranks.
    """

    id = "system/stalled"
    needs = ("time/step_s",)
    confirm = 1

    least: float = 300.0
    """Seconds of silence below which nothing is said."""
    longest: float = 5.0
    """Silence in longest steps of the run."""

    def check(self, view: RunView) -> Finding | None:
        silence = view.about("silent_s")
        if not isinstance(silence, (int, float)) or view.about("silent_step") != view.step:
            return None
        steps = view.series("time/step_s").last(200).finite().values
        if not len(steps) or not silence >= max(self.least, self.longest * float(steps.max())):
            return None
        usual = median(steps)
        return self.finding(
            view, "warn", view.step,
            f"nothing was written for {spoken(silence)} after step {view.step}, and a step takes {spoken(usual)}"
            f" (longest {spoken(float(steps.max()))}); status.json still says running",
            metric="time/step_s", baseline=usual, now=float(silence), silent_s=float(silence),
        )  # fmt: skip
