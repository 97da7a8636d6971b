"""NeMo-RL: one YAML (`examples/configs/grpo_math_1B.yaml` is the trainer's own); the global batch counts answers."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.quantities import Ask, Quantity, divided, every, times
from stabilizer.trainers.schema import Schema

DEFAULTS: dict[str, Any] = {
    "grpo.num_prompts_per_step": 32,
    "grpo.num_generations_per_prompt": 16,
    "grpo.val_period": 10,
    "grpo.max_num_epochs": 1,
    "loss_fn.reference_policy_kl_penalty": 0.01,
    "loss_fn.ratio_clip_min": 0.2,
    "loss_fn.ratio_clip_max": 0.2,
    "loss_fn.token_level_loss": True,
    "loss_fn.use_importance_sampling_correction": False,
    "policy.train_global_batch_size": 512,
    "policy.train_micro_batch_size": 4,
    "policy.optimizer.kwargs.lr": 5e-6,
    "policy.max_grad_norm": 1.0,
    "policy.precision": "bfloat16",
    "policy.generation.temperature": 1.0,
    "policy.generation.top_p": 1.0,
    "checkpointing.enabled": True,
    "checkpointing.save_period": 10,
    "ppo.ppo_epochs": 4,
}


def quantities(ask: Ask) -> dict[str, Quantity]:
    """The neutral words for a NeMo-RL configuration."""
    kind = "ppo" if any(key.startswith("ppo.") for key in ask.config.settings) else "grpo"
    prompts, group = ask.num("grpo.num_prompts_per_step"), ask.num("grpo.num_generations_per_prompt")
    batch = ask.num("policy.train_global_batch_size")
    epochs = ask.num("ppo.ppo_epochs") if kind == "ppo" else 1
    given = ask.num("grpo.max_num_steps")
    passes = divided(times(ask.num("grpo.max_num_epochs"), ask.config.prompts), prompts)
    steps = min((value for value in (given, passes) if value), default=None)
    lr = "policy.optimizer.kwargs.lr"
    if lr not in ask.config.settings and "policy.megatron_cfg.optimizer.lr" in ask.config.settings:
        lr = "policy.megatron_cfg.optimizer.lr"
    saves = every(ask.raw("checkpointing.save_period")) if ask.flag("checkpointing.enabled") else 0
    return {
        "algorithm": ask.made(kind, "grpo.adv_estimator"),
        "groups": ask.made(kind == "grpo", "grpo.num_generations_per_prompt"),
        "lr": ask(lr),
        "steps": ask.made(steps, "grpo.max_num_steps"),
        "kl_loss": ask("loss_fn.reference_policy_kl_penalty"),
        "kl_reward": Quantity(value=0.0),
        "group_size": ask("grpo.num_generations_per_prompt"),
        "prompts_update": ask.made(divided(batch, group), "policy.train_global_batch_size",
                                   f"{batch:g} answers / {group:g} per prompt" if batch and group else "",
                                   scale=("policy.train_global_batch_size",),
                                   within="grpo.num_prompts_per_step", within_times=group or 1),
        "prompts_rollout": ask("grpo.num_prompts_per_step"),
        "updates": ask.made(divided(times(prompts, group, epochs), batch), "policy.train_global_batch_size",
                            f"{prompts:g} prompts x {group:g} / {batch:g}" if prompts and group and batch else ""),
        "inner": ask.made(epochs, "ppo.ppo_epochs"),
        "max_completion": ask("policy.generation.max_new_tokens"),
        "temperature": ask("policy.generation.temperature"),
        "top_p": ask("policy.generation.top_p"),
        "top_k": ask("policy.generation.top_k"),
        "correction": ask("loss_fn.use_importance_sampling_correction"),
        "logging_every": Quantity(value=1),
        "validate_every": ask.made(every(ask.raw("grpo.val_period")), "grpo.val_period"),
        "save_every": ask.made(saves, "checkpointing.save_period"),
        "fp16": ask.made(str(ask.raw("policy.precision")).lower() in ("float16", "fp16"), "policy.precision"),
        "clip_low": ask("loss_fn.ratio_clip_min"),
        "clip_high": ask("loss_fn.ratio_clip_max"),
        "max_grad_norm": ask("policy.max_grad_norm"),
        "model": ask("policy.model_name"),
    }  # fmt: skip


NEMO_RL = Schema(
    name="nemo-rl",
    title="NeMo-RL",
    newest="0.4.0",
    quantities=quantities,
    defaults=DEFAULTS,
    signs=("grpo.num_prompts_per_step", "grpo.num_generations_per_prompt", "loss_fn.reference_policy_kl_penalty",
           "policy.train_global_batch_size", "loss_fn.ratio_clip_min"),
    commands=("nemo_rl", "nemo-rl", "run_grpo"),
    complete=False,
    recipes={"grpo": {"lr": 5e-6, "prompts_update": 32, "prompts_rollout": 32, "updates": 1}},
    recipe_name="examples/configs/grpo_math_1B.yaml",
    memory=("train_micro_batch_size", "logprob_batch_size", "gpu_memory_utilization"),
    strict_yaml=True,
    kl_fix=lambda ask: {"loss_fn.reference_policy_kl_penalty": 0.01},
)  # fmt: skip
