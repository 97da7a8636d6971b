"""The description that each trainer's folder exports: all that the project knows of a trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from stabilizer.formats.number_log import NumberLog
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError
from stabilizer.trainers.constraints import Settings, Violation
from stabilizer.trainers.plan import Planned
from stabilizer.trainers.reader import Reader
from stabilizer.trainers.schema import Schema
from stabilizer.trainers.spelling import Spelling

Named = Callable[[NumberLog, Mapping[str, str], Mapping[str, Any] | None], LoadedRun | None]
"""The run in a container's numbers, or None where another trainer gave the names; takes `--map` and `--config`."""


class Checks(NamedTuple):
    """The checks that a trainer makes itself before it starts."""

    rules: Callable[[Settings], Iterator[Violation]]
    schema: Schema
    """The configuration they read, whose newest version applies when none is given."""
    newest: str = ""
    """The newest version that they know, where it is another."""
    differ: Mapping[str, Any] = {}
    """Defaults other than those of the schema."""


class Groups(NamedTuple):
    """Where the answers per prompt are set, and when they are compared with one another."""

    size: str
    algorithm: str = ""
    """The key that names the algorithm; empty where every algorithm compares."""
    comparing: tuple[str, ...] = ()
    """The algorithms that compare."""


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """One trainer. What is not known of it stays empty."""

    id: str
    """As in `Source.trainer`, and in the JSON of a diagnosis."""
    aliases: tuple[str, ...] = ()
    """Other spellings; hyphens, underscores and case make no difference."""
    parent: str = ""
    """The trainer it grew out of, whose code it contains."""
    packages: tuple[str, ...] = ()
    """Folders of its code, by which a traceback tells whose it is."""
    dumps_as: str = ""
    """The trainer whose dumps of completions it writes, where not its own."""
    schema: Schema | None = None
    """Its configuration."""
    checks: Checks | None = None
    planned: Planned | None = None
    """How a batch is cut over its GPUs, for `stabilizer plan`."""
    advice: Spelling | None = None
    """Its keys and procedures for what we advise."""
    metrics: tuple[Mapping[str, str], ...] = ()
    """Its names of our metrics; the first table that has a metric counts."""
    switches: Mapping[str, str] = field(default_factory=dict)
    """Metrics of ours that it measures only with a setting, and that setting."""
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Its keys for what is set and is no knob that advice turns, by our word for it."""
    groups: Groups | None = None
    gpu_memory: str = ""
    """What to change when a GPU runs out of memory."""

    def keys_of(self, quantity: str) -> tuple[str, ...]:
        """Its keys for a quantity, those of older versions last; the first that a configuration has counts."""
        knob = KNOB_OF.get(quantity, f"control/{quantity}")
        keys = (*self.settings.get(quantity, ()), *(self.advice.settings(knob) if self.advice else ()))
        if self.schema is None:
            return keys
        plain = (key.replace("-", "_") for key in keys if self.schema.hyphens and "-" in key)
        return (*keys, *(alias for alias, key in self.schema.aliases.items() if key in keys), *plain)


KNOB_OF = {"lr": "control/lr_scale"}
"""The knob of a quantity that has another name."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One folder: a trainer and those that grew out of it, with the logs they write."""

    trainers: tuple[Trainer, ...]
    readers: tuple[Reader, ...] = ()
    named: Named | None = None
    explain: Callable[[Path], RunError | None] | None = None
    """What to say of a path that belongs to this trainer and is no log."""
