"""Where a trainer can be reached from outside: what the faults and the look-alikes of real training are made with.

Nothing here writes a number of a log. A method of one of the trainer's own objects (the verifier, the sampler, the
optimizer, the stream of prompts) is replaced by one that does something else; what the metrics then say is what
training under that is like. Everything random is drawn from the run's own seed, so a case comes out the same whenever
it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import torch
from torch import Tensor

from stabilizer.training.knobs import Knobs
from stabilizer.training.learner import Batch
from stabilizer.training.loop import Trainer
from stabilizer.training.rollout.rollouts import Rollouts
from stabilizer.training.tasks import Problem, Score, random_bits

Scores = list[Score]


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Put `around(inner, *args)` in the place of a method of one object; the class and other runs keep theirs."""
    setattr(owner, name, partial(around, getattr(owner, name)))


def randomness(trainer: Trainer) -> Random:
    """A stream of random numbers that depends on the run's seed and on when it is asked for."""
    return Random(random_bits(trainer.config.seed, trainer.step, "fault"))  # noqa: S311 (no secret)


def learns_with(trainer: Trainer, change: Callable[[Knobs], dict[str, Any]]) -> None:
    """The learner works with other settings than the run's knobs; the sampler keeps the knobs."""

    def around(inner: Callable[[Knobs], Knobs], knobs: Knobs) -> Knobs:
        knobs = inner(knobs)
        return knobs._replace(**change(knobs))

    wrap(trainer, "_adapted", around)


def samples_with(trainer: Trainer, **settings: Any) -> None:
    """Rollouts are made with other settings than the run's knobs."""
    wrap(trainer.collector, "episodes", lambda inner, knobs, *rest: inner(knobs._replace(**settings), *rest))


def pays(trainer: Trainer, change: Callable[[Problem, str, Score], Score]) -> None:
    """Every score passes through `change` on its way out of the verifier."""

    def around(inner: Callable[..., Scores], problems: Sequence[Problem], texts: Sequence[str]) -> Scores:
        scores = inner(problems, texts)
        return [change(*row) for row in zip(problems, texts, scores, strict=True)]

    wrap(trainer.task, "score_all", around)


def teaches(trainer: Trainer, change: Callable[[Batch], Batch]) -> None:
    """The scored batch passes through `change` on its way to the learner."""

    def around(inner: Callable[..., Any], *args: Any) -> Any:
        batch, *rest = inner(*args)
        return change(batch), *rest

    wrap(trainer, "_prepare", around)


def writes(trainer: Trainer, change: Callable[[Rollouts], Rollouts]) -> None:
    """Completions pass through `change` on their way out of the sampler."""
    wrap(trainer.engine, "generate", lambda inner, *args: change(inner(*args)))


def asks(trainer: Trainer, change: Callable[[int, Problem], Problem]) -> None:
    """Every training problem, given with its place in the stream, is exchanged for that of `change`."""

    def around(inner: Callable[..., list[Problem]], count: int, **where: int) -> list[Problem]:
        return [change(where["cursor"] + i, problem) for i, problem in enumerate(inner(count, **where))]

    wrap(trainer.task, "training", around)


@contextmanager
def other_weights(trainer: Trainer, other: Sequence[Tensor]) -> Iterator[None]:
    """A while in which the policy holds other weights."""
    own = [parameter.detach().clone() for parameter in trainer.learner.parameters]
    set_weights(trainer, other)
    try:
        yield
    finally:
        set_weights(trainer, own)


@torch.no_grad()
def set_weights(trainer: Trainer, weights: Sequence[Tensor]) -> None:
    for parameter, value in zip(trainer.learner.parameters, weights, strict=True):
        parameter.copy_(value)


def share_of(*key: int) -> float:
    """A number in [0, 1) that belongs to `key`."""
    return random_bits("share", *key) / 2**64
