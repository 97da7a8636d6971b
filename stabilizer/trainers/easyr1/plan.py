"""Planned batches as EasyR1 writes them: one nested YAML file."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.plan import Cut, Planned, nodes


def configure(cut: Cut) -> dict[str, Any]:
    """The keys of a batch cut like this."""
    return {
        "algorithm.adv_estimator": "grpo",
        "data.rollout_batch_size": cut.prompts * cut.updates,
        "data.max_prompt_length": cut.prompt_length,
        "data.max_response_length": cut.completion_length,
        "worker.actor.global_batch_size": cut.prompts,
        "worker.actor.micro_batch_size_per_device_for_update": cut.per_device,
        "worker.actor.micro_batch_size_per_device_for_experience": cut.per_device,
        "worker.rollout.n": cut.group,
        "worker.rollout.tensor_parallel_size": cut.tensor_parallel,
        "worker.rollout.gpu_memory_utilization": cut.utilization,
        **nodes("trainer.nnodes", "trainer.n_gpus_per_node", cut.gpus),
    }


PLANNED = Planned(placements=("colocate",), configure=configure, form="yaml")
