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
from stabilizer.detectors.rollout.language_drift import LanguageDrift
from stabilizer.detectors.rollout.length_collapse import LengthCollapse
from stabilizer.detectors.rollout.length_explosion import LengthExplosion
from stabilizer.detectors.rollout.repetition import Repetition
from stabilizer.detectors.rollout.tool_collapse import ToolCollapse
from stabilizer.detectors.rollout.truncation import Truncation
from stabilizer.detectors.system.slowdown import Slowdown
from stabilizer.detectors.system.stalled import Stalled
from stabilizer.detectors.value.critic_failure import CriticFailure

DETECTORS: tuple[Detector, ...] = (
    NonFinite(),
    Outage(),
    GradExplosion(),
    KlRunaway(),
    EntropyCollapse(),
    Collapse(),
    NoSignal(),
    Plateau(),
    LengthExplosion(),
    LengthCollapse(),
    Truncation(),
    Repetition(),
    LanguageDrift(),
    ToolCollapse(),
    CriticFailure(),
    Slowdown(),
    Stalled(),
)
