"""The faults that are injected into real training, in one table: what is done, how badly, and what to say of it.

Strengths of the two halves differ, and so do seeds and tasks (`live.py`): detectors are made on one, and the published
figures come from the other. A strength that is None leaves that severity out, for what is either there or not.

`shows` names what must visibly move, compared with the clean twin, before a case is worth anything:
`python -m bench.detect.live --effects` measures it. `accept` holds every finding that is a right thing to
say about a run with this fault; `causes` every right explanation (ids of `diagnosis.CAUSES`), empty where no log can
tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.detect import broken_rewards as rewards
from bench.detect import broken_rollouts as rollouts
from bench.detect import broken_updates as updates
from stabilizer.training.loop import Trainer

SEVERITIES = ("subtle", "medium", "severe")
Strengths = tuple[float | None, float | None, float | None]

DIVERGED = (
    "optim/grad-explosion", "optim/grad-spike", "policy/overstepping", "policy/kl-runaway", "policy/entropy-collapse",
    "policy/entropy-explosion", "reward/collapse", "reward/oscillation",
)  # fmt: skip
"""Any of these is a right thing to say of a policy that its own updates are destroying."""
SETTING = "system/invariant"
"""A right thing to say where the log itself holds that a setting is not what was set: it names which, since when."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One way for a run to go wrong."""

    kind: str
    act: Callable[[Trainer, float], None]
    """Called with the trainer before the first step that is to be wrong, and the strength."""
    develop: Strengths
    report: Strengths
    accept: tuple[str, ...]
    causes: tuple[str, ...]
    shows: tuple[str, ...]
    """Metrics of which at least one must move: up (+), down (-), or in spikes (^)."""
    hosts: tuple[str, ...] = ("grpo",)
    """On which runs (`live.HOSTS`): one per severity, taken in turn."""
    speed: str = "fast"
    resumes: bool = False
    """The fault happens in a resume, which is declared."""


