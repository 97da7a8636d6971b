"""Every fault of the generated tier: how it is made, what counts as seeing it, and how large each severity is.

`accept` holds the ids of findings that name the fault, the detector made for it first; `causes` those that `diagnosis`
may give, and nothing where a log can't tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.detect import mechanisms as m

HURT = {"subtle": (0.25, 0.35), "medium": (0.45, 0.65), "severe": (0.8, 0.98)}
"""Share of its right answers that a policy loses in the end."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A mechanism with what counts as seeing it. `host` is what a run must have for it to happen and to show."""

    apply: m.Apply
    accept: tuple[str, ...]
    sizes: Mapping[str, tuple[float, float]]
    causes: tuple[str, ...] = ()
    told_by: str = ""
    """The metric without which no log of this fault can tell its cause."""
    speed: str = "fast"
    host: Mapping[str, Any] = field(default_factory=dict)
    not_on: tuple[str, ...] = ()
    """Hosts whose own course would hide or imitate it."""
    steps: tuple[int, int] | None = None
    """How long such a run is, where that is part of what makes it hard."""
    begins: tuple[float, float] | None = None
    """Share of the run at which it begins; None for the middle of it."""
    held_out: bool = False
    """Only in the report half."""

    @property
    def name(self) -> str:
        """As it is called everywhere: the function's name with hyphens."""
        return self.apply.__name__.replace("_", "-")


def _three(subtle: tuple[float, float], medium: tuple[float, float], severe: tuple[float, float]) -> dict[str, Any]:
    return {"subtle": subtle, "medium": medium, "severe": severe}


_OWN = {"trainer": "own"}
_TINY = {"prompts": (1, 2, 3, 4), "group": (4, 8), "p_start": (0.15, 0.25, 0.35), "tau": (0.3, 0.4), "trainer": "trl",
         "log_every": 1}  # fmt: skip
_NO_TREND = ("cyclic-data", "wandering-noise")

