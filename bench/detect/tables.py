"""The figures of `bench detect` as tables and as a page: every number with its n and its interval."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

Rows = list[dict[str, str]]


def tables(result: dict[str, Any]) -> list[tuple[str, Rows]]:
    """(title, rows) of everything measured."""
    methods = result["methods"]
    ours = methods["stabilizer"]
    said = [
        (f"False alarms and recall, {result['half']} half", [_headline(name, m) for name, m in methods.items()]),
        ("Ours by speed of the fault, in steps", _delay_rows(ours)),
        ("Ours, fault by fault", [_fault(row) for row in ours["faults"]]),
        ("Ours, false incidents look-alike by look-alike", [_kind(row) for row in ours["worst look-alikes"]]),
        *_as_logged(methods.get("stabilizer, as other trainers log it")),
        (
            "Confidence in the first cause",
            [_bin(row) for row in ours["reliability"]["bins"]],
        ),
        ("Our detectors", [_detector(id, row) for id, row in result["detectors"].items()]),
    ]
    return [(title, rows) for title, rows in said if rows]


def statements(result: dict[str, Any]) -> list[str]:
    """What the numbers say, and what is missing."""
    ours = result["methods"]["stabilizer"]
    false, cause, onset, lead = ours["false alarms"], ours["causes"], ours["onset error"], ours["lead"]
    said = [
        f"{false['steps']:,} healthy steps, {ours['recall']['all']['n']} faults; seed {result['seed']}, "
        f"version {result['version']}, {result['date']}",
        f"info-only incidents: {false['info rate']:.2f} per 1,000 healthy steps",
    ]
    if ours["worst look-alikes"]:
        worst = ours["worst look-alikes"][0]
        said.append(
            f"the worst kind of healthy steps is {worst['kind']}: {worst['rate']:.2f} false incidents per 1,000"
        )
    if onset["n"]:
        said.append(f"onset: median error {onset['median']:.0f} steps over {onset['n']} hits")
    if lead["n"]:
        said.append(f"{_share(lead['share early'])} of {lead['n']} falls of the reward named 25 steps ahead or more")
    if cause["n"]:
        right = "" if cause["precision"] is None else f", right in {_share(cause['precision'])} of the others"
        said.append(
            f"cause over {cause['n']} hits whose cause can be told: "
            f"top-1 {_with(cause['top-1'], cause['top-1 interval'])}, top-2 {_share(cause['top-2'])}; "
            f"undetermined in {_share(cause['abstained'])}{right}"
        )
        sure = ours["reliability"]
        said.append(
            f"confidence over {sure['n']} named causes: calibration error {sure['calibration error']:.2f}; "
            f"wrong with 60 % confidence or more in {_share(sure['surely wrong'])} of the hits"
        )
    said += [f"NOT COMPARED with {name}: {reason}" for name, reason in result["missing peers"].items()]
    return said


def html(result: dict[str, Any], how: str) -> str:
    """One page that needs no network."""
    lines = "".join(f"<li>{escape(line)}</li>" for line in statements(result))
    parts = "".join(f"<h2>{escape(title)}</h2>{_html_table(rows)}" for title, rows in tables(result))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>stabilizer bench detect</title>'
        "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}"
        "td,th{padding:.15rem .8rem .15rem 0;text-align:left}</style>"
        f"<h1>StabilityBench: detection</h1><ul>{lines}</ul>{parts}<h2>How it was measured</h2><p>{escape(how)}</p>"
        f"<p><code>{escape(result['command'])}</code></p></html>"
    )


def markdown(result: dict[str, Any], how: str) -> str:
    """The same as Markdown."""
    lines = ["# StabilityBench: detection", "", *(f"- {line}" for line in statements(result)), ""]
    for title, rows in tables(result):
        lines += [f"## {title}", "", *_markdown_table(rows), ""]
    return "\n".join([*lines, "## How it was measured", "", how, "", f"`{result['command']}`", ""])


def write(result: dict[str, Any], how: str, path: Path) -> None:
    """The page, as HTML or, by its suffix, as Markdown."""
    text = markdown(result, how) if path.suffix == ".md" else html(result, how)
    path.write_text(text, encoding="utf-8")


# --- rows -----------------------------------------------------------------------------------------------------------


def _headline(name: str, m: dict[str, Any]) -> dict[str, str]:
    false, recall = m["false alarms"], m["recall"]
    low, high = false["interval"]
    return {
        "method": name,
        "false / 1,000 steps": f"{false['rate']:.2f} ({low:.2f}-{high:.2f})",
        "healthy steps": f"{false['steps']:,}",
        **{f"{name} recall": _recall(recall.get(name)) for name in ("subtle", "medium", "severe")},
        "any incident": _with(recall["all"]["any"], recall["all"]["any interval"]),
        "by chance": _share(m["by chance"]),
        "delay median": _steps(m["delay"]["all"]["median"]),
        "p90": _steps(m["delay"]["all"]["p90"]),
        "faults": str(recall["all"]["n"]),
    }


def _as_logged(m: dict[str, Any] | None) -> list[tuple[str, Rows]]:
    """Thin logs by kind, where they were measured and kept in full."""
    if not m or "faults" not in m:
        return []
    return [
        ("As other trainers log it, fault by fault (information counts)", [_fault(row) for row in m["faults"]]),
        ("As other trainers log it, look-alike by look-alike", [_kind(row) for row in m["worst look-alikes"]]),
    ]


def _delay_rows(m: dict[str, Any]) -> Rows:
    return [
        {"speed": name, "faults": str(row["n"]), "median": _steps(row["median"]), "p90": _steps(row["p90"])}
        for name, row in m["delay"].items()
        if row["n"]
    ]


def _fault(row: dict[str, Any]) -> dict[str, str]:
    return {
        "fault": row["fault"],
        "speed": row["speed"],
        **{name: _hits(row.get(name)) for name in ("subtle", "medium", "severe")},
        "recall": _recall(row["all"]),
        "any incident": _share(row["all"]["any"]),
        "delay median": _steps(row["delay"]["median"]),
        "a hit is": " or ".join(row["accept"]),
    }


def _kind(row: dict[str, Any]) -> dict[str, str]:
    low, high = row["interval"]
    return {
        "kind": row["kind"],
        "false / 1,000 steps": f"{row['rate']:.2f} ({low:.2f}-{high:.2f})",
        "incidents": str(row["incidents"]),
        "steps": f"{row['steps']:,}",
        "runs": str(row["runs"]),
        "info only / 1,000": f"{row['info rate']:.2f}",
    }


def _detector(id: str, row: dict[str, Any]) -> dict[str, str]:
    low, high = row["false interval"]
    return {
        "finding": id,
        "recall": _recall(row) if row["n"] else "no simulated fault",
        "faults": str(row["n"]),
        "false / 1,000 steps": f"{row['false rate']:.3f} ({low:.3f}-{high:.3f})",
    }


def _bin(row: dict[str, Any]) -> dict[str, str]:
    return {
        "confidence": f"{100 * row['from']:.0f}-{100 * row['to']:.0f}%",
        "named": str(row["n"]),
        "mean confidence": _share(row["said"]),
        "right": _with(row["right"], row["interval"]),
    }


def _recall(row: dict[str, Any] | None) -> str:
    return _with(row["recall"], row["interval"]) if row and row["n"] else "-"


def _hits(row: dict[str, Any] | None) -> str:
    return f"{row['hits']}/{row['n']}" if row else "-"


def _with(share: float, interval: list[float]) -> str:
    return f"{_share(share)} ({100 * interval[0]:.0f}-{100 * interval[1]:.0f})"


def _share(share: float) -> str:
    return f"{share:.0%}"


def _steps(value: float | None) -> str:
    return "missed" if value is None else f"{value:.0f}"


def _html_table(rows: Rows) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(value)}</td>" for value in row.values()) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _markdown_table(rows: Rows) -> list[str]:
    lines = [f"| {' | '.join(rows[0])} |", f"|{'---|' * len(rows[0])}"]
    return lines + [f"| {' | '.join(row.values())} |" for row in rows]
