"""veRL (Hydra), and what Search-R1, a fork of its first releases with the same keys, shares with it.

In veRL `ppo_mini_batch_size` counts prompts and is multiplied by `rollout.n` inside; Search-R1 repeats its prompts by
`n_agent` first and cuts answers. Sources: `verl/trainer/config/` of 0.9.1, `verl/trainer/config/ppo_trainer.yaml` and
`train_ppo.sh`, `train_grpo.sh` of PeterGriffinJin/Search-R1.
"""

from __future__ import annotations

from typing import Any

from stabilizer.configs.config import parse_version
from stabilizer.trainers.quantities import Ask, Quantity, Since, divided, every, times
from stabilizer.trainers.schema import Schema, one_group

ACTOR, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
MINI = f"{ACTOR}ppo_mini_batch_size"
GROUPED = ("grpo", "grpo_passk", "gdpo", "rloo", "reinforce_plus_plus_baseline", "opo", "gpg", "drgrpo")
DEFAULTS: dict[str, Any] = {
    "data.train_batch_size": 1024,
    "data.max_prompt_length": 512,
    "data.max_response_length": 512,
    MINI: 256,
    f"{ACTOR}ppo_epochs": 1,
    f"{ACTOR}grad_clip": 1.0,
    f"{ACTOR}clip_ratio": 0.2,
    f"{ACTOR}strategy": "fsdp",
    f"{ACTOR}loss_agg_mode": "token-mean",
    f"{ACTOR}use_kl_loss": False,
    f"{ACTOR}kl_loss_coef": 0.001,
    f"{ACTOR}entropy_coeff": Since((("0.1", 0.001), ("0.4", 0))),
    f"{ACTOR}optim.lr": 1e-6,
    f"{ACTOR}optim.lr_warmup_steps": -1,
    f"{ACTOR}optim.lr_warmup_steps_ratio": 0.0,
    f"{ROLLOUT}n": 1,
    f"{ROLLOUT}n_agent": 1,
    f"{ROLLOUT}temperature": 1.0,
    f"{ROLLOUT}top_p": 1,
    f"{ROLLOUT}top_k": -1,
    f"{ROLLOUT}tensor_model_parallel_size": 2,
    f"{ROLLOUT}calculate_log_probs": Since((("0.1", False), ("0.9", True))),
    "critic.optim.lr": 1e-5,
    "actor_rollout_ref.model.use_remove_padding": True,
    "algorithm.adv_estimator": "gae",
    "algorithm.use_kl_in_reward": False,
    "algorithm.kl_ctrl.kl_coef": 0.001,
    "trainer.test_freq": -1,
    "trainer.save_freq": -1,
    "trainer.use_v1": True,
    "trainer.total_epochs": 30,
}


def quantities(ask: Ask) -> dict[str, Quantity]:
    """The neutral words for a veRL configuration."""
    return shared(ask, f"{ROLLOUT}n", repeats=1.0, old=parse_version(ask.config.version_used) < (0, 4))


def shared(ask: Ask, group: str, *, repeats: float | None, old: bool) -> dict[str, Quantity]:
    """The neutral words for veRL or a fork with its keys.

    `group` is the key of the answers per prompt, `repeats` the answers that each prompt of a mini-batch stands for, and
    `old` says that the KL's keys are those of veRL before 0.4.
    """
    estimator = str(ask.raw("algorithm.adv_estimator")).rpartition(".")[2].lower()
    grouped = estimator in GROUPED
    kind = "ppo" if estimator == "gae" else "grpo" if "grpo" in estimator else "rloo" if grouped else "reinforce"
    train, mini, epochs = ask.num("data.train_batch_size"), ask.num(MINI), ask.num(f"{ACTOR}ppo_epochs")
    prompts = divided(mini, repeats)
    steps = _steps(ask, train)
    in_loss, in_reward = _kl(ask, old)
    return {
        "algorithm": ask.made(kind, "algorithm.adv_estimator"),
        "groups": ask.made(grouped, "algorithm.adv_estimator"),
        "lr": ask(f"{ACTOR}optim.lr"),
        "steps": steps,
        **_warmup(ask, steps.value),
        "kl_loss": in_loss,
        "kl_reward": in_reward,
        "group_size": ask(group),
        "prompts_update": ask.made(prompts, MINI, f"{mini:g} answers / {repeats:g} per prompt"
                                   if mini and repeats and repeats > 1 else "", scale=(MINI,),
                                   within="data.train_batch_size", within_times=repeats or 1),
        "prompts_rollout": ask("data.train_batch_size"),
        "updates": ask.made(divided(times(train, repeats, epochs), mini), MINI,
                            f"{train:g} prompts{f' x {repeats:g}' if repeats and repeats > 1 else ''} / {mini:g}"
                            f" x {epochs:g} epochs" if train and mini and epochs else ""),
        "inner": ask(f"{ACTOR}ppo_epochs"),
        "max_prompt": ask("data.max_prompt_length"),
        "max_completion": ask("data.max_response_length"),
        "context": ask(f"{ROLLOUT}max_model_len"),
        "temperature": ask(f"{ROLLOUT}temperature"),
        "top_p": ask(f"{ROLLOUT}top_p"),
        "top_k": ask(f"{ROLLOUT}top_k"),
        "correction": ask.made(ask.raw("algorithm.rollout_correction.rollout_is") not in (None, "null", False),
                               "algorithm.rollout_correction.rollout_is"),
        "logging_every": Quantity(value=1),
        "validate_every": ask.made(every(ask.raw("trainer.test_freq")), "trainer.test_freq"),
        "save_every": ask.made(every(ask.raw("trainer.save_freq")), "trainer.save_freq"),
        "fp16": ask.made(str(ask.raw(f"{ACTOR}fsdp_config.model_dtype")).lower() in ("fp16", "float16", "half"),
                         f"{ACTOR}fsdp_config.model_dtype"),
        **_clip(ask),
        "max_grad_norm": ask(f"{ACTOR}grad_clip"),
        "lora": ask.made((ask.num("actor_rollout_ref.model.lora_rank") or 0) > 0, "actor_rollout_ref.model.lora_rank"),
        "model": ask("actor_rollout_ref.model.path"),
    }  # fmt: skip


