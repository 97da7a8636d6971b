"""This project's trainer. Its keys and defaults are repeated here, because importing them needs the `train` extra.

A test compares them with `stabilizer.training.config`.
"""

from __future__ import annotations

from typing import Any

from stabilizer.core.algorithms import ALGORITHMS
from stabilizer.core.version import __version__
from stabilizer.trainers.quantities import Ask, Quantity, divided, every, times
from stabilizer.trainers.schema import Schema

DEFAULTS: dict[str, Any] = {
    "task": "addition",
    "algorithm": "grpo",
    "steps": 400,
    "model": "builtin",
    "optim.lr": 4e-4,
    "optim.warmup_steps": 5,
    "optim.max_grad_norm": 1.0,
    "policy.advantage": "group_std",
    "policy.mismatch": "none",
    "policy.kl_in": "loss",
    "policy.beta": 0.0,
    "lora.rank": 0,
    "policy.epsilon_low": 0.2,
    "policy.epsilon_high": 0.2,
    "policy.inner_epochs": 1,
    "policy.minibatches": 1,
    "rollout.prompts": 32,
    "rollout.group_size": 8,
    "rollout.temperature": 1.0,
    "rollout.max_completion": 8,
    "validation.every": 10,
    "checkpoint.every": 20,
}

GROUPED = ("group_std", "group_mean", "leave_one_out", "per_reward")


def _family(advantage: str) -> str:
    """Which family of algorithms an advantage belongs to."""
    words = {"gae": "ppo", "leave_one_out": "rloo"}
    return words.get(advantage, "grpo" if advantage in GROUPED else "reinforce")


def quantities(ask: Ask) -> dict[str, Quantity]:
    """The neutral words for a configuration of ours."""
    recipe = ALGORITHMS.get(str(ask.raw("algorithm")), {})
    ask.defaults = {**ask.defaults, **recipe}
    if str(ask.raw("rollout.engine")) != "builtin":
        ask.defaults = {**ask.defaults, "policy.mismatch": "mask_sequence"}
    advantage = str(ask.raw("policy.advantage"))
    grouped = advantage in GROUPED
    beta = ask("policy.beta")
    off = Quantity(value=0.0, key="policy.kl_in")
    in_loss = ask.raw("policy.kl_in") != "reward"
    prompts, parts, passes = (ask.num(k) for k in ("rollout.prompts", "policy.minibatches", "policy.inner_epochs"))
    builtin = str(ask.raw("model")).partition(":")[0] == "builtin"
    lr = ask("optim.lr")
    how = f"{prompts:g} prompts / {parts:g} minibatches" if prompts and parts else ""
    return {
        "algorithm": ask.made(_family(advantage), "algorithm"),
        "groups": ask.made(grouped, "policy.advantage"),
        "lr": Quantity(key="optim.lr") if builtin else lr,
        "steps": ask("steps"),
        "warmup_steps": ask("optim.warmup_steps"),
        "warmup_frac": ask.made(divided(ask.num("optim.warmup_steps"), ask.num("steps")), "optim.warmup_steps"),
        "kl_loss": beta if in_loss else off,
        "kl_reward": off if in_loss else beta,
        "group_size": ask("rollout.group_size"),
        "prompts_update": ask.made(divided(prompts, parts), "rollout.prompts", how, scale=("rollout.prompts",)),
        "prompts_rollout": ask("rollout.prompts"),
        "updates": ask.made(times(parts, passes), "policy.minibatches"),
        "inner": ask("policy.inner_epochs"),
        "max_completion": ask("rollout.max_completion"),
        "temperature": ask("rollout.temperature"),
        "logging_every": Quantity(value=1),
        "validate_every": ask.made(every(ask.raw("validation.every")), "validation.every"),
        "save_every": ask.made(every(ask.raw("checkpoint.every")), "checkpoint.every"),
        "clip_low": ask("policy.epsilon_low"),
        "clip_high": ask("policy.epsilon_high"),
        "max_grad_norm": ask("optim.max_grad_norm"),
        "correction": ask.made(ask.raw("policy.mismatch") != "none", "policy.mismatch"),
        "lora": ask.made((ask.num("lora.rank") or 0) > 0, "lora.rank"),
        "model": ask("model"),
    }  # fmt: skip


OWN = Schema(
    name="stabilizer",
    title="stabilizer",
    newest=__version__,
    quantities=quantities,
    defaults=DEFAULTS,
    signs=("task", "policy.beta", "policy.inner_epochs", "policy.minibatches", "rollout.prompts", "optim.warmup_steps"),
    commands=("stabilizer",),
    key_files=("stabilizer/keys.txt",),
    strict_yaml=True,
    refuses=True,
    flags=frozenset({
        "config", "dashboard", "debug", "fork", "json", "port", "remedy", "resume", "runs", "set", "to", "variant",
    }),
    kl_fix=lambda ask: {"policy.beta": 0.001},
)  # fmt: skip
