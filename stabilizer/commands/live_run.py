"""Following a live run in the terminal, with the dashboard if wanted: what `train` and `demo` share."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rich.console import Console
from rich.text import Text

from dashboards.__main__ import PORT_IN_USE
from stabilizer.commands.printing import JsonPrinter, LivePrinter
from stabilizer.control.engine import MODES
from stabilizer.core.records import SEVERITIES, Finding
from stabilizer.core.severity import ICONS, WORDS
from stabilizer.core.text import plain

if TYPE_CHECKING:
    from stabilizer.live.session import Session  # imports torch

MOST_FOUND = 5
"""Incidents that the last lines name; `diagnose` lists all."""


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that `train` and `demo` share."""
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder for run directories (default: runs)"
    )
    parser.add_argument(
        "--remedy",
        choices=MODES,
        default="suggest",
        help="what remedies may do about incidents (default: suggest; a resumed run keeps its mode)",
    )
    parser.add_argument(
        "--fork",
        type=int,
        default=0,
        metavar="N",
        help="try a fix for N steps on a copy of the run, beside an unchanged copy, before it is applied (default: 0)",
    )
    parser.add_argument("--dashboard", action="store_true", help="start the dashboard too")
    parser.add_argument(
        "--port", type=int, default=8050, help="port of the dashboard; 0 picks a free one (default: %(default)s)"
    )


def follow(session: Session, console: Console, *, json: bool, judged: bool = True) -> int:
    """Run a session to its end and print it; returns the exit code, which depends on the verdict if it is `judged`."""
    with redirect_stdout(Outlasted(sys.stdout)), redirect_stderr(Outlasted(sys.stderr)):
        return _followed(session, console, json=json, judged=judged)


class Outlasted:
    """A stream that falls silent where it can't be written: a run goes on without the program that shows it."""

    def __init__(self, stream: Any):
        self._stream = stream or io.StringIO()  # there is none where a program was started with it closed

    def write(self, text: str) -> int:
        with self._guarded():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._guarded():
            self._stream.flush()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            with contextlib.suppress(OSError):  # a closed pipe, a full disk
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _followed(session: Session, console: Console, *, json: bool, judged: bool) -> int:
    asks = f"{command()} fix {session.writer.path}" if session.arbiter.mode == "approve" else None
    known = session.monitor.history.view().latest("accuracy/val")
    baseline = {} if known is None else {"accuracy/val": known}
    printer = JsonPrinter() if json else LivePrinter(console, baseline, asks)
    run = plain(session.writer.path)
    console.print(Text(f"run {run} · remedies: {session.arbiter.mode} · Ctrl-C stops and saves", style="dim"))
    for note in session.trainer.notes:
        console.print(Text(note, style="dim"))
    session.on_signal = _acknowledge
    try:
        for tick in session.run():
            printer.tick(tick)
    except KeyboardInterrupt:
        words = f"stopped at once; resume from the last checkpoint with: {command()} train --resume {run}"
        console.print(Text(words, style="bold"), soft_wrap=True)
        raise
    return _conclude(session, console, json=json, judged=judged)


def _conclude(session: Session, console: Console, *, json: bool, judged: bool) -> int:
    """Print how the run ended; returns the exit code."""
    verdict, ever = session.monitor.watch.verdict(session.monitor.history.view())
    if problems := session.writer.problems():
        console.print(Text("some records could not be written: " + "; ".join(problems), style="bold red"))
    if not json:
        console.print(ending(session, verdict, ever), soft_wrap=True)  # commands in it are copied: never broken
    if session.host.unsaved:
        newest = max((checkpoint.step for checkpoint in session.trainer.checkpoints()), default=None)
        there = "there is no checkpoint" if newest is None else f"the newest checkpoint is of step {newest}"
        console.print(Text(f"the final state could not be saved ({session.host.unsaved}): {there}", style="bold red"))
        return 1
    if session.writer.displaced:
        return 1
    if session.stop_reason == "SIGTERM":
        return 0  # preempted with everything saved: no failure, whatever the verdict
    return 1 if judged and verdict in ("warn", "critical") else 0


def _acknowledge(name: str) -> None:
    """Write directly to stderr: the signal may arrive while a line is printed."""
    more = "; press Ctrl-C again to end at once without saving" if name == "SIGINT" else ""
    with contextlib.suppress(OSError):
        os.write(2, f"\n{name}: the run ends after this step and saves its state{more}\n".encode())


