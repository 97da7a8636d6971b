"""A rule: a small question about a case, answered by a score and its reasons."""

from __future__ import annotations

from collections.abc import Callable

from stabilizer.incidents.diagnosis.case import Case

Verdict = tuple[float, list[str]]
"""Score (0 for "not this") and the reasons, each with its numbers."""
Rule = Callable[[Case], Verdict]
Table = tuple[tuple[str, Rule], ...]

NO: Verdict = (0.0, [])

PROOF = 0.95
"""A fact that has no second explanation: an exact invariant, an error message."""
TURNED = 0.9
"""The knob changed shortly before, in the direction that has this effect, and the effect followed."""
OBSERVED = 0.8
"""What the cause names was itself measured, such as the share of answers that are cut."""
SIGNATURE = 0.7
"""A pattern that only this cause has, or whose alternatives are excluded."""
FITS = 0.55
"""The pattern fits; an alternative that was not measured could fit as well."""
WEAK = 0.45
"""More likely than any other single cause."""
UNLIKELY = 0.35
"""It fits, but another observation explains it better: reported as an alternative, never as the cause."""


def few_prompts(each: float) -> str:
    """The effect of a batch this small, in words."""
    words = "1 prompt" if round(each) == 1 else f"{each:.0f} prompts"
    return f"with {words} per update the gradient is mostly noise"
