"""What a rule is: a small question about a case, answered by how sure it is and why."""

from __future__ import annotations

from collections.abc import Callable

from stabilizer.incidents.diagnosis.case import Case

Verdict = tuple[float, list[str]]
"""Confidence (0 for "not this") and the reasons, each with its numbers."""
Rule = Callable[[Case], Verdict]
Table = tuple[tuple[str, Rule], ...]

NO: Verdict = (0.0, [])

PROOF = 0.95
"""A fact that has no second explanation: an exact invariant, an error message."""
TURNED = 0.9
"""The knob was turned shortly before, in the direction that does this, and this followed."""
SIGNATURE = 0.7
"""What only this cause shows was seen, or its rivals are excluded."""
FITS = 0.55
"""The pattern fits; a rival that was not measured could fit as well."""
WEAK = 0.45
"""More likely than any other single cause."""
UNLIKELY = 0.35
"""It fits, and something that was seen explains it better: told as an alternative, never as the cause."""


def few_prompts(each: float) -> str:
    """What a batch this small does, in words."""
    words = "1 prompt an update leaves" if round(each) == 1 else f"{each:.0f} prompts an update leave"
    return f"{words} the gradient to noise"
