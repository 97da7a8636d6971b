"""Every metric of a run as a chart, under the family it belongs to: what the first charts leave out is found here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2s

from stabilizer.core.text import natural
from stabilizer.figures.default_charts import Chart, charts
from stabilizer.runs.history import RunView

FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "reward": ("Reward", ("reward", "accuracy")),
    "optimisation": ("Optimisation", ("optim",)),
    "policy": ("Policy", ("policy",)),
    "rollout": ("Rollout", ("rollout",)),
    "critic": ("Critic", ("value",)),
    "speed": ("Speed", ("time", "tokens", "rank")),
    "knobs": ("Knobs", ("control", "batch")),
    "system": ("System", ("system",)),
    "other": ("Other metrics", ()),
}
"""Id -> title and the first parts of the names in it, in the order they are shown. What no family claims is `other`."""

_OF = {head: id for id, (_, heads) in FAMILIES.items() for head in heads}
_PLAIN = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)+")
MAX_SEARCH = 200
"""Characters of a search for metrics."""


def family_of(name: str) -> str:
    """Which family a metric belongs to."""
    return _OF.get(name.partition("/")[0], "other")


def chart_id(name: str) -> str:
    """The id of a metric's own chart: its name where that has plain characters, else a digest."""
    return (
        name if _PLAIN.fullmatch(name) else "m-" + blake2s(name.encode("utf-8", "replace"), digest_size=6).hexdigest()
    )


def others(view: RunView, present: Iterable[Chart] | None = None) -> dict[str, list[Chart]]:
    """One chart for each metric that no chart of `present` (the run's first charts) shows, by family."""
    told = {name for chart in (charts(view) if present is None else present) for name in chart.metrics}
    left: dict[str, list[Chart]] = {id: [] for id in FAMILIES}
    for name in sorted(view.names(), key=natural):
        if name not in told:
            left[family_of(name)].append(Chart(chart_id(name), name, (name,)))
    return left


def every_chart(view: RunView) -> dict[str, Chart]:
    """All charts of a run by id: those it is looked at with first, then one for each other metric."""
    first = charts(view)
    rest = (chart for family in others(view, first).values() for chart in family)
    return {chart.id: chart for chart in (*first, *rest)}


def searched(present: Iterable[Chart], words: str) -> list[Chart]:
    """The charts with a metric whose name contains the words, in any case.

    `*` stands for any characters, `|` separates alternatives. The search never becomes a regular expression, because a
    link can carry any text and some expressions never end. ValueError says that the search is too long.
    """
    if len(words) > MAX_SEARCH:
        raise ValueError(f"a search has at most {MAX_SEARCH} characters; leave some out")
    wanted = [alternative.split("*") for alternative in words.casefold().split("|") if alternative.strip("*")]
    return [chart for chart in present if any(_contains(name.casefold(), wanted) for name in chart.metrics)]


def _contains(name: str, wanted: Iterable[list[str]]) -> bool:
    """Whether the name contains the pieces of some alternative in order."""
    return any(_in_order(name, pieces) for pieces in wanted)


def _in_order(name: str, pieces: Iterable[str]) -> bool:
    place = 0
    for piece in pieces:
        found = name.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    return True
