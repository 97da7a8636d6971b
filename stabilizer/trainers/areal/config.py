"""AReaL: `PPOConfig` of `areal/api/cli_args.py`, YAML files and overrides. Batches count prompts."""

from __future__ import annotations

import math
import re
from typing import Any

from stabilizer.trainers.quantities import Ask, Quantity, Since, divided, every, times
from stabilizer.trainers.schema import Placement, Schema

DEFAULTS: dict[str, Any] = {
    "gconfig.n_samples": 1,
    "gconfig.max_new_tokens": 16384,
    "gconfig.temperature": 1.0,
    "gconfig.top_p": 1.0,
    "gconfig.top_k": 100_000_000,
    "train_dataset.batch_size": 1,
    "total_train_epochs": 1,
    "actor.ppo_n_minibatches": 4,
    "actor.eps_clip": 0.2,
    "actor.kl_ctl": 0.1,
    "actor.optimizer.lr": Since((("0.3", 2e-5), ("0.4", 1e-3))),
    "actor.optimizer.warmup_steps_proportion": 0.001,
    "actor.optimizer.gradient_clipping": 1.0,
    "actor.optimizer.type": "adam",
    "actor.use_decoupled_loss": False,
    "actor.use_lora": False,
    "actor.dtype": "bfloat16",
    "actor.rejection_sampling.metric": "ratio",
    "actor.rejection_sampling.upper": 5.0,
    "sglang.context_length": 32768,
}

ALL_TOKENS = 1_000_000
"""A `top_k` that no vocabulary reaches, as the default of 100,000,000: nothing is left out."""


def quantities(ask: Ask) -> dict[str, Quantity]:
    """The neutral words for a configuration of AReaL."""
    grouped = any(
        str(ask.raw(f"actor.{norm}.{level}")).lower() == "group"
        for norm in ("reward_norm", "adv_norm") for level in ("mean_level", "std_level")
    ) or ask.flag("actor.group_reward_norm")  # fmt: skip
    kind = "ppo" if _has(ask, "critic") else "grpo" if grouped else "reinforce"
    prompts, minis = (ask.num(key) for key in ("train_dataset.batch_size", "actor.ppo_n_minibatches"))
    update = divided(prompts, minis)
    return {
        "algorithm": ask.made(kind, "actor.reward_norm.mean_level"),
        "groups": ask.made(grouped, "actor.reward_norm.mean_level"),
        "lr": ask("actor.optimizer.lr"),
        **_length(ask, prompts),
        "kl_loss": Quantity(value=0.0, key="actor.kl_ctl"),
        "kl_reward": ask.made((ask.num("actor.kl_ctl") or 0.0) if _has(ask, "ref") else 0.0, "actor.kl_ctl"),
        "group_size": ask("gconfig.n_samples"),
        "prompts_update": ask.made(update, "train_dataset.batch_size",
                                   f"{prompts:g} prompts / {minis:g} minibatches" if prompts and minis else "",
                                   scale=("train_dataset.batch_size",)),
        "prompts_rollout": ask("train_dataset.batch_size"),
        "updates": ask.made(minis, "actor.ppo_n_minibatches"),
        "inner": Quantity(value=1),
        "max_prompt": ask("train_dataset.max_length"),
        "max_completion": ask("gconfig.max_new_tokens"),
        "context": ask("vllm.max_model_len" if _backend(ask) == "vllm" else "sglang.context_length"),
        "temperature": ask("gconfig.temperature"),
        "top_p": ask("gconfig.top_p"),
        "top_k": ask.made(-1 if (ask.num("gconfig.top_k") or 0) >= ALL_TOKENS else ask.raw("gconfig.top_k"),
                          "gconfig.top_k"),
        "correction": ask("actor.use_decoupled_loss"),
        "logging_every": Quantity(value=1),
        "validate_every": _every(ask, "evaluator"),
        "save_every": _every(ask, "saver"),
        "fp16": ask.made(str(ask.raw("actor.dtype")).lower() in ("float16", "fp16", "half"), "actor.dtype"),
        "clip_low": ask("actor.eps_clip"),
        "clip_high": ask("actor.eps_clip_higher") if ask.raw("actor.eps_clip_higher") is not None
        else ask("actor.eps_clip"),
        "max_grad_norm": ask("actor.optimizer.gradient_clipping"),
        "lora": ask("actor.use_lora"),
        "model": ask("actor.path"),
        "optimizer": ask("actor.optimizer.type"),
    }  # fmt: skip


