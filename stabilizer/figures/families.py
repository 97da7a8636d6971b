"""Every metric of a run as a chart, under the family it belongs to: what the first charts leave out is found here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2s

from stabilizer.figures.core import Chart, charts
from stabilizer.runs.history import RunView

FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "reward": ("Reward", ("reward", "accuracy")),
    "optimisation": ("Optimisation", ("optim",)),
    "policy": ("Policy", ("policy",)),
    "rollout": ("Rollout", ("rollout",)),
    "critic": ("Critic", ("value",)),
    "speed": ("Speed", ("time", "tokens", "rank")),
    "knobs": ("Knobs", ("control", "batch")),
    "other": ("Other metrics", ()),
}
"""Id -> title and the first parts of the names in it, in the order they are shown. What no family claims is `other`."""

_OF = {head: id for id, (_, heads) in FAMILIES.items() for head in heads}
_PLAIN = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)+")
LONGEST = 200
"""Characters of a search; longer ones are no longer searches."""
REPEATS = 4
"""More repeats, or repeats of repeats, could take for ever on a long name."""


def family_of(name: str) -> str:
    """Which family a metric belongs to."""
    return _OF.get(name.partition("/")[0], "other")


def chart_id(name: str) -> str:
    """The id of a metric's own chart: its name where that is plain, else a digest of it."""
    return (
        name if _PLAIN.fullmatch(name) else "m-" + blake2s(name.encode("utf-8", "replace"), digest_size=6).hexdigest()
    )


def others(view: RunView, present: Iterable[Chart] | None = None) -> dict[str, list[Chart]]:
    """One chart for each metric that no chart of `present` (the run's first charts) shows, by family."""
    told = {name for chart in (charts(view) if present is None else present) for name in chart.metrics}
    left: dict[str, list[Chart]] = {id: [] for id in FAMILIES}
    for name in sorted(view.names()):
        if name not in told:
            left[family_of(name)].append(Chart(chart_id(name), name, (name,)))
    return left


def every_chart(view: RunView) -> dict[str, Chart]:
    """All charts of a run by id: those it is looked at with first, then one for each other metric."""
    first = charts(view)
    rest = (chart for family in others(view, first).values() for chart in family)
    return {chart.id: chart for chart in (*first, *rest)}


def searched(present: Iterable[Chart], words: str) -> list[Chart]:
    """The charts with a metric whose name matches the regular expression, in any case.

    ValueError says what is wrong with an expression that is none.
    """
    pattern = expression(words)
    return [chart for chart in present if any(pattern.search(name) for name in chart.metrics)]


def expression(words: str) -> re.Pattern[str]:
    """A search as a pattern; ValueError says what is wrong with it."""
    if len(words) > LONGEST:
        raise ValueError(f"a search has at most {LONGEST} characters")
    if len(re.findall(r"[*+?{]", words)) > REPEATS or re.search(r"\)[*+{]", words):
        raise ValueError(f"a search repeats single characters, and at most {REPEATS} times")
    try:
        return re.compile(words, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"not a regular expression: {error}") from None
