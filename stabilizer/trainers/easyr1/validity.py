"""EasyR1: what its RayPPOTrainer and FSDP workers refuse. Batches count prompts; micro-batches count samples."""

from __future__ import annotations

import math
from collections.abc import Iterator

from stabilizer.trainers.constraints import Settings, Violation, divisors, near_multiple, nearest, positive
from stabilizer.trainers.verl.validity import gpu_count

NEWEST = "0.3.2"
DEFAULTS = {
    "data.rollout_batch_size": 512,
    "algorithm.adv_estimator": "grpo",
    "worker.rollout.n": 1,
    "worker.rollout.tensor_parallel_size": 2,
    "worker.actor.global_batch_size": 256,
    "worker.actor.micro_batch_size_per_device_for_update": 4,
    "worker.actor.micro_batch_size_per_device_for_experience": 16,
    "worker.actor.ulysses_size": 1,
    "worker.critic.global_batch_size": 256,
    "worker.critic.micro_batch_size_per_device_for_update": 4,
    "worker.critic.micro_batch_size_per_device_for_experience": 16,
    "worker.critic.ulysses_size": 1,
    "trainer.n_gpus_per_node": 8,
    "trainer.nnodes": 1,
}
_TRAINER, _WORKER = "EasyR1, verl/trainer/ray_trainer.py", "EasyR1, verl/workers/fsdp_workers.py"


def easyr1(settings: Settings) -> Iterator[Violation]:
    """Rollout batch, group size, and the actor's batches; the critic's too when there is one."""
    gpus, n = gpu_count(settings), settings.number("worker.rollout.n")
    estimator = settings.text("algorithm.adv_estimator")
    if estimator in ("grpo", "rloo") and n == 1:
        yield Violation(
            rule="easyr1/group-size",
            key="worker.rollout.n",
            message="GRPO and RLOO algorithm need `config.worker.rollout.n > 1`; it is 1",
            expected="worker.rollout.n 2 or more, commonly 5 to 8",
            source=_TRAINER,
        )
    tensor = settings.number("worker.rollout.tensor_parallel_size") or 1
    if gpus % tensor:
        yield Violation(
            rule="easyr1/rollout-parallel",
            key="worker.rollout.tensor_parallel_size",
            message=f"rollout world size {gpus} is not divisible by tensor_parallel_size {tensor}",
            expected=f"worker.rollout.tensor_parallel_size {nearest(tensor, divisors(gpus))}",
            source=_WORKER,
        )
    for role in ("actor", "critic") if estimator == "gae" else ("actor",):
        yield from _role(settings, role, gpus, n)


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
        yield Violation(
            rule="easyr1/rollout-batch-global",
            key="data.rollout_batch_size",
            message=f"rollout batch size ({rollout}) must be divisible by {role} global batch size ({size})",
            expected=f"data.rollout_batch_size {near_multiple(rollout, size)}; or {section}.global_batch_size "
            f"{nearest(size, divisors(rollout))}",
            source=_TRAINER,
        )
    if rollout * n % experience:
        yield Violation(
            rule="easyr1/experience-micro-batch",
            key=experience_key,
            message=f"rollout batch size * rollout.n ({rollout} x {n} = {rollout * n}) must be divisible by {role} "
            f"micro batch size for experience ({experience})",
            expected=f"{experience_key.rpartition('.')[2]} {nearest(experience, divisors(rollout * n))}",
            source=_TRAINER,
        )
    ranks = gpus // max(settings.number(f"{section}.ulysses_size") or 1, 1)
    per_device = size * n // max(ranks, 1)
    if per_device == 0:
        yield Violation(
            rule="easyr1/global-batch-gpus",
            key=f"{section}.global_batch_size",
            message=f"{role} global batch size ({size} x {n}) * ulysses size must be larger than num gpus ({gpus})",
            expected=f"{section}.global_batch_size {math.ceil(ranks / n)} or more",
            source=_WORKER,
        )
    elif per_device % micro:
        yield Violation(
            rule="easyr1/update-micro-batch",
            key=micro_key,
            message=f"{role} global batch size per device ({size} x {n} // {ranks} = {per_device}) must be divisible "
            f"by the micro batch size ({micro})",
            expected=f"{micro_key.rpartition('.')[2]} {nearest(micro, divisors(per_device))}",
            source=_WORKER,
        )
    elif settings.flag(f"{section}.fsdp.enable_cpu_offload") and per_device != micro:
        yield Violation(
            rule="easyr1/cpu-offload",
            key=f"{section}.fsdp.enable_cpu_offload",
            message=f"{role} cannot use FSDP's CPU offload when gradient accumulation is enabled",
            expected=f"enable_cpu_offload false; or {micro_key.rpartition('.')[2]} {per_device}",
            source=_WORKER,
        )