# fmt: off
FAULTS = (
    # the optimizer
    Fault(kind="lr-jump", act=updates.lr_times, hosts=("grpo", "ppo", "grpo"),
          develop=(4, 10, 30), report=(5, 13, 40),
          accept=(SETTING, *DIVERGED), causes=("lr-too-high",), shows=("policy/kl_old+", "optim/update_ratio+")),
    Fault(kind="lr-ramp", act=updates.lr_ramp, hosts=("grpo", "grpo", "ppo"), develop=(5, 12, 30), report=(6, 15, 40),
          accept=(SETTING, *DIVERGED), causes=("lr-too-high",), shows=("policy/kl_old+", "optim/update_ratio+")),
    Fault(kind="lr-too-low", act=updates.lr_times, speed="plateau",
          develop=(0.1, 0.03, 0.005), report=(0.08, 0.02, 0.003),
          accept=(SETTING, "optim/lr-too-low", "optim/no-update", "reward/plateau"),
          causes=("lr-too-low",), shows=("optim/update_ratio-",)),
    Fault(kind="frozen-weights", act=updates.frozen, speed="plateau",
          develop=(0.6, 0.9, 1.0), report=(0.5, 0.85, 1.0),
          accept=("optim/no-update", "optim/lr-too-low", "optim/optimizer-state", "reward/plateau"),
          causes=("weights-frozen", "optimizer-state", "lr-too-low"), shows=("optim/update_ratio-",)),
    Fault(kind="second-moment-high", act=updates.second_moment, speed="plateau",
          develop=(1e2, 1e4, 1e6), report=(3e2, 3e4, 3e6),
          accept=("optim/optimizer-state", "optim/no-update", "optim/lr-too-low", "reward/plateau"),
          causes=("optimizer-state", "lr-too-low"), shows=("optim/update_ratio-",)),
    Fault(kind="second-moment-lost", act=updates.second_moment, develop=(3e-2, 1e-3, 1e-5), report=(2e-2, 5e-4, 5e-6),
          accept=("optim/optimizer-state", *DIVERGED),
          causes=("optimizer-state", "lr-too-high"), shows=("optim/update_ratio+", "policy/kl_ref+")),
    Fault(kind="adam-epsilon", act=updates.adam_epsilon, speed="plateau",
          develop=(3e-3, 3e-2, 3e-1), report=(4e-3, 5e-2, 5e-1),
          accept=("optim/optimizer-state", "optim/no-update", "optim/lr-too-low", "reward/plateau"),
          causes=("optimizer-state", "lr-too-low"), shows=("optim/update_ratio-",)),
    Fault(kind="resume-amnesia", act=updates.amnesia, resumes=True, develop=(0.3, 0.6, 1.0), report=(0.25, 0.5, 0.9),
          accept=("system/resume-mismatch", "optim/optimizer-state", "reward/collapse", "reward/scale-shift"),
          causes=("optimizer-state",), shows=("policy/kl_ref-", "reward/mean-")),
    Fault(kind="clipping-off", act=updates.no_clipping, develop=(2, 4, 6), report=(3, 5, 7),
          accept=DIVERGED, causes=("clip-too-wide", "lr-too-high"), shows=("policy/kl_old+", "policy/ratio_max+")),
    Fault(kind="too-many-epochs", act=updates.more_epochs, develop=(2, 4, 6), report=(3, 5, 7),
          accept=DIVERGED, causes=("too-many-epochs", "lr-too-high", "clip-too-wide"),
          shows=("policy/clip_frac+", "policy/kl_old+")),
    Fault(kind="nan-gradient", act=updates.nan_gradient, speed="instant",
          develop=(0.02, 0.2, 1.0), report=(0.03, 0.3, 0.9),
          accept=("numerics/non-finite", "optim/no-update"), causes=("numeric-overflow",), shows=("optim/skipped+",)),
    Fault(kind="nan-weight", act=updates.nan_weight, speed="instant",
          develop=(None, None, 1), report=(None, None, 64),
          accept=("numerics/non-finite", "reward/collapse"), causes=("numeric-overflow",), shows=("optim/skipped+",)),
    # the objective
    Fault(kind="entropy-bonus", act=updates.entropy_bonus, develop=(0.06, 0.15, 0.6), report=(0.08, 0.2, 0.8),
          accept=(SETTING, "policy/entropy-explosion", "policy/kl-runaway", "reward/collapse"),
          causes=("entropy-bonus-too-large",), shows=("policy/entropy+",)),
    Fault(kind="entropy-penalty", act=updates.entropy_bonus, develop=(-0.2, -0.8, -4.0), report=(-0.25, -1.0, -5.0),
          accept=(SETTING, "policy/entropy-collapse", "reward/plateau", "reward/no-signal", "reward/collapse"),
          causes=("exploration-exhausted",), shows=("policy/entropy-",)),
    Fault(kind="kl-pinned", act=updates.anchored, speed="plateau", develop=(0.2, 1.0, 5.0), report=(0.3, 1.5, 7.0),
          accept=(SETTING, "policy/kl-pinned", "reward/plateau", "reward/collapse"),
          causes=("pinned-by-kl",), shows=("policy/kl_ref-",)),
    Fault(kind="advantages-scaled", act=updates.advantage_times, develop=(4, 12, 40), report=(5, 15, 60),
          accept=("optim/grad-explosion", "optim/grad-spike", "reward/scale-shift", "system/invariant",
                  *DIVERGED[2:]),
          causes=("reward-fault", "lr-too-high"), shows=("optim/grad_norm+",)),
    Fault(kind="corrupt-batches", act=updates.corrupt_batches, develop=(5, 20, 100), report=(6, 25, 150),
          accept=("optim/grad-spike", "optim/grad-explosion"),
          causes=("reward-fault",), shows=("optim/grad_norm_max^",)),
    Fault(kind="sign-flipped", act=updates.sign_flipped, develop=(0.4, 0.65, 1.0), report=(0.45, 0.7, 0.95),
          accept=("policy/likelihood-displacement", "policy/entropy-explosion", "reward/collapse", "reward/plateau",
                  "policy/kl-runaway", "system/invariant"),
          causes=("wrong-groups", "reward-fault"), shows=("policy/logp_correct-", "reward/mean-")),
    Fault(kind="logps-shifted", act=updates.logps_shifted, speed="instant",
          develop=(0.05, 0.3, 1.0), report=(0.08, 0.4, 0.9),
          accept=("system/invariant", "policy/mismatch", "policy/overstepping"),
          causes=("engine-mismatch",), shows=("policy/ratio_first_error+",)),
    Fault(kind="wrong-groups", act=updates.wrong_groups, hosts=("grpo",), speed="slow",
          develop=(0.3, 0.6, 1.0), report=(0.4, 0.7, 0.95),
          accept=("system/invariant", "reward/plateau", "reward/collapse", "reward/noise-floor"),
          causes=("wrong-groups",), shows=("reward/std_group+", "reward/mean-")),
    Fault(kind="reference-outliers", act=updates.reference_outliers,
          develop=(0.005, 0.03, 0.15), report=(0.008, 0.05, 0.2),
          accept=("policy/kl-estimator", "policy/kl-runaway"), causes=("kl-estimator",), shows=("policy/kl_ref+",)),
    # the sampler
    Fault(kind="sampler-temperature", act=rollouts.sampler_temperature,
          develop=(1.1, 1.3, 2.0), report=(1.15, 1.4, 1.8),
          accept=("policy/mismatch", "system/invariant", "policy/entropy-explosion", "reward/collapse"),
          causes=("engine-mismatch",), shows=("policy/mismatch_kl+",)),
    Fault(kind="sampler-noise", act=rollouts.sampler_noise, speed="instant",
          develop=(0.03, 0.15, 0.6), report=(0.05, 0.2, 0.8),
          accept=("policy/mismatch", "system/invariant"),
          causes=("engine-mismatch",), shows=("policy/mismatch_kl+",)),
    Fault(kind="sampler-rounding", act=rollouts.sampler_rounding,
          develop=(0.02, 0.06, 0.15), report=(0.03, 0.08, 0.2),
          accept=("policy/mismatch", "system/invariant", "reward/collapse"),
          causes=("engine-mismatch",), shows=("policy/mismatch_kl+",)),
    Fault(kind="stale-weights", act=rollouts.stale_weights, speed="slow", develop=(8, 30, 1000), report=(12, 40, 600),
          accept=("policy/stale-rollouts", "policy/mismatch", "system/invariant", *DIVERGED),
          causes=("stale-weights", "engine-mismatch"), shows=("policy/mismatch_kl+",)),
    Fault(kind="length-capped", act=rollouts.capped, hosts=("length",), develop=(28, 20, 14), report=(6, 5, 3),
          accept=(SETTING, "rollout/truncation", "rollout/length-collapse", "reward/collapse"),
          causes=("capped-length",), shows=("rollout/truncated_frac+",)),
    Fault(kind="batch-shrunk", act=rollouts.fewer_prompts, speed="slow", develop=(4, 2, 1), report=(5, 3, 1),
          accept=(SETTING, "reward/noise-floor", "reward/oscillation", "reward/plateau", "reward/no-signal",
                  "reward/collapse"),
          causes=("batch-too-small",), shows=("batch/prompts-",)),
    # the verifier
    Fault(kind="outage", act=rewards.outage, hosts=("grpo", "ppo", "grpo"),
          develop=(0.3, 0.6, 1.0), report=(0.35, 0.7, 0.95),
          accept=("reward/outage", "reward/collapse", "reward/no-signal"),
          causes=("reward-fault",), shows=("reward/mean-",)),
    Fault(kind="verifier-errors", act=rewards.verifier_errors, speed="instant",
          develop=(0.1, 0.4, 0.9), report=(0.15, 0.5, 1.0),
          accept=("reward/outage",), causes=("reward-fault",), shows=("reward/failed_frac+",)),
    Fault(kind="nan-reward", act=rewards.nan_reward, speed="instant",
          develop=(0.01, 0.1, 0.6), report=(0.015, 0.15, 0.8),
          accept=("numerics/non-finite", "reward/outage"),
          causes=("numeric-overflow", "reward-fault"), shows=("optim/skipped+",)),
    Fault(kind="verifier-noise", act=rewards.flipped, develop=(0.1, 0.25, 0.5), report=(0.12, 0.3, 0.45),
          accept=("reward/noise-floor", "reward/collapse", "reward/outage", "reward/scale-shift", "reward/plateau"),
          causes=("reward-fault", "noise-floor", "batch-too-small"), shows=("reward/mean-", "reward/std_group+")),
    Fault(kind="reward-rescaled", act=rewards.rescaled, hosts=("grpo", "grpo", "ppo"),
          develop=(2, 4, 15), report=(2.5, 5, 20),
          accept=("reward/scale-shift", "value/critic-failure"),
          causes=("reward-fault",), shows=("reward/std_group+",)),
    Fault(kind="reward-flat", act=rewards.indifferent, develop=(0.5, 0.8, 1.0), report=(0.6, 0.85, 1.0),
          accept=("reward/no-signal", "reward/plateau", "reward/outage", "reward/collapse", "reward/scale-shift",
                  "optim/no-update"),
          causes=("dead-groups", "reward-fault"), shows=("reward/zero_std_frac+",)),
    Fault(kind="hair-splitting", act=rewards.hair_splitting, develop=(0.4, 0.7, 1.0), report=(0.5, 0.8, 1.0),
          accept=("reward/std-blowup", "reward/noise-floor", "reward/no-signal", "reward/collapse", "reward/plateau",
                  "reward/scale-shift", "reward/outage"),
          causes=("reward-fault", "dead-groups"), shows=("reward/std_group-",)),
    Fault(kind="length-reward", act=rewards.length_bonus, hosts=("length",), speed="slow",
          develop=(0.5, 1.5, 5.0), report=(0.2, 0.4, 1.0),
          accept=("reward/hacking", "rollout/length-explosion", "rollout/truncation", "reward/component-dominance"),
          causes=("length-rewarded", "reward-hackable"), shows=("rollout/length_mean+",)),
    Fault(kind="brevity-reward", act=rewards.length_bonus, hosts=("length",), speed="slow",
          develop=(-0.5, -1.5, -5.0), report=(-0.15, -0.3, -0.8),
          accept=("rollout/length-collapse", "reward/hacking", "reward/component-dominance", "reward/collapse"),
          causes=("length-rewarded", "reward-hackable"), shows=("rollout/length_mean-",)),
    Fault(kind="repetition-reward", act=rewards.repetition_bonus, speed="slow",
          develop=(0.3, 1.0, 3.0), report=(0.4, 1.2, 4.0),
          accept=("rollout/repetition", "reward/hacking", "rollout/length-explosion", "rollout/truncation",
                  "reward/component-dominance"),
          causes=("reward-hackable", "length-rewarded"), shows=("rollout/repetition+",)),
    Fault(kind="style-reward", act=rewards.style_bonus, hosts=("grpo", "grpo", "ppo"), speed="slow",
          develop=(0.5, 2.0, 8.0), report=(0.7, 2.5, 10.0),
          accept=("reward/component-dominance", "reward/hacking", "reward/scale-shift", "policy/entropy-collapse",
                  "rollout/repetition", "rollout/length-collapse"),
          causes=("reward-hackable",), shows=("reward/style/mean+", "accuracy/train-")),
    Fault(kind="template-reward", act=rewards.template_bonus, speed="slow",
          develop=(2.0, 5.0, 15.0), report=(2.5, 6.0, 20.0),
          accept=("policy/template-collapse", "reward/hacking", "reward/component-dominance",
                  "policy/entropy-collapse", "rollout/length-explosion"),
          causes=("reward-hackable",), shows=("rollout/distinct_2-", "accuracy/train-")),
    Fault(kind="slow-verifier", act=rewards.slow_verifier, develop=(0.05, 0.15, 0.4), report=(0.06, 0.2, 0.5),
          accept=("system/slowdown",), causes=("infrastructure", "reward-fault"), shows=("time/rollout_s+",)),
    # the prompts
    Fault(kind="harder-prompts", act=rollouts.harder, hosts=("grpo", "grpo", "ppo"),
          develop=(0.35, 0.7, 1.0), report=(0.4, 0.75, 1.0),
          accept=("reward/no-signal", "system/data-shift", "reward/collapse", "reward/plateau"),
          causes=("prompts-too-hard", "data-shift"), shows=("reward/all_fail_frac+", "reward/mean-")),
    Fault(kind="easier-prompts", act=rollouts.easier, develop=(0.5, 0.8, 1.0), report=(0.55, 0.85, 1.0),
          accept=("reward/saturated", "system/data-shift", "reward/plateau", "policy/entropy-collapse"),
          causes=("saturated", "data-shift", "dead-groups"), shows=("reward/all_pass_frac+",)),
    Fault(kind="looped-prompts", act=rollouts.looped, speed="slow", develop=(24, 8, 3), report=(16, 6, 4),
          accept=("system/data-shift", "reward/hacking", "reward/saturated", "reward/plateau",
                  "policy/entropy-collapse", "reward/no-signal"),
          causes=("data-shift", "saturated", "dead-groups"), shows=("reward/zero_std_frac+", "accuracy/train+")),
    # the critic and the tool
    Fault(kind="critic-lr", act=updates.critic_lr_times, hosts=("ppo",),
          develop=(100, 1000, 10000), report=(150, 1500, 15000),
          accept=("value/critic-failure",),
          causes=("critic-broken",), shows=("value/loss+", "value/explained_variance-")),
    Fault(kind="critic-overwritten", act=updates.critic_blows, hosts=("ppo",),
          develop=(0.05, 0.2, 1.0), report=(0.07, 0.3, 1.5),
          accept=("value/critic-failure",),
          causes=("critic-broken",), shows=("value/loss+", "value/explained_variance-")),
    Fault(kind="tool-empty", act=rollouts.tool_finds_nothing, hosts=("tool",),
          develop=(0.3, 0.6, 1.0), report=(0.35, 0.7, 0.95),
          accept=("rollout/tool-collapse", "reward/collapse", "reward/outage", "reward/no-signal"),
          causes=("tool-broken",), shows=("reward/mean-", "rollout/searches_mean-")),
    Fault(kind="tool-down", act=rollouts.tool_down, hosts=("tool",), speed="instant",
          develop=(0.15, 0.5, 1.0), report=(0.2, 0.6, 0.95),
          accept=("reward/outage", "rollout/tool-collapse"),
          causes=("tool-broken", "reward-fault"), shows=("reward/failed_frac+",)),
)  # fmt: on

BY_KIND = {fault.kind: fault for fault in FAULTS}
