"""Which cause: from what moved first, the configuration and what can be excluded. May answer "undetermined".

Every rule looks at the findings of one incident and the run up to now (`case.Case`) and says how sure it is and why.
The root cause is the earliest signal that moved in the order in which trouble travels (`graph`), not the loudest, so
onsets are compared before sizes; a knob that was turned shortly before is stronger evidence than any curve.

What a confidence means (`rules.base`): 0.95 is a fact without a second explanation (an exact invariant, an error
message); 0.9 a knob turned shortly before, and what it does followed; 0.7 what only this cause shows, or its rivals are
excluded; 0.55 the pattern fits, but a rival that was not measured could fit as well; below 0.4 nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Sequence

from stabilizer.core.records import Cause, Finding
from stabilizer.incidents.diagnosis.case import Case
from stabilizer.incidents.diagnosis.rules import CAUSES, RULES
from stabilizer.runs.history import RunView

__all__ = ["CAUSES", "ENOUGH", "causes"]

ENOUGH = 0.4
"""Confidence under which we say that the cause is undetermined."""
MOST = 3
"""Causes told, the likeliest first."""


def causes(findings: Sequence[Finding], view: RunView) -> tuple[Cause, ...]:
    """Possible causes of an incident, most likely first; `undetermined` leads when nothing reaches `ENOUGH`."""
    case = Case(findings, view)
    found: dict[str, Cause] = {}
    for name, rule in RULES:
        score, reasons = rule(case)
        cause = Cause(name, round(min(score, 0.95), 2), "; ".join(reasons))
        if score > 0 and (name not in found or cause.confidence > found[name].confidence):
            found[name] = cause
    ranked = sorted(found.values(), key=lambda cause: -cause.confidence)
    if not ranked or ranked[0].confidence < ENOUGH:
        left = round(1 - sum(cause.confidence for cause in ranked[:1]), 2)
        words = "nothing that is logged points to one cause"
        if ranked:
            words = f"what is logged tells no cause from another; {ranked[0].id} comes nearest"
        ranked.insert(0, Cause("undetermined", left, words))
    return tuple(ranked[:MOST])
