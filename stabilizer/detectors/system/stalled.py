"""Stalled: a running phase takes far longer than it has before, or nothing was written for far longer than a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stabilizer.core.records import Finding
from stabilizer.core.stats import median
from stabilizer.core.text import spoken
from stabilizer.detectors.base import Detector
from stabilizer.runs.history import RunView


@dataclass(frozen=True, kw_only=True)
class Stalled(Detector):
    """A phase of the run takes many times as long as it has before, or nothing is written any more.

    Signature
        Each training process that stabilizer runs in has a watchdog thread. It compares the phase in progress (data,
        rollout, reward, sync, update, save, validation) with the phase's own history: five times its longest usual
        duration, at least 2 min, 10 min for a save and 15 min for a validation. The first three of a kind get 30 min.
        A process that computes gets three times as long. The watchdog then looks at the stack, at CPU time and at child
        processes, and records what it found as an event at the last finished step.

        A run without such a watchdog is judged by its silence: at least `least` seconds that are also `longest` times
        the longest of the last 200 steps, validation and checkpoints included. The reader of the run directory measures
        it and notes it in `RunView.about` (`silent_s`, `silent_step`, `stall`). The detector reads no clock.

    Why it matters
        A hung job costs as much as a working one, and most trainers say nothing. A killed process cannot report its
        end: its status stays `running`. Owners often suspect the wrong part: a slow reward function looks like a
        network fault, a compiling engine like a dead one, and a dead engine like success.

    Look-alikes
        A run that waits for a person (`paused`), has ended or was stopped. A phase that is slow by nature is in its own
        history. The first steps compile and load. Time in which the machine slept does not count. A log of another
        trainer has no heartbeat, and nothing is reported.

    False alarms
        A phase that is rarely entered and suddenly takes over two minutes, such as one recompilation. The finding says
        then that it compiles, and closes when the phase ends. A run directory copied while the run continued looks like
        a run that went silent then.

    Remedies
        `look-at-the-machine`. The finding names rank, phase, the innermost line of the user's code and what it waits
        for. The stacks of all threads are in `heartbeats/` of the run directory. `stabilizer supervise` restarts a
        hung run within a budget.

    References
        torch.distributed's flight recorder and NCCL watchdog, for a hang between ranks. NVIDIA's resiliency extension,
        for heartbeats by sections.
    """

    id = "system/stalled"
    needs = ("time/step_s",)
    confirm = 1

    least: float = 300.0
    """Seconds of silence below which nothing is reported."""
    longest: float = 5.0
    """Silence, in longest steps of the run."""
    sure: float = 0.9
    """Confidence in what the watchdog found; it looked at the process itself."""

    def check(self, view: RunView) -> Finding | None:
        return self._located(view) or self._silent(view)

    def _located(self, view: RunView) -> Finding | None:
        """What a watchdog found at this step, or what the heartbeats show at the end of the run."""
        seen = [event.data.get("stall") for event in view.events(("note",)) if event.step == view.step]
        if view.about("silent_step") == view.step:
            seen.append(view.about("stall"))
        found = next((stall for stall in reversed(seen) if isinstance(stall, Mapping) and "kind" in stall), None)
        if found is None:
            return None
        evidence = {"cause": found["kind"], "confidence": self.sure, **found}
        text = str(evidence.pop("text", found.get("what", "")))
        return self.finding(view, "warn", view.step, text, **evidence)

    def _silent(self, view: RunView) -> Finding | None:
        """A run without heartbeats of its phases: its rows have stopped."""
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
