"""Crashed: out of memory, a dead worker or an exception, after which nothing was trained."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.failures import NO_ENTRY, Meaning, asked, meaning
from stabilizer.core.records import Finding
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.collectives import PATHS, WATCHDOG, out_of_step
from stabilizer.detectors.evidence.ending import Ending, ending, trouble_of, warned
from stabilizer.runs.history import RunView
from stabilizer.trainers.settings import todo
from stabilizer.troubles.search import Found, by_id
from stabilizer.troubles.trouble import CERTAINTY


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
        found = trouble_of(end.event)
        known = found.trouble.meaning(found.values) if found else meaning(end.message)
        source = _source(found, known)
        if source.get("trouble") == WATCHDOG and (apart := out_of_step(view)):
            known = known._replace(what=f"{apart} wait for each other", todo=PATHS)
            source["confidence"] = CERTAINTY["likely"]
        if found is None and known.cause == "program-error" and (before := warned(view)):
            cause, fix = before.trouble.explained(before.values)
            known = known._replace(
                what=f"{NO_ENTRY}; a warning before it names a trouble: {cause}", todo=fix, reported=True
            )
        ended = f"training ended after step {view.step:,}" if len(view.names()) else "the program stopped"
        where = f" ({end.where})" if end.where else ""
        but = f"; {end.harmless}" if end.harmless else ""
        return self.finding(
            view, "info" if end.harmless else "critical", view.step,
            f"{ended}: {end.message}{where}{but}",
            cause=known.cause, what=known.what, next=_next(view, end, known, found),
            message=end.message, **source,
            **{key: end.event.data[key] for key in ("file", "line", "user_frame") if key in end.event.data},
        )  # fmt: skip


def _next(view: RunView, end: Ending, known: Meaning, found: Found | None) -> str:
    own = end.event.data.get("user_frame")
    if found is not None or known.reported or known.cause != "program-error":
        fix = todo(known, str(view.about("trainer", "")))
    else:
        place = f"The innermost frame of code that is not installed: {own}" if own else known.todo
        fix = f"no entry among {len(by_id())} known troubles fits this message. {place}"
    unsure = not known.reported if found is None else _unsure(found)
    wanted = asked(end.message) if unsure else ""
    return f"do what the message asks: {wanted}. If that is done: {fix}" if wanted else fix


def _unsure(found: Found) -> bool:
    """Whether a trouble is only a guess at why the program says what it says."""
    return found.trouble.certainty == "possible" and not found.trouble.consequence


def _source(found: Found | None, known: Meaning) -> dict[str, object]:
    if found is None:
        unsure = known.reported or known.cause == "program-error"
        return {"searched": len(by_id())} | ({"confidence": CERTAINTY["possible"]} if unsure else {})
    one = found.trouble
    return {"trouble": one.id, "confidence": CERTAINTY[one.certainty], "source": one.source}
