"""slime."""

from __future__ import annotations

from stabilizer.trainers.console_log import console
from stabilizer.trainers.naming import named_by
from stabilizer.trainers.slime import config, knobs, log, plan, validity
from stabilizer.trainers.trainer import Checks, Family, Groups, Trainer

FAMILY = Family(
    trainers=(
        Trainer(
            id="slime",
            packages=("slime", "slime_plugins"),
            schema=config.SLIME,
            checks=Checks(validity.slime, config.SLIME),
            planned=plan.PLANNED,
            advice=knobs.SLIME,
            metrics=(log.NAMES,),
            switches={
                "policy/kl_ref": "with --use-kl-loss",
                "reward/zero_std_frac": "with --rollout-batch-size known",
                "accuracy/train": "with --log-passrate",
            },
            settings={
                "model": ("hf-checkpoint",),
                "task": ("prompt-data",),
                "reward": ("rm-type", "custom-rm-path"),
                "steps": ("num-rollout",),
                "schedule": ("lr-decay-style",),
                "warmup": ("lr-warmup-iters", "lr-warmup-fraction"),
            },
            groups=Groups("n-samples-per-prompt", "advantage-estimator", config.GROUPED),
            gpu_memory=(
                "halve --micro-batch-size, or --max-tokens-per-gpu with --use-dynamic-batch-size; they change memory"
                " and speed alone. If the traceback is SGLang's, lower --sglang-mem-fraction-static"
            ),
        ),
    ),
    readers=(console(log),),
    named=named_by(log.wrote, log.naming),
)
