"""All detectors. This list is the table of contents; a new detector is a new file and a new line here."""

from __future__ import annotations

from stabilizer.detectors.base import Detector
from stabilizer.detectors.numerics.non_finite import NonFinite
from stabilizer.detectors.optim.grad_explosion import GradExplosion
from stabilizer.detectors.policy.entropy_collapse import EntropyCollapse
from stabilizer.detectors.policy.kl_runaway import KlRunaway
from stabilizer.detectors.reward.collapse import Collapse
from stabilizer.detectors.reward.no_signal import NoSignal
from stabilizer.detectors.reward.outage import Outage
from stabilizer.detectors.reward.plateau import Plateau
from stabilizer.detectors.system.config_error import ConfigError
from stabilizer.detectors.system.crashed import Crashed
from stabilizer.detectors.system.data_shift import DataShift
from stabilizer.detectors.system.invariant import Invariant
from stabilizer.detectors.system.resume_mismatch import ResumeMismatch

DETECTORS: tuple[Detector, ...] = (
    NonFinite(),
    Outage(),
    GradExplosion(),
    KlRunaway(),
    EntropyCollapse(),
    Collapse(),
    NoSignal(),
    Plateau(),
    Invariant(),
    ResumeMismatch(),
    DataShift(),
    ConfigError(),
    Crashed(),
)

ENDINGS = frozenset(detector.id for detector in DETECTORS if detector.at_end)
"""What can end a run: an open finding of these that is critical makes the verdict `crashed`."""
