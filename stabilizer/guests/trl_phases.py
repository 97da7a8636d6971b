"""The phases of TRL's trainers: methods of one trainer object are wrapped, and nothing they take or return changes."""

from __future__ import annotations

import functools
import sys
from typing import Any

from stabilizer.live.heart import Heart
from stabilizer.live.rank_watch import RankWatch

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


def watch_other_rank(trainer: Any, rank: int, world: int) -> None:
    """Write heartbeats of a process that has no run of its own; what fails here is said and goes no further."""
    try:
        _watch(trainer, rank, world)
    except Exception as error:
        print(f"stabilizer: rank {rank} writes no heartbeats: {type(error).__name__}: {error}", file=sys.stderr)


def _watch(trainer: Any, rank: int, world: int) -> None:
    from transformers import TrainerCallback

    watch = RankWatch(rank, world)

    class Steps(TrainerCallback):  # type: ignore[misc, unused-ignore]
        """Counts steps."""

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            watch.heart.beat(int(state.global_step))

        def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            watch.close()

    trainer.add_callback(Steps())
    mark_phases(trainer, watch.heart)
