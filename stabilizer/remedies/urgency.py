"""Classes of findings by urgency, and the incident to treat first."""

from __future__ import annotations

from collections.abc import Sequence

from stabilizer.core.records import Finding

INTEGRITY, DIVERGENCE, STARVATION, EXPLORATION, EFFICIENCY = range(5)
"""Classes of findings: a lower one waits while a higher one is open."""
_PREFIXES = (
    ("numerics/", "system/", "reward/outage"),
    (
        "optim/grad",
        "optim/optimizer",
        "policy/kl-runaway",
        "policy/kl-estimator",
        "policy/mismatch",
        "policy/overstepping",
        "policy/stale",
        "policy/likelihood",
        "policy/router",
        "reward/collapse",
        "reward/std-blowup",
        "value/",
    ),
    ("reward/no-signal",),
    ("policy/entropy", "policy/template", "rollout/"),
    ("",),
)
_LEAST_URGENT = ("policy/kl-pinned",)
JUST_SEEN = 5
"""Steps since the onset within which a fault has not yet affected the policy enough to need a rollback."""


def rank(finding: Finding) -> int:
    """The class of a finding; the most urgent is 0."""
    if finding.id in _LEAST_URGENT:
        return EFFICIENCY
    return next(rank for rank, prefixes in enumerate(_PREFIXES) if finding.id.startswith(prefixes))


def most_urgent(findings: Sequence[Finding]) -> int | None:
    """The incident to treat. Findings that are info or recovering need no remedy."""
    ranked = [(rank(f), f.incident) for f in findings if f.severity != "info" and f.state != "recovering"]
    return min(ranked)[1] if ranked else None


def just_seen(findings: Sequence[Finding], step: int) -> bool:
    """Whether all findings are faults outside of the policy that began within `JUST_SEEN` steps.

    Correcting those leaves nothing to undo. A non-finite number does not count, because the weights may contain it.
    """
    around = all(rank(f) == INTEGRITY or f.id == "policy/mismatch" for f in findings)
    broken = any(f.id.startswith("numerics/") for f in findings)
    return around and not broken and step - min(f.onset_step for f in findings) <= JUST_SEEN
