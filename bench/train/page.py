"""The training benchmark as one HTML file that needs no network: curves, step times, tables, how they were taken."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go

from bench import train

NAMES = {"ours": "stabilizer", "plain": "stabilizer, fast: off", "trl": "TRL"}
COLOURS = {"ours": "rgb(31,119,180)", "plain": "rgb(120,160,190)", "trl": "rgb(214,108,20)"}
SMOOTH = 5
"""Steps of the moving mean of reward curves."""


def html(result: dict[str, Any]) -> str:
    """The page."""
    figures = [learning_figure(result["learning"]), speed_figure(result["speed"])]
    drawn = [f.to_html(full_html=False, include_plotlyjs=i == 0) for i, f in enumerate(figures)]
    said = "".join(f"<li>{escape(line)}</li>" for line in train.statements(result))
    tables = "".join(f"<h2>{escape(title)}</h2>{_table(rows)}" for title, rows in train.tables(result))
    about = "".join(f"<p>{escape(part)}</p>" for part in (train.__doc__ or "").split("\n\n"))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>stabilizer bench train</title>'
        "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "td,th{padding:.2rem .8rem .2rem 0;text-align:left}</style>"
        f"<h1>Training beside TRL</h1><ul>{said}</ul>{''.join(drawn)}{tables}<h2>How it was measured</h2>{about}"
    )


def learning_figure(learning: dict[str, Any]) -> go.Figure:
    """Mean reward of both sides, with the range of their seeds."""
    figure = go.Figure()
    for side, curves in learning["curves"].items():
        window = np.ones(SMOOTH) / SMOOTH
        smooth = np.array([np.convolve(curve, window, mode="valid") for curve in curves])
        steps = np.arange(SMOOTH, SMOOTH + smooth.shape[1])
        shade = COLOURS[side].replace("rgb", "rgba").replace(")", ",0.18)")
        figure.add_scatter(
            x=np.concatenate([steps, steps[::-1]]), y=np.concatenate([smooth.max(0), smooth.min(0)[::-1]]),
            fill="toself", fillcolor=shade, line_width=0, hoverinfo="skip", showlegend=False,
        )  # fmt: skip
        figure.add_scatter(x=steps, y=smooth.mean(0), name=NAMES[side], line_color=COLOURS[side])
    seeds = len(learning["curves"]["ours"])
    figure.update_layout(
        title=f"Reward, mean and range of {seeds} seeds, moving mean of {SMOOTH} steps",
        xaxis_title="step", yaxis_title="mean reward", template="plotly_white",
    )  # fmt: skip
    return figure


def speed_figure(races: list[dict[str, Any]]) -> go.Figure:
    """Every timed step of both sides."""
    figure = go.Figure()
    for side in NAMES:
        y = np.concatenate([np.ravel(race["step ms"][side]) for race in races])
        x = np.repeat([race["model"] for race in races], [np.size(race["step ms"][side]) for race in races])
        figure.add_box(x=x, y=y, name=NAMES[side], marker_color=COLOURS[side], boxpoints=False)
    figure.update_layout(
        title="Time of a step", yaxis_title="ms", yaxis_type="log", boxmode="group", template="plotly_white"
    )
    return figure


def _table(rows: list[dict[str, Any]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(_cell(v))}</td>" for v in row.values()) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
