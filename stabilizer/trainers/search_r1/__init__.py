"""Search-R1, whose logs veRL's readers read."""

from __future__ import annotations

from stabilizer.trainers.search_r1 import config, knobs, plan, validity
from stabilizer.trainers.trainer import Checks, Family, Groups, Trainer
from stabilizer.trainers.verl import names

FAMILY = Family(
    trainers=(
        Trainer(
            id="search_r1",
            aliases=("searchr1",),
            parent="verl",
            packages=("search_r1", "search-r1"),
            dumps_as="verl",
            schema=config.SEARCH_R1,
            checks=Checks(validity.search_r1, config.SEARCH_R1, newest="2025.10"),  # released as source only
            planned=plan.PLANNED,
            advice=knobs.SEARCH_R1,
            metrics=({"actor/entropy_loss": "policy/entropy"}, names.SEARCH_R1_NAMES, names.NAMES),
            switches={"policy/kl_ref": names.KL_SWITCH},
            groups=Groups("actor_rollout_ref.rollout.n_agent", "algorithm.adv_estimator", ("grpo",)),
            gpu_memory=(
                "halve actor_rollout_ref.actor.ppo_micro_batch_size and the log_prob_micro_batch_size of"
                " rollout and ref (they change memory and speed alone; not ppo_mini_batch_size, which changes"
                " the optimisation), or lower actor_rollout_ref.rollout.gpu_memory_utilization"
            ),
        ),
    ),
)
