"""Planned batches as slime writes them: command-line flags."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.plan import Cut, Planned, nodes


def configure(cut: Cut) -> dict[str, Any]:
    """The keys of a batch cut like this."""
    placed = {"colocate": True} if cut.colocated else {"rollout-num-gpus": cut.vllm_gpus}
    return {
        "advantage-estimator": "grpo",
        "num-rollout": 1000,
        "rollout-batch-size": cut.prompts * cut.updates,
        "n-samples-per-prompt": cut.group,
        "global-batch-size": cut.prompts * cut.group,
        "micro-batch-size": cut.per_device,
        "rollout-max-prompt-len": cut.prompt_length,
        "rollout-max-response-len": cut.completion_length,
        "rollout-max-context-len": cut.prompt_length + cut.completion_length + 1,
        **nodes("actor-num-nodes", "actor-num-gpus-per-node", cut.processes),
        "rollout-num-gpus-per-engine": cut.tensor_parallel,
        "sglang-mem-fraction-static": cut.utilization,
        **placed,
    }


PLANNED = Planned(
    placements=("colocate", "server"),
    configure=configure,
    form="flags",
    entry="python3 train.py",
)
