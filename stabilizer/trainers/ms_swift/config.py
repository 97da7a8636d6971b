"""ms-swift: `swift rlhf --rlhf_type grpo`, flags or a YAML file. Its GRPO runs on TRL's, with defaults of its own."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.quantities import Ask, Quantity, Since, divided, every, times
from stabilizer.trainers.schema import Schema

DEFAULTS: dict[str, Any] = {
    "rlhf_type": "dpo",
    "beta": 0.04,
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": Since((("3.0", None), ("3.7", 1))),
    "num_generations": 8,
    "num_iterations": 1,
    "epsilon": 0.2,
    "temperature": 0.9,
    "top_p": Since((("3.0", 0.9), ("4.1", 1.0))),
    "top_k": Since((("3.0", 50), ("4.1", -1))),
    "max_completion_length": 512,
    "use_vllm": False,
    "vllm_mode": Since((("3.0", None), ("3.5", "colocate"), ("3.12", None))),
    "warmup_ratio": 0.0,
    "lr_scheduler_type": "cosine",
    "logging_steps": 5,
    "save_steps": 500,
    "save_strategy": "steps",
    "num_train_epochs": 3.0,
    "max_steps": -1,
    "max_grad_norm": 1.0,
    "scale_rewards": Since((("3.3", True), ("3.10", "group"))),
    "loss_type": "grpo",
    "tuner_type": "lora",
    "optim": "adamw_torch",
}
ALIASES = {"train_type": "tuner_type", "sft_type": "tuner_type", "response_length": "max_completion_length",
           "max_new_tokens": "max_completion_length"}  # fmt: skip
LR_FULL, LR_ADAPTER = 1e-5, 1e-4
"""Its learning rates where none is given: of all weights, and of an adapter."""
FILLED = 16
"""Completions of a batch that GRPO fills by accumulation where none is set, up to 3.6."""


def quantities(ask: Ask) -> dict[str, Quantity]:
    """The neutral words for a command of ms-swift; only its GRPO and PPO generate."""
    kind = str(ask.raw("rlhf_type")).lower() if "rlhf_type" in ask.config.settings else _by_command(ask)
    if kind not in ("grpo", "ppo"):
        return _common(ask, None)
    batch = _batch(ask)
    estimator = str(ask.raw("advantage_estimator") or "grpo")
    kinds = {"grpo": "grpo", "rloo": "rloo"}
    return {
        **_common(ask, batch["prompts_update"].value),
        "algorithm": ask.made("ppo" if kind == "ppo" else kinds.get(estimator, "reinforce"), "advantage_estimator"),
        "groups": ask.made(kind == "grpo", "rlhf_type"),
        **_kl(ask, estimator),
        "group_size": ask("num_generations"),
        **batch,
        "inner": ask("num_iterations"),
        "max_prompt": ask("max_length"),
        "max_completion": ask("max_completion_length"),
        "context": ask("vllm_max_model_len"),
        "temperature": ask("temperature"),
        "top_p": ask("top_p"),
        "top_k": ask("top_k"),
        "min_p": ask("min_p"),
        "correction": ask.made(
            ask.raw("rollout_importance_sampling_mode") is not None, "rollout_importance_sampling_mode"
        ),
        "clip_low": ask("epsilon"),
        "clip_high": ask("epsilon_high") if ask.raw("epsilon_high") is not None else ask("epsilon"),
        "max_grad_norm": ask("max_grad_norm"),
    }


def _kl(ask: Ask, estimator: str) -> dict[str, Quantity]:
    """Where beta weighs a KL: in the loss of GRPO, in the reward of the other estimators."""
    said, beta = ask.raw("kl_in_reward"), ask.num("beta")
    in_reward = ask.flag("kl_in_reward") if said is not None else estimator != "grpo"
    none = ask.made(0.0, "beta")
    weighed = ask.made(beta, "beta")
    return {"kl_loss": none if in_reward else weighed, "kl_reward": weighed if in_reward else none}


def _batch(ask: Ask) -> dict[str, Quantity]:
    """Prompts and updates of one batch of answers."""
    accumulation, processes = _accumulation(ask), ask.config.processes or ask.config.gpus
    device, group, inner = (
        ask.num(key) for key in ("per_device_train_batch_size", "num_generations", "num_iterations")
    )
    one_pass = times(device, processes)
    per_generation = _per_generation(ask, one_pass) or accumulation
    prompts = divided(times(one_pass, accumulation), group)
    updates = divided(times(per_generation, inner), accumulation)
    how = f"{one_pass:g} answers a pass x {accumulation:g} accumulated / {group:g} each" if prompts else ""
    return {
        "prompts_update": ask.made(prompts, "gradient_accumulation_steps", how, scale=_grown(ask)),
        "prompts_rollout": ask.made(divided(times(one_pass, per_generation), group), "steps_per_generation"),
        "updates": ask.made(
            updates,
            "num_iterations",
            f"{per_generation:g} steps per generation x {inner:g} iterations / {accumulation:g} accumulated"
            if updates
            else "",
        ),
    }


def _by_command(ask: Ask) -> str:
    words = f"{ask.config.parsed.command} {ask.config.parsed.path.name}".lower()
    return next((kind for kind in ("grpo", "ppo") if kind in words), "dpo")


def _accumulation(ask: Ask) -> float | None:
    """Passes behind an update."""
    said = ask.num("gradient_accumulation_steps")
    if said is not None:
        return said or 1
    one = times(ask.num("per_device_train_batch_size"), ask.config.processes or ask.config.gpus)
    return None if one is None else max(1.0, -(-FILLED // one))


def _per_generation(ask: Ask, one_pass: float | None) -> float | None:
    """Passes that one batch of answers serves, where it is set."""
    given = ask.num("generation_batch_size")
    return divided(given, one_pass) if given else ask.num("steps_per_generation")


def _grown(ask: Ask) -> tuple[str, ...]:
    keys = ("generation_batch_size", "steps_per_generation")
    return ("gradient_accumulation_steps", *(key for key in keys if key in ask.config.settings))


def _common(ask: Ask, prompts: float | None) -> dict[str, Quantity]:
    """What every kind of its training has."""
    adapter = str(ask.raw("tuner_type")).lower() != "full"
    given, total = ask.num("max_steps"), None
    if given is None or given <= 0:
        total = divided(times(ask.num("num_train_epochs"), ask.config.prompts, ask.num("num_iterations")), prompts)
    steps = ask("max_steps") if given and given > 0 else ask.made(total, "num_train_epochs")
    warm, ratio = ask.num("warmup_steps") or 0, ask.num("warmup_ratio") or 0.0
    saves = str(ask.raw("save_strategy")).lower()
    save_every = ask.num("save_steps") if saves == "steps" else None if saves == "epoch" else 0
    lr = ask("learning_rate") if ask.raw("learning_rate") is not None else ask.made(
        LR_ADAPTER if adapter else LR_FULL, "learning_rate")  # fmt: skip
    return {
        "lr": lr,
        "steps": steps,
        "warmup_frac": ask.made(divided(warm, steps.value) if warm else ratio, "warmup_ratio"),
        "warmup_steps": ask.made(warm or times(ratio, steps.value), "warmup_ratio"),
        "logging_every": ask("logging_steps"),
        "validate_every": ask.made(every(ask.raw("eval_steps")) or save_every, "eval_steps"),
        "save_every": ask.made(save_every, "save_steps"),
        "fp16": ask.made(str(ask.raw("torch_dtype")).lower() in ("float16", "fp16") or ask.flag("fp16"), "torch_dtype"),
        "lora": ask.made(adapter, "tuner_type"),
        "model": ask("model"),
        "optimizer": ask("optim"),
    }


INSTEAD = {
    "train_type": "tuner_type",
    "num_infer_workers": "vllm_mode: colocate or server",
    "evaluation_strategy": "eval_strategy",
    "ckpt_dir": "resume_from_checkpoint, or adapters",
}
MS_SWIFT = Schema(
    name="ms-swift",
    title="ms-swift",
    newest="4.6.0",
    quantities=quantities,
    defaults=DEFAULTS,
    signs=("rlhf_type", "tuner_type", "train_type", "sft_type", "dynamic_sample", "overlong_filter", "model_type",
           "split_dataset_ratio", "external_plugins", "vllm_server_pass_dataset", "multi_turn_scheduler",
           "soft_cache_length", "move_model_batches", "rollout_importance_sampling_mode", "target_modules",
           "dataset_num_proc", "load_from_cache_file", "offload_optimizer", "use_hf"),
    commands=("swift", "ms-swift"),
    key_files=("ms_swift/keys.txt",),
    complete=False,
    aliases=ALIASES,
    instead=INSTEAD,
    memory=("gradient_checkpointing", "vllm_gpu_memory_utilization"),
    parent="trl",
    versions=("3.0.0", "3.2.0", "3.3.0", "3.5.0", "3.7.0", "3.9.0", "3.10.0", "3.12.0", "4.0.0", "4.1.0", "4.3.0",
              "4.5.0", "4.6.0"),
    kl_fix=lambda ask: {"beta": 0.001},
)  # fmt: skip
