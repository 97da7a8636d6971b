"""SkyRL."""

from __future__ import annotations

from stabilizer.trainers.console_log import console
from stabilizer.trainers.naming import named_by
from stabilizer.trainers.skyrl import config, knobs, log, plan, validity
from stabilizer.trainers.trainer import Checks, Family, Trainer

FAMILY = Family(
    trainers=(
        Trainer(
            id="skyrl",
            packages=("skyrl_train",),
            schema=config.SKYRL,
            checks=Checks(validity.skyrl, config.SKYRL),
            planned=plan.PLANNED,
            advice=knobs.SKYRL,
            metrics=(log.NAMES,),
            gpu_memory=(
                "halve trainer.micro_train_batch_size_per_gpu and trainer.micro_forward_batch_size_per_gpu"
                " (they change memory and speed alone), or lower"
                " generator.inference_engine.gpu_memory_utilization"
            ),
        ),
    ),
    readers=(console(log),),
    named=named_by(log.wrote, log.naming),
)
