"""Planned batches as AReaL writes them: overrides behind its configuration file."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.plan import Cut, Planned, nodes


def configure(cut: Cut) -> dict[str, Any]:
    """The keys of a batch cut like this."""
    # 4,096 tokens hold no fewer than one sequence of the usual lengths
    tokens = max(cut.per_device * (cut.prompt_length + cut.completion_length), 4096)
    return {
        "train_dataset.batch_size": cut.prompts * cut.updates,
        "train_dataset.max_length": cut.prompt_length,
        "gconfig.n_samples": cut.group,
        "gconfig.max_new_tokens": cut.completion_length,
        "actor.ppo_n_minibatches": cut.updates,
        "actor.mb_spec.max_tokens_per_mb": tokens,
        "actor.reward_norm.mean_level": "group",
        "actor.reward_norm.std_level": "group",
        "actor.reward_norm.group_size": cut.group,
        "actor.backend": f"fsdp:d{cut.processes}p1t1",
        "rollout.backend": f"sglang:d{cut.engines}p1t{cut.tensor_parallel}",
        "sglang.mem_fraction_static": cut.utilization,
        **nodes("cluster.n_nodes", "cluster.n_gpus_per_node", cut.gpus),
    }


PLANNED = Planned(
    placements=("server",),
    configure=configure,
    form="hydra",
    entry="python3 YOUR_SCRIPT.py --config YOUR.yaml",
)
