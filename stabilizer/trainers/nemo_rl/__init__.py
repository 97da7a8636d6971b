"""NeMo-RL."""

from __future__ import annotations

from stabilizer.trainers.console_log import console
from stabilizer.trainers.naming import named_by
from stabilizer.trainers.nemo_rl import config, knobs, log, plan, validity
from stabilizer.trainers.trainer import Checks, Family, Trainer

FAMILY = Family(
    trainers=(
        Trainer(
            id="nemo_rl",
            packages=("nemo_rl",),
            schema=config.NEMO_RL,
            checks=Checks(validity.nemo_rl, config.NEMO_RL, newest="2026.8"),  # released as source only
            planned=plan.PLANNED,
            advice=knobs.NEMO_RL,
            metrics=(log.NAMES,),
            gpu_memory=(
                "halve policy.train_micro_batch_size and policy.logprob_batch_size (they change memory and"
                " speed alone), or lower policy.generation.vllm_cfg.gpu_memory_utilization"
            ),
        ),
    ),
    readers=(console(log),),
    named=named_by(log.wrote, log.naming),
)
