"""Prose is plain technical English: phrasings that native engineers read twice are counted, and become fewer."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PHRASINGS = {
    "verbs of speech for programs": (
        r"\b(?:is|are|was|were|be|being) told\b|\btold (?:of|by|what|which|how|whether)\b|\bis heard\b"
    ),
    "free relatives as subjects": (
        r"(?:^|[.:;!?\"'#] )Who (?:looks|asks|turns|wants|reads|is|has|ends|wrote)\b|\bwhat (?:is|was) said\b"
    ),
    "inverted openings": r"(?:^|\. |\"\"\")(?:Read|Said|Told|Shown|Left out|Built in|Weak|Known) (?:are|is)\b",
    "hidden terms": (
        r"\b(?:stands still|stands for|is paid|are paid|were paid|was paid|dearest|anew|of late|its own way|by hand)\b"
    ),
}
"""What to avoid, by kind. docs/architecture.md has the words to use."""
FOLDERS = ("stabilizer", "dashboards", "docs")
MOST: dict[str, int] = {
    "dashboards: hidden terms": 6,
    "dashboards: verbs of speech for programs": 1,
    "docs: hidden terms": 1,
    "docs: inverted openings": 1,
    "docs: verbs of speech for programs": 1,
    "stabilizer: hidden terms": 9,
    "stabilizer: inverted openings": 1,
    "stabilizer: verbs of speech for programs": 10,
}
"""Occurrences by folder and kind that are left. May only shrink."""


def occurrences() -> dict[str, int]:
    """How often each kind of phrasing occurs in code and documentation, by folder."""
    counts: dict[str, int] = {}
    for folder in FOLDERS:
        paths = [p for ending in ("*.py", "*.md", "*.js") for p in (ROOT / folder).rglob(ending)]
        text = "\n".join(p.read_text(encoding="utf-8") for p in sorted(paths) if "reference" not in p.parts)
        for kind, pattern in PHRASINGS.items():
            if count := len(re.findall(pattern, text, re.MULTILINE)):
                counts[f"{folder}: {kind}"] = count
    return counts


def test_phrasings_that_are_read_twice_become_fewer() -> None:
    counted = occurrences()
    assert {key: count for key, count in counted.items() if count > MOST.get(key, 0)} == {}
