"""Planned batches as OpenRLHF writes them: command-line flags."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.plan import Cut, Planned, nodes


def configure(cut: Cut) -> dict[str, Any]:
    """The keys of a batch cut like this."""
    placed = (
        {"train.colocate_all": True, "vllm.enable_sleep": True} if cut.colocated else {"train.colocate_actor_ref": True}
    )
    return {
        "algo.advantage.estimator": "group_norm",
        "rollout.batch_size": cut.prompts * cut.updates,
        "rollout.n_samples_per_prompt": cut.group,
        "rollout.micro_batch_size": cut.per_device,
        "rollout.max_new_tokens": cut.completion_length,
        "data.max_len": cut.prompt_length + cut.completion_length,
        "train.batch_size": cut.prompts * cut.group,
        "train.micro_batch_size": cut.per_device,
        **nodes("actor.num_nodes", "actor.num_gpus_per_node", cut.processes),
        **nodes("ref.num_nodes", "ref.num_gpus_per_node", cut.processes),
        "vllm.num_engines": cut.engines,
        "vllm.tensor_parallel_size": cut.tensor_parallel,
        "vllm.gpu_memory_utilization": cut.utilization,
        **placed,
    }


PLANNED = Planned(
    placements=("colocate", "server"),
    configure=configure,
    form="flags",
    entry="python3 -m openrlhf.cli.train_ppo_ray",
)
