"""Planned batches as SkyRL writes them: Hydra overrides."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.plan import Cut, Planned, nodes


def configure(cut: Cut) -> dict[str, Any]:
    """The keys of a batch cut like this."""
    return {
        "trainer.algorithm.advantage_estimator": "grpo",
        "trainer.train_batch_size": cut.prompts * cut.updates,
        "trainer.policy_mini_batch_size": cut.prompts,
        "trainer.micro_train_batch_size_per_gpu": cut.per_device,
        "trainer.micro_forward_batch_size_per_gpu": cut.per_device,
        "generator.n_samples_per_prompt": cut.group,
        "generator.sampling_params.max_generate_length": cut.completion_length,
        "generator.inference_engine.num_engines": cut.engines,
        "generator.inference_engine.tensor_parallel_size": cut.tensor_parallel,
        "generator.inference_engine.gpu_memory_utilization": cut.utilization,
        "trainer.placement.colocate_all": cut.colocated,
        **nodes("trainer.placement.policy_num_nodes", "trainer.placement.policy_num_gpus_per_node", cut.processes),
        **nodes("trainer.placement.ref_num_nodes", "trainer.placement.ref_num_gpus_per_node", cut.processes),
    }


PLANNED = Planned(
    placements=("colocate", "server"),
    configure=configure,
    form="hydra",
    entry="python -m skyrl.train.entrypoints.main_base",
)
