"""All trainers: the one list in which a new trainer's folder is named."""

from __future__ import annotations

from functools import cache

from stabilizer.trainers import (
    areal,
    easyr1,
    llama_factory,
    ms_swift,
    nemo_rl,
    openrlhf,
    other,
    prime_rl,
    roll,
    search_r1,
    skyrl,
    slime,
    stabilizer,
    trl,
    verl,
)
from stabilizer.trainers.trainer import Family, Trainer

FAMILIES: tuple[Family, ...] = tuple(
    folder.FAMILY
    for folder in (
        trl, ms_swift, llama_factory, verl, search_r1, easyr1, openrlhf, skyrl, nemo_rl, prime_rl, slime, areal, roll,
        stabilizer, other,
    )
)  # fmt: skip
"""In the order in which they are asked whose names a log holds."""
TRAINERS: tuple[Trainer, ...] = tuple(trainer for family in FAMILIES for trainer in family.trainers)


def plain(name: str) -> str:
    """A trainer's name without the differences in spelling that mean nothing."""
    return name.strip().lower().replace("_", "-")


@cache
def find(name: str) -> Trainer | None:
    """The trainer of that name, however it is spelled."""
    wanted = plain(name)
    return next((t for t in TRAINERS if wanted in (plain(t.id), *map(plain, t.aliases))), None)
