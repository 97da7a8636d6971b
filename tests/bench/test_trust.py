"""The quick tier of `bench trust`: every promise holds but those known to be broken, and the page shows the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from bench import trust
from bench.trust import goals

ROOT = Path(__file__).parents[2]
KNOWN: set[str] = set()
"""Promises that the table shows as broken. May only shrink."""
OF_THE_MACHINE = {"No pause above 250 ms, and a row costs the same at the end", "Slow clients keep nobody out"}
"""Promises about time, which other work on the machine may break: they are reported, not tested."""


def test_every_promise_of_the_quick_tier_holds_but_the_known_ones(tmp_path: Path) -> None:
    # A process of its own: the attacks fork, and replace functions of the system.
    command = [sys.executable, "-m", "bench", "trust", "--quick", "-o", str(tmp_path / "table.json")]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=1200)
    result = json.loads((tmp_path / "table.json").read_text())
    broken = {row["promise"]: row["measured"] for row in result["rows"] if row["outcome"] == "BROKEN"}
    assert set(broken) - OF_THE_MACHINE == KNOWN, broken
    assert done.returncode == bool(broken) and "promises held" in done.stdout


def test_the_page_shows_the_kept_table() -> None:
    kept = json.loads(trust.FIGURES.read_text(encoding="utf-8"))
    page = trust.PAGE.read_text(encoding="utf-8")
    assert trust.shown(page, kept) == page
    assert {row["promise"] for row in kept["rows"]} == {attack.promise for attack in trust.ATTACKS}


def test_an_attack_that_fails_by_itself_is_a_broken_promise(tmp_path: Path) -> None:
    def fails(effort: trust.Effort) -> None:
        raise KeyError("no such thing")

    row = trust.attacked(trust.Attack("data", "x", "y", fails), trust.Effort(True, 0, tmp_path))
    assert row.outcome == "BROKEN" and "KeyError" in row.measured


def test_every_goal_has_a_row_or_is_measured_elsewhere() -> None:
    promises = {attack.promise for attack in trust.ATTACKS}
    assert set(goals.OF) <= promises
    answered = [goal for of in goals.OF.values() for goal in of.split()]
    assert {*answered, *goals.ELSEWHERE} == set(goals.GOALS) and not set(answered) & set(goals.ELSEWHERE)


def test_rows_that_were_not_measured_again_stay(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(trust, "FIGURES", tmp_path / "figures.json")
    monkeypatch.setattr(trust, "PAGE", tmp_path / "page.md")
    rows = [
        {"group": a.group, "promise": a.promise, "how": a.how, "measured": "old", "outcome": "held", "seconds": 1.0}
        for a in trust.ATTACKS
    ]
    trust.FIGURES.write_text(json.dumps({"tier": "full", "seed": 0, "date": "2026-01-01", "rows": rows}))
    trust.PAGE.write_text(f"{trust.BEGIN}\n{trust.END}\n")
    new = {**rows[3], "measured": "new", "outcome": "BROKEN"}
    trust.keep({"tier": "full", "seed": 0, "date": "2026-01-02", "rows": [new]})
    kept = json.loads(trust.FIGURES.read_text())["rows"]
    assert kept[3] == new and [row for row in kept if row != new] == [row for row in rows if row != rows[3]]
    assert "**BROKEN**" in trust.PAGE.read_text()
