"""`stabilizer train`: a run with detectors, remedies and, if wanted, the dashboard beside it."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rich.console import Console
from rich.text import Text

from stabilizer.cli import UsageError
from stabilizer.commands.missing import need_train_extra
from stabilizer.control.engine import MODES, Mode
from stabilizer.core.records import SEVERITIES, Finding
from stabilizer.core.severity import ICONS, WORDS
from stabilizer.core.text import plain
from stabilizer.runs.reader import read_json

if TYPE_CHECKING:
    from stabilizer.live.session import Session


FIXED_AT_START = {
    "config": "CONFIG", "task": "--task", "set": "--set", "variant": "--variant", "steps": "--steps", "seed": "--seed",
}  # fmt: skip
"""What a run is given when it starts and keeps: arguments that mean nothing beside `--resume`."""
MOST_FOUND = 5
"""Incidents that the last lines name; `diagnose` tells all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.add_argument(
        "config", nargs="?", help="YAML file, or the name of a built-in task (addition, sorting, length, search)"
    )
    parser.add_argument("--task", help="built-in task; alone it is a full configuration")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change one key, e.g. optim.lr=1e-4"
    )
    parser.add_argument("--variant", help="a named set of changes, e.g. `unstable`: a run that breaks on purpose")
    parser.add_argument("--steps", type=int, help="outer iterations")
    parser.add_argument("--seed", type=int, help="seed of everything random")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with this run directory")
    add_run_arguments(parser)
    parser.set_defaults(remedy=None)  # a run that goes on keeps its mode unless told otherwise
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = key_reference()


