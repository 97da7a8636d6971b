"""ROLL: `RLVRConfig` and `AgenticConfig`, Hydra YAML with one section a role. `rollout_batch_size` counts prompts."""

from __future__ import annotations

import re
from typing import Any

from stabilizer.trainers.quantities import Ask, Quantity, divided, every, times
from stabilizer.trainers.schema import Schema

TRAIN = "actor_train.training_args."
PARALLEL = "actor_train.strategy_args.strategy_config."
SAMPLED = "actor_infer.generating_args."
DEFAULTS: dict[str, Any] = {
    "rollout_batch_size": 128,
    "num_return_sequences_in_group": 1,
    "ppo_epochs": 1,
    "max_steps": 500,
    "save_steps": 50,
    "eval_steps": 10,
    "logging_steps": 1,
    "prompt_length": 1024,
    "adv_estimator": "gae",
    "pg_clip": 0.2,
    "pg_clip_low": 0.2,
    "pg_clip_high": 0.2,
    "use_pg_clip_range": False,
    "init_kl_coef": 0.2,
    "add_token_level_kl": False,
    "use_kl_loss": False,
    "kl_loss_coef": 0,
    "max_grad_norm": 1.0,
    f"{TRAIN}learning_rate": 5e-5,
    f"{TRAIN}per_device_train_batch_size": 8,
    f"{TRAIN}gradient_accumulation_steps": 1,
    f"{TRAIN}warmup_steps": 0,
    f"{TRAIN}warmup_ratio": 0.0,
    f"{SAMPLED}temperature": 0.95,
    f"{SAMPLED}top_p": 0.7,
    f"{SAMPLED}top_k": 50,
}
_RANGE = re.compile(r"list\(\s*range\(\s*(\d{1,6})\s*(?:,\s*(\d{1,6})\s*)?\)\s*\)")


def devices(value: Any) -> int | None:
    """How many GPUs a `device_mapping` names: `list(range(0,8))`, or the list itself."""
    if isinstance(value, list):
        return len(value)
    found = _RANGE.findall(value) if isinstance(value, str) else []
    return sum(int(last) - int(first) if last else int(first) for first, last in found) or None


def quantities(ask: Ask) -> dict[str, Quantity]:
    """The neutral words for a configuration of ROLL."""
    estimator = str(ask.raw("adv_estimator")).lower()
    grouped = estimator in ("grpo", "gigpo") or str(ask.raw("norm_mean_type")).lower() == "group"
    kind = "ppo" if estimator == "gae" else "grpo" if grouped else "reinforce"
    rollout, group, epochs = (
        ask.num(key) for key in ("rollout_batch_size", "num_return_sequences_in_group", "ppo_epochs")
    )
    batch = _backward_batch(ask)
    key = f"{TRAIN}gradient_accumulation_steps"
    clip = ("pg_clip_low", "pg_clip_high") if ask.flag("use_pg_clip_range") else ("pg_clip", "pg_clip")
    return {
        "algorithm": ask.made(kind, "adv_estimator"),
        "groups": ask.made(grouped, "adv_estimator"),
        "lr": ask(f"{TRAIN}learning_rate"),
        **_length(ask),
        "kl_loss": ask.made((ask.num("kl_loss_coef") or 0.0) if ask.flag("use_kl_loss") else 0.0, "kl_loss_coef"),
        "kl_reward": ask.made((ask.num("init_kl_coef") or 0.0) if ask.flag("add_token_level_kl") else 0.0,
                              "add_token_level_kl"),
        "group_size": ask("num_return_sequences_in_group"),
        "prompts_update": ask.made(divided(batch, group), key,
                                   f"{batch:g} answers / {group:g} per prompt" if batch and group else "",
                                   scale=(key,), within="rollout_batch_size", within_times=group or 1),
        "prompts_rollout": ask("rollout_batch_size"),
        "updates": ask.made(divided(times(rollout, group, epochs), batch), key,
                            f"{rollout:g} prompts x {group:g} / {batch:g} x {epochs:g} epochs"
                            if rollout and group and batch and epochs else ""),
        "inner": ask("ppo_epochs"),
        "max_prompt": ask("prompt_length"),
        "max_completion": _answer(ask),
        "temperature": ask(f"{SAMPLED}temperature"),
        "top_p": ask(f"{SAMPLED}top_p"),
        "top_k": ask(f"{SAMPLED}top_k"),
        "correction": ask("train_infer_correction.is_weight.enabled"),
        "logging_every": ask("logging_steps"),
        "validate_every": ask.made(every(ask.raw("eval_steps")), "eval_steps"),
        "save_every": ask.made(every(ask.raw("save_steps")), "save_steps"),
        "fp16": ask.made(str(ask.raw("actor_train.model_args.dtype")).lower() in ("fp16", "float16"),
                         "actor_train.model_args.dtype"),
        "clip_low": ask(clip[0]),
        "clip_high": ask(clip[1]),
        "max_grad_norm": ask("max_grad_norm"),
        "lora": ask.made(ask.raw("actor_train.model_args.lora_target") is not None,
                         "actor_train.model_args.lora_target"),
        "model": ask("pretrain"),
    }  # fmt: skip


