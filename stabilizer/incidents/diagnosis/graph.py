"""The order in which trouble spreads through a training step: what leads and what follows when a run goes wrong.

    integrity   a broken number, reward, group or machine: everything after it is its consequence
    source      generation and training disagree, data are old, rewards hardly differ, correct answers become unlikely
    update      ratios, gradient norm, clipping, the step of the policy
    behaviour   entropy, length, repetition
    reward      the reward and its spread
    outcome     accuracy on problems

A root cause is at the earliest place that moved, not at the loudest. The edges are those published for collapses of
GRPO and PPO (RAGEN, arXiv 2504.20073; lazy likelihood displacement, arXiv 2512.04220; rollout-training mismatch).
"""

from __future__ import annotations

STAGES = ("integrity", "source", "update", "behaviour", "reward", "outcome")

_FINDINGS = {
    "integrity": (
        "numerics/non-finite", "reward/outage", "system/invariant", "system/crashed", "system/config-error",
        "system/resume-mismatch", "system/first-rows", "system/known-trouble",
    ),
    "source": (
        "policy/mismatch", "policy/stale-rollouts", "policy/router-shift", "policy/kl-estimator",
        "policy/likelihood-displacement", "reward/std-blowup", "reward/scale-shift", "system/data-shift",
        "optim/optimizer-state", "value/critic-failure",
    ),
    "update": (
        "optim/grad-explosion", "optim/grad-spike", "optim/no-update", "optim/lr-too-low", "policy/overstepping",
        "policy/kl-runaway", "policy/kl-pinned",
    ),
    "behaviour": (
        "policy/entropy-collapse", "policy/entropy-explosion", "policy/template-collapse", "rollout/length-explosion",
        "rollout/length-collapse", "rollout/truncation", "rollout/repetition", "rollout/language-drift",
        "rollout/tool-collapse",
    ),
    "reward": (
        "reward/plateau", "reward/collapse", "reward/oscillation", "reward/no-signal", "reward/saturated",
        "reward/component-dominance", "reward/noise-floor",
    ),
    "outcome": ("reward/hacking", "system/slowdown", "system/memory-growth", "system/stalled",
        "system/detector-error"),
}  # fmt: skip

_STAGE_OF = {finding: STAGES.index(stage) for stage, findings in _FINDINGS.items() for finding in findings}

METRICS: tuple[tuple[str, str, str], ...] = (
    ("policy/mismatch_kl", "source", "up"),
    ("rollout/staleness", "source", "up"),
    ("reward/std_group", "source", "down"),
    ("policy/logp_correct", "source", "down"),
    ("value/explained_variance", "source", "down"),
    ("policy/ratio_max", "update", "up"),
    ("optim/grad_norm", "update", "up"),
    ("optim/update_ratio", "update", "up"),
    ("policy/clip_frac", "update", "up"),
    ("policy/kl_old", "update", "up"),
    ("policy/kl_ref", "update", "up"),
    ("policy/entropy", "behaviour", "either"),
    ("rollout/length_mean", "behaviour", "either"),
    ("rollout/repetition", "behaviour", "up"),
    ("rollout/truncated_frac", "behaviour", "up"),
    ("reward/mean", "reward", "down"),
    ("accuracy/train", "outcome", "down"),
)
"""Metrics whose order of departure is compared, with the harmful direction."""


def stage(finding: str) -> int:
    """The position of a finding in the order. An unknown finding counts as an update, the middle of it.

    Findings about the machine alone come last: a slow step does not affect learning.
    """
    return _STAGE_OF.get(finding, STAGES.index("update"))


def is_integrity(finding: str) -> bool:
    """Whether something is broken as a fact, so that what follows is no second problem."""
    return stage(finding) == 0


def may_follow(later: str, earlier: str) -> bool:
    """Whether one finding can be the consequence of another: trouble spreads down the order, never up."""
    return stage(later) >= stage(earlier)
