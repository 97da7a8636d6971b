"""Stalled: a run whose status is `running` has written nothing for far longer than its steps take."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.durations import spoken
from stabilizer.core.records import Finding
from stabilizer.core.stats import median
from stabilizer.detectors.base import Detector
from stabilizer.runs.history import RunView


@dataclass(frozen=True, kw_only=True)
class Stalled(Detector):
    """No sign of life for many times the longest step of the run, while its status is still `running`.

    Signature
        The reader of a run directory compares its last heartbeat with the clock and records the silence in
        `RunView.about` (`silent_s` seconds after step `silent_step`). The detector reads no clock, and a view of an
        earlier step has no silence. It is a stall from `least` seconds that are also `longest` times the longest of the
        last 200 steps, validation and checkpoints included.

    Why it matters
        A hung job costs as much as a working one. A killed process cannot report its end: its status stays `running`.

    Look-alikes
        A run that waits for a person (`paused`), has ended or was stopped has that status. A step that is slow by
        nature, with its validation, is among those that define the limit. A log of another trainer has no heartbeat: it
        may end for any reason, and nothing is reported.

    False alarms
        A run directory copied while the run continued looks like a run that went silent then. Clocks of two machines
        that differ by minutes.

    Remedies
        Manually: is the process (`status.json`: pid, host) alive? If not, resume it (`--resume`). If it is, check where
        it waits (`py-spy dump`): a collective that one rank never entered, an engine that died, or a reward call
        without a time limit (`check-reward`).

    References
        torch.distributed's flight recorder and NCCL watchdog, for a hang between ranks.
    """

    id = "system/stalled"
    needs = ("time/step_s",)
    confirm = 1

    least: float = 300.0
    """Seconds of silence below which nothing is reported."""
    longest: float = 5.0
    """Silence, in longest steps of the run."""

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
            f"nothing was written for {spoken(silence)} after step {view.step}, while a step takes {spoken(usual)}"
            f" (longest {spoken(float(steps.max()))}); the status is still running",
            metric="time/step_s", baseline=usual, now=float(silence), silent_s=float(silence),
        )  # fmt: skip
