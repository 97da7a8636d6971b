"""TRL: GRPOConfig, RLOOConfig and the experimental PPOConfig, over transformers' TrainingArguments.

Open-R1 is configured the same way, by the same keys with the defaults of the TRL version it pins, so it is made here
too. Field lists and defaults are those of the released packages 0.14 to 1.16 (`trl/trainer/*_config.py`).
"""

from __future__ import annotations

from typing import Any

from stabilizer.configs.config import parse_version
from stabilizer.trainers.configuration import Config
from stabilizer.trainers.quantities import Ask, Quantity, Since, divided, times
from stabilizer.trainers.schema import Schema
from stabilizer.trainers.trl.bugs import BUGS

DEFAULTS: dict[str, Any] = {
    "learning_rate": 1e-6,
    "warmup_steps": 0,
    "warmup_ratio": 0.0,
    "lr_scheduler_type": "linear",
    "num_train_epochs": 3.0,
    "max_steps": -1,
    "per_device_train_batch_size": 8,
    "per_device_eval_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "num_generations": 8,
    "num_iterations": 1,
    "num_mini_batches": 1,
    "beta": Since((("0.14", 0.04), ("0.19", 0.0))),
    "epsilon": 0.2,
    "temperature": Since((("0.14", 0.9), ("0.18", 1.0))),
    "top_p": 1.0,
    "top_k": Since((("0.14", 50), ("0.18", 0))),
    "max_completion_length": Since((("0.14", 256), ("1.10", 512))),
    "max_prompt_length": Since((("0.14", 512), ("0.26", None))),
    "use_vllm": False,
    "vllm_device": "auto",
    "vllm_mode": Since((("0.18", "server"), ("1.0", "colocate"))),
    "vllm_importance_sampling_correction": Since((("0.14", False), ("0.23", True))),
    "vllm_importance_sampling_mode": "sequence_mask",
    "vllm_importance_sampling_clip_max": 3.0,
    "max_grad_norm": 1.0,
    "logging_steps": Since((("0.14", 500), ("0.19", 10))),
    "save_steps": 500,
    "save_strategy": "steps",
    "eval_strategy": "no",
    "loss_type": Since((("0.14", "grpo"), ("0.17", "bnpo"), ("0.22", "dapo"))),
    "scale_rewards": Since((("0.14", True), ("0.22", "group"))),
    "use_bias_correction_kl": Since((("0.14", False), ("1.10", True))),
    "optim": "adamw_torch",
}
RLOO_DEFAULTS = {"beta": 0.05, "num_generations": 2, "rloo_k": 2}
PPO_DEFAULTS = {"learning_rate": 3e-6, "temperature": 0.7, "num_ppo_epochs": 4, "num_mini_batches": 1, "kl_coef": 0.05,
                "cliprange": 0.2, "response_length": 53}  # fmt: skip
_PPO_KEYS = ("num_ppo_epochs", "cliprange", "vf_coef", "missing_eos_penalty", "whiten_rewards", "kl_estimator")


def algorithm(config: Config) -> str:
    """ppo for PPOConfig or its keys, rloo for RLOOConfig, else grpo."""
    words = f"{config.parsed.command} {config.parsed.path.name}".lower()
    if "rloo" in words:
        return "rloo"
    if any(key in config.settings for key in _PPO_KEYS) or ("ppo" in words and "grpo" not in words):
        return "ppo"
    return "grpo"


def world(ask: Ask) -> float | None:
    """Training processes: as given, else the GPUs less the one of a vLLM server."""
    config = ask.config
    if config.processes:
        return config.processes
    if not config.gpus:
        return None
    return config.gpus - 1 if serves_apart(ask) and config.gpus > 1 else config.gpus


def serves_apart(ask: Ask) -> bool:
    """Whether vLLM has GPUs of its own: always before 0.18, in server mode from then on."""
    old = parse_version(ask.config.version_used) < (0, 18)
    return ask.flag("use_vllm") and (old or ask.raw("vllm_mode") == "server")


def counts_prompts(ask: Ask, kind: str) -> bool:
    """Whether `per_device_train_batch_size` counts prompts, each with all its answers; else it counts answers."""
    return kind == "grpo" and parse_version(ask.config.version_used) < (0, 15)


def _group_key(ask: Ask, kind: str) -> str:
    """Where the answers per prompt are set. Before 0.22 RLOO was another trainer."""
    return "rloo_k" if kind == "rloo" and parse_version(ask.config.version_used) < (0, 22) else "num_generations"


def _generation_batch_keys(ask: Ask) -> tuple[str, ...]:
    """The keys that let one batch of rollouts serve several updates, which TRL has from 0.18 on."""
    new = parse_version(ask.config.version_used) >= (0, 18)
    return ("generation_batch_size", "steps_per_generation") if new else ()


