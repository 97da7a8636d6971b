"""veRL, and the logs of the trainers that grew out of it."""

from __future__ import annotations

from stabilizer.trainers.reader import Rank, reader
from stabilizer.trainers.trainer import Checks, Family, Trainer
from stabilizer.trainers.verl import config, console, file, knobs, names, rollouts, tracked, validity

_MISMATCH = "with actor_rollout_ref.rollout.calculate_log_probs=true"

FAMILY = Family(
    trainers=(
        Trainer(
            id="verl",
            packages=("verl",),
            schema=config.VERL,
            checks=Checks(newest=validity.NEWEST, rules=validity.verl, defaults=lambda version: validity.DEFAULTS),
            advice=knobs.VERL,
            metrics=(names.NAMES,),
            switches={
                "policy/kl_ref": names.KL_SWITCH,
                "policy/mismatch_kl": _MISMATCH,
                "policy/mismatch_k1": _MISMATCH,
            },
        ),
    ),
    readers=(
        reader(file, Rank.FILE),
        reader(rollouts, Rank.FILE, takes_folder=True, step_file=rollouts.STEP_FILE, held_out=rollouts.VALIDATION),
        reader(console, Rank.CONSOLE, printed=True),
    ),
    named=tracked.named,
)
