"""EasyR1."""

from __future__ import annotations

from stabilizer.trainers.easyr1 import config, knobs, log, plan, validity
from stabilizer.trainers.reader import Rank, reader
from stabilizer.trainers.trainer import Checks, Family, Trainer
from stabilizer.trainers.verl import names

FAMILY = Family(
    trainers=(
        Trainer(
            id="easyr1",
            aliases=("easy-r1",),
            parent="verl",
            packages=("easyr1",),
            schema=config.EASYR1,
            checks=Checks(validity.easyr1, config.EASYR1),
            planned=plan.PLANNED,
            advice=knobs.EASYR1,
            metrics=(names.EASYR1_NAMES, names.NAMES),
            switches={"policy/kl_ref": "with algorithm.disable_kl=false"},
            settings={
                "task": ("data.data_name",),
                "reward": ("worker.reward.reward_function",),
                "model": ("worker.actor.model.model_path",),
                "schedule": ("worker.actor.optim.lr_scheduler_type",),
                "warmup": ("worker.actor.optim.lr_warmup_ratio",),
            },
            gpu_memory=(
                "halve worker.actor.micro_batch_size_per_device_for_update and .._for_experience (they change"
                " memory and speed alone), or lower worker.rollout.gpu_memory_utilization"
            ),
        ),
    ),
    readers=(reader(log, Rank.FILE, takes_folder=True, printed=True),),
    explain=log.only_tracked,
)
