"""veRL 0.9.1: what `validate_config`, the actor and critic configurations and the workers refuse.

Batches count prompts; every worker multiplies them by `rollout.n` and divides by the data-parallel size. Only
`*_micro_batch_size*` are memory knobs; `ppo_mini_batch_size` is the batch of one optimizer step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stabilizer.trainers.constraints import Refusals, Settings, Violation, divisors, near_multiple, nearest, positive

_ACTOR, _ROLLOUT, _REF = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref"
_LOSS_MODES = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
_CONFIG = "verl 0.9.1, verl/utils/config.py validate_config"
_IN_ACTOR = "verl 0.9.1, verl/workers/config/actor.py"
_IN_CRITIC = "verl 0.9.1, verl/workers/config/critic.py"
_WORKER = "verl 0.9.1, verl/workers/engine_workers.py, when the first batch arrives"
_refuse = Refusals("verl", _WORKER)


def gpu_count(settings: Settings) -> int:
    """GPUs of the trainer: the configuration's own numbers, else those said to be there, else the default 8."""
    keys = {"trainer.n_gpus_per_node": 8, "trainer.nnodes": 1}
    return settings.placed(settings.gpus or settings.processes, keys)


def verl(settings: Settings) -> Iterator[Violation]:
    """All of it: the batch, the actor, the log-probabilities, the critic, the rollout."""
    gpus = gpu_count(settings)
    dynamic = settings.flag(f"{_ACTOR}.use_dynamic_bsz")
    sizes = ("data.train_batch_size", f"{_ACTOR}.ppo_mini_batch_size", f"{_ROLLOUT}.n")
    micros = (f"{_ACTOR}.ppo_micro_batch_size_per_gpu", f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu")
    wrong = list(positive(settings, "verl", _WORKER, *sizes, *micros))
    if wrong or gpus < 1:
        yield from wrong
        return
    if not dynamic:
        yield from _smallest_batch(settings, gpus)
        yield from _micro(settings, _ACTOR, "ppo_micro_batch_size", _IN_ACTOR)
        yield from _sizes(settings, _ACTOR, gpus, _IN_ACTOR)
        if settings.flag("algorithm.use_kl_in_reward") or settings.flag(f"{_ACTOR}.use_kl_loss"):
            yield from _micro(settings, _REF, "log_prob_micro_batch_size", _CONFIG)
        yield from _micro(settings, _ROLLOUT, "log_prob_micro_batch_size", _CONFIG)
    yield from _loss_and_parallel(settings)
    if _has_critic(settings):
        yield from _critic(settings, gpus)
    yield from _at_work(settings, gpus, dynamic)
    if settings.flag(f"{_ROLLOUT}.val_kwargs.do_sample"):
        temperature = settings.real(f"{_ROLLOUT}.temperature")
        if temperature is not None and temperature <= 0:
            text = "validation gen temperature should be greater than 0 when enabling do_sample"
            change = "a temperature above 0, or val_kwargs.do_sample False"
            yield _refuse("val-temperature", f"{_ROLLOUT}.temperature", text, change, _CONFIG)


def _megatron(settings: Settings) -> int:
    keys = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    return settings.product(*(f"{_ACTOR}.megatron.{key}" for key in keys))


def _data_parallel(settings: Settings, gpus: int) -> int:
    if settings.text(f"{_ACTOR}.strategy") == "megatron":
        return gpus // _megatron(settings)
    return gpus // max(settings.number(f"{_ACTOR}.ulysses_sequence_parallel_size") or 1, 1)


def _smallest_batch(settings: Settings, gpus: int) -> Iterator[Violation]:
    train, n = settings.number("data.train_batch_size"), settings.number(f"{_ROLLOUT}.n")
    if train is None or n is None:
        return
    smallest = gpus
    if settings.text(f"{_ACTOR}.strategy") == "megatron":
        parallel = _megatron(settings)
        if gpus % parallel:
            text = f"n_gpus ({gpus}) must be divisible by model_parallel_size times context_parallel_size ({parallel})"
            change = f"a product of {nearest(parallel, divisors(gpus))}"
            yield _refuse("megatron-gpus", f"{_ACTOR}.megatron.tensor_model_parallel_size", text, change, _CONFIG)
            return
        smallest = gpus // parallel * (settings.number(f"{_ACTOR}.ppo_micro_batch_size_per_gpu") or 1)
    if train * n % smallest:
        unit = smallest // math.gcd(smallest, n)
        text = (
            f"real_train_batch_size ({train} x {n} = {train * n}) must be divisible by minimal possible batch "
            f"size ({smallest})"
        )
        change = f"data.train_batch_size {near_multiple(train, unit)} (a multiple of {unit})"
        yield _refuse("train-batch-gpus", "data.train_batch_size", text, change, _CONFIG)


def _micro(settings: Settings, section: str, key: str, source: str) -> Iterator[Violation]:
    """Exactly one of the total and the per-GPU micro batch, of which only the latter still works."""
    per_gpu = f"{section}.{key}_per_gpu"
    total_set = settings.get(f"{section}.{key}") is not None
    per_gpu_set = settings.get(per_gpu) is not None or (section == "critic" and total_set)
    if per_gpu_set and not total_set:
        return
    if per_gpu_set:
        rule, text = "micro-batch-both", f"you have set both {key} and {key}_per_gpu; the former is deprecated"
    elif total_set:
        rule, text, source = "micro-batch-total", f"{key} alone is not enough: {key}_per_gpu is asserted", _WORKER
    else:
        rule, text = "micro-batch-missing", f"please set at least one of {key} or {key}_per_gpu"
    if rule == "micro-batch-total" and section == _REF:
        return
    text = f"[{section}] {text}"
    yield _refuse(rule, per_gpu, text, f"{per_gpu} alone, e.g. 1 or more; or use_dynamic_bsz True", source)


def _sizes(settings: Settings, section: str, gpus: int, source: str) -> Iterator[Violation]:
    train = settings.number("data.train_batch_size")
    mini = settings.first(f"{section}.ppo_mini_batch_size", f"{_ACTOR}.ppo_mini_batch_size")
    micro = settings.number(f"{section}.ppo_micro_batch_size")
    if train is not None and mini is not None and train < mini:
        text = f"train_batch_size ({train}) must be >= {section}.ppo_mini_batch_size ({mini})"
        change = f"ppo_mini_batch_size {nearest(mini, divisors(train))}"
        yield _refuse("mini-over-train", f"{section}.ppo_mini_batch_size", text, change, source)
    if micro is None:
        return
    if micro < 1 or (mini is not None and mini % micro):
        text = f"ppo_mini_batch_size ({mini}) must be divisible by ppo_micro_batch_size ({micro})"
        change = f"ppo_micro_batch_size {nearest(micro, divisors(mini or 0))}"
        yield _refuse("micro-divides-mini", f"{section}.ppo_micro_batch_size", text, change, source)
    ulysses = settings.number(f"{section}.ulysses_sequence_parallel_size") or 1
    if micro * ulysses < gpus and (section == _ACTOR or settings.text(f"{_ACTOR}.strategy") != "megatron"):
        text = f"ppo_micro_batch_size ({micro}) * ulysses_sequence_parallel_size ({ulysses}) must be >= n_gpus ({gpus})"
        change = f"ppo_micro_batch_size {math.ceil(gpus / ulysses)} or more"
        yield _refuse("micro-under-gpus", f"{section}.ppo_micro_batch_size", text, change, source)


def _loss_and_parallel(settings: Settings) -> Iterator[Violation]:
    mode = settings.text(f"{_ACTOR}.loss_agg_mode")
    if mode not in _LOSS_MODES:
        text = f"invalid loss_agg_mode: {mode}"
        yield _refuse("loss-agg-mode", f"{_ACTOR}.loss_agg_mode", text, f"one of {', '.join(_LOSS_MODES)}", _IN_ACTOR)
    clip = settings.real(f"{_ACTOR}.clip_ratio_c")
    if clip is not None and clip <= 1.0:
        text = f"the lower bound of the dual-clip PPO, clip_ratio_c, should be greater than 1.0; got {clip:g}"
        yield _refuse(
            "dual-clip",
            f"{_ACTOR}.clip_ratio_c",
            text,
            "clip_ratio_c 3.0",
            "verl 0.9.1, verl/trainer/ppo/core_algos.py, at the first update",
        )
    fsdp = settings.text(f"{_ACTOR}.strategy") in ("fsdp", "fsdp2")
    ulysses = settings.number(f"{_ACTOR}.ulysses_sequence_parallel_size") or 1
    if fsdp and ulysses > 1 and not settings.flag("actor_rollout_ref.model.use_remove_padding"):
        text = "when using sequence parallelism for actor/ref policy, you must enable use_remove_padding"
        change = "actor_rollout_ref.model.use_remove_padding True"
        yield _refuse("ulysses-padding", "actor_rollout_ref.model.use_remove_padding", text, change, _IN_ACTOR)


def _has_critic(settings: Settings) -> bool:
    if settings.get("critic.enable") is not None:
        return settings.flag("critic.enable")
    return settings.text("algorithm.adv_estimator") == "gae"


def _critic(settings: Settings, gpus: int) -> Iterator[Violation]:
    own = settings.get("critic.use_dynamic_bsz")
    if settings.flag("critic.use_dynamic_bsz" if own is not None else f"{_ACTOR}.use_dynamic_bsz"):
        return
    yield from _micro(settings, "critic", "ppo_micro_batch_size", _IN_CRITIC)
    yield from _sizes(settings, "critic", gpus, _IN_CRITIC)


def _at_work(settings: Settings, gpus: int, dynamic: bool) -> Iterator[Violation]:
    """What only a worker asserts: whole mini-batches and micro-batches per rank."""
    keys = ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size")
    engine = settings.product(*(f"{_ROLLOUT}.{key}" for key in keys))
    if gpus % engine:
        tensor = settings.number(f"{_ROLLOUT}.{keys[0]}") or 1
        text = f"rollout world_size ({gpus}) is not divisible by infer_world_size ({engine})"
        yield _refuse("rollout-parallel", f"{_ROLLOUT}.{keys[0]}", text, f"{keys[0]} {nearest(tensor, divisors(gpus))}")
    train, n = settings.number("data.train_batch_size"), settings.number(f"{_ROLLOUT}.n")
    mini = settings.number(f"{_ACTOR}.ppo_mini_batch_size")
    parallel = _data_parallel(settings, gpus)
    if train is None or n is None or mini is None or parallel < 1:
        return
    if mini * n % parallel:
        unit = parallel // math.gcd(parallel, n)
        text = f"the mini-batch of {mini} x {n} = {mini * n} samples must divide among {parallel} data-parallel ranks"
        change = f"ppo_mini_batch_size {near_multiple(mini, unit)} (a multiple of {unit})"
        yield _refuse("mini-batch-ranks", f"{_ACTOR}.ppo_mini_batch_size", text, change)
        return
    if not settings.flag("trainer.use_v1") and train >= mini and train % mini:
        text = f"train_batch_size ({train}) is not a whole number of mini-batches of {mini}"
        change = f"ppo_mini_batch_size {nearest(mini, divisors(train))}"
        yield _refuse("mini-divides-train", f"{_ACTOR}.ppo_mini_batch_size", text, change)
        return
    if dynamic:
        return
    per_rank, padded = mini * n // parallel, math.ceil(train / mini) * mini * n // parallel
    named = [
        (f"{_ACTOR}.ppo_micro_batch_size_per_gpu", per_rank),
        (f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu", padded),
    ]
    if settings.flag("algorithm.use_kl_in_reward") or settings.flag(f"{_ACTOR}.use_kl_loss"):
        named.append((f"{_REF}.log_prob_micro_batch_size_per_gpu", padded))
    for key, size in named:
        micro = settings.number(key)
        if micro and micro > 0 and size % micro:
            text = f"the {size} samples of a rank are not a whole number of micro-batches of {micro}"
            yield _refuse("micro-divides-rank", key, text, f"{key.rpartition('.')[2]} {nearest(micro, divisors(size))}")
