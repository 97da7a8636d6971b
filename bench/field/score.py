"""One of five outcomes for an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bench.field.answers import Answer
from bench.field.cases import Alternatives, Case

OUTCOMES = ("SOLVED", "HELPED", "SILENT", "WRONG", "UNREADABLE")
UNNAMED = ("", "program-error", "undetermined", "unknown", "stopped", "killed")
"""Causes that name nothing: an answer that claims no more than these is silent, not wrong."""
ENDINGS = ("system/crashed", "system/config-error", "system/trouble")
"""Findings about the end of a program: there another cause than the thread's is a false claim. In a log of metrics
another finding may be true besides."""


class Scored(NamedTuple):
    """A case, its answer, its outcome and why."""

    case: Case
    answer: Answer
    outcome: str
    why: str


def score(case: Case, answer: Answer) -> Scored:
    """SOLVED: the top names the cause or the fix. HELPED: the top names the area, or the page the cause.

    WRONG: a verdict, a claim or a cause that is false for this thread. SILENT: none of these.
    """
    return Scored(case, answer, *_outcome(case, answer))


def _outcome(case: Case, answer: Answer) -> tuple[str, str]:
    if not answer.readable:
        return "UNREADABLE", answer.error
    if matched(case.wrong, answer.top):
        return "WRONG", f"claims {matched(case.wrong, answer.top)}"
    if answer.verdict in case.wrong_verdicts:
        return "WRONG", f"verdict {answer.verdict}"
    if found := matched(case.solved, answer.top):
        return "SOLVED", found
    if found := matched(case.helped, answer.top) or matched(case.solved, answer.page):
        return "HELPED", found
    if answer.finding in ENDINGS and answer.cause not in UNNAMED:
        return "WRONG", f"cause {answer.cause}"
    return "SILENT", answer.cause or answer.verdict


def matched(alternatives: Alternatives, text: str) -> str:
    """The words of the first alternative that matches wholly, or nothing."""
    for alternative in alternatives:
        hits = [pattern.search(text) for pattern in alternative]
        if all(hits):
            return " + ".join(hit[0] for hit in hits if hit)
    return ""


def counts(scored: Sequence[Scored]) -> dict[str, int]:
    """How many of each outcome."""
    return {outcome: sum(one.outcome == outcome for one in scored) for outcome in OUTCOMES}
