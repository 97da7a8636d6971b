"""The watch of a run as the product uses it: this diagnosis explains its incidents, and these remedies are advised."""

from __future__ import annotations

from collections.abc import Sequence

from stabilizer.core.records import Cause, RemedyAdvice, Severity
from stabilizer.detectors import DETECTORS
from stabilizer.detectors.base import Detector
from stabilizer.incidents.diagnosis import causes
from stabilizer.incidents.watch import Outcomes, Watch
from stabilizer.remedies import advise, fitted
from stabilizer.runs.history import RunView


def new_watch(detectors: Sequence[Detector] = DETECTORS, outcomes: Outcomes | None = None) -> Watch:
    """A watch that has seen nothing yet. `outcomes` makes its calls, with a time limit where something waits for it."""
    return Watch(causes, advice, detectors, outcomes)


def advice(found: Sequence[Cause], view: RunView, onset: int, harm: Severity | None) -> tuple[RemedyAdvice, ...]:
    """Remedies for the causes of an incident of a live run."""
    ours = view.about("trainer", "stabilizer") == "stabilizer"
    return fitted(advise(found, view, onset), harm=harm, state="running", ours=ours)