def _warmup(ask: Ask, steps: float | None) -> dict[str, Quantity]:
    key = f"{ACTOR}optim.lr_warmup_steps"
    warm, ratio = ask.num(key), ask.num(f"{key}_ratio") or 0.0
    if warm is not None and warm > 0:
        return {"warmup_frac": ask.made(divided(warm, steps), key), "warmup_steps": ask.made(warm, key)}
    key = f"{key}_ratio"
    return {"warmup_frac": ask.made(ratio, key), "warmup_steps": ask.made(times(ratio, steps), key)}


def _clip(ask: Ask) -> dict[str, Quantity]:
    """The bounds of the ratio: `clip_ratio` for each that has no key of its own in the file."""
    keys = {"clip_low": f"{ACTOR}clip_ratio_low", "clip_high": f"{ACTOR}clip_ratio_high"}
    both = f"{ACTOR}clip_ratio"
    return {name: ask(key if key in ask.config.settings else both) for name, key in keys.items()}


def _steps(ask: Ask, train: float | None) -> Quantity:
    total = ask.num("trainer.total_training_steps")
    if total is not None and total > 0:
        return ask("trainer.total_training_steps")
    known = divided(times(ask.num("trainer.total_epochs"), ask.config.prompts), train)
    return ask.made(known, "trainer.total_epochs")


def _kl(ask: Ask, old: bool) -> tuple[Quantity, Quantity]:
    """Before 0.4 the reward carries the KL whenever the loss does not."""
    uses = ask.flag(f"{ACTOR}use_kl_loss")
    in_loss = ask.made((ask.num(f"{ACTOR}kl_loss_coef") or 0.0) if uses else 0.0, f"{ACTOR}use_kl_loss")
    rewards = not uses if old else ask.flag("algorithm.use_kl_in_reward")
    key = "algorithm.kl_ctrl.kl_coef" if old else "algorithm.use_kl_in_reward"
    return in_loss, ask.made((ask.num("algorithm.kl_ctrl.kl_coef") or 0.0) if rewards else 0.0, key)


READ_WITH = {f"{ACTOR}kl_loss_coef": f"{ACTOR}use_kl_loss"}

VERL = Schema(
    name="verl",
    title="veRL",
    newest="0.9.1",
    quantities=quantities,
    defaults=DEFAULTS,
    signs=(MINI, "data.train_batch_size", f"{ACTOR}optim.lr", f"{ROLLOUT}n", "actor_rollout_ref.model.path"),
    commands=("verl.trainer.main_ppo", "main_ppo", "recipe.dapo.main_dapo"),
    key_files=("verl/keys.txt",),
    complete=False,
    recipes={
        kind: {"lr": 1e-6, "prompts_update": 256, "prompts_rollout": 1024, "updates": 4} for kind in ("grpo", "ppo")
    },
    recipe_name="veRL's default configuration",
    memory=("ppo_micro_batch_size", "ppo_micro_batch_size_per_gpu", "log_prob_micro_batch_size",
            "log_prob_micro_batch_size_per_gpu", "ppo_max_token_len_per_gpu", "forward_micro_batch_size",
            "forward_micro_batch_size_per_gpu", "gpu_memory_utilization"),
    read_with=READ_WITH,
    strict_yaml=True,
    placement=one_group("trainer.n_gpus_per_node", "trainer.nnodes", 8),
    kl_fix=lambda ask: {f"{ACTOR}use_kl_loss": True, f"{ACTOR}kl_loss_coef": 0.001},
)  # fmt: skip