def quantities(ask: Ask) -> dict[str, Quantity]:
    """The neutral words for a TRL configuration."""
    kind = algorithm(ask.config)
    if kind == "ppo":
        return _ppo(ask)
    if kind == "rloo":
        ask.defaults = {**ask.defaults, **RLOO_DEFAULTS}
    group_key, inner, beta = _group_key(ask, kind), ask.num("num_iterations"), ask("beta")
    batch = _batch(ask, kind, group_key, inner)
    return {
        "algorithm": ask.made(kind, "beta"),
        "groups": ask.made(True, group_key),
        **_common(ask, batch["prompts_update"].value, inner),
        "kl_loss" if kind == "grpo" else "kl_reward": beta,
        "kl_reward" if kind == "grpo" else "kl_loss": Quantity(value=0.0, key="beta"),
        "group_size": ask(group_key),
        **batch,
        "inner": ask("num_iterations"),
        "max_completion": ask("max_completion_length"),
        "max_prompt": ask("max_prompt_length"),
        "context": ask("vllm_max_model_length" if "vllm_max_model_length" in ask.config.settings
                       else "vllm_max_model_len"),
        "top_p": ask("top_p"), "top_k": ask("top_k"), "min_p": ask("min_p"),
        "correction": ask.made(ask.flag("use_vllm") and ask.flag("vllm_importance_sampling_correction"),
                               "vllm_importance_sampling_correction"),
        "clip_low": ask("epsilon"),
        "clip_high": ask("epsilon_high") if ask.raw("epsilon_high") is not None else ask("epsilon"),
        "max_grad_norm": ask("max_grad_norm"),
    }  # fmt: skip


def _batch(ask: Ask, kind: str, group_key: str, inner: float | None) -> dict[str, Quantity]:
    """Prompts and updates of one batch, counted as the version counts them."""
    processes, device = world(ask), ask.num("per_device_train_batch_size")
    accumulation, group = ask.num("gradient_accumulation_steps"), ask.num(group_key)
    batch_keys = _generation_batch_keys(ask)
    given = ask.num("generation_batch_size") if batch_keys else None
    steps = ask.num("steps_per_generation") if batch_keys else None
    per_generation = (divided(given, times(device, processes)) if given else steps) or accumulation
    answers = 1.0 if counts_prompts(ask, kind) else group
    prompts = divided(times(device, processes, accumulation), answers)
    rollout = divided(times(device, processes, per_generation), answers)
    how = (
        f"{device:g} per device x {processes:g} processes x {accumulation:g} accumulated"
        + (f" / {group:g} answers each" if answers == group else "")
        if prompts is not None and device and processes and accumulation and group
        else ""
    )
    grown = ("gradient_accumulation_steps", *(key for key in batch_keys if key in ask.config.settings))
    return {
        "prompts_update": ask.made(prompts, "gradient_accumulation_steps", how, scale=grown),
        "prompts_rollout": ask.made(rollout, "steps_per_generation" if batch_keys else "gradient_accumulation_steps"),
        "updates": ask.made(divided(times(per_generation, inner), accumulation), "num_iterations",
                            f"{per_generation:g} steps per generation x {inner:g} iterations"
                            f" / {accumulation:g} accumulated"
                            if per_generation and inner and accumulation else ""),
    }  # fmt: skip


def _common(ask: Ask, prompts: float | None, inner: float | None) -> dict[str, Quantity]:
    steps, epochs, data = ask.num("max_steps"), ask.num("num_train_epochs"), ask.config.prompts
    if steps is not None and steps > 0:
        total = ask("max_steps")
    else:
        total = ask.made(divided(times(epochs, data, inner), prompts), "num_train_epochs")
    warmup, ratio = ask.num("warmup_steps"), ask.num("warmup_ratio") or 0.0
    if warmup and warmup < 1:
        warmup, ratio = 0, warmup
    frac = divided(warmup, total.value) if warmup else ratio
    key = "warmup_steps" if warmup else "warmup_ratio" if "warmup_ratio" in ask.config.settings else "warmup_steps"
    evaluates = str(ask.raw("eval_strategy") or ask.raw("evaluation_strategy") or "no").lower()
    eval_every = ask.num("eval_steps") or ask.num("logging_steps")
    if evaluates != "steps":
        eval_every = None if evaluates == "epoch" else 0
    saves = str(ask.raw("save_strategy")).lower()
    return {
        "lr": ask("learning_rate"),
        "steps": total,
        "warmup_frac": ask.made(frac, key),
        "warmup_steps": ask.made(warmup or times(ratio, total.value), key),
        "temperature": ask("temperature"),
        "logging_every": ask("logging_steps"),
        "validate_every": ask.made(eval_every, "eval_steps" if evaluates == "steps" else "eval_strategy"),
        "save_every": ask.made(
            ask.num("save_steps") if saves == "steps" else None if saves == "epoch" else 0, "save_steps"
        ),
        "fp16": ask("fp16"),
        "lora": ask.made(ask.flag("use_peft") or bool(ask.config.parsed.hints.get("lora")), "use_peft"),
        "model": ask.made(ask.raw("model_name_or_path") or ask.config.parsed.hints.get("model"), "model_name_or_path"),
        "optimizer": ask("optim"),
    }


