"""AReaL."""

from __future__ import annotations

from stabilizer.trainers.areal import config, knobs, log, plan, validity
from stabilizer.trainers.console_log import console
from stabilizer.trainers.naming import named_by
from stabilizer.trainers.trainer import Checks, Family, Groups, Trainer

FAMILY = Family(
    trainers=(
        Trainer(
            id="areal",
            packages=("areal",),
            schema=config.AREAL,
            checks=Checks(validity.areal, config.AREAL),
            planned=plan.PLANNED,
            advice=knobs.AREAL,
            metrics=(log.NAMES,),
            switches={"value/loss": "with a critic: section"},
            settings={
                "model": ("actor.path",),
                "task": ("train_dataset.path",),
                "precision": ("actor.dtype",),
                "steps": ("total_train_steps",),
                "schedule": ("actor.optimizer.lr_scheduler_type",),
                "warmup": ("actor.optimizer.warmup_steps_proportion",),
            },
            groups=Groups("gconfig.n_samples"),
            gpu_memory=(
                "lower actor.mb_spec.max_tokens_per_mb (and ref.mb_spec.max_tokens_per_mb); it changes memory and"
                " speed alone. If the traceback is the engine's, lower sglang.mem_fraction_static or"
                " vllm.gpu_memory_utilization"
            ),
        ),
    ),
    readers=(console(log),),
    named=named_by(log.wrote, log.naming),
)
