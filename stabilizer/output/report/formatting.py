"""Text of a report in all its formats, and how text from outside is made safe for each.

Run names, summaries and configurations come from other people's files: every piece of text goes through
`html.safe` or `md` on its way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from stabilizer.analysis.analyse import Analysis, Number
from stabilizer.core import records
from stabilizer.core.settings import flat
from stabilizer.core.text import LONGEST, plain
from stabilizer.output.terminal import change_text
from stabilizer.runs import story

MAX_ROWS = 400
"""Journal entries, events and metrics that are listed; the rest is counted."""
STORY = 4000
"""Characters of a case's paragraph that are shown."""


def md(text: object, longest: int = LONGEST) -> str:
    """Any text as Markdown shows it."""
    return re.sub(r"([\\`*_\[\]<>|#~!])", r"\\\1", plain(text, longest))


def number(value: object) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {number(inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(number(inner) for inner in value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if value != value:
        return "NaN"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def listed(config: Any) -> list[tuple[str, str]]:
    """A configuration as dotted keys and values."""
    return [(key, value if isinstance(value, str) else compact(value)) for key, value in flat(config).items()]


def compact(value: Any) -> str:
    return orjson.dumps(records.as_json(jsonable(value))).decode()


def jsonable(value: Any) -> Any:
    """A value of a configuration file as JSON's types; anything else (YAML's dates) becomes text."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(inner) for inner in value]
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


def definition_text(row: Number) -> str:
    source = f" (logged as {row.source})" if row.source and row.source != row.name else ""
    aggregation = f"; {row.aggregation}" if row.aggregation and row.aggregation != row.estimator else ""
    return f"{row.estimator}{aggregation}{source}"


def unchanged(still: Sequence[Number]) -> str:
    """The knobs that never changed, in a line."""
    return ", ".join(f"{row.name.removeprefix('control/')} {number(row.last)}" for row in still)


def intervention_text(one: story.TrialStory) -> tuple[str, ...]:
    """An intervention in four sentences: what, why, the outcome, and what would have happened without it."""
    who = f"by {one.by}" if one.origin == "person" else f"by the remedy {one.remedy}"
    what = ", ".join(filter(None, [change_text(one.change), one.order])) or one.remedy
    came = {"kept": "It was kept", "undone": "It was undone", "on trial": "It was still on trial when the run ended"}
    outcome = came[one.outcome] + (f" at step {one.ended:,}" if one.ended is not None else "")
    lines = [f"After step {one.step:,}, {who} ({one.action}): {what}."]
    if one.origin != "person":
        lines += [f"Why: {one.why}.", f"{outcome}{f': {one.result}' if one.result else ''}."]
        lines += [f"Without it: {story.twin_words(one)}."]
    elif one.outcome == "undone":
        lines += [f"{outcome}."]
    return tuple(lines)


def comparability(actions: Sequence[records.Action]) -> str:
    """Whether this run is comparable with unchanged ones."""
    made = story.summary(actions)
    if not made["count"]:
        return "Nothing was changed while this run trained."
    return f"This run was {made['text']}; its results are not comparable with those of a plain run."


def outlook(analysis: Analysis) -> tuple[str, ...]:
    return analysis.forecast.lines if analysis.forecast else ()
