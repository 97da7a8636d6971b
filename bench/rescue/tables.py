"""The figures of `bench rescue` as tables: every number with its n and its interval."""

from __future__ import annotations

from typing import Any

from bench.rescue.arms import ARMS, BASELINES, OFF, OURS, PLACEBO

Rows = list[dict[str, str]]


def tables(result: dict[str, Any]) -> list[tuple[str, Rows]]:
    """(title, rows) of everything measured."""
    said = [
        (f"Rescue and harm, {result['half']} half", [_arm(name, result) for name in ARMS]),
        ("Healthy runs", [_healthy(name, result["healthy"][name]) for name in OURS]),
        ("Rescued, by the nature of the fault", [_group(row) for row in result["natures"]]),
        ("Rescued, by severity", [_group(row) for row in result["severities"]]),
        ("Rescued, cause by cause", [_group(row) for row in result["kinds"]]),
    ]
    return [(title, rows) for title, rows in said if rows]


def statements(result: dict[str, Any]) -> list[str]:
    """What the numbers say, and how far they reach."""
    faults, chance = result["faults"], result["chance"]
    said = [
        f"{faults['n']} faults, of which {faults['damaged']} did damage; "
        f"{_of(faults['heard'])} of those were heard by a detector",
        f"tasks: {', '.join(result['tasks'])}; {result['cpu_s'] / 60:.0f} minutes of one core; version "
        f"{result['version']}, {result['date']}",
    ]
    if chance["n"]:
        said.append(
            f"chance: a clean run with other prompts ends {100 * chance['sd']:.1f} points (deviation) from its twin, "
            f"and within 95 % of it in {_of(chance['well'])}: no arm can be expected to do better"
        )
    for arm, row in result["against"].items():
        if row["n"]:
            against = f"of rescue against {row['best']}, the best of the others"
            said.append(f"{arm}: {_gap(row, against)}")
    for arm, row in result["harm beyond chance"].items():
        if row["n"]:
            against = f"of harm against {PLACEBO} alone"
            said.append(f"{arm}: {_gap(row, against)}: what is harmed beyond chance")
    if result["left out"]:
        said.append(f"NOT COMPLETE: {result['left out']} cases were left out by the budget")
    if result["quick"]:
        said.append("a quick run shows that the bench works; it is too small to say how good anything is")
    return said


def _gap(row: dict[str, Any], of_what: str) -> str:
    low, high = row["interval"]
    return f"{100 * row['difference']:+.0f} points {of_what} ({100 * low:+.0f} to {100 * high:+.0f}, n {row['n']})"


def _arm(name: str, result: dict[str, Any]) -> dict[str, str]:
    row = result["arms"][name]
    return {
        "arm": name,
        "rescued": _of(row["rescue"]),
        "accuracy reached, of the twin's": f"{row['reached']:.0%}",
        "harm > 2 points": "-" if name == OFF else _of(row["harm"]),
        "beyond noise too": "-" if name == OFF else _of(row["harm beyond noise"]),
        "points lost, mean": "-" if name == OFF else f"{row['points lost']:.1f}",
        "iterations saved a run": "-" if name == OFF else f"{row['iterations saved']:.0f}",
        "changes a run": f"{row['actions']:.1f}",
    }


def _healthy(name: str, row: dict[str, Any]) -> dict[str, str]:
    return {
        "arm": name,
        "runs acted on": _of(row["acted on"]),
        "changes": str(row["actions"]),
        "mean change, points": f"{100 * row['change']:+.2f}",
        "worst": f"{100 * row['worst']:+.1f}",
        "worse beyond chance": _of(row["worse beyond chance"]),
    }


def _group(row: dict[str, Any]) -> dict[str, str]:
    return {
        "": row["name"],
        "cases": str(row["n"]),
        "damaged": str(row["damaged"]),
        "heard": str(row["heard"]),
        **{arm: _of(row["arms"][arm]) if row["damaged"] and arm == OURS[0] else _hits(row["arms"][arm])
           for arm in (*OURS, *BASELINES)},
    }  # fmt: skip


def _of(row: dict[str, Any]) -> str:
    if not row["n"]:
        return "-"
    low, high = row["interval"]
    return f"{row['share']:.0%} ({100 * low:.0f}-{100 * high:.0f}) of {row['n']}"


def _hits(row: dict[str, Any]) -> str:
    return f"{row['hits']}/{row['n']}" if row["n"] else "-"
