"""prime-rl: TOML for trainer, orchestrator and inference together; no reference model, and batches count rollouts."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.quantities import Ask, Quantity, divided, every
from stabilizer.trainers.schema import Schema

DEFAULTS: dict[str, Any] = {
    "trainer.optim.lr": 1e-6,
    "trainer.optim.max_norm": 1.0,
    "orchestrator.batch_size": 128,
    "orchestrator.group_size": 1,
    "orchestrator.train.sampling.temperature": 1.0,
    "seq_len": 2048,
    "trainer.loss.dppo_mask_low": 0.2,
    "trainer.loss.dppo_mask_high": 0.2,
}
ALIASES = {
    "orchestrator.rollouts_per_example": "orchestrator.group_size",
    "rollouts_per_example": "orchestrator.group_size",
    "group_size": "orchestrator.group_size",
    "orchestrator.sampling.temperature": "orchestrator.train.sampling.temperature",
    "orchestrator.sampling.max_tokens": "orchestrator.train.sampling.max_completion_tokens",
}


def quantities(ask: Ask) -> dict[str, Quantity]:
    """The neutral words for a prime-rl configuration: one optimizer update for every batch of rollouts."""
    batch, group = ask.num("orchestrator.batch_size"), ask.num("orchestrator.group_size")
    if "orchestrator.token_batch_size" in ask.config.settings:
        batch = None
    prompts = divided(batch, group)
    how = f"{batch:g} rollouts / {group:g} per prompt" if batch and group else ""
    short = ask.num("max_steps")
    saves = every(ask.raw("ckpt.interval"))
    return {
        "algorithm": ask.made("grpo", "trainer.loss.type"),
        "groups": ask.made(True, "orchestrator.group_size"),
        "lr": ask("trainer.optim.lr"),
        "steps": ask.made(short, "max_steps"),
        "group_size": ask("orchestrator.group_size"),
        "prompts_update": ask.made(prompts, "orchestrator.batch_size", how, scale=("orchestrator.batch_size",)),
        "prompts_rollout": ask.made(prompts, "orchestrator.batch_size", how),
        "updates": Quantity(value=1),
        "inner": Quantity(value=1),
        "max_completion": ask("orchestrator.train.sampling.max_completion_tokens"),
        "temperature": ask("orchestrator.train.sampling.temperature"),
        "correction": Quantity(value=True),
        "logging_every": Quantity(value=1),
        "save_every": ask.made(saves, "ckpt.interval") if "ckpt.interval" in ask.config.settings else Quantity(),
        "max_grad_norm": ask("trainer.optim.max_norm"),
        "model": ask("model.name"),
    }


PRIME_RL = Schema(
    name="prime-rl",
    title="prime-rl",
    newest="0.5.0",
    quantities=quantities,
    defaults=DEFAULTS,
    signs=("orchestrator.batch_size", "orchestrator.group_size", "orchestrator.token_batch_size", "trainer.optim.lr",
           "orchestrator.rollouts_per_example", "rollouts_per_example", "trainer.loss.dppo_mask_low"),
    commands=("prime_rl", "prime-rl"),
    complete=False,
    aliases=ALIASES,
    recipes={"grpo": {"lr": 1e-6, "prompts_update": 8, "updates": 1}},
    recipe_name="examples/basic/reverse-text/rl.toml",
    memory=("micro_batch_size", "gpu_memory_utilization"),
)  # fmt: skip
