"""OpenRLHF."""

from __future__ import annotations

from stabilizer.trainers.console_log import console
from stabilizer.trainers.naming import named_by
from stabilizer.trainers.openrlhf import config, knobs, log, plan, validity
from stabilizer.trainers.trainer import Checks, Family, Groups, Trainer

FAMILY = Family(
    trainers=(
        Trainer(
            id="openrlhf",
            packages=("openrlhf",),
            schema=config.OPENRLHF,
            checks=Checks(validity.openrlhf, config.OPENRLHF),
            planned=plan.PLANNED,
            advice=knobs.OPENRLHF,
            metrics=(log.NAMES,),
            switches={
                "policy/kl_ref": "with --algo.kl.init_coef above 0",
                "policy/entropy": "with --actor.entropy_coef 0",
            },
            settings={"model": ("pretrain",)},
            groups=Groups(
                "rollout.n_samples_per_prompt", "algo.advantage.estimator", ("rloo", "group_norm", "dr_grpo")
            ),
            gpu_memory=(
                "halve --train.micro_batch_size and --rollout.micro_batch_size (before April 2026"
                " --micro_train_batch_size, --micro_rollout_batch_size); they change memory and speed alone."
                " If the traceback is vLLM's, lower --vllm.gpu_memory_utilization"
            ),
        ),
    ),
    readers=(console(log),),
    named=named_by(log.wrote, log.naming),
)
