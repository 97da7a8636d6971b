"""Planned batches as TRL and Open-R1 write them: per device, accumulated, and started with accelerate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stabilizer.trainers.plan import Cut, Planned


def configure(cut: Cut) -> dict[str, Any]:
    """The keys of a batch cut like this."""
    config: dict[str, Any] = {
        "per_device_train_batch_size": cut.per_device,
        "gradient_accumulation_steps": cut.accumulation,
        "num_generations": cut.group,
        "max_completion_length": cut.completion_length,
    }
    if cut.version < (0, 28, 0):
        config["max_prompt_length"] = cut.prompt_length
    if cut.vllm == "none":
        return config
    config["use_vllm"] = True
    if cut.version >= (0, 18, 0):
        config["vllm_mode"] = cut.vllm
    if cut.colocated:
        config["vllm_gpu_memory_utilization"] = cut.utilization
        config["vllm_tensor_parallel_size"] = cut.tensor_parallel
    return config


PLANNED = Planned(
    placements=("none", "colocate", "server"),
    configure=configure,
    form="recipe",
    entry="YOUR_SCRIPT.py",
    sleeps=False,
    per_process=True,
    colocates_since=(0, 18, 0),
    device_counts_prompts_before=(0, 15, 0),
    generates_per_pass_before=(0, 17, 0),
    reference_before=(0, 19, 0),
)
RLOO = replace(PLANNED, reference_before=None)
OPEN_R1 = replace(
    PLANNED,
    placements=("server", "colocate", "none"),
    entry="src/open_r1/grpo.py",
    accelerate_folder="recipes/accelerate_configs/",
)
