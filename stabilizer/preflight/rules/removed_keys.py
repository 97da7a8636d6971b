"""Keys that this version no longer has, or does not have yet.

What it checks
    Each key's first and last version against the version in use.
Why it matters
    Recipes are reused across versions. A removed key is an error at best and ignored at worst; a key that is too new
    silently has no effect.
Exceptions
    Without a version given, the newest one that knows all keys is assumed, so nothing is said.
Fix
    The key that replaced it, where there is one; removing a key is left to the user.
References
    The fields of `GRPOConfig` in TRL 0.14 to 1.16.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.configs.config import parse_version
from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "keys/removed"


def check(view: View) -> Iterator[Finding]:
    """One finding for every key out of its time."""
    config = view.config
    if config.guessed:  # the keys are as likely another program's
        return
    now = parse_version(config.version_used)
    for key in config.settings:
        known = config.trainer.keys.get(key)
        if known is None:
            continue
        if known.gone and now >= parse_version(known.gone):
            yield found(
                view,
                "warn",
                key,
                f"{key} is gone since {known.gone}, and this is {config.version_used}",
                why="The configuration class no longer takes it: the run stops at once, or goes on without it.",
                how=f"instead: {known.instead}" if known.instead else "take it out",
                sure="certain",
                source=f"fields of the configuration in {config.trainer.title} {config.version_used}",
            )
        elif known.since and now < parse_version(known.since):
            yield found(
                view,
                "warn",
                key,
                f"{key} came with {known.since}, and this is {config.version_used}",
                why="This version does not know it: the run stops at once, or goes on without it.",
                how=f"use {known.since} or later, or take it out",
                sure="certain",
                source=f"fields of the configuration in {config.trainer.title} {known.since}",
            )
