"""Planned batches as Search-R1 writes them: Hydra overrides, mini-batches counted in samples."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.plan import Cut, Planned, nodes


def configure(cut: Cut) -> dict[str, Any]:
    """Its mini-batch counts samples, since n_agent multiplies before it is cut; its micro-batches are totals."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    total = cut.per_device * cut.gpus
    return {
        "algorithm.adv_estimator": "grpo",
        "data.train_batch_size": cut.prompts * cut.updates,
        "data.max_prompt_length": cut.prompt_length,
        "data.max_response_length": cut.completion_length,
        f"{actor}.ppo_mini_batch_size": cut.prompts * cut.group,
        f"{actor}.ppo_micro_batch_size": total,
        f"{actor}.use_kl_loss": True,
        f"{rollout}.n_agent": cut.group,
        f"{rollout}.log_prob_micro_batch_size": total,
        "actor_rollout_ref.ref.log_prob_micro_batch_size": total,
        f"{rollout}.tensor_model_parallel_size": cut.tensor_parallel,
        f"{rollout}.gpu_memory_utilization": cut.utilization,
        **nodes("trainer.nnodes", "trainer.n_gpus_per_node", cut.gpus),
    }


PLANNED = Planned(placements=("colocate",), configure=configure, form="hydra", entry="python3 -m verl.trainer.main_ppo")
