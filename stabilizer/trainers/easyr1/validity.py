"""EasyR1: what its RayPPOTrainer and FSDP workers refuse. Batches count prompts; micro-batches count samples."""

from __future__ import annotations

import math
from collections.abc import Iterator

from stabilizer.trainers.constraints import Refusals, Settings, Violation, divisors, near_multiple, nearest, positive
from stabilizer.trainers.verl.validity import gpu_count

_TRAINER, _WORKER = "EasyR1, verl/trainer/ray_trainer.py", "EasyR1, verl/workers/fsdp_workers.py"
_ROLLOUT = "EasyR1, verl/workers/rollout/vllm_rollout_spmd.py"
_BATCHED = "worker.rollout.max_num_batched_tokens"
_refuse = Refusals("easyr1", _WORKER)


def easyr1(settings: Settings) -> Iterator[Violation]:
    """Rollout batch, group size, and the actor's batches; the critic's too when there is one."""
    gpus, n = gpu_count(settings), settings.number("worker.rollout.n")
    estimator = settings.text("algorithm.adv_estimator")
    if estimator in ("grpo", "rloo") and n == 1:
        text = "GRPO and RLOO algorithm need `config.worker.rollout.n > 1`; it is 1"
        yield _refuse("group-size", "worker.rollout.n", text, "worker.rollout.n 2 or more, commonly 5 to 8", _TRAINER)
    tensor = settings.number("worker.rollout.tensor_parallel_size") or 1
    if gpus % tensor:
        text = f"rollout world size {gpus} is not divisible by tensor_parallel_size {tensor}"
        change = f"worker.rollout.tensor_parallel_size {nearest(tensor, divisors(gpus))}"
        yield _refuse("rollout-parallel", "worker.rollout.tensor_parallel_size", text, change)
    yield from _engine(settings)
    for role in ("actor", "critic") if estimator == "gae" else ("actor",):
        yield from _role(settings, role, gpus, n)


def _engine(settings: Settings) -> Iterator[Violation]:
    lengths = [settings.number(f"data.max_{part}_length") for part in ("prompt", "response")]
    key, batch = _BATCHED, settings.number(_BATCHED)
    if batch is not None and None not in lengths and batch < (whole := sum(filter(None, lengths))):
        text = f"max_num_batched_tokens {batch} should be greater than prompt_length + response_length = {whole}"
        yield _refuse("batched-tokens", key, text, f"{key} {whole} or more", _ROLLOUT)


def _role(settings: Settings, role: str, gpus: int, n: int | None) -> Iterator[Violation]:
    section = f"worker.{role}"
    micro_key = f"{section}.micro_batch_size_per_device_for_update"
    experience_key = f"{section}.micro_batch_size_per_device_for_experience"
    sizes = ("data.rollout_batch_size", f"{section}.global_batch_size", micro_key, experience_key)
    wrong = list(positive(settings, "easyr1", _WORKER, *sizes, "worker.rollout.n"))
    values = [settings.number(key) for key in sizes]
    if wrong or None in values or n is None:
        yield from wrong
        return
    rollout, size, micro, experience = (value for value in values if value is not None)
    if rollout % size:
        text = f"rollout batch size ({rollout}) must be divisible by {role} global batch size ({size})"
        change = (
            f"data.rollout_batch_size {near_multiple(rollout, size)}; or {section}.global_batch_size "
            f"{nearest(size, divisors(rollout))}"
        )
        yield _refuse("rollout-batch-global", "data.rollout_batch_size", text, change, _TRAINER)
    if rollout * n % experience:
        text = (
            f"rollout batch size * rollout.n ({rollout} x {n} = {rollout * n}) must be divisible by {role} "
            f"micro batch size for experience ({experience})"
        )
        change = f"{experience_key.rpartition('.')[2]} {nearest(experience, divisors(rollout * n))}"
        yield _refuse("experience-micro-batch", experience_key, text, change, _TRAINER)
    ranks = gpus // max(settings.number(f"{section}.ulysses_size") or 1, 1)
    per_device = size * n // max(ranks, 1)
    if per_device == 0:
        text = f"{role} global batch size ({size} x {n}) * ulysses size must be larger than num gpus ({gpus})"
        change = f"{section}.global_batch_size {math.ceil(ranks / n)} or more"
        yield _refuse("global-batch-gpus", f"{section}.global_batch_size", text, change)
    elif per_device % micro:
        text = (
            f"{role} global batch size per device ({size} x {n} // {ranks} = {per_device}) must be divisible "
            f"by the micro batch size ({micro})"
        )
        change = f"{micro_key.rpartition('.')[2]} {nearest(micro, divisors(per_device))}"
        yield _refuse("update-micro-batch", micro_key, text, change)
    elif settings.flag(f"{section}.fsdp.enable_cpu_offload") and per_device != micro:
        text = f"{role} cannot use FSDP's CPU offload when gradient accumulation is enabled"
        change = f"enable_cpu_offload false; or {micro_key.rpartition('.')[2]} {per_device}"
        yield _refuse("cpu-offload", f"{section}.fsdp.enable_cpu_offload", text, change)
