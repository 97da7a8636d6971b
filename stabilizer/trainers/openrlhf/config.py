"""OpenRLHF: one command line (`openrlhf/cli/train_ppo_ray.py`), dotted flags since April 2026, plain ones before."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.quantities import Ask, Quantity, divided, every, times
from stabilizer.trainers.schema import Placement, Schema

GROUPED = ("rloo", "reinforce_baseline", "group_norm", "dr_grpo")
ALIASES = {
    "rollout_batch_size": "rollout.batch_size",
    "micro_rollout_batch_size": "rollout.micro_batch_size",
    "n_samples_per_prompt": "rollout.n_samples_per_prompt",
    "generate_max_len": "rollout.max_new_tokens",
    "temperature": "rollout.temperature",
    "top_p": "rollout.top_p",
    "vllm_generate_batch_size": "rollout.vllm_generate_batch_size",
    "train_batch_size": "train.batch_size",
    "micro_train_batch_size": "train.micro_batch_size",
    "max_epochs": "train.max_epochs",
    "num_episodes": "train.num_episodes",
    "async_train": "train.async_enable",
    "partial_rollout": "train.partial_rollout_enable",
    "agent_func_path": "train.agent_func_path",
    "colocate_all_models": "train.colocate_all",
    "colocate_actor_ref": "train.colocate_actor_ref",
    "use_dynamic_batch": "train.dynamic_batch_enable",
    "init_kl_coef": "algo.kl.init_coef",
    "kl_target": "algo.kl.target",
    "kl_horizon": "algo.kl.horizon",
    "kl_estimator": "algo.kl.estimator",
    "use_kl_loss": "algo.kl.use_loss",
    "advantage_estimator": "algo.advantage.estimator",
    "gamma": "algo.advantage.gamma",
    "lambd": "algo.advantage.lambd",
    "no_advantage_std_norm": "algo.advantage.no_std_norm",
    "enable_vllm_is_correction": "algo.advantage.is_correction_level",
    "vllm_is_truncated_threshold": "algo.advantage.is_correction_threshold",
    "dynamic_filtering": "algo.dynamic_filtering_enable",
    "dynamic_filtering_reward_range": "algo.dynamic_filtering_range",
    "eps_clip": "actor.eps_clip",
    "eps_clip_low_high": "actor.eps_clip_low_high",
    "dual_clip": "actor.dual_clip",
    "entropy_loss_coef": "actor.entropy_coef",
    "policy_loss_type": "actor.policy_loss_type",
    "actor_learning_rate": "actor.adam.lr",
    "critic_learning_rate": "critic.adam.lr",
    "lr_warmup_ratio": "actor.lr_warmup_ratio",
    "lr_scheduler": "actor.lr_scheduler",
    "max_norm": "actor.max_norm",
    "value_clip": "critic.value_clip",
    "freezing_actor_steps": "critic.freezing_steps",
    "pretrain": "actor.model_name_or_path",
    "reward_pretrain": "reward.model_name_or_path",
    "remote_rm_url": "reward.remote_url",
    "overlong_buffer_len": "reward.overlong_buffer_len",
    "overlong_penalty_factor": "reward.overlong_penalty_factor",
    "stop_properly_penalty_coef": "reward.stop_properly_penalty_coef",
    "reward_clip_range": "reward.clip_range",
    "normalize_reward": "reward.normalize_enable",
    "actor_num_nodes": "actor.num_nodes",
    "actor_num_gpus_per_node": "actor.num_gpus_per_node",
    "ref_num_nodes": "ref.num_nodes",
    "ref_num_gpus_per_node": "ref.num_gpus_per_node",
    "critic_num_nodes": "critic.num_nodes",
    "critic_num_gpus_per_node": "critic.num_gpus_per_node",
    "reward_num_nodes": "reward.num_nodes",
    "reward_num_gpus_per_node": "reward.num_gpus_per_node",
    "vllm_num_engines": "vllm.num_engines",
    "vllm_tensor_parallel_size": "vllm.tensor_parallel_size",
    "vllm_gpu_memory_utilization": "vllm.gpu_memory_utilization",
    "vllm_enable_sleep": "vllm.enable_sleep",
    "vllm_sync_backend": "vllm.sync_backend",
    "enable_prefix_caching": "vllm.enable_prefix_caching",
    "enforce_eager": "vllm.enforce_eager",
    "deepspeed_enable_sleep": "ds.enable_sleep",
    "zero_stage": "ds.zero_stage",
    "param_dtype": "ds.param_dtype",
    "adam_offload": "ds.adam_offload",
    "packing_samples": "ds.packing_samples",
    "ring_attn_size": "ds.ring_attn_size",
    "ds_tensor_parallel_size": "ds.tensor_parallel_size",
    "lora_rank": "ds.lora.rank",
    "lora_alpha": "ds.lora.alpha",
    "load_in_4bit": "ds.load_in_4bit",
    "gradient_checkpointing": "actor.gradient_checkpointing_enable",
    "prompt_data": "data.prompt_dataset",
    "prompt_data_probs": "data.prompt_probs",
    "prompt_split": "data.prompt_split",
    "prompt_max_len": "data.max_len",
    "input_key": "data.input_key",
    "label_key": "data.label_key",
    "input_template": "data.input_template",
    "apply_chat_template": "data.apply_chat_template",
    "max_samples": "data.max_samples",
    "eval_steps": "eval.steps",
    "eval_dataset": "eval.dataset",
    "eval_temperature": "eval.temperature",
    "eval_n_samples_per_prompt": "eval.n_samples_per_prompt",
    "save_steps": "ckpt.save_steps",
    "save_path": "ckpt.output_dir",
    "ckpt_path": "ckpt.path",
    "save_hf_ckpt": "ckpt.save_hf",
    "load_checkpoint": "ckpt.load_enable",
    "max_ckpt_num": "ckpt.max_num",
    "logging_steps": "logger.logging_steps",
    "use_wandb": "logger.wandb.key",
    "wandb_project": "logger.wandb.project",
    "wandb_run_name": "logger.wandb.run_name",
    "use_tensorboard": "logger.tensorboard_dir",
    "seed": "train.seed",
}
"""Plain flag -> dotted flag."""
DEFAULTS: dict[str, Any] = {
    "rollout.batch_size": 1024,
    "rollout.micro_batch_size": 1,
    "rollout.n_samples_per_prompt": 1,
    "rollout.temperature": 1.0,
    "rollout.top_p": 1.0,
    "train.batch_size": 128,
    "train.micro_batch_size": 1,
    "train.max_epochs": 1,
    "train.num_episodes": 1,
    "algo.kl.init_coef": 0.01,
    "algo.kl.use_loss": False,
    "algo.kl.estimator": "k1",
    "algo.advantage.estimator": "gae",
    "algo.advantage.is_correction_level": "off",
    "actor.eps_clip": 0.2,
    "actor.adam.lr": 1e-6,
    "actor.lr_warmup_ratio": 0.03,
    "actor.max_norm": 1.0,
    "eval.steps": -1,
    "ckpt.save_steps": -1,
    "logger.logging_steps": 1,
    "ds.param_dtype": "bf16",
    "ds.lora.rank": 0,
}


def quantities(ask: Ask) -> dict[str, Quantity]:
    """The neutral words for an OpenRLHF command line; `train.batch_size` counts answers."""
    estimator = str(ask.raw("algo.advantage.estimator")).lower()
    grouped = estimator in GROUPED
    kind = "ppo" if estimator == "gae" else "rloo" if estimator == "rloo" else "grpo" if grouped else "reinforce"
    rollout, group = ask.num("rollout.batch_size"), ask.num("rollout.n_samples_per_prompt")
    batch, epochs = ask.num("train.batch_size"), ask.num("train.max_epochs")
    coef = ask.num("algo.kl.init_coef") or 0.0
    in_loss = ask.flag("algo.kl.use_loss")
    data = ask.config.prompts or (ask.num("data.max_samples") if "data.max_samples" in ask.config.settings else None)
    steps = divided(times(data, ask.num("train.num_episodes")), rollout)
    correction = ask.raw("algo.advantage.is_correction_level")
    return {
        "algorithm": ask.made(kind, "algo.advantage.estimator"),
        "groups": ask.made(grouped, "algo.advantage.estimator"),
        "lr": ask("actor.adam.lr"),
        "steps": ask.made(steps, "train.num_episodes"),
        "warmup_frac": ask("actor.lr_warmup_ratio"),
        "warmup_steps": ask.made(times(ask.num("actor.lr_warmup_ratio"), steps), "actor.lr_warmup_ratio"),
        "kl_loss": ask.made(coef if in_loss else 0.0, "algo.kl.init_coef"),
        "kl_reward": ask.made(0.0 if in_loss else coef, "algo.kl.init_coef"),
        "group_size": ask("rollout.n_samples_per_prompt"),
        "prompts_update": ask.made(divided(batch, group), "train.batch_size",
                                   f"{batch:g} answers / {group:g} per prompt" if batch and group else "",
                                   scale=("train.batch_size",), within="rollout.batch_size", within_times=group or 1),
        "prompts_rollout": ask("rollout.batch_size"),
        "updates": ask.made(divided(times(rollout, group, epochs), batch), "train.batch_size",
                            f"{rollout:g} prompts x {group:g} / {batch:g} x {epochs:g} epochs"
                            if rollout and group and batch and epochs else ""),
        "inner": ask("train.max_epochs"),
        "max_completion": ask("rollout.max_new_tokens"),
        "temperature": ask("rollout.temperature"),
        "top_p": ask("rollout.top_p"),
        "correction": ask.made(correction not in ("off", None, False), "algo.advantage.is_correction_level"),
        "logging_every": ask("logger.logging_steps"),
        "validate_every": ask.made(every(ask.raw("eval.steps")), "eval.steps"),
        "save_every": ask.made(every(ask.raw("ckpt.save_steps")), "ckpt.save_steps"),
        "fp16": ask.made(str(ask.raw("ds.param_dtype")).lower() in ("fp16", "float16"), "ds.param_dtype"),
        **_clip(ask),
        "max_grad_norm": ask("actor.max_norm"),
        "lora": ask.made((ask.num("ds.lora.rank") or 0) > 0, "ds.lora.rank"),
        "model": ask("actor.model_name_or_path"),
    }  # fmt: skip


PER_NODE = 8
"""Default of every role's `num_gpus_per_node` (openrlhf 0.11.2, cli/train_ppo_ray.py)."""


