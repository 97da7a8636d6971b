"""A process of a TRL training other than the first: it has no run, writes heartbeats into the run of the first process,
and makes the changes that the first one decides."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from stabilizer.guests.knobs import LoopKnob, our_name, scale_of
from stabilizer.guests.trl_knobs import trl_knobs
from stabilizer.guests.trl_phases import mark_phases
from stabilizer.guests.trl_ranks import Follower, Ranks
from stabilizer.guests.trl_reference import Reference
from stabilizer.guests.trl_state import TrlKeeper
from stabilizer.live.rank_watch import RankWatch


def follow(trainer: Any, ranks: Ranks, rank: int, world: int) -> None:
    """Attach to a trainer of another process; what fails here is said and goes no further."""
    try:
        _follow(trainer, ranks, rank, world)
    except Exception as error:
        print(f"stabilizer: rank {rank} is not watched: {type(error).__name__}: {error}", file=sys.stderr)


def _follow(trainer: Any, ranks: Ranks, rank: int, world: int) -> None:
    from transformers import TrainerCallback

    watch = RankWatch(rank, world)
    reference = Reference(trainer, None)
    turned = trl_knobs(trainer, reference, lambda what, error: _say(rank, f"{what}: {error}"))
    follower = Follower(ranks, TrlKeeper(trainer), rank, lambda folder: setattr(reference, "run", folder))
    for offer in turned.offers():
        name, value = our_name(offer.name), float(offer.get())
        base = scale_of(name, value)
        follower.knobs[name] = LoopKnob(name, offer.get, offer.set, base, value / base)

    def guard(do: Callable[[], Any]) -> Any:
        try:
            return do()
        except Exception as error:
            ranks.leave()
            _say(rank, f"it follows no longer: {type(error).__name__}: {error}")

    class Steps(TrainerCallback):  # type: ignore[misc, unused-ignore]
        """Follows the first process at the end of each step."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            guard(lambda: ranks.join() and follower.follow())

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            if follower.take_skip():
                guard(lambda: trainer.optimizer.zero_grad(set_to_none=True))

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            watch.heart.beat(int(state.global_step))
            guard(turned.step_ended)
            with watch.heart.phase("paused"):  # waits for the first process, which is watched itself
                if guard(follower.follow):
                    control.should_training_stop = control.should_save = True

        def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            watch.close()

    trainer.add_callback(Steps())
    mark_phases(trainer, watch.heart)


def _say(rank: int, text: str) -> None:
    print(f"stabilizer: rank {rank}: {text}", file=sys.stderr)
