"""Bugs of TRL's GRPO by release, as its history tells: the change that mended each names what went wrong."""

from __future__ import annotations

from stabilizer.trainers.bugs import Bug
from stabilizer.trainers.quantities import Ask


def _several_processes(ask: Ask) -> bool:
    return (ask.config.processes or ask.config.gpus or 1) > 1


def _scaled(ask: Ask) -> bool:
    return str(ask.raw("scale_rewards")).lower() in ("group", "batch", "true")


BUGS: tuple[Bug, ...] = (
    Bug(
        since="0.22",
        mended="0.22.2",
        key="scale_rewards",
        met=_scaled,
        what="`group` and `batch` of scale_rewards are exchanged: the default divides by the batch's deviation",
        until="write scale_rewards: batch for the deviation of a group",
        source="huggingface/trl#3992",
    ),
    Bug(
        since="0.17",
        mended="1.9",
        key="mask_truncated_completions",
        met=lambda ask: ask.flag("mask_truncated_completions") and str(ask.raw("loss_type")) in ("dapo", "cispo"),
        what="the loss is divided by all tokens, also those of the cut answers that it leaves out: updates shrink with"
        " the share of cut answers",
        until="loss_type: dr_grpo, or fewer cut answers (a longer max_completion_length)",
        source="huggingface/trl#6439",
    ),
    Bug(
        since="0.16",
        mended="0.20",
        key="max_prompt_length",
        met=lambda ask: ask.flag("use_vllm") and ask.raw("max_prompt_length") is not None,
        what="vLLM answers the whole prompt, and the policy learns from the cut one; from 0.19 on with padding in it",
        until="leave prompts above max_prompt_length out of the data set",
        source="huggingface/trl#3601",
    ),
    Bug(
        since="0.20",
        mended="0.23",
        key="top_entropy_quantile",
        met=lambda ask: (ask.num("top_entropy_quantile") or 1.0) < 1.0 and _several_processes(ask),
        what="the entropy threshold is not that of all processes' tokens, and may hang where a process has none",
        until="top_entropy_quantile: 1.0",
        source="huggingface/trl#3964",
    ),
    Bug(
        since="0.23",
        mended="0.26",
        key="vllm_enable_sleep_mode",
        met=lambda ask: ask.flag("vllm_enable_sleep_mode") and ask.flag("use_vllm"),
        what="a vLLM of late 2025 or later wakes up with weights that were not loaded again: answers are garbage",
        until="vllm_enable_sleep_mode: false",
        source="huggingface/trl#4571",
    ),
    Bug(
        since="0.27",
        mended="0.28",
        key="off_policy_mask_threshold",
        met=lambda ask: ask.raw("off_policy_mask_threshold") is not None and ask.flag("use_vllm"),
        what="the mask looks at the trainer's own probabilities, so that a mismatch with vLLM is not masked",
        until="count on vllm_importance_sampling_correction alone",
        source="huggingface/trl#4857",
    ),
    Bug(
        since="0.14",
        mended="1.0",
        key="reward_weights",
        met=lambda ask: ask.raw("reward_weights") is not None,
        what="`reward` and `reward_std` are logged without reward_weights, with which the policy is trained",
        until="look at the single rewards/... columns",
        source="huggingface/trl#5353",
        severity="info",
    ),
)