def placement(ask: Ask) -> Placement:
    """Groups of models with GPUs of their own; models that are not there take none."""

    def role(name: str, there: bool = True) -> float:
        return there * (ask.num(f"{name}.num_nodes") or 1) * (ask.num(f"{name}.num_gpus_per_node") or PER_NODE)

    engines = times(ask.num("vllm.num_engines") or 0, ask.num("vllm.tensor_parallel_size") or 1)
    nodes = ask.num("actor.num_nodes") or 1
    if ask.flag("train.colocate_all"):
        apart = {"vLLM engines": engines} if ask.flag("train.async_enable") else {}
        return Placement({"all models": role("actor"), **apart}, "train.async_enable off", nodes)
    judged = bool(ask.raw("reward.model_name_or_path")) and not ask.raw("reward.remote_url")
    pairs = (
        ("actor", "reference", "ref", True, (ask.num("algo.kl.init_coef") or 0) > 0, "train.colocate_actor_ref"),
        ("critic", "reward model", "reward", str(ask.raw("algo.advantage.estimator")) == "gae", judged,
         "train.colocate_critic_reward"),
    )  # fmt: skip
    parts: dict[str, float | None] = {}
    for first, second, key, one, two, colocated in pairs:
        if one and two and ask.flag(colocated):
            parts[f"{first} with {second}"] = role(first)
        else:
            parts |= {first: role(first, one), second: role(key, two)}
    return Placement(
        {**parts, "vLLM engines": engines}, "train.colocate_all and vllm.enable_sleep (all models share them)", nodes
    )


