"""`bench trust`: what stabilizer promises about data, training and safety, attacked, in one table.

Every row is an attack that is carried out when the command runs: processes are killed, disks refuse, parts of the
monitor hang, files are damaged, sockets are abused. A row that does not hold is in the table as BROKEN, and one that
could not be run here says so. The quick tier takes about a minute and is part of the test suite; the full tier repeats
the attacks as often as the time budget allows, and runs the tests that are attacks themselves.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.trust import data, endurance, load, server, supply, tested, training
from bench.trust.goals import ELSEWHERE, OF
from bench.trust.row import USED_UP, Attack, Effort, Row, attacked

ATTACKS: tuple[Attack, ...] = (
    *data.ATTACKS,
    *training.ATTACKS,
    *load.ATTACKS,
    *endurance.ATTACKS,
    *server.ATTACKS,
    *supply.ATTACKS,
    *tested.ATTACKS,
)
FULL_MINUTES = 90.0
"""Minutes that the full counts take on two cores."""
FIGURES = Path(__file__).with_name("figures.json")
"""The newest kept table: docs/security.md shows it."""
PAGE = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN, END = "<!-- trust: begin -->", "<!-- trust: end -->"


def measure(
    *,
    seed: int = 0,
    quick: bool = False,
    budget_min: float | None = None,
    only: str | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Carry out the attacks; `only` keeps those of one group, or whose promise has these words. The budget scales the
    counts of the full tier."""
    chosen = [a for a in ATTACKS if only is None or only == a.group or only.lower() in a.promise.lower()]
    if not chosen:
        groups = ", ".join(dict.fromkeys(a.group for a in ATTACKS))
        raise ValueError(f"--only {only}: no promise has these words, and the groups are {groups}")
    share = 1.0 if budget_min is None else min(1.0, budget_min / FULL_MINUTES)
    until = math.inf if budget_min is None else time.monotonic() + 60 * budget_min
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        for number, attack in enumerate(chosen):
            folder = Path(name) / str(number)
            folder.mkdir()
            left_out = "in the full tier only" if quick and not attack.quick else ""
            if left_out or time.monotonic() > until:
                row = Row(attack.group, attack.promise, attack.how, left_out or USED_UP, "not run", 0.0)
            else:
                row = attacked(attack, Effort(quick, seed, folder, share, until))
            tell(f"{row.outcome:8} {row.seconds:6.1f} s  {row.group}: {row.promise}: {row.measured}")
            rows.append(row)
    tier = "quick" if quick else "full" if budget_min is None else f"full, {budget_min:g} minutes"
    return {"tier": tier, "seed": seed, "date": time.strftime("%Y-%m-%d"), "rows": [asdict(row) for row in rows]}


def tables(result: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The table for the terminal."""
    rows = [
        {"promise": row["promise"], "attack": row["how"], "measured": row["measured"], "": row["outcome"]}
        for row in result["rows"]
    ]
    return [(f"trust, {result['tier']} tier", rows)]


def broken(result: dict[str, Any]) -> list[str]:
    """The promises that did not hold."""
    return [f"{row['promise']}: {row['measured']}" for row in result["rows"] if row["outcome"] == "BROKEN"]


def statements(result: dict[str, Any]) -> list[str]:
    """What the table says in sum."""
    outcomes = [row["outcome"] for row in result["rows"]]
    counts = {kind: outcomes.count(kind) for kind in ("held", "BROKEN", "not run")}
    return [f"{counts['held']} promises held, {counts['BROKEN']} are broken, {counts['not run']} attacks were not run"]


def markdown(result: dict[str, Any]) -> str:
    """The table for the documentation."""
    lines = [
        f"`python -m bench trust`, {result['date']} (tier: {result['tier']}). {statements(result)[0]}.",
        "",
        "| area | promise | goals | attack | measured | outcome |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        cells = (row["group"], row["promise"], OF.get(row["promise"], ""), row["how"], row["measured"])
        shown = f"**{row['outcome']}**" if row["outcome"] != "held" else "held"
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} | {shown} |")
    lines += [
        "",
        "Goals that are measured elsewhere: " + "; ".join(f"{goal}, {where}" for goal, where in ELSEWHERE.items()),
    ]
    return "\n".join(lines) + "."


def keep(result: dict[str, Any]) -> Sequence[Path]:
    """Keep a table, and show it in the documentation; returns the files written. Rows that were not measured this time
    stay as they were."""
    if len(result["rows"]) < len(ATTACKS):
        result = result | {"tier": "full, some rows at another time than others"}
    kept = {row["promise"]: row for row in json.loads(FIGURES.read_text(encoding="utf-8"))["rows"]}
    kept |= {row["promise"]: row for row in result["rows"]}
    result = result | {"rows": [kept[a.promise] for a in ATTACKS if a.promise in kept]}
    FIGURES.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(shown(PAGE.read_text(encoding="utf-8"), result), encoding="utf-8")
    return FIGURES, PAGE


def shown(page: str, result: dict[str, Any]) -> str:
    """A page with its table replaced by this one."""
    block = f"{BEGIN}\n{markdown(result)}\n{END}"
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: block, page, flags=re.DOTALL)
