"""Our own trainer, as one among the others."""

from __future__ import annotations

from stabilizer.trainers.console_log import console as printed
from stabilizer.trainers.reader import Rank, reader
from stabilizer.trainers.stabilizer import config, console, exported, log
from stabilizer.trainers.trainer import Family, Trainer

_SETTINGS = {
    "task": ("task",),
    "precision": ("precision",),
    "model": ("model",),
    "steps": ("steps",),
    "prompts": ("rollout.prompts",),
    "group_size": ("rollout.group_size",),
    "temperature": ("rollout.temperature",),
    "max_completion": ("rollout.max_completion",),
    "engine": ("rollout.engine",),
    "vllm_mode": ("rollout.vllm_mode",),
    "beta": ("policy.beta", "beta"),  # the second is set by readers of trainers that spread it over several keys
    "entropy_coef": ("policy.entropy_coef",),
    "entropy_target": ("policy.entropy_target",),
    "epsilon_low": ("policy.epsilon_low",),
    "epsilon_high": ("policy.epsilon_high",),
    "inner_epochs": ("policy.inner_epochs",),
    "minibatches": ("policy.minibatches",),
    "lr": ("optim.lr",),
    "schedule": ("optim.schedule",),
    "warmup": ("optim.warmup_steps",),
    "max_grad_norm": ("optim.max_grad_norm",),
    "kl_kind": ("policy.kl_kind",),
    "filter_groups": ("policy.filter_groups",),
    "mask_truncated": ("policy.mask_truncated",),
    "overlong_buffer": ("policy.overlong_buffer",),
    "mismatch": ("policy.mismatch",),
    "advantage": ("policy.advantage",),
    "head_float32": ("head_float32",),
    "validate_every": ("validation.every",),
}

FAMILY = Family(
    trainers=(
        Trainer(
            id="stabilizer",
            schema=config.OWN,
            settings=_SETTINGS,
            gpu_memory=(
                "set optim.micro_batch (rows in one pass; memory and speed alone) or"
                " gradient_checkpointing=true, and go on with --resume"
            ),
        ),
        Trainer(id=exported.TRAINER),
    ),
    readers=(reader(log, Rank.OWN), printed(console)),
    named=exported.named,
)
