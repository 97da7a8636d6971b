"""Recognises the trainer that a configuration is for, and its version."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from operator import itemgetter

from stabilizer.configs.config import ConfigError, Parsed, Setting, Version, parse_version
from stabilizer.trainers.all import TRAINERS as ALL
from stabilizer.trainers.all import find, plain
from stabilizer.trainers.schema import Schema

TRAINERS: tuple[Schema, ...] = tuple(trainer.schema for trainer in ALL if trainer.schema)
_BY_NAME = {trainer.name: trainer for trainer in TRAINERS}


def named(name: str) -> Schema:
    """The trainer of that name. ConfigError lists the known ones."""
    if (known := find(name)) and known.schema:
        return known.schema
    near = difflib.get_close_matches(plain(name), _BY_NAME, 1, 0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ConfigError(f"--trainer {name}: not known; {hint}There are {', '.join(t.name for t in TRAINERS)}")


def recognised(parsed: Parsed) -> tuple[Schema, str]:
    """The trainer that a configuration is for, and the evidence."""
    found = {trainer.name: _evidence(trainer, parsed) for trainer in TRAINERS}
    parents = [trainer for trainer in TRAINERS if not trainer.parent]
    best = max(parents, key=lambda trainer: len(found[trainer.name]))
    if not found[best.name] and not any(found.values()):
        raise ConfigError(
            f"{parsed.path}: can't tell which trainer this is for (no key known of any among"
            f" {', '.join(s.written for s in parsed.settings[:4])}{', …' if len(parsed.settings) > 4 else ''});"
            f" name it with --trainer {'|'.join(trainer.name for trainer in TRAINERS)}"
        )
    best = next((child for child in TRAINERS if child.parent == best.name and found[child.name]), best)
    clues = found[best.name]
    return best, f"by {', '.join(clues[:3])}"


def canonical(trainer: Schema, parsed: Parsed) -> dict[str, Setting]:
    """Settings by the trainer's own names; of a key written twice the last counts, as it does for every trainer."""
    known = trainer.keys
    settings: dict[str, Setting] = {}
    for setting in parsed.settings:
        key = trainer.aliases.get(setting.key, setting.key)
        if key not in known and trainer.hyphens:
            key = key.replace("_", "-")
        elif key not in known and setting.written.startswith("--"):
            key = key.replace("-", "_")  # every other trainer's parser takes both
        settings[key] = setting
    return settings


def version_of(trainer: Schema, settings: Mapping[str, Setting]) -> tuple[str | None, str, str]:
    """(the version the keys prove or None, the version to judge by, why)."""
    older = trainer.older
    if older and (signs := [key for key in older.signs if key in settings]):
        return None, older.version, f"{older.title}, by {signs[0]}"
    newest = parse_version(trainer.newest)
    known = {key: trainer.keys[key] for key in settings if key in trainer.keys}
    low = max(_dated({key: found.since for key, found in known.items()}), key=itemgetter(0), default=None)
    high = min(_dated({key: found.gone for key, found in known.items()}), key=itemgetter(0), default=None)
    if high and high[0] <= newest and not (low and low[0] >= high[0]):
        fitting = [version for version in trainer.versions if parse_version(version) < high[0]]
        return None, fitting[-1], f"before {high[1]}, by {high[2]}"
    later = f"{low[1]} or later, by {low[2]}" if low else ""
    if low and low[0] > newest:
        return None, _BY_NAME[trainer.parent or trainer.name].newest, later
    return None, trainer.newest, "; ".join(filter(None, [trainer.why_newest, "" if trainer.parent else later]))


def _dated(versions: Mapping[str, str | None]) -> list[tuple[Version, str, str]]:
    """(version, as it is written, key) of the keys that have one."""
    return [(parse_version(version), version, key) for key, version in versions.items() if version]


def _evidence(trainer: Schema, parsed: Parsed) -> list[str]:
    keys = {setting.key for setting in parsed.settings}
    clues = [f"`{word}`" for word in trainer.commands if _named_in(word, parsed.command)]
    clues += [key for key in trainer.signs if key in keys]
    clues += [key for key in trainer.aliases if key in keys and "." in key or f"--{key}" in _flags(parsed)]
    if trainer.words:
        texts = [s for s in parsed.settings if isinstance(s.value, str)]
        found = [s for s in texts if any(word in s.value.lower() for word in trainer.words)]
        clues += [f"{s.written}: {s.value[:40]}" for s in found[:1]]
    return clues


def _flags(parsed: Parsed) -> set[str]:
    return {setting.written for setting in parsed.settings if setting.written.startswith("--")}


def _named_in(word: str, command: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", command.replace("/", " ")) is not None
