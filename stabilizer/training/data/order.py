"""The order of the rows, as pure functions of integers: there is no state to store.

The mixing function is splitmix64, a bijection, so that no two rows of an epoch tie. In integers it gives the same
result on every machine and in every version of numpy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from stabilizer.training.tasks import random_bits

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@lru_cache(maxsize=4)
def epoch_order(size: int, seed: int, salt: int, epoch: int) -> np.ndarray:
    """A permutation of `range(size)`: the order in which one pass visits the rows."""
    x = np.arange(size, dtype=np.uint64) * _GOLDEN
    x += np.array([random_bits("epoch", seed, salt, epoch)], dtype=np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.argsort(x ^ (x >> np.uint64(31)), kind="stable")


def row_at(position: int, size: int, seed: int, salt: int) -> int:
    """The row at a position of the stream: one epoch after another, each in a different order."""
    epoch, place = divmod(position, size)
    return int(epoch_order(size, seed, salt, epoch)[place])


def prompt_hash(prompt: str) -> int:
    """64 bits that depend only on the prompt."""
    digest = hashlib.blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=8, key=b"held-out").digest()
    return int.from_bytes(digest, "little")


def held_out_hashes(hashes: Sequence[int], held_out: float) -> list[int]:
    """The held-out prompts in a fixed order: those with the lowest hash.

    A share below 1 is a limit on the hash, so rows added later do not move other rows; at least one prompt is taken.
    From 1 on it is a number of distinct prompts.
    """
    ranked = sorted(set(hashes))
    if held_out <= 0:
        return []
    if held_out >= 1:
        return ranked[: int(held_out)]
    below = [value for value in ranked if value < held_out * 2**64]
    return below or ranked[:1]
