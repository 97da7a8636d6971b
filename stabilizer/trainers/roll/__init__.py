"""ROLL."""

from __future__ import annotations

from stabilizer.trainers.console_log import console
from stabilizer.trainers.naming import named_by
from stabilizer.trainers.roll import config, knobs, log, plan, validity
from stabilizer.trainers.trainer import Checks, Family, Groups, Trainer

FAMILY = Family(
    trainers=(
        Trainer(
            id="roll",
            packages=("roll",),
            schema=config.ROLL,
            checks=Checks(validity.roll, config.ROLL),
            planned=plan.PLANNED,
            advice=knobs.ROLL,
            metrics=(log.NAMES,),
            switches={"policy/kl_ref": "with use_kl_loss: true", "reward/all_pass_frac": "with more than one answer"},
            settings={
                "model": ("pretrain",),
                "steps": ("max_steps",),
                "schedule": (f"{config.TRAIN}lr_scheduler_type",),
                "warmup": (f"{config.TRAIN}warmup_steps", f"{config.TRAIN}warmup_ratio"),
                "per_device": (f"{config.TRAIN}per_device_train_batch_size",),
                "accumulation": (f"{config.TRAIN}gradient_accumulation_steps",),
            },
            groups=Groups("num_return_sequences_in_group", "adv_estimator", ("grpo", "gigpo")),
            gpu_memory=(
                "halve actor_train.training_args.per_device_train_batch_size and double"
                " actor_train.training_args.gradient_accumulation_steps (the optimisation stays the same), and halve"
                " actor_train.infer_batch_size and reference.infer_batch_size. If the traceback is the engine's, lower"
                " actor_infer.strategy_args.strategy_config.gpu_memory_utilization"
            ),
        ),
    ),
    readers=(console(log),),
    named=named_by(log.wrote, log.naming),
)
