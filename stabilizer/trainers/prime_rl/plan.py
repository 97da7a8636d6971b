"""Planned batches as prime-rl writes them: TOML, with GPUs of its own for generation."""

from __future__ import annotations

from typing import Any

from stabilizer.trainers.plan import NEVER, Cut, Planned


def configure(cut: Cut) -> dict[str, Any]:
    """The keys of a batch cut like this."""
    return {
        "orchestrator.batch_size": cut.prompts * cut.group,
        "orchestrator.group_size": cut.group,
        "seq_len": cut.prompt_length + cut.completion_length,
        "deployment.num_train_gpus": cut.processes,
        "deployment.num_infer_gpus": cut.vllm_gpus,
    }


PLANNED = Planned(placements=("server",), configure=configure, form="toml", reference_before=NEVER)
