"""The page of `stabilizer preflight` in a terminal: the verdict, then each finding with its place, reason and cure."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from stabilizer.core.severity import WORDS
from stabilizer.core.text import plain
from stabilizer.output.screen import STYLES, Screen
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
        page.line(hint, 0, "dim")


class _Page(Screen):
    label_width = 11

    def head(self, result: Preflight) -> None:
        config, verdict = result.config, result.verdict
        line = Text.assemble((f"{self.icon(verdict)} {VERDICTS[verdict]}", STYLES[verdict]), "  ")
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
        self.line("; ".join(facts), style="dim")
        if tally:
            self.line(tally, style="dim")

    def finding(self, finding: Finding) -> None:
        self.out.print()
        style = STYLES[finding.severity]
        head = Text.assemble((f"{self.icon(finding.severity)} {finding.id}", style), f"  {WORDS[finding.severity]}")
        if finding.key:
            head.append(f"  {plain(finding.key)}", "bold")
            head.append(f" = {plain(_value(finding.value), 80)}  ")
            head.append(f"{plain(finding.file)}:{finding.line}" if finding.line else "not set", "dim")
        self.line(head, 0)
        self.line(plain(finding.summary))
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
                self.title(heading)
            for text in texts:
                self.line(f"- {plain(text)}", style="dim")

    def fixed(self, fixed: Fixed, target: Path) -> None:
        self.out.print()
        if not fixed.applied:
            tried = any(fixed.why_left(finding) for finding in fixed.left)
            why = "no change would improve it" if tried else "no finding has a definite change"
            self.line(f"Nothing written: {why}.", 0, style="bold")
            self.left(fixed)
            return
        self.line(Text.assemble(("Written: ", "bold"), plain(target)), 0)
        for finding in fixed.applied:
            self.line(Text.assemble((changes(finding), "cyan"), f"  {finding.id}"))
        if fixed.left:
            self.line(f"Not changed: {', '.join(f'{f.id} ({plain(f.key)})' for f in fixed.left)}")
        self.left(fixed)
        self.line(f"The copy's verdict: {VERDICTS[fixed.after.verdict]}", style="dim")

    def left(self, fixed: Fixed) -> None:
        """Why a change that the page shows was not made."""
        for finding in fixed.left:
            if why := fixed.why_left(finding):
                self.line(f"{finding.id} was not changed: {plain(why)}", style="dim")


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