FAULTS: tuple[Fault, ...] = (
    Fault(
        apply=m.not_finite,
        accept=("numerics/non-finite",),
        causes=("numeric-overflow",),
        speed="instant",
        sizes=_three((0.0, 0.01), (0.1, 0.3), (1.0, 1.0)),
    ),
    Fault(
        apply=m.gradient_explosion,
        accept=("optim/grad-explosion", "policy/overstepping"),
        causes=("lr-too-high",),
        sizes=_three((2.5, 3.5), (6, 15), (30, 300)),
    ),
    Fault(
        apply=m.gradient_spikes,
        accept=("optim/grad-spike", "optim/grad-explosion"),
        not_on=("single-outliers", "heavy-tails"),
        sizes=_three((8, 12), (15, 40), (60, 300)),
    ),
    Fault(
        apply=m.no_update,
        accept=("optim/no-update", "reward/plateau"),
        causes=("weights-frozen",),
        host=_OWN,
        sizes=_three((0.5, 0.65), (0.8, 0.9), (0.99, 1.0)),
    ),
    Fault(
        apply=m.rate_too_low,
        accept=("optim/lr-too-low", "reward/plateau"),
        causes=("lr-too-low",),
        speed="plateau",
        sizes=_three((5, 8), (12, 20), (40, 100)),
        not_on=("on-policy",),
    ),
    Fault(
        apply=m.overstepping,
        accept=("policy/overstepping", "optim/grad-explosion", "reward/oscillation"),
        causes=("lr-too-high", "optimizer-state"),
        sizes=_three((6, 9), (15, 30), (60, 200)),
        not_on=("on-policy", "sequence-clipping"),
    ),
    Fault(
        apply=m.optimizer_state,
        accept=("optim/optimizer-state",),
        causes=("optimizer-state",),
        host=_OWN,
        held_out=True,
        sizes=_three((3, 5), (8, 15), (30, 100)),
    ),
    Fault(
        apply=m.entropy_collapse,
        accept=("policy/entropy-collapse",),
        causes=("exploration-exhausted",),
        sizes=_three((0.4, 0.5), (0.12, 0.22), (0.005, 0.04)),
    ),
    Fault(
        apply=m.cold_sampler,
        accept=("policy/entropy-collapse",),
        causes=("exploration-exhausted",),
        held_out=True,
        sizes=_three((0.4, 0.5), (0.15, 0.25), (0.02, 0.06)),
    ),
    Fault(apply=m.entropy_explosion, accept=("policy/entropy-explosion",), sizes=_three((1.6, 1.9), (2.5, 4), (6, 12))),
    Fault(
        apply=m.kl_runaway,
        accept=("policy/kl-runaway",),
        causes=("no-kl-anchor", "lr-too-high"),
        host={"beta": 0.0},
        sizes=_three((0.13, 0.2), (0.5, 1.5), (5, 30)),
        not_on=("no-reference", "healthy-drift"),
    ),
    Fault(
        apply=m.kl_pinned,
        accept=("policy/kl-pinned", "reward/plateau", "system/invariant"),
        causes=("pinned-by-kl",),
        speed="plateau",
        host=_OWN,
        sizes=_three((0.2, 0.3), (0.6, 1.0), (3, 10)),
        not_on=("no-reference", "healthy-drift"),
    ),
    Fault(
        apply=m.kl_estimator,
        accept=("policy/kl-estimator",),
        causes=("kl-estimator",),
        not_on=("no-reference", "single-outliers", "healthy-drift"),
        sizes=_three((100, 150), (400, 1000), (3000, 10000)),
    ),
    Fault(
        apply=m.mismatch,
        accept=("policy/mismatch",),
        causes=("engine-mismatch",),
        sizes=_three((0.01, 0.016), (0.06, 0.15), (0.5, 2)),
        not_on=("on-policy", "asynchronous"),
    ),
    Fault(
        apply=m.slow_mismatch,
        accept=("policy/mismatch",),
        causes=("engine-mismatch",),
        sizes=_three((0.01, 0.016), (0.06, 0.15), (0.5, 2)),
        not_on=("on-policy", "asynchronous"),
        held_out=True,
        speed="slow",
    ),
    Fault(
        apply=m.stale_rollouts,
        accept=("policy/stale-rollouts", "policy/overstepping"),
        causes=("stale-weights",),
        host=_OWN,
        sizes=_three((5, 8), (14, 26), (48, 96)),
        not_on=("on-policy",),
        speed="slow",
    ),
    Fault(
        apply=m.likelihood_displacement,
        accept=("policy/likelihood-displacement",),
        host=_OWN,
        speed="slow",
        sizes=_three((0.2, 0.3), (0.6, 1.0), (2, 3)),
    ),
    Fault(
        apply=m.template_collapse,
        accept=("policy/template-collapse",),
        host=_OWN,
        speed="slow",
        sizes=_three((0.6, 0.8), (1.2, 1.8), (3, 5)),
    ),
    Fault(
        apply=m.plateau,
        accept=("reward/plateau",),
        speed="plateau",
        not_on=_NO_TREND,
        sizes=_three((0.08, 0.12), (0.03, 0.05), (0.0, 0.01)),
    ),
    Fault(
        apply=m.early_plateau,
        accept=("reward/plateau",),
        speed="plateau",
        not_on=_NO_TREND,
        host={"prompts": (6, 8, 12, 16), "group": (4, 8), "p_start": (0.15, 0.25, 0.35), "tau": (0.3, 0.4)},
        steps=(180, 500),
        begins=(0.12, 0.35),
        sizes=_three((0.08, 0.12), (0.03, 0.05), (0.0, 0.01)),
    ),
    Fault(
        apply=m.never_learned,
        accept=("reward/plateau", "optim/lr-too-low", "optim/no-update"),
        speed="plateau",
        not_on=_NO_TREND,
        host={"prompts": (4, 6, 8, 16), "group": (4, 8), "p_start": (0.15, 0.25, 0.35), "tau": (0.3, 0.4)},
        steps=(200, 500),
        begins=(0.0, 0.0),
        sizes=_three((0.08, 0.12), (0.03, 0.05), (0.0, 0.01)),
    ),
    Fault(
        apply=m.tiny_batch_plateau,
        accept=("reward/plateau",),
        speed="plateau",
        not_on=_NO_TREND,
        host=_TINY,
        steps=(150, 500),
        begins=(0.1, 0.3),
        sizes=_three((0.08, 0.12), (0.03, 0.05), (0.0, 0.01)),
    ),
    Fault(
        apply=m.tiny_batch_never_learned,
        accept=("reward/plateau", "optim/lr-too-low", "optim/no-update"),
        speed="plateau",
        not_on=_NO_TREND,
        host=_TINY,
        steps=(150, 500),
        begins=(0.0, 0.0),
        sizes=_three((0.08, 0.12), (0.03, 0.05), (0.0, 0.01)),
    ),
    Fault(
        apply=m.proxy_learned,
        accept=("reward/component-dominance", "reward/hacking"),
        causes=("reward-hackable",),
        speed="slow",
        not_on=_NO_TREND,
        host={
            "rewards": "0-5",
            "trainer": ("own", "trl"),
            "components": (("correct", "format"), ("f", "g")),
            "p_start": (0.002, 0.005, 0.01),
            "log_every": 1,
            "schedule": "constant",
        },
        steps=(40, 300),
        begins=(0.0, 0.0),
        sizes=_three((0.01, 0.02), (0.003, 0.008), (0.0, 0.001)),
    ),
    Fault(apply=m.reward_collapse, accept=("reward/collapse",), sizes=HURT),
    Fault(
        apply=m.reward_oscillation,
        accept=("reward/oscillation", "policy/overstepping"),
        speed="slow",
        not_on=_NO_TREND,
        sizes=_three((0.1, 0.14), (0.2, 0.28), (0.36, 0.45)),
    ),
    Fault(
        apply=m.prompts_too_hard,
        accept=("reward/no-signal", "system/data-shift"),
        causes=("prompts-too-hard", "dead-groups", "data-shift"),
        sizes=_three((2.6, 3.2), (4.5, 5.5), (8, 11)),
        host={"trainer": ("own", "trl")},
    ),
    Fault(
        apply=m.reward_hacking,
        accept=("reward/hacking",),
        causes=("reward-hackable",),
        speed="slow",
        sizes=_three((0.25, 0.35), (0.5, 0.65), (0.85, 0.95)),
    ),
    Fault(
        apply=m.replayed_prompts,
        accept=("reward/hacking", "system/data-shift"),
        speed="slow",
        held_out=True,
        sizes=_three((0.4, 0.5), (0.65, 0.8), (0.92, 0.98)),
    ),
    Fault(
        apply=m.component_dominance,
        accept=("reward/component-dominance", "reward/scale-shift"),
        causes=("reward-hackable", "reward-fault"),
        host={"rewards": "0-5", "trainer": ("own", "trl")},
        sizes=_three((3, 5), (10, 15), (30, 60)),
        speed="slow",
    ),
    Fault(
        apply=m.reward_outage,
        accept=("reward/outage",),
        causes=("reward-fault",),
        speed="instant",
        host=_OWN,
        sizes=_three((0.12, 0.18), (0.3, 0.5), (0.75, 0.98)),
    ),
    Fault(
        apply=m.verifier_down,
        accept=("reward/collapse", "reward/outage"),
        causes=("reward-fault",),
        sizes=_three((0.3, 0.4), (0.55, 0.7), (0.95, 1.0)),
    ),
    Fault(
        apply=m.failing_verifier,
        accept=("reward/collapse", "reward/outage"),
        causes=("reward-fault",),
        held_out=True,
        sizes=_three((0.3, 0.4), (0.55, 0.7), (0.95, 1.0)),
        speed="slow",
    ),
    Fault(
        apply=m.scale_shift,
        accept=("reward/scale-shift",),
        causes=("reward-fault",),
        sizes=_three((1.6, 2.0), (3, 4), (8, 12)),
    ),
    Fault(
        apply=m.std_blowup,
        accept=("reward/std-blowup",),
        causes=("dead-groups",),
        host={"trainer": ("own", "trl")},
        sizes=_three((2, 2.8), (5, 8), (20, 40)),
    ),
    Fault(
        apply=m.noise_floor,
        accept=("reward/noise-floor", "reward/plateau", "reward/collapse"),  # what errs half the time pays less, too
        causes=("batch-too-small", "noise-floor", "reward-fault"),
        told_by="batch/prompts",
        speed="plateau",
        host={"prompts": 4, "group": 4},
        sizes=_three((0.1, 0.15), (0.25, 0.32), (0.42, 0.48)),
        not_on=_NO_TREND,
    ),
    Fault(
        apply=m.data_shift,
        accept=("system/data-shift",),
        causes=("data-shift",),
        sizes=_three((0.6, 0.9), (1.3, 1.8), (2.4, 3.2)),
        not_on=_NO_TREND,
    ),
    Fault(
        apply=m.length_explosion,
        accept=("rollout/length-explosion",),
        causes=("length-rewarded",),
        told_by="rollout/length_reward_corr",
        sizes=_three((1.6, 1.8), (2.4, 3.2), (4.5, 7)),
        host={"cap": 8.0},
        not_on=("reasoning-growth",),
        speed="slow",
    ),
    Fault(
        apply=m.length_collapse,
        accept=("rollout/length-collapse",),
        sizes=_three((0.5, 0.6), (0.22, 0.35), (0.05, 0.1)),
    ),
    Fault(
        apply=m.truncation,
        accept=("rollout/truncation",),
        causes=("capped-length",),
        sizes=_three((0.15, 0.22), (0.4, 0.6), (0.85, 0.97)),
        speed="instant",
    ),
    Fault(
        apply=m.repetition,
        accept=("rollout/repetition",),
        host=_OWN,
        sizes=_three((0.22, 0.3), (0.45, 0.6), (0.85, 0.95)),
    ),
    Fault(
        apply=m.echo_trap,
        accept=("rollout/repetition", "policy/entropy-collapse"),
        host=_OWN,
        held_out=True,
        sizes=_three((0.3, 0.4), (0.55, 0.7), (0.9, 1.1)),
    ),
    Fault(
        apply=m.tool_collapse,
        accept=("rollout/tool-collapse",),
        causes=("tool-broken",),
        host={"tool": True, "task": "search"},
        sizes=_three((0.35, 0.45), (0.6, 0.75), (0.95, 0.99)),
    ),
    Fault(
        apply=m.critic_failure,
        accept=("value/critic-failure",),
        causes=("critic-broken",),
        host={"algorithm": "ppo", "trainer": ("own", "verl")},
        sizes=_three((0.6, 0.8), (1.2, 2.0), (4, 10)),
    ),
    Fault(
        apply=m.advantages_off_centre,
        accept=("system/invariant",),
        causes=("wrong-groups",),
        host=_OWN,
        speed="instant",
        sizes=_three((1e-3, 4e-3), (0.03, 0.1), (0.4, 1.0)),
    ),
    Fault(
        apply=m.stale_engine,
        accept=("system/invariant", "policy/mismatch"),
        causes=("stale-weights",),
        host=_OWN,
        speed="instant",
        sizes=_three((0.01, 0.02), (0.06, 0.15), (0.4, 1.0)),
    ),
    Fault(
        apply=m.resume_mismatch,
        accept=("system/resume-mismatch",),
        causes=("optimizer-state",),
        sizes=_three((3, 4), (7, 12), (25, 60)),
        not_on=("on-policy",),
    ),
    Fault(
        apply=m.slowdown,
        accept=("system/slowdown",),
        causes=("infrastructure",),
        sizes=_three((1.5, 1.7), (2.2, 3.0), (5, 10)),
        not_on=("reasoning-growth",),
    ),
)
"""All of them."""
