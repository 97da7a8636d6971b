"""Config error: the trainer rejected its own configuration and stopped."""

from __future__ import annotations

from dataclasses import dataclass

from stabilizer.core.records import Finding
from stabilizer.detectors.base import Detector
from stabilizer.detectors.evidence.ending import ending, trouble_of
from stabilizer.runs.history import RunView
from stabilizer.trainers.refused import NOT_KNOWN, accepted
from stabilizer.troubles.trouble import CERTAINTY


@dataclass(frozen=True, kw_only=True)
class ConfigError(Detector):
    """The log ends in the trainer's own validation error: settings that are not valid together.

    Signature
        After the last row of metrics (usually there is none) comes an exception whose message is one of the checks that
        trainers make on their configuration: a batch that does not divide into groups or over GPUs, a group of one
        answer, keys that exclude one another, an unknown key.

    Why it matters
        The run never started, so the fix takes a minute. But the messages name the rule and seldom the settings that
        would work, and some common advice is wrong: a single generation per prompt is never valid for GRPO, whatever
        divides.

    Look-alikes
        The same message with rows after it: somebody fixed it and restarted in the same log, so this is silent. An
        exception with another message is `system/crashed`. An accepted but unwise setting does not show in a log before
        it does harm: `stabilizer preflight` covers that.

    False alarms
        A `ValidationError` of a library inside a reward function, if it ended the run, is mistaken for one; the message
        shows it.

    Remedies
        `fix-config`: the settings that the trainer accepts, nearest first, computed from the numbers in its message.
        Manually, where a message holds no numbers: `stabilizer preflight CONFIG` checks the whole configuration, and
        `stabilizer plan` lists every valid way to split a batch over a number of GPUs.

    References
        open-r1 issue 249 ("The global train batch size (7 x 1) must be evenly divisible by ... (8)": eight GPUs, one of
        them vLLM's); TRL pull request 3199, which changed what is divided; `stabilizer/trainers/*/validity.py` for
        every trainer's rules by version.
    """

    id = "system/config-error"
    needs = ()
    confirm = 1
    at_end = True

    def check(self, view: RunView) -> Finding | None:
        end = ending(view)
        if end is None or end.kind != "config-error":
            return None
        instead, found = accepted(end.message), trouble_of(end.event)
        what, how = "the trainer checks its settings and stops when they are not valid together", instead.how
        if instead.settings:  # the trainer's own check finds the values that do
            found = None
        if found:
            what, how = found.trouble.explained(found.values)
        known = "certain" if instead != NOT_KNOWN else "possible"
        sure = CERTAINTY[found.trouble.certainty if found else known]
        guess = sure <= CERTAINTY["possible"]
        said = "the program stopped at a check" if guess else "the trainer rejected its configuration"
        where = f" ({end.where})" if end.where else ""
        return self.finding(
            view, "info" if end.harmless else "critical", view.step,
            f"{said}: {end.message}{where}",
            confidence=sure, cause="config-error", what=what, next=how, valid=instead.settings, message=end.message,
            **({"trouble": found.trouble.id, "source": found.trouble.source} if found else {}),
            **{key: end.event.data[key] for key in ("file", "line") if key in end.event.data},
        )  # fmt: skip
