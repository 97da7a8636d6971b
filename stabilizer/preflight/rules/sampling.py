"""Answers sampled from another distribution than the one that is corrected for, or with almost no randomness.

What it checks
    top-p, top-k or min-p together with importance weights between engine and trainer; truncated sampling without them;
    a temperature of 0, or beyond 0.6 to 1.3.
Why it matters
    An engine that samples from the top 95 % renormalises them, so its log-probabilities belong to another distribution.
    The weight that should correct rounding errors then corrects for that, biased by the mass that was cut. At
    temperature 0 all answers of a group are the same and the advantage is 0.
Exceptions
    Truncated sampling without importance weights is how EasyR1 and Search-R1 ship: it is mentioned only.
Fix
    top_p 1, top_k off, min_p off; a temperature of 1, or near it.
References
    huggingface/trl#6789.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found, number
from stabilizer.trainers.quantities import View

ID = "sampling/distribution"
COLD, WARM, HOT = 0.6, 1.3, 1.5
"""Temperatures outside the first two are mentioned; above the last the rule warns."""


def check(view: View) -> Iterator[Finding]:
    """Findings about truncation and about temperature."""
    yield from _truncation(view)
    yield from _temperature(view)


def _truncation(view: View) -> Iterator[Finding]:
    truncates = {
        "top_p": number(view, "top_p") < 1,
        "top_k": number(view, "top_k") > 0,
        "min_p": bool(view.number("min_p")),
    }
    names = [name for name, on in truncates.items() if on]
    if not names:
        return
    off = {"top_p": 1.0, "top_k": 0 if view.config.trainer.name in ("trl", "open-r1") else -1, "min_p": None}
    cuts = {view[name].key: off[name] for name in names}
    said = ", ".join(f"{_last(view[name].key)} {view.number(name):g}" for name in names)
    corrected = bool(view.value("correction"))
    taken = ", and importance weights take them for samples of the whole distribution" if corrected else ""
    yield found(
        view,
        "warn" if corrected else "info",
        view[names[0]],
        f"answers are sampled with {said}{taken}",
        why="The engine renormalises what it keeps, so its log-probabilities are those of another distribution.",
        how="sample from the whole distribution: " + ", ".join(f"{_last(key)} {value}" for key, value in cuts.items()),
        change=cuts if corrected else {},
        sure="certain" if corrected else "folklore",
        source="huggingface/trl#6789",
    )


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _temperature(view: View) -> Iterator[Finding]:
    heat, at = number(view, "temperature"), view["temperature"]
    if heat <= 0 and view.value("groups"):
        yield found(
            view,
            "critical",
            at,
            "temperature 0: all answers to a prompt are the same",
            why="Equal answers have equal rewards, so every advantage is 0.",
            how="1.0",
            change={at.key: 1.0},
            sure="certain",
            source="arithmetic",
        )
    elif heat < COLD or heat > WARM:
        yield found(
            view,
            "warn" if heat > HOT else "info",
            at,
            f"temperature {heat:g} is far from 1",
            why="Colder than 0.6 a group's answers resemble one another; hotter than 1.3 they fall apart.",
            how="1.0",
            change={at.key: 1.0} if heat > HOT else {},
            sure="folklore",
            source="defaults of all trainers known here (1.0)",
        )
