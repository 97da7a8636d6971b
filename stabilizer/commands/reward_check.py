"""`stabilizer preflight --rewards FILE.py:FUNCTION`: attack reward functions before training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from stabilizer.core.records import SCHEMA, SEVERITIES
from stabilizer.core.severity import ICONS, reached
from stabilizer.core.text import plain
from stabilizer.output.screen import STYLES, console
from stabilizer.training.rewards.attack import DEFAULT, Report, attack, problems_of

VERDICTS = {
    "healthy": "SOUND: nothing found",
    "info": "SOUND, with remarks",
    "warn": "WEAK: warnings",
    "critical": "BROKEN or exploitable",
}


def run(functions: Sequence[str], data: Path | None, *, as_json: bool, fail_on: str) -> int:
    """Attack the functions and print what was found; 1 if the verdict reaches `fail_on`."""
    problems = problems_of(data) if data else DEFAULT
    reports = attack(functions, problems)
    found = [finding.severity for report in reports for finding in report.findings]
    verdict = max(found, key=SEVERITIES.index, default="healthy")
    if as_json:
        print(json.dumps(_json(reports, verdict), indent=2, allow_nan=False))
    else:
        for report in reports:
            _show(report, len(problems))
    return int(reached(verdict, fail_on))


def _json(reports: Sequence[Report], verdict: str) -> dict[str, Any]:
    rows = [
        {
            "name": report.name,
            "form": report.form,
            "seconds": round(report.seconds, 3),
            "values": report.values,
            "failures": report.failures,
            "unsteady": report.unsteady,
            "findings": [finding._asdict() for finding in report.findings],
        }
        for report in reports
    ]
    return {"schema": SCHEMA, "verdict": verdict, "rewards": rows}


def _show(report: Report, problems: int) -> None:
    out = console()
    worst = max((finding.severity for finding in report.findings), key=SEVERITIES.index, default="healthy")
    out.print(Text.assemble((VERDICTS[worst], STYLES[worst]), "  ", (plain(report.name), "bold")))
    known = [value for value in report.values.values() if value is not None]
    span = f"{min(known):g} to {max(known):g}" if known else "none"
    out.print(
        f"  {len(report.values)} kinds of answers to {problems} questions as {report.form}; rewards {span}; longest"
        f" call {report.seconds:.2f} s"
    )
    for finding in report.findings:
        out.print()
        out.print(Text.assemble((f"{ICONS[finding.severity]} {finding.id}", STYLES[finding.severity])))
        out.print(Text(f"  {plain(finding.what)}"))
        out.print(Text(f"  Do    {plain(finding.fix)}"))
    ranked = sorted(report.values.items(), key=lambda item: -(item[1] if item[1] is not None else -1e300))
    out.print()
    for name, value in ranked:
        said = "no value" if value is None else f"{value:g}"
        out.print(Text(f"  {said:>9}  {name}", "" if value is not None else "dim"))
    out.print()
