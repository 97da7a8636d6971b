"""Keys the trainer does not know: misspelt ones with the nearest known key.

What it checks
    Every key against the trainer's own list. A key close to a known one counts as misspelt.
Why it matters
    Hydra with `+`, YAML merged into a dictionary and shell scripts accept a misspelt key without a message, and the
    run trains with the default of the intended key. Our own trainer refuses every key that it does not know.
Exceptions
    Keys of your own reward functions or environments are legitimate: unless a known key is close, a key is only
    mentioned, and only where the trainer's list is complete. Nothing is said where no list is known, or where the
    trainer was only guessed.
Fix
    The nearest key, if there is one; renaming is left to the user.
References
    The packages' own configuration classes, as released.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from stabilizer.configs.config import Setting
from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "keys/unknown"
CLOSE = 0.87
"""Similarity from which on a key is taken for a misspelt one: one or two letters in fifteen."""
SHOWN = 8
OPEN_GROUPS = (
    "override_config",
    "kwargs",
    "_kwargs",
    "env_vars",
    "fsdp_config",
    "wandb",
    "swanlab",
    "custom",
    "env.",
    "deepspeed",
    "accelerator_config",
    "engine_kwargs",
    "runtime_env",
    "ray_kwargs",
    "ray_init",
)
"""Parts of a key below which any key is allowed."""


def check(view: View) -> Iterator[Finding]:
    """One finding for every misspelt key; one in all for the others."""
    trainer = view.config.trainer
    if view.config.guessed:  # the keys are as likely another program's
        return
    known = {*trainer.keys, *trainer.aliases} if trainer.keys else set()
    others: list[str] = []
    for key, setting in _strangers(view, known):
        near = next(iter(difflib.get_close_matches(key, known, 1, CLOSE)), "")
        slip = bool(near) and _slip(key, near)
        if slip or trainer.refuses:
            yield _unknown(view, key, setting, near if slip else "")
        elif trainer.complete and setting.file != "--set":
            others.append(key)
    if others:
        names = ", ".join(others[:SHOWN]) + (f" and {len(others) - SHOWN} more" if len(others) > SHOWN else "")
        yield found(
            view,
            "info",
            others[0],
            f"not among {trainer.title}'s keys: {names}",
            why="They may belong to your own script or data; to the trainer they mean nothing.",
            sure="likely",
            source=f"{trainer.title}'s own configuration, {trainer.newest}",
        )


def _unknown(view: View, key: str, setting: Setting, near: str) -> Finding:
    """A key that the trainer refuses, or that is taken for a misspelt one."""
    trainer = view.config.trainer
    ignored = "An unknown key leaves the intended one at its default, often without a message."
    return found(
        view,
        "critical" if trainer.refuses else "warn",
        key,
        f"{trainer.title} has no key {setting.written.lstrip('-')!r}" + (f"; the nearest is {near!r}" if near else ""),
        why="It refuses unknown keys and does not start." if trainer.refuses else ignored,
        how=f"rename it to {near}, if that was meant" if near else "remove it",
        sure="certain" if trainer.refuses else "likely",
        source=f"{trainer.title}'s own configuration, {trainer.newest}",
    )


def _strangers(view: View, known: set[str]) -> Iterator[tuple[str, Setting]]:
    """The keys that are on no list of the trainer's and in no group that takes any key; none where no list is known."""
    allowed = {*known, *view.config.trainer.flags}
    for key, setting in view.config.settings.items():
        if known and key not in allowed and not any(part in key for part in OPEN_GROUPS) and not _group(key, known):
            yield key, setting


def _group(key: str, known: set[str]) -> bool:
    """Whether it is a whole group left empty, or is below a key that takes any mapping."""
    parts = key.split(".")
    return any(other.startswith(f"{key}.") for other in known) or any(
        ".".join(parts[:end]) in known for end in range(1, len(parts))
    )


def _slip(key: str, near: str) -> bool:
    """Whether they differ like a slip: in the same group, and not by a whole word or a number."""
    if key.rpartition(".")[0] != near.rpartition(".")[0]:
        return key.rpartition(".")[2] == near.rpartition(".")[2]
    ours, theirs = key.rpartition(".")[2], near.rpartition(".")[2]
    words, others = ours.split("_"), theirs.split("_")
    if len(words) != len(others):
        return ours.replace("_", "") == theirs.replace("_", "")
    unlike = [(a, b) for a, b in zip(words, others, strict=True) if a != b]
    alike = difflib.SequenceMatcher(None, ours, theirs).ratio() >= 0.8  # a long group before them says nothing
    return alike and len(unlike) == 1 and difflib.SequenceMatcher(None, *unlike[0]).ratio() >= 0.6
