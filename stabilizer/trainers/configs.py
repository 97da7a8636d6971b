"""The trainers whose configurations are known, and how one is told from another and one version from the next."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from stabilizer.configs.config import ConfigError, Parsed, Setting, release
from stabilizer.trainers.easyr1.config import EASYR1, OLD_SIGNS
from stabilizer.trainers.nemo_rl.config import NEMO_RL
from stabilizer.trainers.openrlhf.config import OPENRLHF
from stabilizer.trainers.prime_rl.config import PRIME_RL
from stabilizer.trainers.skyrl.config import SKYRL
from stabilizer.trainers.stabilizer.config import OWN
from stabilizer.trainers.trainer import Trainer
from stabilizer.trainers.trl.config import OPEN_R1, TRL
from stabilizer.trainers.verl.config import SEARCH_R1, VERL

TRAINERS: tuple[Trainer, ...] = (TRL, OPEN_R1, VERL, SEARCH_R1, EASYR1, OPENRLHF, SKYRL, NEMO_RL, PRIME_RL, OWN)
TRL_VERSIONS = ("0.14.0", "0.15.2", "0.16.1", "0.17.0", "0.18.0", "0.19.1", "0.20.0", "0.21.0", "0.22.2", "0.23.1",
                "0.24.0", "0.25.1", "0.26.2", "0.27.2", "0.28.0", "0.29.1", "1.0.0", "1.3.0", "1.6.0", "1.9.0",
                "1.12.0", "1.16.0")  # fmt: skip
"""Versions of TRL to choose from when the keys say only "before 0.18"."""
FORKS = {OPEN_R1.name: TRL, SEARCH_R1.name: VERL}
"""A trainer that shares its parent's keys is recognised by the few that it adds."""


def named(name: str) -> Trainer:
    """The trainer called so on the command line."""
    plain = name.strip().lower().replace("_", "-")
    by_name = {trainer.name: trainer for trainer in TRAINERS}
    by_name |= {trainer.title.lower().replace(" ", "-"): trainer for trainer in TRAINERS}
    if plain in by_name:
        return by_name[plain]
    near = difflib.get_close_matches(plain, by_name, 1, 0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ConfigError(f"--trainer {name}: not known; {hint}There are {', '.join(t.name for t in TRAINERS)}")


def recognised(parsed: Parsed) -> tuple[Trainer, str]:
    """The trainer a configuration is for, and what gives it away."""
    found = {trainer.name: _evidence(trainer, parsed) for trainer in TRAINERS}
    parents = [trainer for trainer in TRAINERS if trainer.name not in FORKS]
    best = max(parents, key=lambda trainer: len(found[trainer.name]))
    if not found[best.name] and not any(found.values()):
        raise ConfigError(
            f"{parsed.path}: can't tell which trainer this is for (no key known of any among"
            f" {', '.join(s.written for s in parsed.settings[:4])}{', …' if len(parsed.settings) > 4 else ''});"
            f" name it with --trainer {'|'.join(trainer.name for trainer in TRAINERS)}"
        )
    for name, parent in FORKS.items():
        if found[name] and parent is best:
            best = next(trainer for trainer in TRAINERS if trainer.name == name)
    clues = found[best.name]
    return best, f"by {', '.join(clues[:3])}"


def canonical(trainer: Trainer, parsed: Parsed) -> dict[str, Setting]:
    """Settings by the trainer's own names; of a key written twice the last counts, as it does for every trainer."""
    known = trainer.keys
    settings: dict[str, Setting] = {}
    for setting in parsed.settings:
        key = trainer.aliases.get(setting.key, setting.key)
        if setting.written.startswith("--") and key not in known:
            key = key.replace("-", "_")  # every trainer's parser takes both
        settings[key] = setting
    return settings


def version_of(trainer: Trainer, settings: Mapping[str, Setting]) -> tuple[str | None, str, str]:
    """(the version the keys prove or None, the version to judge by, why)."""
    if trainer.name == EASYR1.name and (old := [key for key in OLD_SIGNS if key in settings]):
        return None, "0.1.0", f"the schema of early 2025, by {old[0]}"
    known = trainer.keys
    since = [(k.since, key) for key in settings if (k := known.get(key)) and k.since]
    gone = [(k.gone, key) for key in settings if (k := known.get(key)) and k.gone]
    low = max(since, key=lambda pair: release(str(pair[0])), default=None)
    high = min(gone, key=lambda pair: release(str(pair[0])), default=None)
    pinned = high and release(trainer.newest) < release(str(high[0]))
    if high and not pinned and not (low and release(str(low[0])) >= release(str(high[0]))):
        fitting = [v for v in TRL_VERSIONS if release(v) < release(str(high[0]))]
        return None, fitting[-1], f"before {high[0]}, by {high[1]}"
    if low and release(str(low[0])) > release(trainer.newest):
        return None, TRL.newest, f"{low[0]} or later, by {low[1]}"
    why = f"the newest known here{f'; {low[0]} or later, by {low[1]}' if low else ''}"
    if trainer is OPEN_R1:
        why = "the TRL that Open-R1 pins"
    return None, trainer.newest, why


def _evidence(trainer: Trainer, parsed: Parsed) -> list[str]:
    keys = {setting.key for setting in parsed.settings}
    clues = [f"`{word}`" for word in trainer.commands if _named_in(word, parsed.command)]
    clues += [key for key in trainer.signs if key in keys]
    clues += [key for key in trainer.aliases if key in keys and "." in key or f"--{key}" in _flags(parsed)]
    if trainer is OPEN_R1:
        texts = [s for s in parsed.settings if isinstance(s.value, str) and "open-r1" in s.value.lower()]
        clues += [f"{s.written}: {s.value[:40]}" for s in texts[:1]]
    return clues


def _flags(parsed: Parsed) -> set[str]:
    return {setting.written for setting in parsed.settings if setting.written.startswith("--")}


def _named_in(word: str, command: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", command.replace("/", " ")) is not None
