"""Settings whose names promise something else than they do.

What it checks
    Written settings that are often misread, against what the trainer does with them.
Why it matters
    A setting that is misread is tuned in vain, and its effect is looked for in the wrong metric.
Exceptions
    Nothing is wrong with such a setting.
Fix
    None; the sentence says what it does.
References
    The trainer's source or documentation, named with each sentence.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "keys/meaning"


def check(view: View) -> Iterator[Finding]:
    """One finding for each such setting that is written and switched on."""
    for key, (means, source) in view.config.trainer.means.items():
        if key in view.config.settings and view.ask.raw(key) not in (None, False, 0):
            yield found(view, "info", key, means, why="It is often read otherwise.", sure="certain", source=source)
