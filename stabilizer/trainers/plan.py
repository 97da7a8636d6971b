"""A planned batch and how a trainer writes it: what each trainer's `plan.py` fills in for the batch planner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from stabilizer.configs.config import Version


@dataclass(frozen=True, kw_only=True)
class Cut:
    """One way to cut a batch over GPUs, and the lengths and the version that its configuration depends on."""

    version: Version
    gpus: int
    vllm: str
    """Where generation runs: `none`, `colocate` or `server`."""
    prompt_length: int
    completion_length: int
    processes: int
    vllm_gpus: int
    tensor_parallel: int
    utilization: float
    per_device: int
    accumulation: int
    group: int
    prompts: int
    updates: int

    @property
    def colocated(self) -> bool:
        """Whether vLLM shares the GPUs that train."""
        return self.vllm == "colocate"

    @property
    def engines(self) -> int:
        """vLLM engines that the GPUs for generation hold."""
        return (self.processes if self.colocated else self.vllm_gpus) // self.tensor_parallel


@dataclass(frozen=True, kw_only=True)
class Planned:
    """How a trainer places vLLM, what it keeps in memory, and how its configuration is written."""

    placements: tuple[str, ...]
    """Where its generation can run, its usual place first."""
    configure: Callable[[Cut], dict[str, Any]]
    form: Literal["yaml", "recipe", "hydra", "flags", "toml"]
    """How its users write a configuration; `recipe` is a flat YAML file started with accelerate."""
    entry: str = ""
    """The command that its overrides or flags follow, or the script that accelerate starts."""
    accelerate_folder: str = ""
    """Where its own accelerate configurations lie; empty for none."""
    sleeps: bool = True
    """Whether a colocated vLLM gives its memory back while the model trains."""
    per_process: bool = False
    """Whether the batch is set per process, so that fewer processes than GPUs may train."""
    colocates_since: Version = (0, 0, 0)
    """First version in which vLLM can share the GPUs that train."""
    device_counts_prompts_before: Version = (0, 0, 0)
    """Version before which the per-device batch counts prompts and not completions."""
    generates_per_pass_before: Version = (0, 0, 0)
    """Version before which a process without vLLM generates one pass at a time, and not all that it accumulates."""
    reference_before: Version | None = None
    """Version before which the defaults load a reference model; None: every version does."""


NEVER: Version = (0, 0, 0)
"""For `reference_before`: no version loads a reference model by default."""


def nodes(nodes_key: str, gpus_key: str, gpus: int) -> dict[str, int]:
    """GPUs as whole nodes of eight where they divide into such, else as one node."""
    whole = gpus > 8 and gpus % 8 == 0
    return {nodes_key: gpus // 8 if whole else 1, gpus_key: 8 if whole else gpus}
