"""LLaMA-Factory: flat YAML for `llamafactory-cli train`. Of its stages only `ppo` generates; it has TRL's old PPO."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.quantities import Ask, Quantity, Since, divided, every, times
from stabilizer.trainers.schema import Schema

DEFAULTS: dict[str, Any] = {
    "stage": "sft",
    "finetuning_type": "lora",
    "reward_model_type": "lora",
    "learning_rate": 5e-5,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "num_train_epochs": 3.0,
    "max_steps": -1,
    "warmup_steps": 0,
    "warmup_ratio": 0.0,
    "logging_steps": 500,
    "save_steps": 500,
    "save_strategy": "steps",
    "eval_strategy": "no",
    "max_grad_norm": 1.0,
    "ppo_buffer_size": 1,
    "ppo_epochs": 4,
    "ppo_target": 6.0,
    "temperature": 0.95,
    "top_p": 0.7,
    "top_k": 50,
    "max_new_tokens": 1024,
    "cutoff_len": Since((("0.8", 1024), ("0.9.1", 2048))),
    "optim": "adamw_torch",
}
FIRST_KL_COEF, CLIP = 0.2, 0.2
"""What its PPO leaves to TRL 0.8 to 0.9: the KL coefficient that adapts to `ppo_target`, and the clip range."""


def quantities(ask: Ask) -> dict[str, Quantity]:
    """The neutral words for a configuration of LLaMA-Factory."""
    if str(ask.raw("stage")).lower() != "ppo":
        return _common(ask, None)
    processes = ask.config.processes or ask.config.gpus
    device, passes = ask.num("per_device_train_batch_size"), ask.num("gradient_accumulation_steps")
    buffer, epochs = ask.num("ppo_buffer_size"), ask.num("ppo_epochs")
    update = times(device, passes, processes)
    fixed = Quantity(value=CLIP, how="TRL's default, which LLaMA-Factory does not expose")
    return {
        **_common(ask, times(update, buffer)),
        "algorithm": ask.made("ppo", "stage"),
        "groups": ask.made(False, "stage"),
        "kl_loss": Quantity(value=0.0, key="ppo_target"),
        "kl_reward": ask.made(FIRST_KL_COEF, "ppo_target", "the first coefficient, which adapts to ppo_target"),
        "prompts_update": ask.made(update, "gradient_accumulation_steps",
                                   f"{device:g} per device x {processes:g} processes x {passes:g} accumulated"
                                   if update and device and processes and passes else "",
                                   scale=("gradient_accumulation_steps",)),
        "prompts_rollout": ask.made(times(update, buffer), "ppo_buffer_size"),
        "updates": ask.made(times(buffer, epochs), "ppo_epochs", f"{buffer:g} buffered batches x {epochs:g} epochs"
                            if buffer and epochs else ""),
        "inner": ask("ppo_epochs"),
        "max_prompt": ask("cutoff_len"),
        "max_completion": ask("max_new_tokens"),
        "temperature": ask("temperature"),
        "top_p": ask("top_p"),
        "top_k": ask("top_k"),
        "clip_low": fixed,
        "clip_high": fixed,
        "max_grad_norm": ask("max_grad_norm"),
        "validate_every": Quantity(value=None),
    }  # fmt: skip


def _common(ask: Ask, prompts: float | None) -> dict[str, Quantity]:
    """What every stage has."""
    given = ask.num("max_steps")
    total = divided(times(ask.num("num_train_epochs"), ask.config.prompts), prompts)
    steps = ask("max_steps") if given and given > 0 else ask.made(total, "num_train_epochs")
    warm, ratio = ask.num("warmup_steps") or 0, ask.num("warmup_ratio") or 0.0
    saves, tests = (str(ask.raw(key)).lower() for key in ("save_strategy", "eval_strategy"))
    return {
        "lr": ask("learning_rate"),
        "steps": steps,
        "warmup_frac": ask.made(divided(warm, steps.value) if warm else ratio, "warmup_ratio"),
        "warmup_steps": ask.made(warm or times(ratio, steps.value), "warmup_ratio"),
        "logging_every": ask("logging_steps"),
        "validate_every": ask.made(every(ask.raw("eval_steps")) if tests == "steps" else None, "eval_steps"),
        "save_every": ask.made(ask.num("save_steps") if saves == "steps" else None, "save_steps"),
        "fp16": ask("fp16"),
        "lora": ask.made(str(ask.raw("finetuning_type")).lower() != "full", "finetuning_type"),
        "model": ask("model_name_or_path"),
        "optimizer": ask("optim"),
    }


LLAMA_FACTORY = Schema(
    name="llama-factory",
    title="LLaMA-Factory",
    newest="0.9.6",
    quantities=quantities,
    defaults=DEFAULTS,
    signs=("finetuning_type", "cutoff_len", "template", "ppo_target", "ppo_score_norm", "ppo_buffer_size",
           "reward_model_type", "pref_beta", "dataset_dir", "lora_target", "preprocessing_num_workers",
           "overwrite_cache"),
    commands=("llamafactory-cli", "lmf", "llamafactory", "LLaMA-Factory"),
    key_files=("llama_factory/keys.txt",),
    instead={"evaluation_strategy": "eval_strategy"},
    memory=("gradient_checkpointing",),
    parent="trl",
    versions=("0.8.0", "0.9.0", "0.9.1", "0.9.2", "0.9.3", "0.9.4", "0.9.5", "0.9.6"),
)  # fmt: skip