def _clip(ask: Ask) -> dict[str, Quantity]:
    both = ask.raw("actor.eps_clip_low_high")
    if isinstance(both, list) and len(both) == 2:
        low, high = (ask.made(bound, "actor.eps_clip_low_high") for bound in both)
        return {"clip_low": low, "clip_high": high}
    return {"clip_low": ask("actor.eps_clip"), "clip_high": ask("actor.eps_clip")}


_MAKER = "openrlhf/trainer/ppo_utils/experience_maker.py"
MEANS = {
    "algo.kl.use_loss": (
        "KL counts once: it moves into the loss, and the penalty in the reward is 0",
        f"{_MAKER}; OpenRLHF/OpenRLHF#768",
    ),
    "reward.normalize_enable": (
        "it uses the mean and std in the reward model's config.json, where reward training wrote them; a model without"
        " them is normalised by 0 and 1, so its rewards stay as they are",
        "openrlhf/models/model.py; OpenRLHF/OpenRLHF#693",
    ),
}  # fmt: skip

OPENRLHF = Schema(
    name="openrlhf",
    title="OpenRLHF",
    newest="0.11.2",
    quantities=quantities,
    defaults=DEFAULTS,
    signs=("rollout.batch_size", "algo.kl.init_coef", "algo.advantage.estimator", "actor.adam.lr", "ckpt.output_dir"),
    commands=("openrlhf",),
    key_files=("openrlhf/keys.txt",),
    complete=False,
    aliases=ALIASES,
    recipes={kind: {"lr": 1e-6} for kind in ("ppo", "grpo", "rloo", "reinforce")},
    recipe_name="OpenRLHF's defaults",
    memory=("micro_batch_size", "max_tokens_per_gpu", "gpu_memory_utilization"),
    means=MEANS,
    placement=placement,
    kl_fix=lambda ask: {"algo.kl.init_coef": 0.001},
)
