"""All known troubles."""

from __future__ import annotations

from stabilizer.troubles import (
    cuda,
    deepspeed,
    environment,
    gym,
    libraries,
    linux,
    nccl,
    others,
    pytorch,
    ray,
    texts,
    transformers,
    trl,
    verl,
    vllm,
)  # fmt: skip
from stabilizer.troubles.trouble import Trouble

TROUBLES: tuple[Trouble, ...] = (
    *vllm.TROUBLES, *nccl.TROUBLES, *cuda.TROUBLES, *linux.TROUBLES, *ray.TROUBLES, *deepspeed.TROUBLES,
    *gym.TROUBLES, *pytorch.TROUBLES, *libraries.TROUBLES,
    *transformers.TROUBLES, *texts.TROUBLES, *trl.TROUBLES, *verl.TROUBLES, *others.TROUBLES, *environment.TROUBLES,
)  # fmt: skip
