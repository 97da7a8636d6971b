"""SkyRL: dotted overrides over dataclasses (`skyrl/train/config/config.py` of 0.3.0); batch sizes count prompts."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.quantities import Ask, Quantity, divided, every, times
from stabilizer.trainers.schema import Schema

MINI, OPTIM, ALGO = "trainer.policy_mini_batch_size", "trainer.policy.optimizer_config.", "trainer.algorithm."
DEFAULTS: dict[str, Any] = {
    "trainer.train_batch_size": 1024,
    MINI: 256,
    "trainer.critic_mini_batch_size": 256,
    "trainer.micro_train_batch_size_per_gpu": 1,
    "trainer.update_epochs_per_batch": 1,
    "trainer.epochs": 1,
    "trainer.eval_interval": 5,
    "trainer.ckpt_interval": 10,
    "trainer.max_prompt_length": 512,
    f"{OPTIM}lr": 1e-6,
    f"{OPTIM}max_grad_norm": 1.0,
    f"{OPTIM}num_warmup_steps": 0,
    f"{ALGO}advantage_estimator": "grpo",
    f"{ALGO}eps_clip_low": 0.2,
    f"{ALGO}eps_clip_high": 0.2,
    f"{ALGO}use_kl_loss": True,
    f"{ALGO}kl_loss_coef": 0.001,
    f"{ALGO}use_kl_in_reward": False,
    "generator.n_samples_per_prompt": 5,
    "generator.sampling_params.temperature": 1.0,
    "generator.sampling_params.top_p": 1.0,
    "generator.sampling_params.max_generate_length": 1024,
}


def quantities(ask: Ask) -> dict[str, Quantity]:
    """The neutral words for a SkyRL configuration."""
    estimator = str(ask.raw(f"{ALGO}advantage_estimator")).lower()
    grouped = estimator in ("grpo", "rloo", "maxrl")
    train, mini, epochs = (ask.num(k) for k in ("trainer.train_batch_size", MINI, "trainer.update_epochs_per_batch"))
    steps = divided(times(ask.num("trainer.epochs"), ask.config.prompts), train)
    warm = ask.num(f"{OPTIM}num_warmup_steps")
    correction = ask.raw(f"{ALGO}off_policy_correction.tis_ratio_type")
    return {
        "algorithm": ask.made("ppo" if estimator == "gae" else "grpo" if grouped else "reinforce",
                              f"{ALGO}advantage_estimator"),
        "groups": ask.made(grouped, f"{ALGO}advantage_estimator"),
        "lr": ask(f"{OPTIM}lr"),
        "steps": ask.made(steps, "trainer.epochs"),
        "warmup_frac": ask.made(divided(warm, steps) if warm else 0.0, f"{OPTIM}num_warmup_steps"),
        "warmup_steps": ask(f"{OPTIM}num_warmup_steps"),
        "kl_loss": ask.made(ask.num(f"{ALGO}kl_loss_coef") if ask.flag(f"{ALGO}use_kl_loss") else 0.0,
                            f"{ALGO}use_kl_loss"),
        "kl_reward": ask.made(0.001 if ask.flag(f"{ALGO}use_kl_in_reward") else 0.0, f"{ALGO}use_kl_in_reward"),
        "group_size": ask("generator.n_samples_per_prompt"),
        "prompts_update": ask(MINI, scale=(MINI,), within="trainer.train_batch_size"),
        "prompts_rollout": ask("trainer.train_batch_size"),
        "updates": ask.made(divided(times(train, epochs), mini), MINI,
                            f"{train:g} / {mini:g} x {epochs:g} epochs" if train and mini and epochs else ""),
        "inner": ask("trainer.update_epochs_per_batch"),
        "max_prompt": ask("trainer.max_prompt_length"),
        "max_completion": ask("generator.sampling_params.max_generate_length"),
        "temperature": ask("generator.sampling_params.temperature"),
        "top_p": ask("generator.sampling_params.top_p"),
        "top_k": ask("generator.sampling_params.top_k"),
        "min_p": ask("generator.sampling_params.min_p"),
        "correction": ask.made(correction is not None, f"{ALGO}off_policy_correction.tis_ratio_type"),
        "logging_every": Quantity(value=1),
        "validate_every": ask.made(every(ask.raw("trainer.eval_interval")), "trainer.eval_interval"),
        "save_every": ask.made(every(ask.raw("trainer.ckpt_interval")), "trainer.ckpt_interval"),
        "clip_low": ask(f"{ALGO}eps_clip_low"),
        "clip_high": ask(f"{ALGO}eps_clip_high"),
        "max_grad_norm": ask(f"{OPTIM}max_grad_norm"),
        "lora": ask.made((ask.num("trainer.policy.model.lora.rank") or 0) > 0, "trainer.policy.model.lora.rank"),
        "model": ask("trainer.policy.model.path"),
    }  # fmt: skip


SKYRL = Schema(
    name="skyrl",
    title="SkyRL",
    newest="0.3.0",
    quantities=quantities,
    defaults=DEFAULTS,
    signs=(MINI, "generator.n_samples_per_prompt", f"{OPTIM}lr", f"{ALGO}advantage_estimator",
           "trainer.policy.model.path", "generator.sampling_params.max_generate_length"),
    commands=("skyrl",),
    key_files=("skyrl/keys.txt",),
    complete=False,
    recipes={"grpo": {"lr": 1e-6, "prompts_update": 256, "prompts_rollout": 1024, "updates": 4}},
    recipe_name="SkyRL's defaults",
    memory=("micro_train_batch_size_per_gpu", "micro_forward_batch_size_per_gpu", "gpu_memory_utilization"),
    read_with={f"{ALGO}kl_loss_coef": f"{ALGO}use_kl_loss"},
    strict_yaml=True,
    kl_fix=lambda ask: {f"{ALGO}use_kl_loss": True, f"{ALGO}kl_loss_coef": 0.001},
)  # fmt: skip
