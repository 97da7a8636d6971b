"""veRL, and the logs of the trainers that grew out of it."""

from __future__ import annotations

from stabilizer.trainers.reader import Rank, reader
from stabilizer.trainers.trainer import Checks, Family, Groups, Trainer
from stabilizer.trainers.verl import config, console, file, knobs, names, plan, rollouts, tracked, validity

_MISMATCH = "with actor_rollout_ref.rollout.calculate_log_probs=true"

FAMILY = Family(
    trainers=(
        Trainer(
            id="verl",
            packages=("verl",),
            schema=config.VERL,
            checks=Checks(validity.verl, config.VERL),
            planned=plan.PLANNED,
            advice=knobs.VERL,
            metrics=(names.NAMES,),
            switches={
                "policy/kl_ref": names.KL_SWITCH,
                "policy/mismatch_kl": _MISMATCH,
                "policy/mismatch_k1": _MISMATCH,
            },
            settings={
                "task": ("data.train_files",),
                "precision": ("actor_rollout_ref.actor.fsdp_config.dtype",),
                "reward": ("custom_reward_function.name",),
                "model": ("actor_rollout_ref.model.path",),
                "steps": ("trainer.total_training_steps",),
                "processes": ("trainer.n_gpus_per_node",),
                "warmup_frac": ("actor_rollout_ref.actor.optim.lr_warmup_steps_ratio",),
            },
            groups=Groups(
                "actor_rollout_ref.rollout.n",
                "algorithm.adv_estimator",
                ("grpo", "rloo", "opo", "grpo_passk", "gpg"),
            ),
            gpu_memory=(
                "halve actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu and the two"
                " log_prob_micro_batch_size_per_gpu (with use_dynamic_bsz: ppo_max_token_len_per_gpu); they"
                " change memory and speed alone. If the traceback is vLLM's, lower"
                " actor_rollout_ref.rollout.gpu_memory_utilization"
            ),
        ),
    ),
    readers=(
        reader(file, Rank.FILE),
        reader(rollouts, Rank.FILE, takes_folder=True, step_file=rollouts.STEP_FILE, held_out=rollouts.VALIDATION),
        reader(console, Rank.CONSOLE, printed=True),
    ),
    named=tracked.named,
)
