"""Planned batches as ROLL writes them: a YAML file with a section a role."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.plan import Cut, Planned


def configure(cut: Cut) -> dict[str, Any]:
    """The keys of a batch cut like this."""
    first = 0 if cut.colocated else cut.processes
    served = f"list(range({first},{first + (cut.processes if cut.colocated else cut.vllm_gpus)}))"
    return {
        "adv_estimator": "grpo",
        "rollout_batch_size": cut.prompts * cut.updates,
        "num_return_sequences_in_group": cut.group,
        "prompt_length": cut.prompt_length,
        "response_length": cut.completion_length,
        "actor_train.training_args.per_device_train_batch_size": cut.per_device,
        "actor_train.training_args.gradient_accumulation_steps": cut.prompts
        * cut.group
        // (cut.per_device * cut.processes),
        "actor_train.strategy_args.strategy_name": "fsdp2_train",
        "actor_train.device_mapping": f"list(range(0,{cut.processes}))",
        "actor_infer.strategy_args.strategy_name": "vllm",
        "actor_infer.strategy_args.strategy_config.gpu_memory_utilization": cut.utilization,
        "actor_infer.num_gpus_per_worker": cut.tensor_parallel,
        "actor_infer.device_mapping": served,
        "reference.device_mapping": f"list(range(0,{cut.processes}))",
    }


PLANNED = Planned(
    placements=("colocate", "server"),
    configure=configure,
    form="yaml",
    entry="python examples/start_rlvr_pipeline.py",
)
