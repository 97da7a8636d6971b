"""Each trainer's own checks, per version, applied before it is started.

`violations(trainer, version, config, processes=..., gpus=...)` answers with one `Violation` for every check that
would fail; none means that the trainer's own validation accepts the configuration. Settings that are allowed but unwise
belong to preflight's rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from stabilizer.configs.config import parse_version
from stabilizer.trainers.all import TRAINERS as ALL
from stabilizer.trainers.all import find, plain
from stabilizer.trainers.constraints import Settings, Violation
from stabilizer.trainers.quantities import Since
from stabilizer.trainers.trainer import Checks

__all__ = ["TRAINERS", "Violation", "newest_version", "trainer_name", "violations"]

TRAINERS: dict[str, Checks] = {plain(trainer.id): trainer.checks for trainer in ALL if trainer.checks}


def trainer_name(name: str) -> str:
    """The trainer's own spelling of a name, or an error that lists them."""
    known = find(name)
    if known is None or known.checks is None:
        raise ValueError(f"no trainer {name!r}; known are {', '.join(TRAINERS)}")
    return plain(known.id)


def newest_version(trainer: str) -> str:
    """The version whose rules apply when none is given."""
    checks = TRAINERS[trainer_name(trainer)]
    return checks.newest or checks.schema.newest


def violations(
    trainer: str,
    version: str | None,
    config: Mapping[str, Any],
    *,
    processes: int | None = None,
    gpus: int | None = None,
) -> list[Violation]:
    """Everything that a version of a trainer refuses in a flat configuration (dotted keys, its own names).

    Missing keys take that version's defaults. `processes` is the number of training processes, where the trainer
    counts them; without it, one per GPU less the one of a vLLM server. Rules about an unknown number are skipped.
    """
    name = trainer_name(trainer)
    used = version or newest_version(name)
    for what, value in (("processes", processes), ("gpus", gpus)):
        if value is not None and value < 1:
            raise ValueError(f"{what} is {value}; at least 1 is needed")
    checks = TRAINERS[name]
    named = {checks.schema.aliases.get(key, key): value for key, value in config.items()}
    defaults, number = _defaults(name, used), parse_version(used)
    return list(checks.rules(Settings(config=named, defaults=defaults, version=number, processes=processes, gpus=gpus)))


@cache
def _defaults(name: str, version: str) -> Mapping[str, Any]:
    """The defaults of a version."""
    checks = TRAINERS[name]
    every = {**checks.schema.defaults, **checks.differ}
    return {key: value.at(version) if isinstance(value, Since) else value for key, value in every.items()}