def key_reference() -> str:
    """Every key of a configuration, for `--help`."""
    try:
        need_train_extra()
    except ImportError as error:
        return f"The keys of a configuration are listed here once the trainer is installed: {error}."
    from stabilizer.training.key_help import as_text

    return as_text(min(shutil.get_terminal_size().columns, 120) - 2)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags that `train` and `demo` share."""
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where run directories go")
    parser.add_argument(
        "--remedy", choices=MODES, default="suggest",
        help="what may be done about incidents (suggest; a run that is resumed keeps what it had)",
    )  # fmt: skip
    parser.add_argument(
        "--fork", type=int, default=0, metavar="N",
        help="try a fix on a copy of the run for N steps, beside one without it, before it is applied (0: don't)",
    )  # fmt: skip
    parser.add_argument("--dashboard", action="store_true", help="start the dashboard beside the run")
    parser.add_argument("--port", type=int, default=8050, help="port of the dashboard; 0 picks a free one")


def run(args: argparse.Namespace) -> int:
    """Start a run, or go on with one, and follow it to its end."""
    if args.fork < 0:
        raise UsageError(f"--fork {args.fork}: must be 0 (don't) or a number of steps")
    if args.resume:
        _check_resume(args)
    need_train_extra()
    _check_overrides(args.set)
    overrides = [text.partition("=") for text in args.set]
    paths = [value.strip() for key, _, value in overrides if key.strip() == "data.path"]
    if not (args.config or args.task or args.variant or args.resume or any(paths)):
        raise UsageError(
            "what should be trained? Give a YAML file or a built-in task (addition, sorting, length or search), or"
            f" --set data.path=FILE for problems of your own{' (data.path is empty)' if paths else ''}"
        )
    console = Console(stderr=args.json, highlight=False)
    with _asked_to_end() as asked:
        session = _begun(args)
        path = session.writer.path.resolve()
        shown = dashboard(path.parent, path.name, args.port, console) if args.dashboard else contextlib.nullcontext()
        with shown:
            session.stop_reason = asked.get("by")
            return follow(session, console, json=args.json)


def _begun(args: argparse.Namespace) -> Session:
    """The run that was asked for, new or gone on with."""
    from stabilizer.live.session import Session
    from stabilizer.runs.directory import new_run_id
    from stabilizer.training.config import load_config

    if args.resume:
        return Session.resume(args.resume, args.remedy or _mode_of(args.resume), fork_steps=args.fork)
    config = load_config(
        args.config, overrides=args.set, task=args.task, variant=args.variant, steps=args.steps, seed=args.seed
    )
    path = args.runs / new_run_id(config.task)
    return Session.start(config, path, args.remedy or "suggest", fork_steps=args.fork)


@contextlib.contextmanager
def _asked_to_end() -> Iterator[dict[str, str]]:
    """While a run is set up SIGTERM is noted (`by`), and heeded as soon as there is a state to save. The run's own way
    of heeding it takes over while it trains."""
    asked: dict[str, str] = {}

    def note(number: int, frame: Any) -> None:
        asked["by"] = signal.Signals(number).name

    try:
        before = signal.signal(signal.SIGTERM, note)
    except ValueError:  # not the main thread: its owner handles signals
        yield asked
        return
    try:
        yield asked
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_overrides(overrides: list[str]) -> None:
    """A group of keys is no key: `--set optim=` would say nothing, and train with what it was meant to change."""
    from stabilizer.training.config import GROUPS, SCHEMA

    for text in overrides:
        group = text.partition("=")[0].strip()
        if group in GROUPS:
            first = next(key for key in SCHEMA if key.startswith(f"{group}."))
            raise UsageError(f"--set {text}: {group} is a group of keys; set one of them, e.g. --set {first}=...")


def _mode_of(run: Path) -> Mode:
    """What a run was allowed to do about incidents: one that was killed in `auto-full` goes on in it."""
    said = read_json(run / "status.json").get("remedy")
    return next((mode for mode in MODES if mode == said), "suggest")


def _check_resume(args: argparse.Namespace) -> None:
    ignored = [shown for name, shown in FIXED_AT_START.items() if getattr(args, name) not in (None, [])]
    if ignored:
        raise UsageError(
            f"--resume goes on with the configuration in {args.resume / 'run.json'}, so {', '.join(ignored)} can't be"
            f" given beside it; leave it out, or start a new run without --resume"
        )


def follow(session: Session, console: Console, *, json: bool) -> int:
    """Run a session to its end, printing; the exit code follows the verdict as `diagnose` does."""
    from stabilizer.commands.printing import JsonPrinter, LivePrinter

    asks = f"{command()} fix {session.writer.path}" if session.arbiter.mode == "approve" else None
    known = session.history.view().latest("accuracy/val")
    baseline = {} if known is None else {"accuracy/val": known}
    printer: Any = JsonPrinter() if json else LivePrinter(console, baseline, asks)
    run = plain(session.writer.path)
    console.print(Text(f"run {run} · remedies: {session.arbiter.mode} · Ctrl-C stops and saves", style="dim"))
    for note in session.trainer.notes:
        console.print(Text(note, style="dim"))
    session.heard = _say_heard
    try:
        for tick in session.run(patient=True):
            printer.tick(tick)
    except KeyboardInterrupt:
        words = f"stopped at once; what was saved last is gone on with by: {command()} train --resume {run}"
        console.print(Text(words, style="bold"), soft_wrap=True)
        raise
    finally:
        printer.end(session.parting, session.parting_actions)
    verdict, ever = session.watch.verdict(session.history.view())
    if problems := session.writer.problems():
        console.print(Text("not everything could be written: " + "; ".join(problems), style="bold red"))
    if not json:
        console.print(ending(session, verdict, ever), soft_wrap=True)  # commands in it are copied: never broken
    if session.unsaved:
        newest = max((checkpoint.step for checkpoint in session.trainer.checkpoints()), default=None)
        there = "there is none of it" if newest is None else f"the newest one there is of step {newest}"
        console.print(Text(f"the final state is not on disk ({session.unsaved}): {there}", style="bold red"))
        return 1
    if session.stop_reason == "SIGTERM":
        return 0  # asked to make room, and everything is saved: that is no failure, whatever the verdict
    return 1 if verdict in ("warn", "critical") else 0


def _say_heard(name: str) -> None:
    """By the shortest way there is: a signal may come amid a line that is being printed."""
    more = "; Ctrl-C again ends it at once, without saving" if name == "SIGINT" else ""
    with contextlib.suppress(OSError):
        os.write(2, f"\n{name}: the run ends after this step, and saves{more}\n".encode())


def ending(session: Session, verdict: str, ever: str | None) -> Text:
    """The last lines: verdict, what happened on the way, what to do next."""
    good = verdict in ("healthy", "info", "too-short")
    run, words = plain(session.writer.path), Text()
    if good and ever in ("warn", "critical"):
        words.append(f"\n▲ verdict: {verdict} at the end, after an incident ({ever})", style="bold yellow")
    else:
        marks = {"too-short": ("…", "bold"), "warn": ("▲", "bold yellow")}
        icon, style = marks.get(verdict, ("✔", "bold green") if good else ("✖", "bold red"))
        said = "healthy, with a remark" if verdict == "info" else verdict
        words.append(f"\n{icon} verdict: {said}", style=style)
    for finding in found(session):
        over = ", over" if finding.state == "resolved" else ""
        head = f"{ICONS[finding.severity]} {plain(finding.id)} ({WORDS[finding.severity]}{over})"
        words.append(f"\n  {head} since step {finding.onset_step}: {plain(finding.summary)}")
    accuracy = session.history.view().series("accuracy/val").finite()
    if len(accuracy):
        course = f"{accuracy.values[0]:.1%} → " if len(accuracy) > 1 else ""
        asked = len(session.trainer.task.held_out(session.trainer.config.validation.problems))
        last = f"{course}{accuracy.values[-1]:.1%} (step {accuracy.steps[-1]})"
        words.append(f"\n  accuracy on {asked} held-out problems: {last}")
    if not session.stop_reason and session.trainer.step < session.trainer.config.steps:
        words.append(f"\n  ended early: {session.trainer.finished or session.ended_by}")
    if session.stop_reason:
        words.append(f"\n  stopped by {session.stop_reason} at step {session.trainer.step}; ")
        words.append(f"go on with: {command()} train --resume {run}")
    words.append(f"\n  run directory: {run}")
    words.append(f"\n  look closer:   {command()} diagnose {run}")
    return words


def found(session: Session) -> list[Finding]:
    """The gravest finding of each incident that still stands, or was a warning or more; the gravest incident first."""

    def order(finding: Finding) -> tuple[int, int, int]:
        return -SEVERITIES.index(finding.severity), finding.onset_step, finding.detected_step

    gravest: dict[int, Finding] = {}
    for finding in sorted(session.watch.findings(), key=order):
        if finding.state != "resolved" or finding.severity != "info":
            gravest.setdefault(finding.incident, finding)
    return list(gravest.values())[:MOST_FOUND]


def command() -> str:
    """How this program is called from here: by its name where that is found, else by its path."""
    if shutil.which("stabilizer"):
        return "stabilizer"
    beside = Path(sys.executable).with_name("stabilizer")
    if not beside.exists():
        return f"{sys.executable} -m stabilizer"
    return str(beside.relative_to(Path.cwd())) if beside.is_relative_to(Path.cwd()) else str(beside)


@contextlib.contextmanager
def dashboard(runs: Path, run: str, port: int, console: Console) -> Iterator[str | None]:
    """The dashboard as a process of its own: it can't slow or stop training, and its failure is only reported."""
    runs.mkdir(parents=True, exist_ok=True)
    process, address, why = _serve(runs, port)
    if address is None and "in use" in why:
        console.print(Text(f"port {port} is in use; taking a free one", style="dim"))
        process, address, why = _serve(runs, 0)
    if address:
        address += f"run?run={quote(run)}"
        console.print(Text(f"dashboard: {address}", style="bold"), soft_wrap=True)
    else:
        console.print(Text(f"no dashboard ({why}); training goes on without it", style="yellow"))
    try:
        yield address
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)


def _serve(runs: Path, port: int) -> tuple[subprocess.Popen[str], str | None, str]:
    """Start the dashboard; its address, or None and what it said instead."""
    command = [sys.executable, "-m", "dashboards", str(runs), "--port", str(port)]
    with tempfile.TemporaryFile("w+") as errors:  # a file, not a pipe: nobody reads it while training goes on
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)  # noqa: S603
        line = process.stdout.readline().strip() if process.stdout else ""
        address = next((word for word in line.split() if word.startswith("http")), None)
        if address:
            return process, address, ""
        process.wait(5)
        errors.seek(0)
        return process, None, errors.read().strip() or line