def _has(ask: Ask, section: str) -> bool:
    """Whether a part of the experiment is configured."""
    return any(key.startswith(f"{section}.") for key in ask.config.settings)


def _backend(ask: Ask) -> str:
    """The engine that generates."""
    said = f"{ask.raw('rollout.backend') or ask.raw('allocation_mode') or ''}"
    return "vllm" if said.startswith("vllm") else "sglang"


def _length(ask: Ask, prompts: float | None) -> dict[str, Quantity]:
    """Steps of the run, and the share of them in which the learning rate rises."""
    total = ask.num("total_train_steps")
    steps = (
        ask("total_train_steps")
        if total
        else ask.made(divided(times(ask.num("total_train_epochs"), ask.config.prompts), prompts), "total_train_epochs")
    )
    key = "actor.optimizer.warmup_steps_proportion"
    return {"steps": steps, "warmup_frac": ask(key), "warmup_steps": ask.made(times(ask.num(key), steps.value), key)}


def _every(ask: Ask, part: str) -> Quantity:
    """Steps between two evaluations or saves; unknown where it counts epochs or seconds."""
    other = any(ask.raw(f"{part}.{key}") for key in ("freq_epochs", "freq_secs"))
    steps = ask.num(f"{part}.freq_steps")
    return ask.made(None if other and not steps else every(steps), f"{part}.freq_steps")


GONE = {
    "actor.behave_imp_weight_cap": "actor.rejection_sampling with metric: ratio and upper: X",
    "actor.behave_imp_weight_mode": "actor.rejection_sampling: null, or level: token with action: mask or clamp",
    "async_training": "rollout.max_head_offpolicyness: 0 for synchronous training",
    "actor.group_reward_norm": "actor.reward_norm with mean_level: group and std_level: group",
}
_ENGINE = re.compile(r"(?:[a-z]+[:.])?((?:[dtpce]\d{1,4}){1,5})")
"""One backend with its parallel sizes: `fsdp:d4p1t1`."""


def placement(ask: Ask) -> Placement:
    """The engines' and the actor's GPUs, by `backend` or `allocation_mode`, and those of the cluster."""
    said = str(ask.raw("allocation_mode") or f"{ask.raw('rollout.backend')}+{ask.raw('actor.backend')}")
    sizes = [_ENGINE.fullmatch(part) for part in said.split("+")]
    gpus = [math.prod(map(int, re.findall(r"\d+", size[1]))) if size else None for size in sizes]
    nodes, each = (ask.num(f"cluster.{key}") for key in ("n_nodes", "n_gpus_per_node"))
    parts = dict(zip(("rollout", "actor"), gpus, strict=False))
    return Placement(parts, "smaller parallel sizes in both backends", 1, times(each, nodes or 1))


AREAL = Schema(
    name="areal",
    title="AReaL",
    newest="1.0.4",
    quantities=quantities,
    defaults=DEFAULTS,
    signs=("actor.ppo_n_minibatches", "gconfig.n_samples", "rollout.max_head_offpolicyness", "allocation_mode",
           "gconfig.max_new_tokens", "actor.kl_ctl", "actor.use_decoupled_loss", "stats_logger.trial_name",
           "cluster.name_resolve.type", "train_dataset.batch_size"),
    commands=("areal", "AReaL"),
    key_files=("areal/keys.txt",),
    complete=False,
    instead=GONE,
    recipes={"grpo": {"lr": 1.7e-5}},
    recipe_name="AReaL's GSM8K example",
    memory=("max_tokens_per_mb", "n_mbs", "mem_fraction_static", "gpu_memory_utilization"),
    versions=("0.3.1", "0.3.3", "0.3.4", "0.4.0", "0.5.0", "0.5.2", "1.0.0", "1.0.2", "1.0.4"),
    placement=placement,
    kl_fix=lambda ask: {"actor.kl_ctl": 0.001},  # it needs the `ref` section as well
)  # fmt: skip
