"""The page of `stabilizer preflight` in a terminal: verdict first, then each finding with its place, reason and cure.

What comes out of a file reaches the screen only through `plain`, as in `stabilizer.output.terminal`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stabilizer.core.severity import ICONS, WORDS
from stabilizer.core.text import plain
from stabilizer.output.terminal import STYLES
from stabilizer.preflight.check import Preflight
from stabilizer.preflight.fix import Fixed
from stabilizer.preflight.rules.base import Finding

VERDICTS = {
    "healthy": "READY: nothing found",
    "info": "READY, with remarks",
    "warn": "NOT READY: warnings",
    "critical": "WILL FAIL or train on nothing",
}
SURE = {"certain": "certain", "likely": "likely", "folklore": "folklore: often repeated, rarely measured"}


def show(result: Preflight, out: Console, fixed: Fixed | None = None, target: Path | None = None) -> None:
    """Print the whole page."""
    page = _Page(out)
    page.head(result)
    for finding in result.findings:
        page.finding(finding)
    page.rest(result)
    if fixed is not None and target is not None:
        page.fixed(fixed, target)
    elif not result.config.parsed.part and any(
        finding.change and finding.severity != "info" for finding in result.findings
    ):
        out.print()
        hint = f"A corrected copy: stabilizer preflight {plain(result.config.parsed.path)} --fix"
        page.line(Text(hint, "dim"), 0)


class _Page:
    def __init__(self, out: Console):
        self.out = out
        self.ascii = not (out.encoding or "").lower().startswith("utf")

    def head(self, result: Preflight) -> None:
        config, verdict = result.config, result.verdict
        line = Text.assemble((f"{self._icon(verdict)} {VERDICTS[verdict]}", STYLES[verdict]), "  ")
        line.append(plain(config.parsed.path), "bold")
        self.line(line, 0)
        counted = Counter(finding.severity for finding in result.findings)
        tally = ", ".join(
            f"{counted[level]} {WORDS[level]}" for level in ("critical", "warn", "info") if counted[level]
        )
        facts = [
            f"{config.trainer.title}, {plain(config.trainer_why)}",
            f"version {plain(config.version_used)} ({plain(config.version_why)})",
            f"{len(config.settings)} settings" + (f", {config.processes} processes" if config.processes else ""),
        ]
        self.line(Text("; ".join(facts), "dim"), 2)
        if tally:
            self.line(Text(tally, "dim"), 2)

    def finding(self, finding: Finding) -> None:
        self.out.print()
        style = STYLES[finding.severity]
        head = Text.assemble((f"{self._icon(finding.severity)} {finding.id}", style), f"  {WORDS[finding.severity]}")
        where = f"{plain(finding.file)}:{finding.line}" if finding.line else "not set"
        head.append(f"  {plain(finding.key)}", "bold")
        head.append(f" = {plain(_value(finding.value), 80)}  ")
        head.append(where, "dim")
        self.line(head, 0)
        self.line(Text(plain(finding.summary)), 2)
        self.label("Why", Text(plain(finding.why)))
        if finding.how:
            text = Text(plain(finding.how))
            if finding.change:
                text.append(f"\n{changes(finding)}", "cyan")
            self.label("Set instead", text)
        for place, other in enumerate(finding.alternatives):
            self.label("" if place else "Or else", Text(plain(other)))
        self.label("How sure", Text(f"{SURE[finding.sure]} ({plain(finding.source)})", "dim"))

    def rest(self, result: Preflight) -> None:
        for heading, texts in (("Not known", result.unknown), ("About the file", result.config.parsed.notes)):
            if texts:
                self.out.print()
                self.line(Text(heading, "bold"), 0)
            for text in texts:
                self.line(Text(f"- {plain(text)}", "dim"), 2)

    def fixed(self, fixed: Fixed, target: Path) -> None:
        self.out.print()
        if not fixed.applied:
            tried = any(fixed.why_left(finding) for finding in fixed.left)
            why = "no change would improve it" if tried else "no finding has a definite change"
            self.line(Text(f"Nothing written: {why}.", "bold"), 0)
            self.left(fixed)
            return
        self.line(Text.assemble(("Written: ", "bold"), plain(target)), 0)
        for finding in fixed.applied:
            self.line(Text.assemble((changes(finding), "cyan"), f"  {finding.id}"), 2)
        if fixed.left:
            self.line(Text(f"Not changed: {', '.join(f'{f.id} ({plain(f.key)})' for f in fixed.left)}"), 2)
        self.left(fixed)
        self.line(Text(f"The copy's verdict: {VERDICTS[fixed.after.verdict]}", "dim"), 2)

    def left(self, fixed: Fixed) -> None:
        """Why a change that the page shows was not made."""
        for finding in fixed.left:
            if why := fixed.why_left(finding):
                self.line(Text(f"{finding.id} was not changed: {plain(why)}", "dim"), 2)

    def line(self, text: Text, indent: int) -> None:
        self.out.print(Padding(self._typed(text), (0, 0, 0, indent), expand=False))

    def label(self, label: str, text: Text) -> None:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(width=11, no_wrap=True)
        grid.add_column(ratio=1, overflow="fold")
        grid.add_row(Text(label, "bold"), self._typed(text))
        self.out.print(Padding(grid, (0, 0, 0, 2), expand=False))

    def _icon(self, severity: str) -> str:
        if self.ascii:
            return {"info": "(i)", "warn": "[!]", "critical": "[X]"}.get(severity, "[ok]")
        return {"healthy": "✔", **ICONS}.get(severity, "·")

    def _typed(self, text: Text) -> Text:
        if not self.ascii:
            return text
        coding = self.out.encoding or "ascii"
        shown = text.plain.replace("→", "->").replace("…", "...").encode(coding, "replace").decode(coding)
        return Text(shown, text.style)


def changes(finding: Finding) -> str:
    """The change as words: `beta 0 → 0.001`."""
    return ", ".join(
        f"{plain(key)} {plain(_value(old), 60)} → {plain(_value(new), 60)}"
        for key, (old, new) in finding.change.items()
    )


def _value(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
