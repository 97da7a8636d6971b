"""Notices for pages without a run, an incident or data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dash import html

from dashboards.components.actions import check_button
from dashboards.components.elements import empty
from dashboards.components.rich_text import detector_link
from dashboards.data.run_registry import Runs
from dashboards.data.run_verdict import RunVerdict


def missing(runs: Runs, run: str) -> html.Div:
    """The page in place of that of a run which is not there."""
    return html.Div(unknown(run) if run else no_runs(runs.roots), className="page")


def no_runs(roots: Sequence[Path]) -> html.Div:
    """The page before there is any run."""
    looked = (
        f"Searched {', '.join(map(str, roots))} for runs and for logs of other trainers. Open another folder"
        " (stabilizer dashboard PATH), or train the built-in task:"
    )
    return html.Div(empty("No runs yet", looked, "stabilizer demo", whole=True), className="card head")


def unknown(run: str) -> html.Div:
    """The page of a run that is not there."""
    return html.Div(
        empty(
            "There is no such run", f"{run[:200]!r} is not among the runs found. Choose another one above.", whole=True
        ),
        className="card head",
    )


def broken(run: str, problem: str) -> html.Div:
    """The page of a run that can't be read; it tries again at every poll."""
    return html.Div(
        empty(
            "This run can't be read",
            f"{run[:200]}: {problem[:600]}. The page tries again every few seconds.",
            whole=True,
        ),
        className="card head",
    )


def without_data(verdict: RunVerdict) -> html.Details | None:
    """The detectors that had no data, folded; None where there are none.

    It belongs in a part of the page that polls seldom redraw, because redrawing would fold it again.
    """
    if not verdict.without_data:
        return None
    rows = [
        html.Li([detector_link(each.detector), html.Span(f" needs {_joined(each.needs)}", className="quiet small")])
        for each in verdict.without_data
    ]
    return html.Details([html.Summary(verdict.without_data_words), html.Ul(rows)], className="unseen")


def _joined(needs: Sequence[str]) -> str:
    return ", ".join(need.replace("|", " or ") for need in needs)


def nothing_found(verdict: RunVerdict, run: str) -> html.Div:
    """The notice of a run without incidents, which claims no more than the detectors checked."""
    title, text = {
        "unchecked": ("Not checked", "No detector has examined this run yet."),
        "waiting": ("Being checked", "Findings appear here."),
        "not-rl": (
            "Not an RL run",
            "It logs no rewards, completions or KL, so the detectors have nothing to judge.",
        ),
        "too-short": ("Too short to judge", "There are too few rows for the detectors to judge."),
    }.get(verdict.verdict, ("Nothing found", "The detectors that had data found no failure."))
    return html.Div([*empty(title, text).children, check_button(run, verdict)], className="empty")