def _ppo(ask: Ask) -> dict[str, Quantity]:
    ask.defaults = {**ask.defaults, **PPO_DEFAULTS}
    prompts = times(ask.num("per_device_train_batch_size"), world(ask), ask.num("gradient_accumulation_steps"))
    epochs = ask.num("num_ppo_epochs")
    clip = ask("cliprange")
    ignored = Quantity(value="ignored", key="max_grad_norm", written="max_grad_norm" in ask.config.settings)
    return {
        "algorithm": ask.made("ppo", "kl_coef"),
        "groups": ask.made(False, "kl_coef"),
        **_common(ask, prompts, epochs),
        "kl_loss": Quantity(value=0.0, key="kl_coef"),
        "kl_reward": ask("kl_coef"),
        "prompts_update": ask.made(prompts, "gradient_accumulation_steps", scale=("gradient_accumulation_steps",)),
        "updates": ask.made(times(epochs, ask.num("num_mini_batches")), "num_ppo_epochs"),
        "inner": ask("num_ppo_epochs"),
        "max_completion": ask("response_length"),
        "clip_low": clip,
        "clip_high": clip,
        "max_grad_norm": ignored,
    }


INSTEAD = {
    "max_prompt_length": "cut or filter prompts in the data set",
    "use_liger_loss": "use_liger_kernel",
    "vllm_device": "vllm_mode: colocate, or a server started with `trl vllm-serve`",
    "vllm_dtype": "the server's own --dtype",
    "vllm_max_model_len": "vllm_max_model_length, or the server's own --max_model_len",
    "vllm_enable_prefix_caching": "the server's own --enable_prefix_caching",
    "vllm_guided_decoding_regex": "vllm_structured_outputs_regex",
    "wandb_log_unique_prompts": "log_unique_prompts",
}
SIGNS = ("num_generations", "steps_per_generation", "generation_batch_size", "per_device_train_batch_size",
         "max_completion_length", "vllm_mode", "scale_rewards", "num_ppo_epochs", "num_train_epochs")  # fmt: skip

VERSIONS = ("0.14.0", "0.15.2", "0.16.1", "0.17.0", "0.18.0", "0.19.1", "0.20.0", "0.21.0", "0.22.2", "0.23.1",
                "0.24.0", "0.25.1", "0.26.2", "0.27.2", "0.28.0", "0.29.1", "1.0.0", "1.3.0", "1.6.0", "1.9.0",
                "1.12.0", "1.16.0")  # fmt: skip

TOGETHER = {
    "num_generations": ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"),
    "generation_batch_size": ("num_generations",),
    "per_device_train_batch_size": ("num_generations",),
}

TRL = Schema(
    name="trl",
    title="TRL",
    newest="1.16.0",
    quantities=quantities,
    defaults=DEFAULTS,
    signs=SIGNS,
    commands=("GRPOConfig", "RLOOConfig", "PPOConfig", "trl"),
    key_files=("trl/keys.txt",),
    instead=INSTEAD,
    memory=("gradient_checkpointing", "vllm_gpu_memory_utilization"),
    together=TOGETHER,
    versions=VERSIONS,
    bugs=BUGS,
    kl_fix=lambda ask: {"beta": 0.001},
)
OPEN_R1 = Schema(
    name="open-r1",
    title="Open-R1",
    newest="0.18.0",
    quantities=quantities,
    defaults=DEFAULTS,
    signs=("reward_funcs", "cosine_max_len", "dataset_prompt_column", "hub_model_revision", "code_language",
           "soft_punish_cache", "overwrite_hub_revision", "benchmarks", "system_prompt"),
    commands=("open_r1", "open-r1"),
    key_files=("trl/keys.txt", "trl/keys_open_r1.txt"),
    complete=False,
    instead=INSTEAD,
    memory=TRL.memory,
    together=TOGETHER,
    versions=VERSIONS,
    parent="trl",
    words=("open-r1",),
    why_newest="the TRL that Open-R1 pins",
    bugs=BUGS,
    kl_fix=lambda ask: {"beta": 0.001},
)  # fmt: skip
