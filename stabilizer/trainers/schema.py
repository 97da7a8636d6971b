"""What is known of a trainer's configuration: its keys, its defaults by version, and its own recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from stabilizer.trainers.bugs import Bug
from stabilizer.trainers.quantities import Ask, Quantity


@dataclass(frozen=True)
class Key:
    """A key and the versions that know it."""

    since: str | None = None
    """First version that has it; None when all do."""
    gone: str | None = None
    """First version without it; None when it is still there."""
    instead: str = ""
    """What to write instead, in words."""


class Older(NamedTuple):
    """A version recognised by keys that are in no list."""

    signs: tuple[str, ...]
    version: str
    title: str


class Placement(NamedTuple):
    """Where a configuration puts its models."""

    parts: Mapping[str, float | None]
    """GPUs of each group of models that has its own, by name; None where a number can't be known."""
    share: str = ""
    """The settings with which the groups share GPUs, in words."""
    nodes: float = 1
    have: float | None = None
    """GPUs that the configuration itself says are there."""


def one_group(key: str, nodes: str, usual: int) -> Callable[[Ask], Placement]:
    """The placement of a trainer whose models share all GPUs: GPUs of a node, nodes, and the default of the first."""

    def placement(ask: Ask) -> Placement:
        count = ask.num(nodes) or 1
        return Placement({"all models": (ask.num(key) or usual) * count}, f"{key} as many as there are", count)

    return placement


@dataclass(frozen=True, kw_only=True)
class Schema:
    """One trainer's configuration."""

    name: str
    title: str
    newest: str
    """The version whose rules apply when none is given or implied."""
    quantities: Callable[[Ask], Mapping[str, Quantity]]
    defaults: Mapping[str, Any]
    """Key -> default, or how it changed (`Since`)."""
    signs: tuple[str, ...]
    """Keys that no other trainer has."""
    commands: tuple[str, ...]
    """Words of a command line that no other trainer has."""
    key_files: tuple[str, ...] = ()
    """Lists of all its keys; empty when none is known in full."""
    complete: bool = True
    """Whether a key that is not in the lists is unknown to the trainer."""
    refuses: bool = False
    """Whether it refuses a key that it does not know, instead of ignoring it."""
    flags: frozenset[str] = frozenset()
    """Options of its command that are no settings."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Old or short spelling -> key."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """Key that is gone -> what to write instead."""
    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Algorithm -> the quantities its shipped recipe sets."""
    recipe_name: str = ""
    script: bool = False
    """Whether the recipe is one script that results were published with, so that a departure from it matters."""
    memory: tuple[str, ...] = ()
    """Batch keys that change memory and speed only, by their last word."""
    parent: str = ""
    """The trainer whose keys it shares, so that it is recognised by the few that it adds."""
    words: tuple[str, ...] = ()
    """What only a configuration for it has in one of its values."""
    why_newest: str = "the newest known here"
    """Why the newest version is taken when the keys tell nothing."""
    versions: tuple[str, ...] = ()
    """Versions to choose from when the keys say only "before 0.18", oldest first."""
    older: Older | None = None
    """The version whose keys no list holds, where there is one."""
    read_with: Mapping[str, str] = field(default_factory=dict)
    """Weight -> the switch without which it is not read."""
    strict_yaml: bool = False
    """Whether its YAML parser refuses a repeated key."""
    together: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Key that it names in an objection -> those that a person may change instead."""
    means: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Key that is often misread -> what it does, and the source for that."""
    bugs: tuple[Bug, ...] = ()
    """Bugs of its releases that a configuration may meet."""
    hyphens: bool = False
    """Whether its flags have hyphens, for which its own configuration, as trackers keep it, has underscores."""
    placement: Callable[[Ask], Placement] | None = None
    """The GPUs that it takes; None where every process of the launcher takes one."""
    kl_fix: Callable[[Ask], Mapping[str, Any]] | None = None
    """The keys that bring in a small KL term; None where the trainer has no reference model."""

    @property
    def keys(self) -> Mapping[str, Key]:
        """All keys the lists know."""
        return _keys(self.key_files, tuple(sorted(self.instead.items())))


@cache
def _keys(names: tuple[str, ...], instead: tuple[tuple[str, str], ...]) -> dict[str, Key]:
    known: dict[str, Key] = {}
    words = dict(instead)
    for name in names:
        text = files("stabilizer.trainers").joinpath(name).read_text(encoding="utf-8")
        for line in text.splitlines():
            key, *versions = line.split()
            since, gone = (None if v == "-" else v for v in (versions or ["-", "-"]))
            known[key] = Key(since=since, gone=gone, instead=words.get(key, ""))
    return known
