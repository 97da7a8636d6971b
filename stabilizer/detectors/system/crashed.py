"""Crashed: out of memory, a dead worker or an exception, after which nothing was trained."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.failures import meaning, todo
from stabilizer.core.records import Finding
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.ending import ending
from stabilizer.runs.history import RunView


@dataclass(frozen=True, kw_only=True)
class Crashed(Detector):
    """The log ends in a failure: out of memory, a process that died, or an exception.

    Signature
        A failure appears in the log after the last row of metrics of the newest attempt. Of several, a message that
        names its reason (out of memory, a killed process) ranks before a plain exception, the first before those that
        follow from it, and what other processes report about it (`ChildFailedError`, a collective that timed out) last.

    Why it matters
        Nothing is being trained. Until somebody restarts the run, the machines only cost money, and a restart without a
        change hits most of these failures again at the same step.

    Look-alikes
        A failure with rows after it was survived (a reward function that raised and was caught, a worker that Ray
        restarted) or repaired (the job was restarted and trained on): silent. An error after the last planned step
        happened while saving, uploading or shutting down: `info`, and so is Ctrl-C or a scheduler's SIGTERM. A
        configuration that the trainer rejects is `system/config-error`. The word "error" in a line is no failure; an
        exception at the start of a line, or a traceback, is.

    False alarms
        A log copied while it is still being written may end in a failure that the run is about to survive. A traceback
        in a generated answer after the last row is mistaken for a failure.

    Remedies
        `save-memory`, `look-at-the-machine` or `mend-the-program`, with the one change that the finding names; then
        resume from the newest checkpoint. Manually, where the reason is not in the log: the kernel log (`dmesg -T`) and
        the scheduler's record of that minute.

    References
        torch `TORCH_NCCL_*` and `PYTORCH_CUDA_ALLOC_CONF` documentation; verl's performance guide on which batch sizes
        cost memory and which change the optimisation; transformers' `ddp_timeout`.
    """

    id = "system/crashed"
    needs = ()
    confirm = 1
    at_end = True

    def check(self, view: RunView) -> Finding | None:
        end = ending(view)
        if end is None or end.kind == "config-error":
            return None
        known = meaning(end.message)
        after = f"after step {view.step:,}" if len(view.names()) else "before the first step"
        where = f" ({end.where})" if end.where else ""
        but = f"; {end.harmless}" if end.harmless else ""
        return self.finding(
            view, "info" if end.harmless else "critical", view.step,
            f"training ended {after}: {known.what}{but}. From the log: {end.message}{where}",
            cause=known.cause, what=known.what, next=todo(known, str(view.about("trainer", ""))),
            message=end.message, **{key: end.event.data[key] for key in ("file", "line") if key in end.event.data},
        )  # fmt: skip
