"""EasyR1 (hiyouga/EasyR1), a fork of veRL with a schema of its own; the schema of early 2025 is told apart by its keys.

In early 2025, `algorithm.kl_coef` weighed a KL penalty in the reward, and `worker.actor.use_kl_loss`, `kl_loss_coef`
one in the loss; the shipped 0.0 and 1e-3 choose the loss and are no contradiction. Since then `algorithm.kl_coef`
serves both places and `algorithm.use_kl_loss` chooses one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stabilizer.trainers.quantities import Ask, Quantity, divided, every, times
from stabilizer.trainers.schema import Older, Schema, one_group

OLD_SIGNS = ("worker.actor.kl_loss_coef", "worker.actor.use_kl_loss", "worker.actor.kl_loss_type")
DEFAULTS: dict[str, Any] = {
    "data.rollout_batch_size": 512,
    "data.max_prompt_length": 512,
    "data.max_response_length": 512,
    "worker.rollout.max_num_batched_tokens": 8192,
    "algorithm.adv_estimator": "grpo",
    "algorithm.disable_kl": False,
    "algorithm.use_kl_loss": False,
    "algorithm.kl_coef": 1e-3,
    "worker.actor.global_batch_size": 256,
    "worker.actor.micro_batch_size_per_device_for_update": 4,
    "worker.actor.micro_batch_size_per_device_for_experience": 16,
    "worker.actor.max_grad_norm": 1.0,
    "worker.actor.clip_ratio_low": 0.2,
    "worker.actor.clip_ratio_high": 0.3,
    "worker.actor.ppo_epochs": 1,
    "worker.actor.optim.lr": 1e-6,
    "worker.actor.optim.lr_warmup_ratio": 0.0,
    "worker.rollout.n": 1,
    "worker.rollout.temperature": 1.0,
    "worker.rollout.top_p": 1.0,
    "worker.rollout.top_k": -1,
    "worker.rollout.tensor_parallel_size": 2,
    "worker.critic.global_batch_size": 256,
    "worker.critic.micro_batch_size_per_device_for_update": 4,
    "worker.critic.micro_batch_size_per_device_for_experience": 16,
    "trainer.total_epochs": 15,
    "trainer.val_freq": -1,
    "trainer.save_freq": -1,
}
MINI = "worker.actor.global_batch_size"


def is_old(ask: Ask) -> bool:
    """Whether the keys are those of early 2025."""
    return any(key in ask.config.settings for key in OLD_SIGNS)


def quantities(ask: Ask) -> dict[str, Quantity]:
    """The neutral words for an EasyR1 configuration."""
    estimator = str(ask.raw("algorithm.adv_estimator")).lower()
    grouped = estimator in ("grpo", "rloo", "grpo_passk")
    rollout, mini = ask.num("data.rollout_batch_size"), ask.num(MINI)
    epochs = ask.num("worker.actor.ppo_epochs")
    given = ask.num("trainer.max_steps")
    epoch_key = "trainer.total_episodes" if "trainer.total_episodes" in ask.config.settings else "trainer.total_epochs"
    total = divided(times(ask.num(epoch_key), ask.config.prompts), rollout)
    steps = ask("trainer.max_steps") if given and given > 0 else ask.made(total, epoch_key)
    warm = ask.num("worker.actor.optim.lr_warmup_ratio")
    in_loss, in_reward = _kl(ask)
    return {
        "algorithm": ask.made("ppo" if estimator == "gae" else "grpo" if grouped else "reinforce",
                              "algorithm.adv_estimator"),
        "groups": ask.made(grouped, "algorithm.adv_estimator"),
        "lr": ask("worker.actor.optim.lr"),
        "steps": steps,
        "warmup_frac": ask("worker.actor.optim.lr_warmup_ratio"),
        "warmup_steps": ask.made(times(warm, steps.value), "worker.actor.optim.lr_warmup_ratio"),
        "kl_loss": in_loss,
        "kl_reward": in_reward,
        "group_size": ask("worker.rollout.n"),
        "prompts_update": ask(MINI, scale=(MINI,), within="data.rollout_batch_size"),
        "prompts_rollout": ask("data.rollout_batch_size"),
        "updates": ask.made(divided(times(rollout, epochs), mini), MINI,
                            f"{rollout:g} / {mini:g} x {epochs:g} epochs" if rollout and mini and epochs else ""),
        "inner": ask("worker.actor.ppo_epochs"),
        "max_prompt": ask("data.max_prompt_length"),
        "max_completion": ask("data.max_response_length"),
        "context": ask("worker.rollout.max_model_len"),
        "temperature": ask("worker.rollout.temperature"),
        "top_p": ask("worker.rollout.top_p"),
        "top_k": ask("worker.rollout.top_k"),
        "correction": Quantity(value=False),
        "logging_every": Quantity(value=1),
        "validate_every": ask.made(every(ask.raw("trainer.val_freq")), "trainer.val_freq"),
        "save_every": ask.made(every(ask.raw("trainer.save_freq")), "trainer.save_freq"),
        "fp16": ask.made(str(ask.raw("worker.actor.fsdp.mp_param_dtype")).lower() in ("fp16", "float16"),
                         "worker.actor.fsdp.mp_param_dtype"),
        "clip_low": ask("worker.actor.clip_ratio_low"),
        "clip_high": ask("worker.actor.clip_ratio_high"),
        "max_grad_norm": ask("worker.actor.max_grad_norm"),
        "lora": ask.made((ask.num("worker.actor.model.lora.rank") or 0) > 0, "worker.actor.model.lora.rank"),
        "model": ask("worker.actor.model.model_path"),
        "optimizer": ask("worker.actor.optim.strategy"),
    }  # fmt: skip


def _kl(ask: Ask) -> tuple[Quantity, Quantity]:
    if is_old(ask):
        coef = ask.num("worker.actor.kl_loss_coef")
        loss = (1e-3 if coef is None else coef) if ask.flag("worker.actor.use_kl_loss") else 0.0
        reward = ask.num("algorithm.kl_coef") if "algorithm.kl_coef" in ask.config.settings else 0.0
        return ask.made(loss, "worker.actor.kl_loss_coef"), ask.made(reward, "algorithm.kl_coef")
    coef = 0.0 if ask.flag("algorithm.disable_kl") else ask.num("algorithm.kl_coef") or 0.0
    in_loss = ask.flag("algorithm.use_kl_loss")
    return (
        ask.made(coef if in_loss else 0.0, "algorithm.kl_coef"),
        ask.made(0.0 if in_loss else coef, "algorithm.kl_coef"),
    )


def kl_in_loss(ask: Ask) -> Mapping[str, Any]:
    """The keys that bring in a small KL term."""
    if is_old(ask):
        return {"worker.actor.use_kl_loss": True, "worker.actor.kl_loss_coef": 1e-3}
    return {"algorithm.disable_kl": False, "algorithm.use_kl_loss": True, "algorithm.kl_coef": 1e-2}


EASYR1 = Schema(
    name="easyr1",
    title="EasyR1",
    newest="0.3.2",
    quantities=quantities,
    defaults=DEFAULTS,
    signs=("data.rollout_batch_size", MINI, "worker.rollout.n", "worker.actor.optim.lr", "trainer.val_freq",
           "worker.actor.model.model_path", "worker.actor.micro_batch_size_per_device_for_update"),
    commands=("verl.trainer.main", "easyr1", "EasyR1"),
    key_files=("easyr1/keys.txt",),
    complete=False,
    recipes={"grpo": {"lr": 1e-6, "prompts_update": 128, "prompts_rollout": 512, "updates": 4}},
    recipe_name="examples/config.yaml",
    script=True,
    memory=("micro_batch_size_per_device_for_update", "micro_batch_size_per_device_for_experience",
            "gpu_memory_utilization", "mini_rollout_batch_size"),
    read_with={"worker.actor.kl_loss_coef": "worker.actor.use_kl_loss"},
    strict_yaml=True,
    placement=one_group("trainer.n_gpus_per_node", "trainer.nnodes", 8),
    older=Older(OLD_SIGNS, "0.1.0", "the schema of early 2025"),
    kl_fix=kl_in_loss,
)  # fmt: skip
