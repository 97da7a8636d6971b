"""A bug of the release in use that this configuration meets.

What it checks
    The version of the trainer, where it is known, against the bugs that later releases mended, each with the settings
    that meet it.
Why it matters
    Such a run starts and logs as if nothing were wrong: weights, losses or logged numbers are not what the settings
    say.
Exceptions
    Nothing is said where the version is not known: give `--version`, or keep a lock file or `pip freeze` beside the
    configuration.
Fix
    The release that mends it, or a setting that does not meet it.
References
    The changes that mended them, by number.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.configs.config import parse_version
from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "version/known-bug"


def check(view: View) -> Iterator[Finding]:
    """One finding for each bug that is met."""
    config = view.config
    if config.version is None:
        return
    now = parse_version(config.version)
    for bug in config.trainer.bugs:
        if parse_version(bug.since) <= now < parse_version(bug.mended) and bug.met(view.ask):
            yield found(
                view,
                bug.severity,
                bug.key,
                f"{config.trainer.title} {config.version}: {bug.what}",
                why=f"Mended in {bug.mended}. The run starts and logs as if nothing were wrong.",
                how=f"{config.trainer.title} {bug.mended} or later; until then: {bug.until}",
                sure="certain",
                source=bug.source,
            )
