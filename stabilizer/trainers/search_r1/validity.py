"""Search-R1: an early veRL, whose batch keys are all totals over the GPUs, micro-batches included.

Each worker divides mini- and micro-batch by its data-parallel size and multiplies by `rollout.n`, so a micro-batch
smaller than the number of GPUs becomes 0 and divides by it. `rollout.n_agent`, the group size of the search agent,
multiplies the rollouts but not the mini-batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stabilizer.trainers.constraints import Refusals, Settings, Violation, divisors, near_multiple, nearest, positive
from stabilizer.trainers.verl.validity import gpu_count

_ACTOR, _ROLLOUT, _REF = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref"
_WORKER = "Search-R1, verl/workers/fsdp_workers.py"
_refuse = Refusals("search-r1", _WORKER)


def search_r1(settings: Settings) -> Iterator[Violation]:
    """Whole micro-batches in whole mini-batches on every rank, and a rollout that divides among the GPUs."""
    gpus = gpu_count(settings)
    train, agents = settings.number("data.train_batch_size"), settings.number(f"{_ROLLOUT}.n_agent")
    wrong = list(positive(settings, "search-r1", _WORKER, "data.train_batch_size", f"{_ACTOR}.ppo_mini_batch_size"))
    if wrong or gpus < 1:
        yield from wrong
        return
    if train is not None and agents is not None and train * agents % gpus:
        unit = gpus // math.gcd(gpus, agents)
        text = f"the rollout batch ({train} x {agents} = {train * agents}) must divide among {gpus} GPUs"
        yield _refuse(
            "train-batch-gpus",
            "data.train_batch_size",
            text,
            f"data.train_batch_size {near_multiple(train, unit)} (a multiple of {unit})",
            "Search-R1, verl/protocol.py DataProto.chunk",
        )
    tensor = settings.number(f"{_ROLLOUT}.tensor_model_parallel_size") or 1
    if gpus % tensor:
        text = f"rollout world_size {gpus} is not divisible by infer_tp {tensor}"
        change = f"tensor_model_parallel_size {nearest(tensor, divisors(gpus))}"
        yield _refuse("rollout-parallel", f"{_ROLLOUT}.tensor_model_parallel_size", text, change)
    # The critic has no rollout.n to multiply by, but the quotient is the same.
    yield from _mini_and_micro(settings, _ACTOR, gpus)
    if settings.text("algorithm.adv_estimator") == "gae":
        yield from _mini_and_micro(settings, "critic", gpus)
    for section in (_ROLLOUT, _REF):
        yield from _at_least_one_each(settings, f"{section}.log_prob_micro_batch_size", gpus)


def _mini_and_micro(settings: Settings, section: str, gpus: int) -> Iterator[Violation]:
    parallel = gpus // (settings.number(f"{section}.ulysses_sequence_parallel_size") or 1)
    mini = settings.first(f"{section}.ppo_mini_batch_size", f"{_ACTOR}.ppo_mini_batch_size")
    micro = settings.number(f"{section}.ppo_micro_batch_size")
    dynamic = settings.flag(f"{_ACTOR}.use_dynamic_bsz")
    if mini is None or micro is None or parallel < 1 or dynamic:
        return
    small = list(_at_least_one_each(settings, f"{section}.ppo_micro_batch_size", parallel))
    yield from small
    if not small and (mini // parallel) % (micro // parallel):
        fitting = [size * parallel for size in divisors(mini // parallel)]
        text = (
            f"ppo_mini_batch_size ({mini}, {mini // parallel} a rank) must be divisible by "
            f"ppo_micro_batch_size ({micro}, {micro // parallel} a rank)"
        )
        yield _refuse(
            "micro-divides-mini",
            f"{section}.ppo_micro_batch_size",
            text,
            f"ppo_micro_batch_size {nearest(micro, fitting)}; it costs memory and changes nothing else",
            "Search-R1, verl/workers/actor/dp_actor.py" if section == _ACTOR else "Search-R1, dp_critic.py",
        )


def _at_least_one_each(settings: Settings, key: str, ranks: int) -> Iterator[Violation]:
    size = settings.number(key)
    if size is not None and size < ranks:
        text = f"{key.rpartition('.')[2]} ({size}) is a total over {ranks} ranks: each would get 0"
        yield _refuse("micro-under-gpus", key, text, f"{ranks} or a multiple of it")
