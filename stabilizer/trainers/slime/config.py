"""slime: one command line of Megatron's, SGLang's and its own flags (`train.py`, `train_async.py`), hyphens in all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stabilizer.trainers.quantities import Ask, Quantity, Since, divided, every, times
from stabilizer.trainers.schema import Placement, Schema

KEYS = "slime/keys.txt"
GROUPED = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
"""Estimators that compare the answers to one prompt."""
DEFAULTS: dict[str, Any] = {
    "n-samples-per-prompt": 1,
    "advantage-estimator": "grpo",
    "rollout-temperature": 1.0,
    "rollout-top-p": 1.0,
    "rollout-top-k": -1,
    "rollout-max-response-len": Since((("0.1", 1024), ("0.2.2", None))),
    "eps-clip": 0.2,
    "use-kl-loss": False,
    "kl-loss-coef": 0.0,
    "kl-coef": 0.0,
    "use-tis": False,
    "lr": Since((("0.1", None), ("0.2", 1e-6))),
    "clip-grad": 1.0,
    "lr-warmup-iters": 0,
    "micro-batch-size": 1,
    "actor-num-nodes": 1,
    "actor-num-gpus-per-node": 8,
    "optimizer": "adam",
    "fp16": False,
}


def quantities(ask: Ask) -> dict[str, Quantity]:
    """The neutral words for a command of slime; `global-batch-size` counts answers, `rollout-batch-size` prompts."""
    estimator = str(ask.raw("advantage-estimator")).lower()
    grouped = estimator in GROUPED
    kind = "ppo" if estimator == "ppo" else "grpo" if grouped else "reinforce"
    rollout, group = ask.num("rollout-batch-size"), ask.num("n-samples-per-prompt")
    batch, key = _global_batch(ask, times(rollout, group))
    return {
        "algorithm": ask.made(kind, "advantage-estimator"),
        "groups": ask.made(grouped, "advantage-estimator"),
        "lr": ask("lr"),
        "steps": ask("num-rollout"),
        **_warmup(ask),
        "kl_loss": ask.made((ask.num("kl-loss-coef") or 0.0) if ask.flag("use-kl-loss") else 0.0, "kl-loss-coef"),
        "kl_reward": ask.made(ask.num("kl-coef") or 0.0, "kl-coef"),
        "group_size": ask("n-samples-per-prompt"),
        "prompts_update": ask.made(divided(batch, group), key,
                                   f"{batch:g} answers / {group:g} per prompt" if batch and group else "",
                                   scale=(key,) if key == "global-batch-size" else ("rollout-batch-size",),
                                   within="rollout-batch-size" if key == "global-batch-size" else "",
                                   within_times=group or 1),
        "prompts_rollout": ask("rollout-batch-size"),
        "updates": ask.made(divided(times(rollout, group), batch), key,
                            f"{rollout:g} prompts x {group:g} / {batch:g}" if rollout and group and batch else ""),
        "inner": Quantity(value=1),
        "max_prompt": ask("rollout-max-prompt-len"),
        "max_completion": ask("rollout-max-response-len"),
        "context": ask("rollout-max-context-len"),
        "temperature": ask("rollout-temperature"),
        "top_p": ask("rollout-top-p"),
        "top_k": ask("rollout-top-k"),
        "correction": ask("use-tis"),
        "logging_every": Quantity(value=1),
        "validate_every": ask.made(every(ask.raw("eval-interval")), "eval-interval"),
        "save_every": ask.made(every(ask.raw("save-interval")), "save-interval"),
        "fp16": ask("fp16"),
        "clip_low": ask("eps-clip"),
        "clip_high": ask("eps-clip-high") if ask.raw("eps-clip-high") is not None else ask("eps-clip"),
        "max_grad_norm": ask("clip-grad"),
        "lora": Quantity(value=False),
        "model": ask("hf-checkpoint"),
        "optimizer": ask("optimizer"),
    }  # fmt: skip


def _global_batch(ask: Ask, answers: float | None) -> tuple[float | None, str]:
    """Answers behind one update, and the key that sets them."""
    steps = ask.num("num-steps-per-rollout")
    if steps:
        return divided(answers, steps), "num-steps-per-rollout"
    return ask.num("global-batch-size"), "global-batch-size"


def _warmup(ask: Ask) -> dict[str, Quantity]:
    frac, total = ask.num("lr-warmup-fraction"), ask.num("num-rollout")
    if frac is not None:
        return {
            "warmup_frac": ask("lr-warmup-fraction"),
            "warmup_steps": ask.made(times(frac, total), "lr-warmup-fraction"),
        }
    warm = ask.num("lr-warmup-iters")
    return {
        "warmup_frac": ask.made(divided(warm, total), "lr-warmup-iters"),
        "warmup_steps": ask("lr-warmup-iters"),
    }


def kl_in_reward(ask: Ask) -> Mapping[str, Any]:
    """The keys that bring in a small KL term: one of the loss where it is measured already, else one of the reward."""
    return {"kl-loss-coef" if ask.flag("use-kl-loss") else "kl-coef": 0.001}


SIGNS = (
    "rollout-max-response-len", "n-samples-per-eval-prompt", "rollout-num-gpus-per-engine", "num-rollout",
    "num-steps-per-rollout", "sglang-mem-fraction-static", "rollout-temperature", "rm-type", "hf-checkpoint",
    "use-dynamic-batch-size",
)  # fmt: skip


def placement(ask: Ask) -> Placement:
    """The actor's GPUs, and the engines' beside them unless they are colocated."""
    nodes = ask.num("actor-num-nodes") or 1
    actor = nodes * (ask.num("actor-num-gpus-per-node") or DEFAULTS["actor-num-gpus-per-node"])
    apart = {} if ask.flag("colocate") else {"engines": ask.num("rollout-num-gpus")}
    return Placement({"actor": actor, **apart}, "--colocate", nodes)


SLIME = Schema(
    name="slime",
    title="slime",
    newest="0.3.2",
    quantities=quantities,
    defaults=DEFAULTS,
    signs=SIGNS,
    commands=("slime",),
    key_files=(KEYS,),
    complete=False,
    recipes={"grpo": {"lr": 1e-6}, "ppo": {"lr": 1e-6}, "reinforce": {"lr": 1e-6}},
    recipe_name="slime's own scripts",
    memory=("micro-batch-size", "max-tokens-per-gpu", "log-probs-max-tokens-per-gpu", "sglang-mem-fraction-static"),
    versions=("0.1.0", "0.2.0", "0.2.2", "0.2.4", "0.3.0", "0.3.1", "0.3.2"),
    hyphens=True,
    placement=placement,
    kl_fix=kl_in_reward,
)
