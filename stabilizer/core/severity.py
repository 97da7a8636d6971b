"""How a severity is shown (an icon that does not depend on colour, and a word), and which verdicts reach it."""

from stabilizer.core.records import SEVERITIES

ICONS = {"info": "●", "warn": "▲", "critical": "■"}
WORDS = {"info": "info", "warn": "warning", "critical": "critical"}


def reached(verdict: str, level: str) -> bool:
    """Whether a verdict reaches the level that `--fail-on` names. A crash reaches every level but `never`."""
    if level == "never" or verdict == "crashed":
        return level != "never"
    ranked: tuple[str, ...] = SEVERITIES
    return level in ranked and verdict in ranked and ranked.index(verdict) >= ranked.index(level)
