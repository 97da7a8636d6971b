"""All known troubles."""

from __future__ import annotations

from stabilizer.troubles import cuda, deepspeed, environment, linux, nccl, others, ray, transformers, trl, verl, vllm
from stabilizer.troubles.trouble import Trouble

TROUBLES: tuple[Trouble, ...] = (
    *vllm.TROUBLES, *nccl.TROUBLES, *cuda.TROUBLES, *linux.TROUBLES, *ray.TROUBLES, *deepspeed.TROUBLES,
    *transformers.TROUBLES, *trl.TROUBLES, *verl.TROUBLES, *others.TROUBLES, *environment.TROUBLES,
)  # fmt: skip
