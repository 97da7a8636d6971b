"""All detectors. This list is the table of contents; a new detector is a new file and a new line here."""

from __future__ import annotations

from stabilizer.detectors.base import Detector
from stabilizer.detectors.numerics.non_finite import NonFinite
from stabilizer.detectors.optim.grad_explosion import GradExplosion
from stabilizer.detectors.optim.grad_spike import GradSpike
from stabilizer.detectors.optim.lr_too_low import LrTooLow
from stabilizer.detectors.optim.no_update import NoUpdate
from stabilizer.detectors.optim.optimizer_state import OptimizerState
from stabilizer.detectors.policy.entropy_collapse import EntropyCollapse
from stabilizer.detectors.policy.entropy_explosion import EntropyExplosion
from stabilizer.detectors.policy.kl_estimator import KlEstimator
from stabilizer.detectors.policy.kl_pinned import KlPinned
from stabilizer.detectors.policy.kl_runaway import KlRunaway
from stabilizer.detectors.policy.likelihood_displacement import LikelihoodDisplacement
from stabilizer.detectors.policy.mismatch import Mismatch
from stabilizer.detectors.policy.overstepping import Overstepping
from stabilizer.detectors.policy.router_shift import RouterShift
from stabilizer.detectors.policy.stale_rollouts import StaleRollouts
from stabilizer.detectors.policy.template_collapse import TemplateCollapse
from stabilizer.detectors.reward.collapse import Collapse
from stabilizer.detectors.reward.component_dominance import ComponentDominance
from stabilizer.detectors.reward.hacking import Hacking
from stabilizer.detectors.reward.no_signal import NoSignal
from stabilizer.detectors.reward.noise_floor import NoiseFloor
from stabilizer.detectors.reward.oscillation import Oscillation
from stabilizer.detectors.reward.outage import Outage
from stabilizer.detectors.reward.plateau import Plateau
from stabilizer.detectors.reward.saturated import Saturated
from stabilizer.detectors.reward.scale_shift import ScaleShift
from stabilizer.detectors.reward.std_blowup import StdBlowup
from stabilizer.detectors.rollout.language_drift import LanguageDrift
from stabilizer.detectors.rollout.length_collapse import LengthCollapse
from stabilizer.detectors.rollout.length_explosion import LengthExplosion
from stabilizer.detectors.rollout.repetition import Repetition
from stabilizer.detectors.rollout.tool_collapse import ToolCollapse
from stabilizer.detectors.rollout.truncation import Truncation
from stabilizer.detectors.system.config_error import ConfigError
from stabilizer.detectors.system.crashed import Crashed
from stabilizer.detectors.system.data_shift import DataShift
from stabilizer.detectors.system.first_rows import FirstRows
from stabilizer.detectors.system.invariant import Invariant
from stabilizer.detectors.system.known_trouble import KnownTrouble
from stabilizer.detectors.system.memory_growth import MemoryGrowth
from stabilizer.detectors.system.resume_mismatch import ResumeMismatch
from stabilizer.detectors.system.slowdown import Slowdown
from stabilizer.detectors.system.stalled import Stalled
from stabilizer.detectors.value.critic_failure import CriticFailure

DETECTORS: tuple[Detector, ...] = (
    NonFinite(),
    Outage(),
    GradExplosion(),
    GradSpike(),
    NoUpdate(),
    LrTooLow(),
    OptimizerState(),
    KlRunaway(),
    Overstepping(),
    EntropyCollapse(),
    EntropyExplosion(),
    KlEstimator(),
    KlPinned(),
    Mismatch(),
    StaleRollouts(),
    LikelihoodDisplacement(),
    TemplateCollapse(),
    RouterShift(),
    Collapse(),
    NoSignal(),
    Saturated(),
    Plateau(),
    Oscillation(),
    NoiseFloor(),
    Hacking(),
    ComponentDominance(),
    ScaleShift(),
    StdBlowup(),
    LengthExplosion(),
    LengthCollapse(),
    Truncation(),
    Repetition(),
    LanguageDrift(),
    ToolCollapse(),
    CriticFailure(),
    Slowdown(),
    MemoryGrowth(),
    Stalled(),
    Invariant(),
    ResumeMismatch(),
    DataShift(),
    FirstRows(),
    KnownTrouble(),
    ConfigError(),
    Crashed(),
)

ENDINGS = frozenset({"system/crashed", "system/config-error"})
"""Failures that can end a run: an open, critical finding of one of these makes the verdict `crashed`."""
MESSAGES = ENDINGS | {"system/known-trouble"}
"""What the text of a log says, beside its numbers."""
