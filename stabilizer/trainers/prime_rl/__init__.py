"""prime-rl."""

from __future__ import annotations

from stabilizer.trainers.naming import named_by
from stabilizer.trainers.prime_rl import config, console, knobs, log, plan, validity
from stabilizer.trainers.reader import Rank, reader
from stabilizer.trainers.trainer import Checks, Family, Trainer

FAMILY = Family(
    trainers=(
        Trainer(
            id="prime_rl",
            packages=("prime_rl",),
            schema=config.PRIME_RL,
            checks=Checks(validity.prime_rl, config.PRIME_RL, newest="2026.8"),  # released as source only
            planned=plan.PLANNED,
            advice=knobs.PRIME_RL,
            metrics=(log.NAMES,),
            gpu_memory=(
                "lower inference.gpu_memory_utilization if the traceback is vLLM's; in the trainer shorten"
                " seq_len, which is what one pass holds"
            ),
        ),
    ),
    readers=(
        reader(log, Rank.FILE, takes_folder=True),
        reader(console, Rank.FILE, takes_folder=True, printed=True),
    ),
    named=named_by(log.wrote, log.naming),
)
