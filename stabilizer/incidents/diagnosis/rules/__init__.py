"""All rules, by family. A new rule is a function and a line in its file's table. A cause may have several rules."""

from __future__ import annotations

from stabilizer.incidents.diagnosis.rules import credit, edge, integrity, plateau, reward, settings, update
from stabilizer.incidents.diagnosis.rules.base import Table

RULES: Table = (
    *integrity.RULES,
    *edge.RULES,
    *credit.RULES,
    *settings.RULES,
    *update.RULES,
    *reward.RULES,
    *plateau.RULES,
)

CAUSES: tuple[str, ...] = tuple(dict.fromkeys(cause for cause, _ in RULES))
"""Every cause that has a rule."""
