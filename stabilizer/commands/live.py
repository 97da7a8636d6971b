"""What `train` and `demo` print while a run goes on: one line now and then, incidents and fixes at once.

Plain lines rather than a redrawn screen: they survive a pipe, a log file and a lost ssh connection.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

import orjson
from rich.console import Console
from rich.text import Text

from stabilizer.records import Action, Finding, as_json
from stabilizer.terminal import plain

if TYPE_CHECKING:
    from stabilizer.session import Tick

EVERY_S = 4.0
"""Seconds between progress lines."""

_STYLE = {"info": "blue", "warn": "yellow", "critical": "bold red"}
_COLUMNS = (
    ("reward", "reward/mean", "{:.3f}"),
    ("acc(train)", "accuracy/train", "{:.1%}"),
    ("acc(held-out)", "accuracy/val", "{:.1%}"),
    ("grad_norm", "optim/grad_norm", "{:.3g}"),
    ("KL(ref)", "policy/kl_ref", "{:.3g}"),
)


class LivePrinter:
    """Progress for people. Values are those of the printed step; held-out accuracy is the newest measured."""

    def __init__(self, console: Console):
        self.console = console
        self._latest: dict[str, float] = {}
        self._told: dict[tuple[int, str], tuple[str, str]] = {}
        self._printed = 0.0
        self._began = time.monotonic()
        self._first: int | None = None
        self._head = False

    def tick(self, tick: Tick) -> None:
        """Take one step in."""
        if self._first is None:
            self._first = tick.step
        self._latest |= {name: tick.metrics[name] for _, name, _ in _COLUMNS if name in tick.metrics}
        for finding in tick.findings:
            stands = (finding.state, finding.severity)
            if self._told.get((finding.incident, finding.id)) != stands:  # a new guess at the cause is no news
                self._told[finding.incident, finding.id] = stands
                self.console.print(finding_line(finding))
        for action in tick.actions:
            self.console.print(action_line(action))
        now = time.monotonic()
        if now - self._printed >= EVERY_S or tick.step == tick.steps:
            self._printed = now
            self._line(tick, now)

    def _line(self, tick: Tick, now: float) -> None:
        if not self._head:
            self._head = True
            head = "".join(f"{title:>14}" for title, _, _ in _COLUMNS)
            self.console.print(Text(f"{'step':>9}{head}{'incidents':>11}{'left':>8}", style="dim"))
        cells = "".join(
            f"{form.format(self._latest[name]) if name in self._latest else '–':>14}" for _, name, form in _COLUMNS
        )
        done = max(1, tick.step - (self._first or 0) + 1)
        left = (now - self._began) / done * (tick.steps - tick.step)
        line = Text(f"{f'{tick.step}/{tick.steps}':>9}{cells}")
        line.append(f"{tick.open_incidents:>11}", style="red" if tick.open_incidents else "green")
        line.append(f"{_duration(left):>8}", style="dim")
        self.console.print(line)


class JsonPrinter:
    """The same for machines: one object per line on stdout."""

    def __init__(self, out: TextIO = sys.stdout):
        self.out = out

    def tick(self, tick: Tick) -> None:
        """Take one step in."""
        self._write({"kind": "step", "step": tick.step, "steps": tick.steps, "metrics": as_json(tick.metrics)})
        for finding in tick.findings:
            self._write({"kind": "finding", **as_json(finding)})
        for action in tick.actions:
            self._write({"kind": "action", **as_json(action)})

    def _write(self, row: dict[str, Any]) -> None:
        self.out.write(orjson.dumps(row).decode() + "\n")
        self.out.flush()


def finding_line(finding: Finding) -> Text:
    """An incident in one or two lines."""
    mark = {"critical": "✖", "warn": "▲", "info": "●"}[finding.severity]
    style = "green" if finding.state == "resolved" else _STYLE[finding.severity]
    head = f"  {mark} step {finding.last_step} · {finding.severity} · {plain(finding.id)} · {finding.state}"
    line = Text(head, style=style)
    if finding.state in ("open", "suspected"):
        line.append(f"\n    {plain(finding.summary)}", style="default")
        if finding.causes:
            cause = finding.causes[0]
            why = f"{plain(cause.id)} ({cause.confidence:.0%}): {plain(cause.why)}"
            line.append(f"\n    likely cause: {why}", style="default")
    return line


def action_line(action: Action) -> Text:
    """An entry of the journal in one line."""
    change = ", ".join(f"{knob} {_value(before)} → {_value(after)}" for knob, (before, after) in action.change.items())
    head = f"  ↻ step {action.step} · {plain(action.action)} {plain(action.remedy)} {action.entry}"
    line = Text(head, style="cyan")
    line.append(f" · {plain(change)}" if change else "", style="default")
    line.append(f"\n    {plain(action.text)}" if action.text else "", style="default")
    return line


def _value(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{int(seconds // 60)}:{int(seconds % 60):02d}"
