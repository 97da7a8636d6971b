"""A reward function whose pattern ends at a line break.

What it checks
    Patterns of the script's reward functions that look for text between two tags with `.*` and without re.DOTALL.
Why it matters
    `.` does not match a line break. An answer that thinks over several lines earns 0 however well it is formed, so the
    format reward stays 0 and teaches nothing.
Exceptions
    Answers that are meant to have one line. Patterns that are not written out in the function are not judged.
Fix
    The flag re.DOTALL, and `stabilizer preflight --rewards`, which tries answers of several lines.
References
    StarsfieldAI/R1-V#124; huggingface/open-r1#235.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "rewards/one-line-pattern"


def check(view: View) -> Iterator[Finding]:
    """One finding for each function."""
    parsed = view.config.parsed
    for function, line in dict(parsed.hints.get("one_line_patterns", ())).items():
        yield replace(
            found(
                view,
                "warn",
                function,
                f"{function} looks for tags with `.*`, which ends at a line break: an answer of several lines earns 0",
                why="Answers with reasoning have line breaks, so this reward stays 0 for well-formed answers too.",
                how=f"flags=re.DOTALL in the match; then stabilizer preflight --rewards {parsed.path.name}:{function}",
                sure="certain",
                source="StarsfieldAI/R1-V#124",
            ),
            line=line,
        )
