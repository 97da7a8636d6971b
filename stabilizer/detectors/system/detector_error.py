"""Detector error: a detector raised an exception. The watch reports it; no detector does."""

from __future__ import annotations

from stabilizer.detectors.base import Detector


class DetectorError(Detector):
    """A detector failed on this run, so its failure mode is not watched at that step.

    Signature
        A detector raised an exception. The watch catches it, reports it once per detector and run, and continues to ask
        all detectors, including this one at the next step.

    Why it matters
        Training is not affected, and no other finding is. The failure that this detector looks for may be missed.

    Look-alikes
        A detector whose metrics are not logged is silent and listed under "Not checked": that is no error.

    False alarms
        None: it is a bug of this project, whatever the run is like.

    Remedies
        None for the run. Manually: report it with the summary, which names detector, step and exception, and, where you
        may share it, the run directory or log: `stabilizer diagnose` on it shows the same error again.

    References
        `stabilizer/incidents/watch.py`: the one place where detectors are called.
    """

    id = "system/detector-error"
    needs = ()
    confirm = 1
