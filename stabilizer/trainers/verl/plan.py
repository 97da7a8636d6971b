"""Planned batches as veRL writes them: Hydra overrides, mini-batches counted in prompts."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.plan import NEVER, Cut, Planned, nodes


def configure(cut: Cut) -> dict[str, Any]:
    """The keys of a batch cut like this."""
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    return {
        "algorithm.adv_estimator": "grpo",
        "data.train_batch_size": cut.prompts * cut.updates,
        "data.max_prompt_length": cut.prompt_length,
        "data.max_response_length": cut.completion_length,
        f"{actor}.ppo_mini_batch_size": cut.prompts,
        f"{actor}.ppo_micro_batch_size_per_gpu": cut.per_device,
        f"{rollout}.name": "vllm",
        f"{rollout}.n": cut.group,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": cut.per_device,
        f"{rollout}.tensor_model_parallel_size": cut.tensor_parallel,
        f"{rollout}.gpu_memory_utilization": cut.utilization,
        **nodes("trainer.nnodes", "trainer.n_gpus_per_node", cut.gpus),
    }


PLANNED = Planned(
    placements=("colocate",),
    configure=configure,
    form="hydra",
    entry="python3 -m verl.trainer.main_ppo",
    reference_before=NEVER,
)
