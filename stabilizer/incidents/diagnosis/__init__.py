"""The likely causes of an incident, from the order of events, the configuration and what can be excluded.

Every rule looks at the findings of one incident and the run so far (`case.Case`) and returns a score with reasons.
The root cause is the signal that moved earliest in the order in which trouble spreads (`graph`), not the largest one,
so rules compare onsets before sizes. A knob that changed shortly before is stronger evidence than any curve. The answer
may be "undetermined".

The scores of rules (`rules.base`): 0.95 is a fact without a second explanation (an exact invariant, an error message).
0.9 is a knob that changed shortly before its known effect. 0.7 is a pattern that only this cause has, or whose
alternatives are excluded. 0.55 is a pattern that fits, while an alternative that was not measured could fit as well.
Below 0.4 nothing is claimed. `confidence` turns scores into shares of causes that were right.
"""

from __future__ import annotations

from collections.abc import Sequence

from stabilizer.core.records import Cause, Finding
from stabilizer.incidents.diagnosis.case import Case
from stabilizer.incidents.diagnosis.confidence import ENOUGH, SUSPECTED, confidences
from stabilizer.incidents.diagnosis.rules import CAUSES, RULES
from stabilizer.incidents.diagnosis.rules.base import PROOF
from stabilizer.incidents.diagnosis.rules.plateau import FLAT
from stabilizer.runs.history import RunView

__all__ = ["CAUSES", "ENOUGH", "causes"]

DOUBT = "its pattern fits other causes as well"
NO_PROGRESS = (*FLAT, "reward/no-signal", "reward/noise-floor")
"""Findings that say that nothing is learned."""
MOST = 3
"""Most causes reported, the likeliest first."""


def causes(findings: Sequence[Finding], view: RunView) -> tuple[Cause, ...]:
    """Possible causes of an incident, most likely first; `undetermined` leads when nothing reaches `ENOUGH`."""
    case = Case(findings, view)
    found: dict[str, tuple[float, str]] = {}
    for name, rule in RULES:
        score, reasons = rule(case)
        if score > found.get(name, (0.0, ""))[0]:
            found[name] = (min(score, PROOF), "; ".join(reasons))
    ordered = sorted(found.items(), key=lambda item: -item[1][0])
    scores = [score for _, (score, _) in ordered]
    sure = confidences(scores, view, flat=case.find(*NO_PROGRESS) is not None)
    ranked = [
        Cause(name, round(confidence, 2), why, DOUBT if score < SUSPECTED else "")
        for confidence, (name, (score, why)) in zip(sure, ordered, strict=True)
    ]
    if not ranked or ranked[0].confidence < ENOUGH:
        left = round(1 - sum(cause.confidence for cause in ranked[:1]), 2)
        words = "no logged metric points to one cause"
        if ranked:
            words = f"the logged metrics do not single out one cause; {ranked[0].id} fits best"
        ranked.insert(0, Cause("undetermined", left, words))
    return tuple(ranked[:MOST])
