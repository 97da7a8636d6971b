"""Config error: the trainer refused its own configuration and stopped."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.records import Finding
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.ending import ending
from stabilizer.runs.history import RunView
from stabilizer.trainers.refused import accepted


@dataclass(frozen=True, kw_only=True)
class ConfigError(Detector):
    """The log ends in the trainer's own validation error: settings that do not go together.

    Signature
        After the last row of metrics (usually there is none) stands an exception whose message is one of the checks
        trainers make on their configuration: a batch that does not divide into groups or over GPUs, a group of one
        answer, keys that exclude one another, an unknown key.

    Why it matters
        The run never started, so the fix costs a minute; but the messages name the rule and seldom the settings that
        would do, and some advice that goes round is wrong: a single generation per prompt is never valid for GRPO,
        whatever divides.

    Look-alikes
        The same message with rows after it: somebody mended it and started again in the same log, so this is silent.
        An exception with another message is `system/crashed`. A setting that is accepted and unwise shows in no log
        before it does harm: that is what `stabilizer preflight` is for.

    False alarms
        A `ValidationError` of some library inside a reward function, when it ended the run, is taken for one; the
        message says which.

    Remedies
        `fix-config`: the settings that the trainer accepts, nearest first, worked out from the numbers in its message.
        By hand where a message holds no numbers: `stabilizer preflight CONFIG` judges the whole configuration, and
        `stabilizer plan` lists every valid way to cut a batch over a number of GPUs.

    References
        open-r1 issue 249 ("The global train batch size (7 x 1) must be evenly divisible by ... (8)": eight GPUs, one of
        them vLLM's); TRL pull request 3199, which changed what is divided; `stabilizer/preflight/validity/` for every
        trainer's rules by version.
    """

    id = "system/config-error"
    needs = ()
    confirm = 1
    at_end = True

    def check(self, view: RunView) -> Finding | None:
        end = ending(view)
        if end is None or end.kind != "config-error":
            return None
        instead = accepted(end.message)
        where = f" ({end.where})" if end.where else ""
        return self.finding(
            view, "info" if end.harmless else "critical", view.step,
            f"the trainer refused its configuration: {end.message}{where}",
            cause="config-error", what="the trainer checks its settings itself and stops where they do not fit",
            next=instead.how, valid=instead.settings, message=end.message,
            **{key: end.event.data[key] for key in ("file", "line") if key in end.event.data},
        )  # fmt: skip
