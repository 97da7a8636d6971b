"""Recognises the trainer that a configuration is for, and its version."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from operator import itemgetter
from typing import NamedTuple

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


class Recognised(NamedTuple):
    """The trainer that a configuration is for."""

    trainer: Schema
    why: str
    """The evidence."""
    guessed: bool
    """Whether the evidence is only keys that other programs have too."""


def recognised(parsed: Parsed) -> Recognised:
    """The trainer that a configuration is for; ConfigError where it trains nothing or the keys are anyone's.

    The words of a command decide. Without them keys do: each counts less, the more trainers have it. A dotted key, or
    one of the known signs, that only one family of trainers has makes it certain; two plain ones make a guess. Where
    many keys are none of the trainer's, the program is somebody's own and the rest is a guess too.
    """
    if parsed.does:
        raise ConfigError(
            f"{parsed.path}: {parsed.does} and trains nothing; give the command that trains, in one file with this"
            " one where the two belong together"
        )
    words = {trainer.name: _words(trainer, parsed) for trainer in TRAINERS}
    best, known = _weighed(parsed, words)
    said = [*words[best.name], *words.get(best.parent, ())]
    own = [key for key in known if _alone(best, key)]
    foreign = _foreign(best, known, parsed)
    if said or (own and not foreign):
        signs = [key for key in known if key in best.signs] or own
        return Recognised(best, f"by {_listed([*said, *(setting_of(parsed, key) for key in signs)])}", False)
    alone = [key for key in known if len(_families(key)) == 1]
    if len(alone) < FEWEST:
        raise ConfigError(
            f"{parsed.path}: can't tell which trainer this is for (no key of one trainer alone among"
            f" {', '.join(s.written for s in parsed.settings[:4])}{', …' if len(parsed.settings) > 4 else ''});"
            f" name it with --trainer {'|'.join(trainer.name for trainer in TRAINERS)}"
        )
    return _by_keys(best, [setting_of(parsed, key) for key in alone], sure=len(alone) >= MANY and not foreign)


def _by_keys(trainer: Schema, keys: list[str], *, sure: bool) -> Recognised:
    return Recognised(trainer, f"{'by' if sure else 'guessed from'} {_listed(keys)}", not sure)


def _foreign(trainer: Schema, known: list[str], parsed: Parsed) -> bool:
    """Whether many settings are none of a trainer's whose list is complete."""
    return trainer.complete and len(known) < OWN_SHARE * len(parsed.settings)


def _listed(clues: list[str]) -> str:
    return ", ".join(clues[:3])


def _weighed(parsed: Parsed, words: Mapping[str, list[str]]) -> tuple[Schema, list[str]]:
    """The likeliest trainer and the keys that it knows. A key counts less, the more trainers have it."""
    asked = [t for t in TRAINERS if words[t.name] or words.get(t.parent)] or list(TRAINERS)
    keys = _asked_keys(parsed)
    known = {trainer.name: [key for key in keys if _knows(trainer, key)] for trainer in asked}
    owners = Counter(key for found in known.values() for key in found)
    weight = {t.name: len(words[t.name]) + sum(1 / owners[key] for key in known[t.name]) for t in asked}
    possible = [t for t in asked if not t.parent or words[t.name] or set(t.signs).intersection(known[t.name])]
    best = max(possible or asked, key=lambda trainer: weight[trainer.name])
    return best, known[best.name]


FEWEST = 2
"""Plain keys of one trainer alone from which on it is guessed: programs of one's own may have the same ones."""

OWN_SHARE = 2 / 3
"""Share of keys that a trainer with a complete list knows: its users stay above, hand-written loops below."""
MANY = 6
"""The same from which on it is certain: a program of one's own hardly has as many of one trainer's names by chance."""


def setting_of(parsed: Parsed, key: str) -> str:
    """A key as it is written."""
    found = next((s.written for s in parsed.settings if key in (s.key, s.key.replace("-", "_"))), key)
    return found.lstrip("-")


def _asked_keys(parsed: Parsed) -> list[str]:
    """The keys of a configuration; those of flags with underscores too, which most parsers take for the same."""
    found: dict[str, None] = {}
    for setting in parsed.settings:
        found[setting.key] = None
        if setting.written.startswith("--") and "-" in setting.key:
            found[setting.key.replace("-", "_")] = None
    return list(found)


@cache
def _own(name: str) -> frozenset[str]:
    """All keys of a trainer, under all its spellings."""
    trainer = _BY_NAME[name]
    return frozenset({*trainer.keys, *trainer.aliases, *trainer.signs, *trainer.defaults})


def _knows(trainer: Schema, key: str) -> bool:
    return key in _own(trainer.name)


@cache
def _families(key: str) -> frozenset[str]:
    """The trainers that have a key, those that grew out of one another counted as one."""
    return frozenset(trainer.parent or trainer.name for trainer in TRAINERS if _knows(trainer, key))


def _alone(trainer: Schema, key: str) -> bool:
    """Whether a key is one of this family's alone, and no everyday word."""
    family = trainer.parent or trainer.name
    signs = {sign for t in TRAINERS if family in (t.name, t.parent) for sign in t.signs}
    return _families(key) == {family} and ("." in key or key in signs)


def _words(trainer: Schema, parsed: Parsed) -> list[str]:
    """Words of the command or of a value that only this trainer's configurations have."""
    clues = [f"`{word}`" for word in trainer.commands if _named_in(word, parsed.command)]
    if trainer.words:
        texts = [s for s in parsed.settings if isinstance(s.value, str)]
        found = [s for s in texts if any(word in s.value.lower() for word in trainer.words)]
        clues += [f"{s.written}: {s.value[:40]}" for s in found[:1]]
    return clues


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
        settings[_tails(trainer.name).get(key, key)] = setting
    return settings


@cache
def _tails(name: str) -> dict[str, str]:
    """Plain flag -> dotted one, for a trainer that had plain flags: ends of several words that one key alone has."""
    trainer = _BY_NAME[name]
    dotted = [key for key in trainer.keys if "." in key and "_" in key.rpartition(".")[2]]
    count = Counter(key.rpartition(".")[2] for key in dotted)
    plain = any("." not in old and "." in new for old, new in trainer.aliases.items())
    return {tail: key for key in dotted if count[tail := key.rpartition(".")[2]] == 1} if plain else {}


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


def _named_in(word: str, command: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", command.replace("/", " ")) is not None