def _backward_batch(ask: Ask) -> float | None:
    """Answers behind one update over all data-parallel ranks."""
    gpus = devices(ask.raw("actor_train.device_mapping")) or ask.config.processes or ask.config.gpus
    sizes = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    parallel = times(*(ask.num(f"{PARALLEL}{size}") or 1 for size in sizes))
    ranks = divided(gpus, parallel)
    each = times(ask.num(f"{TRAIN}per_device_train_batch_size"), ask.num(f"{TRAIN}gradient_accumulation_steps"))
    return times(each, ranks)


def _length(ask: Ask) -> dict[str, Quantity]:
    steps, warm, ratio = ask.num("max_steps"), ask.num(f"{TRAIN}warmup_steps"), ask.num(f"{TRAIN}warmup_ratio") or 0.0
    key = f"{TRAIN}warmup_steps" if warm else f"{TRAIN}warmup_ratio"
    return {
        "steps": ask("max_steps"),
        "warmup_frac": ask.made(divided(warm, steps) if warm else ratio, key),
        "warmup_steps": ask.made(warm or times(ratio, steps), key),
    }


def _answer(ask: Ask) -> Quantity:
    """Tokens of an answer: `response_length`, else the sequence less the prompt, whatever `max_new_tokens` says."""
    if ask.raw("response_length") is not None:
        return ask("response_length")
    whole, prompt = ask.num("sequence_length"), ask.num("prompt_length")
    known = whole - prompt if whole is not None and prompt is not None else None
    return ask.made(known, "sequence_length", f"{whole:g} - {prompt:g}" if known is not None else "")


ROLL = Schema(
    name="roll",
    title="ROLL",
    newest="0.3.0",
    quantities=quantities,
    defaults=DEFAULTS,
    signs=("num_return_sequences_in_group", "actor_train.training_args.learning_rate", "actor_train.device_mapping",
           "actor_infer.device_mapping", "adv_estimator", "train_env_manager.num_env_groups", "init_kl_coef",
           "actor_infer.generating_args.temperature", "use_pg_clip_range", "async_generation_ratio"),
    commands=("start_rlvr_pipeline.py", "start_agentic_pipeline.py", "start_rlvr_vl_pipeline.py",
              "start_onpolicy_distill_pipeline.py"),
    key_files=("roll/keys.txt",),
    complete=False,
    recipes=dict.fromkeys(("grpo", "reinforce"), {"lr": 1e-6}),
    recipe_name="ROLL's examples",
    memory=("per_device_train_batch_size", "infer_batch_size", "gpu_memory_utilization", "mem_fraction_static"),
    versions=("0.1.0", "0.1.3", "0.2.0", "0.3.0"),
    kl_fix=lambda ask: {"use_kl_loss": True, "kl_loss_coef": 0.001},
)  # fmt: skip
