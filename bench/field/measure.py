"""How many texts that users pasted into public issue trackers the command line answers.

Each case is a resolved public thread: its cause and fix are known, and its input is re-made from the error lines of the
programs. The command line runs as a user would run it, on standard input (`diagnose -`) or on a file (`preflight`).
Only the top of an answer counts: the first finding with its first cause and first fix, and the first 16 printed lines,
without the words that it quotes from the input. SOLVED: the top names the cause or the fix. HELPED: the top names the
right area, or the rest of the first 60 lines names the cause. WRONG: a false cause, claim or verdict. SILENT: none of
these. UNREADABLE: no answer, or one that refuses the input. The half of a thread follows from a hash of its reference;
answers to the half `unseen` are counted and never shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.field.answers import ask
from bench.field.cases import HALVES, cases
from bench.field.score import OUTCOMES, Scored, counts, score

JOBS = 2
"""Commands that run at once."""
TARGETS = "targets: SOLVED + HELPED at least 70 %, WRONG at most 3 %, UNREADABLE 0"


def measure(
    *,
    half: str | None = None,
    only: str | None = None,
    jobs: int = JOBS,
    from_stdin: bool = True,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Scored]:
    """Ask about every case of a half (or of both); `only` keeps the cases of one trainer or kind."""
    chosen = [case for case in cases(half) if only is None or only in (case.trainer, case.kind, case.reference)]
    if not chosen:
        raise ValueError(f"--only {only}: no case is of this trainer, kind or reference")
    tell(f"asking about {len(chosen)} threads")
    with ThreadPoolExecutor(jobs) as pool:
        return [
            score(*pair) for pair in zip(chosen, pool.map(lambda c: ask(c, from_stdin=from_stdin), chosen), strict=True)
        ]


def tables(scored: Sequence[Scored]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Outcomes by half, by trainer and by kind."""
    groups: list[tuple[str, Callable[[Scored], str]]] = [
        ("trainer or engine", lambda one: one.case.trainer),
        ("kind", lambda one: one.case.kind),
        ("shape", lambda one: one.case.shape),
    ]
    halves = [*_rows("half", scored, HALVES, lambda one: one.case.half), _row("half", "all", scored)]
    return [
        ("by half", halves),
        *((f"by {title}", _rows(title, scored, _names(scored, of), of)) for title, of in groups),
    ]


def as_json(scored: Sequence[Scored]) -> dict[str, Any]:
    """The same counts for scripts; no case of the half `unseen` is named."""
    shown = [one for one in scored if one.case.half == "open"]
    return {
        "tables": {title: rows for title, rows in tables(scored)},
        "open": {one.case.reference: {"outcome": one.outcome, "why": one.why} for one in shown},
    }


def details(scored: Sequence[Scored]) -> list[str]:
    """A line per case that is not solved, then what its answer shows; of the half `open` alone."""
    lines = []
    for one in scored:
        if one.case.half == "open" and one.outcome != "SOLVED":
            lines.append(
                f"{one.outcome:10} {one.case.reference} ({one.case.trainer}, {one.case.kind}): {one.why[:120]}"
            )
            lines.append(f"           cause: {one.case.cause}")
            lines.append(f"           fix: {one.case.fix}")
            lines.append(f"           answered: {one.answer.top[:300] or one.answer.error}")
    return lines


def _names(scored: Sequence[Scored], of: Callable[[Scored], str]) -> list[str]:
    return [name for name, _ in Counter(map(of, scored)).most_common()]


def _rows(
    title: str, scored: Sequence[Scored], names: Iterable[str], of: Callable[[Scored], str]
) -> list[dict[str, Any]]:
    return [_row(title, name, group) for name in names if (group := [one for one in scored if of(one) == name])]


def _row(title: str, name: str, scored: Sequence[Scored]) -> dict[str, Any]:
    found = counts(scored)
    answered = found["SOLVED"] + found["HELPED"]
    return {title: name, "threads": len(scored)} | {outcome: found[outcome] for outcome in OUTCOMES} | {
        "SOLVED + HELPED": f"{100 * answered / len(scored):.0f} %"
    }  # fmt: skip