def ending(session: Session, verdict: str, ever: str | None) -> Text:
    """The last lines: verdict, what happened on the way, what to do next."""
    run, words = plain(session.writer.path), _verdict_line(verdict, ever)
    for finding in found(session):
        over, when = "", f"since step {finding.onset_step}"
        if finding.state == "resolved":
            over, when = ", resolved", f"from step {finding.onset_step} to {finding.last_step}"
        head = f"{ICONS[finding.severity]} {plain(finding.id)} ({WORDS[finding.severity]}{over})"
        words.append(f"\n  {head} {when}: {plain(finding.summary)}")
    accuracy = session.monitor.history.view().series("accuracy/val").finite()
    if len(accuracy):
        course = f"{accuracy.values[0]:.1%} → " if len(accuracy) > 1 else ""
        asked = len(session.trainer.task.held_out(session.trainer.config.validation.problems))
        last = f"{course}{accuracy.values[-1]:.1%} (step {accuracy.steps[-1]})"
        words.append(f"\n  accuracy on {asked} held-out problems: {last}")
    if session.stop_reason:
        words.append(f"\n  stopped by {session.stop_reason} at step {session.trainer.step}; ")
        words.append(f"resume with: {command()} train --resume {run}")
    elif session.trainer.step < session.trainer.config.steps:
        words.append(f"\n  ended early: {session.trainer.finished or session.host.ended_by}")
    words.append(f"\n  run directory: {run}")
    words.append(f"\n  full report:   {command()} diagnose {run}")
    return words


def _verdict_line(verdict: str, ever: str | None) -> Text:
    good = verdict in ("healthy", "info", "too-short")
    if good and ever in ("warn", "critical"):
        return Text.assemble((f"\n▲ verdict: {verdict} at the end, after an incident ({ever})", "bold yellow"))
    marks = {"too-short": ("…", "bold"), "not-rl": ("–", "bold"), "warn": ("▲", "bold yellow")}
    icon, style = marks.get(verdict, ("✔", "bold green") if good else ("✖", "bold red"))
    words = {"info": "healthy, with remarks", "not-rl": "nothing found; this is no reinforcement learning (not-rl)"}
    shown = words.get(verdict, verdict)
    return Text.assemble((f"\n{icon} verdict: {shown}", style))


def found(session: Session) -> list[Finding]:
    """The worst finding of each incident that is open or was at least a warning; the worst incident first."""

    def order(finding: Finding) -> tuple[int, int, int]:
        return -SEVERITIES.index(finding.severity), finding.onset_step, finding.detected_step

    worst: dict[int, Finding] = {}
    for finding in sorted(session.monitor.watch.findings(), key=order):
        if finding.state != "resolved" or finding.severity != "info":
            worst.setdefault(finding.incident, finding)
    return list(worst.values())[:MOST_FOUND]


def command() -> str:
    """The command that calls this program: its name if it is on PATH, else its path."""
    if shutil.which("stabilizer"):
        return "stabilizer"
    beside = Path(sys.executable).with_name("stabilizer")
    if not beside.exists():
        return f"{sys.executable} -m stabilizer"
    return str(beside.relative_to(Path.cwd())) if beside.is_relative_to(Path.cwd()) else str(beside)


@contextlib.contextmanager
def dashboard(runs: Path, run: str, port: int, console: Console) -> Iterator[str | None]:
    """The dashboard in its own process, so that it can't slow or stop training."""
    runs.mkdir(parents=True, exist_ok=True)
    process, address, why = _serve(runs, port)
    if process.poll() == PORT_IN_USE:
        console.print(Text(f"port {port} is in use; using a free one", style="dim"))
        process, address, why = _serve(runs, 0)
    if address:
        address += f"run?run={quote(run)}"
        console.print(Text(f"dashboard: {address}", style="bold"), soft_wrap=True)
    else:
        console.print(Text(f"no dashboard ({why}); training continues without it", style="yellow"))
    try:
        yield address
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)


def _serve(runs: Path, port: int) -> tuple[subprocess.Popen[str], str | None, str]:
    """Start the dashboard; returns its address, or None and its error message."""
    command = [sys.executable, "-m", "dashboards", str(runs), "--port", str(port)]
    with tempfile.TemporaryFile("w+") as errors:  # a file, not a pipe: nothing reads it during training
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)  # noqa: S603
        line = process.stdout.readline().strip() if process.stdout else ""
        address = next((word for word in line.split() if word.startswith("http")), None)
        if address:
            return process, address, ""
        process.wait(5)
        errors.seek(0)
        return process, None, errors.read().strip() or line
