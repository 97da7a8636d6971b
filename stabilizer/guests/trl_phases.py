"""The phases of TRL's trainers: methods of one trainer object are wrapped, and nothing they take or return changes."""

from __future__ import annotations

import functools
from typing import Any

from stabilizer.live.heart import Heart

METHODS = {
    "get_batch_samples": "data",
    "_generate_and_score_completions": "rollout",
    "_calculate_rewards": "reward",
    "training_step": "update",
    "_save_checkpoint": "save",
    "save_model": "save",
    "evaluate": "validation",
}
"""Methods of transformers' and TRL's trainers, each with the phase it is. Those that a version lacks are left out."""
ENGINE_METHODS = {"sync_weights": "sync", "generate": "rollout"}
"""Methods of `trainer.vllm_generation`."""


def mark_phases(trainer: Any, heart: Heart) -> None:
    """Enter the phases of a trainer while its methods run."""
    _wrap(trainer, METHODS, heart)
    functions = getattr(trainer, "reward_funcs", None)
    if functions and not hasattr(trainer, "_calculate_rewards"):  # before TRL 0.19
        trainer.reward_funcs = [
            one if hasattr(one, "parameters") else _within(heart, "reward", one) for one in functions
        ]
    engine = getattr(trainer, "vllm_generation", None)
    if engine is not None:
        _wrap(engine, ENGINE_METHODS, heart)


def _wrap(owner: Any, methods: dict[str, str], heart: Heart) -> None:
    for name, phase in methods.items():
        plain = getattr(owner, name, None)
        if plain is not None:
            setattr(owner, name, _within(heart, phase, plain))


def _within(heart: Heart, phase: str, plain: Any) -> Any:
    @functools.wraps(plain)
    def call(*args: Any, **named: Any) -> Any:
        with heart.phase(phase):
            return plain(*args, **named)

    return call
