"""What each trainer refuses, exactly, per version: the checks it makes itself, asked before it is started.

`violations(trainer, version, config, processes=..., gpus=...)` answers with one `Violation` for every check that
would fail; none means that the trainer's own validation accepts the configuration. Nothing here is advice: what is
allowed and unwise belongs to preflight's rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stabilizer.trainers.constraints import Settings, Violation, parse_version
from stabilizer.trainers.easyr1 import validity as easyr1
from stabilizer.trainers.nemo_rl import validity as nemo_rl
from stabilizer.trainers.openrlhf import validity as openrlhf
from stabilizer.trainers.prime_rl import validity as prime_rl
from stabilizer.trainers.search_r1 import validity as search_r1
from stabilizer.trainers.skyrl import validity as skyrl
from stabilizer.trainers.trl import validity as trl
from stabilizer.trainers.verl import validity as verl

__all__ = ["TRAINERS", "Violation", "newest_version", "trainer_name", "violations"]

Rules = Callable[[Settings], Iterator[Violation]]
Defaults = Callable[[tuple[int, int, int]], Mapping[str, Any]]


def _fixed(defaults: Mapping[str, Any]) -> Defaults:
    return lambda version: defaults


def _rloo_defaults(version: tuple[int, int, int]) -> Mapping[str, Any]:
    return trl.defaults(version, rloo=True)


TRAINERS: dict[str, tuple[str, Rules, Defaults]] = {
    "trl": (trl.NEWEST, trl.grpo, trl.defaults),
    "trl-rloo": (trl.NEWEST, trl.rloo, _rloo_defaults),
    "trl-ppo": ("1.12.0", trl.ppo, trl.defaults),
    "open-r1": ("0.18.0", trl.grpo, trl.defaults),
    "verl": (verl.NEWEST, verl.verl, _fixed(verl.DEFAULTS)),
    "search-r1": (search_r1.NEWEST, search_r1.search_r1, _fixed(search_r1.DEFAULTS)),
    "easyr1": (easyr1.NEWEST, easyr1.easyr1, _fixed(easyr1.DEFAULTS)),
    "openrlhf": (openrlhf.NEWEST, openrlhf.openrlhf, _fixed(openrlhf.DEFAULTS)),
    "skyrl": (skyrl.NEWEST, skyrl.skyrl, _fixed(skyrl.DEFAULTS)),
    "nemo-rl": (nemo_rl.NEWEST, nemo_rl.nemo_rl, _fixed(nemo_rl.DEFAULTS)),
    "prime-rl": (prime_rl.NEWEST, prime_rl.prime_rl, _fixed(prime_rl.DEFAULTS)),
}
"""Trainer: the version taken when none is said, its rules, its defaults. Open-R1's version is that of its TRL."""


def trainer_name(name: str) -> str:
    """The trainer's own spelling of a name, or an error that lists them."""
    plain = name.strip().lower().replace("_", "-")
    plain = {"trl-grpo": "trl", "openr1": "open-r1", "searchr1": "search-r1", "easy-r1": "easyr1"}.get(plain, plain)
    if plain not in TRAINERS:
        raise ValueError(f"no trainer {name!r}; known are {', '.join(TRAINERS)}")
    return plain


def newest_version(trainer: str) -> str:
    """The version whose rules hold when none is said."""
    return TRAINERS[trainer_name(trainer)][0]


def violations(
    trainer: str,
    version: str | None,
    config: Mapping[str, Any],
    *,
    processes: int | None = None,
    gpus: int | None = None,
) -> list[Violation]:
    """Everything that trainer, in that version, would refuse about a flat configuration (dotted keys, its own names).

    Missing keys take that version's defaults. `processes` is the number of training processes, where the trainer
    counts them; without it, one per GPU less the one of a vLLM server. Rules about a number that is unknown are silent.
    """
    newest, rules, defaults = TRAINERS[trainer_name(trainer)]
    number = parse_version(version or newest)
    for name, value in (("processes", processes), ("gpus", gpus)):
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; at least 1 is needed")
    settings = Settings(config=config, defaults=defaults(number), version=number, processes=processes, gpus=gpus)
    return list(rules(settings))
