"""The trainers whose configurations are known, and how one is told from another and one version from the next."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from stabilizer.configs.config import ConfigError, Parsed, Setting, parse_version
from stabilizer.trainers.all import TRAINERS as ALL
from stabilizer.trainers.all import find, plain
from stabilizer.trainers.schema import Schema

TRAINERS: tuple[Schema, ...] = tuple(trainer.schema for trainer in ALL if trainer.schema)
_BY_NAME = {trainer.name: trainer for trainer in TRAINERS}


def named(name: str) -> Schema:
    """The trainer called so on the command line."""
    if (known := find(name)) and known.schema:
        return known.schema
    near = difflib.get_close_matches(plain(name), _BY_NAME, 1, 0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ConfigError(f"--trainer {name}: not known; {hint}There are {', '.join(t.name for t in TRAINERS)}")


def recognised(parsed: Parsed) -> tuple[Schema, str]:
    """The trainer a configuration is for, and what gives it away."""
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
        if setting.written.startswith("--") and key not in known:
            key = key.replace("-", "_")  # every trainer's parser takes both
        settings[key] = setting
    return settings


def version_of(trainer: Schema, settings: Mapping[str, Setting]) -> tuple[str | None, str, str]:
    """(the version the keys prove or None, the version to judge by, why)."""
    older = trainer.older
    if older and (signs := [key for key in older.signs if key in settings]):
        return None, older.version, f"{older.title}, by {signs[0]}"
    known = trainer.keys
    since = [(k.since, key) for key in settings if (k := known.get(key)) and k.since]
    gone = [(k.gone, key) for key in settings if (k := known.get(key)) and k.gone]
    low = max(since, key=lambda pair: parse_version(str(pair[0])), default=None)
    high = min(gone, key=lambda pair: parse_version(str(pair[0])), default=None)
    pinned = high and parse_version(trainer.newest) < parse_version(str(high[0]))
    if high and not pinned and not (low and parse_version(str(low[0])) >= parse_version(str(high[0]))):
        fitting = [v for v in trainer.versions if parse_version(v) < parse_version(str(high[0]))]
        return None, fitting[-1], f"before {high[0]}, by {high[1]}"
    if low and parse_version(str(low[0])) > parse_version(trainer.newest):
        return None, _BY_NAME[trainer.parent or trainer.name].newest, f"{low[0]} or later, by {low[1]}"
    why = trainer.why_newest + (f"; {low[0]} or later, by {low[1]}" if low and not trainer.parent else "")
    return None, trainer.newest, why


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
