"""Planned batches as LLaMA-Factory writes them: flat YAML of its PPO stage, which has no groups."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.plan import Cut, Planned


def configure(cut: Cut) -> dict[str, Any]:
    """The keys of a batch cut like this."""
    return {
        "stage": "ppo",
        "do_train": True,
        "reward_model": "YOUR_REWARD_MODEL",
        "dataset": "YOUR_DATASET",
        "per_device_train_batch_size": cut.per_device,
        "gradient_accumulation_steps": cut.accumulation,
        "ppo_buffer_size": cut.updates,
        "cutoff_len": cut.prompt_length,
        "max_new_tokens": cut.completion_length,
    }


PLANNED = Planned(placements=("none",), configure=configure, form="yaml", per_process=True)
