"""Planned batches as NeMo-RL writes them: one nested YAML file."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.plan import Cut, Planned, nodes


def configure(cut: Cut) -> dict[str, Any]:
    """The keys of a batch cut like this."""
    config = {
        "grpo.num_prompts_per_step": cut.prompts * cut.updates,
        "grpo.num_generations_per_prompt": cut.group,
        "policy.train_global_batch_size": cut.prompts * cut.group,
        "policy.train_micro_batch_size": cut.per_device,
        "policy.max_total_sequence_length": cut.prompt_length + cut.completion_length,
        "policy.generation.vllm_cfg.tensor_parallel_size": cut.tensor_parallel,
        "policy.generation.vllm_cfg.gpu_memory_utilization": cut.utilization,
        "policy.generation.colocated.enabled": cut.colocated,
        "cluster.num_nodes": 1,
        "cluster.gpus_per_node": cut.gpus,
    }
    if cut.colocated:
        config |= nodes("cluster.num_nodes", "cluster.gpus_per_node", cut.gpus)
    else:
        config["policy.generation.colocated.resources.gpus_per_node"] = cut.vllm_gpus
    return config


PLANNED = Planned(placements=("colocate", "server"), configure=configure, form="yaml")
