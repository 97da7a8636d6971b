"""LLaMA-Factory. Its logs are those of transformers' Trainer, which TRL's readers know."""

from __future__ import annotations

from stabilizer.trainers.llama_factory import config, knobs, validity
from stabilizer.trainers.trainer import Checks, Family, Trainer
from stabilizer.trainers.trl import SETTINGS, state

FAMILY = Family(
    trainers=(
        Trainer(
            id="llama-factory",
            aliases=("llamafactory",),
            parent="trl",
            packages=("llamafactory", "llmtuner"),
            schema=config.LLAMA_FACTORY,
            checks=Checks(validity.llama_factory, config.LLAMA_FACTORY),
            advice=knobs.LLAMA_FACTORY,
            metrics=(state.NAMES,),
            settings={**SETTINGS, "task": ("dataset",)},
            gpu_memory=(
                "halve per_device_train_batch_size and double gradient_accumulation_steps (the optimisation"
                " stays the same), or shorten max_new_tokens"
            ),
        ),
    ),
)
