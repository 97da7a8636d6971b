"""Planned batches as ms-swift writes them: flags of `swift rlhf`."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.plan import Cut, Planned


def configure(cut: Cut) -> dict[str, Any]:
    """The keys of a batch cut like this."""
    config: dict[str, Any] = {
        "rlhf_type": "grpo",
        "per_device_train_batch_size": cut.per_device,
        "gradient_accumulation_steps": cut.accumulation,
        "num_generations": cut.group,
        "max_length": cut.prompt_length,
        "max_completion_length": cut.completion_length,
        "tuner_type": "full",
    }
    if cut.updates > 1:
        config["steps_per_generation"] = cut.accumulation * cut.updates
    if cut.vllm == "none":
        return config
    config |= {"use_vllm": True, "vllm_mode": cut.vllm}
    if cut.colocated:
        config |= {
            "vllm_gpu_memory_utilization": cut.utilization,
            "vllm_tensor_parallel_size": cut.tensor_parallel,
            "sleep_level": 1,
        }
    else:
        config["vllm_server_host"] = "127.0.0.1"
    return config


PLANNED = Planned(
    placements=("colocate", "server", "none"),
    configure=configure,
    form="flags",
    entry="swift rlhf",
    per_process=True,
)
