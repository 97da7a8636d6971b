"""What `train`, `demo` and `watch` print: a progress line now and then, incidents and fixes at once.

Plain lines instead of a redrawn screen survive a pipe, a log file and a lost ssh connection.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

import orjson
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from stabilizer.core.knobs import change_words
from stabilizer.core.records import Action, Finding, as_json
from stabilizer.core.text import plain
from stabilizer.live.tick import Tick
from stabilizer.trainers.stabilizer.console import NAMES

EVERY_S = 4.0
"""Seconds between progress lines."""

_STYLE = {"info": "blue", "warn": "yellow", "critical": "bold red"}
_FORMS = ("{:.3f}", "{:.1%}", "{:.1%}", "{:.3g}", "{:.3g}")
_COLUMNS = tuple((title, name, form) for (title, name), form in zip(NAMES.items(), _FORMS, strict=True))
_WIDTH = 10
LEGEND = "train: share solved, sampled; held-out: share solved, greedy; KL(ref): nats per token"


class LivePrinter:
    """Progress for people: the values of the printed step, and the newest of those that are not measured every step."""

    def __init__(
        self,
        console: Console,
        baseline: Mapping[str, float] | None = None,
        asks: str | None = None,
        *,
        catching_up: bool = False,
    ):
        self.console = console
        self._catching_up = catching_up
        self._asks = asks
        self._latest: dict[str, float] = dict(baseline or {})
        self._printed_state: dict[tuple[int, str], tuple[str, str]] = {}
        self._explained: dict[int, str] = {}
        self._printed = 0.0
        self._began = time.monotonic()
        self._advanced = 0
        self._done = 0
        self._step = -1

    def tick(self, tick: Tick) -> None:
        """Print one step."""
        if not self._done:
            self._heading()
        if tick.step <= self._step:
            self.console.print(Text(f"── returned to step {tick.step - 1} ──", style="cyan"))
        self._advanced += max(0, tick.step - self._step) if self._done else 1
        self._done, self._step = self._done + 1, tick.step
        self._latest |= {name: tick.metrics[name] for _, name, _ in _COLUMNS if name in tick.metrics}
        for trouble in tick.troubles:
            self._print(Text(f"▲ step {tick.step} · {plain(trouble)}", style="yellow"))
        for finding in tick.findings:
            self._finding(finding)
        for action in tick.actions:
            self._action(action)
        now = time.monotonic()
        if now - self._printed >= EVERY_S or tick.step == tick.steps or self._done == 1:
            self._printed = now
            self._line(tick, now)

    def _heading(self) -> None:
        head = "".join(f"{title:>{_WIDTH}}" for title, _, _ in _COLUMNS)
        self.console.print(Text(LEGEND, style="dim"))
        self.console.print(Text(f"{'step':>9}{head}{'incidents':>11}{'left':>8}", style="dim"))

    def caught_up(self) -> None:
        """Everything so far was read from a file, not waited for: estimate the time left from here on."""
        self._catching_up, self._began, self._advanced = False, time.monotonic(), 0

    def end(self, findings: Iterable[Finding]) -> None:
        """Print findings that only the end of the run shows."""
        for finding in findings:
            self._finding(finding)

    def _action(self, action: Action) -> None:
        self._print(*action_lines(action))
        if self._asks and action.entry == "proposed" and action.safety != "advice":
            self._print(
                None, f"waiting for your answer: {self._asks} approve {action.action}   (or reject {action.action})"
            )

    def _finding(self, finding: Finding) -> None:
        """Print a finding if it is news, and the cause once per incident."""
        if not self._is_news(finding):
            return
        self._printed_state[finding.incident, finding.id] = (finding.state, finding.severity)
        self._print(*finding_lines(finding))
        cause = finding.causes[0] if finding.causes and finding.state == "open" else None
        if cause and self._explained.get(finding.incident) != cause.id:
            self._explained[finding.incident] = cause.id
            sure = "" if cause.id == "undetermined" else f" ({cause.confidence:.0%})"
            self._print(None, f"likely cause: {plain(cause.id)}{sure}: {plain(cause.why)}")

    def _is_news(self, finding: Finding) -> bool:
        """Whether it opened, got worse, or is over; a finding that wavers is no news."""
        known = self._printed_state.get((finding.incident, finding.id))
        if known is None:
            return finding.state not in ("mitigating", "recovering")
        state, severity = known
        if finding.severity == "info" or (state, severity) == (finding.state, finding.severity):
            return False
        return finding.severity != severity or finding.state not in ("mitigating", "recovering", "open")

    def _print(self, head: Text | None, *details: str) -> None:
        if head is not None:
            self.console.print(Padding(head, (0, 0, 0, 2), expand=False))
        for detail in filter(None, details):
            self.console.print(Padding(Text(detail), (0, 0, 0, 6), expand=False))

    def _line(self, tick: Tick, now: float) -> None:
        cells = "".join(
            f"{form.format(self._latest[name]) if name in self._latest else '–':>{_WIDTH}}"
            for _, name, form in _COLUMNS
        )
        place = f"{tick.step}/{tick.steps}" if tick.steps else f"{tick.step}"
        left = None
        if tick.steps and self._advanced and not self._catching_up:
            left = (now - self._began) / self._advanced * (tick.steps - tick.step)
        line = Text(f"{place:>9}{cells}")
        line.append(f"{tick.open_incidents:>11}", style="red" if tick.open_incidents else "green")
        line.append(f"{'–' if left is None else _duration(left):>8}", style="dim")
        self.console.print(line)


class JsonPrinter:
    """The same as JSON: one object per line on stdout."""

    def __init__(self, out: TextIO | None = None):
        self.out = out or sys.stdout

    def tick(self, tick: Tick) -> None:
        """Print one step."""
        self._write({"kind": "step", "step": tick.step, "steps": tick.steps, "metrics": as_json(tick.metrics)})
        for trouble in tick.troubles:
            self._write({"kind": "trouble", "step": tick.step, "text": plain(trouble)})
        self.end(tick.findings)
        for action in tick.actions:
            self._write({"kind": "action", **as_json(action)})

    def caught_up(self) -> None:
        """Nothing to print."""

    def end(self, findings: Iterable[Finding]) -> None:
        """Print findings that only the end of the run shows."""
        for finding in findings:
            self._write({"kind": "finding", **as_json(finding)})

    def _write(self, row: dict[str, Any]) -> None:
        self.out.write(orjson.dumps(row).decode() + "\n")
        self.out.flush()


def finding_lines(finding: Finding) -> tuple[Text, str]:
    """A finding: what happened, and its summary."""
    mark = {"critical": "✖", "warn": "▲", "info": "●"}[finding.severity]
    over = finding.state == "resolved"
    incident = f" · incident {finding.incident}" if finding.incident else ""
    head = f"{'✔' if over else mark} step {finding.last_step}{incident} · {finding.severity} · {plain(finding.id)}"
    line = Text(f"{head} · {finding.state}", style="green" if over else _STYLE[finding.severity])
    return line, "" if over else plain(finding.summary)


def action_lines(action: Action) -> tuple[Text, str]:
    """A journal entry and its reason."""
    change = ", ".join(change_words(action.change))
    line = Text(f"↻ step {action.step} · {plain(action.action)} {plain(action.remedy)} {action.entry}", style="cyan")
    line.append(f" · {plain(change)}" if change else "", style="default")
    return line, plain(action.text)


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{int(seconds // 60)}:{int(seconds % 60):02d}"
