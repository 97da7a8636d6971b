"""A workspace as one HTML file that opens without a server: its script, its styles and its numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from dashboards.data.run_registry import Runs
from dashboards.data.workspace import MAX_METRICS, Wanted, answer

ASSETS = Path(__file__).parent.parent / "assets"
STYLES = ("style.css", "runs.css", "run.css", "workspace.css")
MOST_METRICS = 400
"""Metrics of one file."""
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{styles}</style>
</head>
<body>
<main class="workspace-page">
<h1 class="workspace-heading">{title}</h1>
<div id="workspace" class="workspace"></div>
</main>
<script type="application/json" id="workspace-data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def static_page(
    runs: Runs, wanted: Wanted, rows: Mapping[str, Any], options: Mapping[str, Any], query: str, title: str
) -> str:
    """The page with the lines of all metrics of the wanted runs, drawn as `query` says."""
    lines = all_lines(runs, wanted)
    shown = [row for row in rows["rows"] if row["id"] in lines["runs"]]
    data = {"options": options, "query": query, "rows": {**rows, "rows": shown, "columns": []}, "lines": lines}
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return PAGE.format(
        policy=POLICY,
        title=escape(title),
        styles="\n".join((ASSETS / name).read_text(encoding="utf-8") for name in STYLES),
        data=text.replace("<", "\\u003c"),  # nothing in a name may end the script
        script=(ASSETS / "workspace.js").read_text(encoding="utf-8"),
    )


def all_lines(runs: Runs, wanted: Wanted) -> dict[str, Any]:
    """The answer about all metrics of some runs."""
    found = answer(runs, replace(wanted, metrics=(), window=None))
    names: Sequence[str] = list(dict.fromkeys(name for run in found["runs"].values() for name in run["metrics"]))
    for start in range(0, min(len(names), MOST_METRICS), MAX_METRICS):
        part = answer(runs, replace(wanted, metrics=tuple(names[start : start + MAX_METRICS]), window=None))
        found["charts"] |= part["charts"]
    return found
