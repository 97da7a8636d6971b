"""Answers sampled from another distribution than the one that is corrected for, or from hardly any.

What it checks
    top-p, top-k or min-p together with importance weights between engine and trainer; truncated sampling without them;
    a temperature of 0, or beyond 0.6 to 1.3.
Why it matters
    An engine that samples from the top 95 % renormalises them: its log-probabilities are of another distribution, and
    the weight that should correct rounding errors corrects for that instead, biased by the mass that was cut. At
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

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View

ID = "sampling/distribution"


def check(view: View) -> Iterator[Finding]:
    """Findings about truncation and about temperature."""
    top_p, top_k, min_p = (view.number(name) for name in ("top_p", "top_k", "min_p"))
    cuts = {}
    if top_p is not None and top_p < 1:
        cuts["top_p"] = 1.0
    if top_k is not None and top_k > 0:
        cuts["top_k"] = 0 if view.config.trainer.validity in ("trl", "open-r1") else -1
    if min_p:
        cuts["min_p"] = None
    if cuts:
        said = ", ".join(f"{view[name].key.rpartition('.')[2]} {view.number(name):g}" for name in cuts)
        corrected = bool(view.value("correction"))
        yield found(
            view, ID, "warn" if corrected else "info", view[next(iter(cuts))],
            f"answers are sampled with {said}"
            + (", and importance weights take them for samples of the whole distribution" if corrected else ""),
            why="The engine renormalises what it keeps, so its log-probabilities are those of another distribution.",
            how="sample from the whole distribution: "
            + ", ".join(f"{view[n].key.rpartition('.')[2]} {v}" for n, v in cuts.items()),
            change={view[name].key: value for name, value in cuts.items()} if corrected else {},
            sure="certain" if corrected else "folklore", source="huggingface/trl#6789",
        )  # fmt: skip
    heat = view.number("temperature")
    if heat is not None and heat <= 0 and view.value("groups"):
        yield found(
            view, ID, "critical", view["temperature"], "temperature 0: all answers to a prompt are the same",
            why="Equal answers have equal rewards, so every advantage is 0.", how="1.0",
            change={view["temperature"].key: 1.0}, sure="certain", source="arithmetic",
        )  # fmt: skip
    elif heat is not None and not 0.6 <= heat <= 1.3:
        yield found(
            view, ID, "warn" if heat > 1.5 else "info", view["temperature"], f"temperature {heat:g} is far from 1",
            why="Colder than 0.6 a group's answers resemble one another; hotter than 1.3 they fall apart.",
            how="1.0", change={view["temperature"].key: 1.0} if heat > 1.5 else {}, sure="folklore",
            source="defaults of all trainers known here (1.0)",
        )  # fmt: skip
