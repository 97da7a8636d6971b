"""Where trainers keep a setting: what advice writes, diagnosis reads and a comparison lines up."""

from __future__ import annotations

from functools import cache

from stabilizer.core.failures import Meaning
from stabilizer.trainers.all import TRAINERS, find

OWN = "stabilizer"


@cache
def keys_of(quantity: str, trainer: str = "") -> tuple[str, ...]:
    """The keys that may hold a quantity in a configuration; the first one present counts.

    Our own words come first, then the keys of the trainer, then those of all others: a log may hold the settings of a
    trainer that is not known, or that runs inside another. A quantity is a knob without `control/`, or `lr`.
    """
    asked = [known for known in (find(OWN), find(trainer)) if known]
    return tuple(dict.fromkeys(key for known in (*asked, *TRAINERS) for key in known.keys_of(quantity)))


def todo(failure: Meaning, trainer: str) -> str:
    """What to do after a failure, in the keys of the trainer where we know them."""
    known = find(trainer)
    return (known.gpu_memory if known and failure.gpu_memory else "") or failure.todo
