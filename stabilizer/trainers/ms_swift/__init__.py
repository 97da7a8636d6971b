"""ms-swift."""

from __future__ import annotations

from stabilizer.trainers.ms_swift import config, knobs, log, plan, validity
from stabilizer.trainers.reader import Rank, reader
from stabilizer.trainers.trainer import Checks, Family, Groups, Trainer
from stabilizer.trainers.trl import SETTINGS, state

FAMILY = Family(
    trainers=(
        Trainer(
            id="ms-swift",
            aliases=("swift",),
            parent="trl",
            packages=("swift",),
            schema=config.MS_SWIFT,
            checks=Checks(validity.ms_swift, config.MS_SWIFT),
            planned=plan.PLANNED,
            advice=knobs.MS_SWIFT,
            metrics=(state.NAMES,),
            switches={"policy/kl_ref": "with beta above 0", "policy/entropy": "with log_entropy true"},
            settings={**SETTINGS, "task": ("dataset",), "model": ("model",)},
            groups=Groups("num_generations"),
            gpu_memory=(
                "halve --per_device_train_batch_size and double --gradient_accumulation_steps (the"
                " optimisation stays the same); with a colocated vLLM also lower"
                " --vllm_gpu_memory_utilization and set --sleep_level 1, or shorten --max_completion_length"
            ),
        ),
    ),
    readers=(reader(log, Rank.CONSOLE, printed=True),),
)
