"""`stabilizer demo`: a real run on a built-in task with the live dashboard, and a report at the end."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from stabilizer.analysis.analyse import analyse
from stabilizer.commands.live_run import add_run_arguments, command, dashboard, follow, found
from stabilizer.commands.shared import need_train_extra
from stabilizer.core.paths import sample_runs
from stabilizer.core.records import Finding
from stabilizer.runs.identity import new_run_id
from stabilizer.trainers.reading import load

if TYPE_CHECKING:
    from stabilizer.live.session import Session  # imports torch

CASES = "case"
"""What the list of sample runs shows first: the case studies."""
_RUN = ("variant", "steps", "seed")
"""Arguments that repeat the same run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.add_argument("--variant", help="`unstable` sets a far too high learning rate, to show incidents and fixes")
    parser.add_argument(
        "--task", default="addition", help="built-in task: addition, sorting, length or search (default: addition)"
    )
    parser.add_argument("--steps", type=int, help="number of training steps (default: set by the task)")
    parser.add_argument("--seed", type=int, help="random seed")
    parser.add_argument("--posthoc", action="store_true", help="do not train; show the sample runs in the dashboard")
    parser.add_argument("--no-dashboard", action="store_true", help="train without the dashboard")
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Train and report; with `--posthoc` only show the sample runs.

    The exit code does not depend on the findings: it is 0 when training ended by itself, and 1 when it was stopped or
    its state could not be saved.
    """
    if args.posthoc:
        return _posthoc(args)
    need_train_extra()
    console = Console(stderr=args.json, highlight=False)
    with console.status("loading torch and the built-in model …"):
        from stabilizer.live.session import Session
        from stabilizer.training.config import load_config

        config = load_config(None, task=args.task, variant=args.variant, steps=args.steps, seed=args.seed)
        name = f"{args.task}-{args.variant}" if args.variant else args.task
        session = Session.start(config, args.runs / new_run_id(name), args.remedy, fork_steps=args.fork)
    if args.no_dashboard:
        return _train(session, console, args, None)
    with dashboard(args.runs, session.writer.path.name, args.port, console) as address:
        return _train(session, console, args, address)


def _train(session: Session, console: Console, args: argparse.Namespace, address: str | None) -> int:
    follow(session, console, json=args.json)
    path = _report(session.writer.path)
    console.print(Text(f"  report:        {path}"), soft_wrap=True)
    if advice := _next(args, found(session)):
        console.print(Text(f"  {advice}"), soft_wrap=True)
    again = f"{command()} dashboard {session.writer.path.parent}"
    if address and sys.stdin.isatty() and sys.stdout.isatty():
        console.print(Text(f"  the dashboard stays at {address} until Ctrl-C"), soft_wrap=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)
    elif address:
        hint = f"without a terminal the dashboard ends with the training; open it again with: {again}"
        console.print(Text(f"  {hint}"), soft_wrap=True)
    else:
        console.print(Text(f"  dashboard:     {again}"), soft_wrap=True)
    return 1 if session.stop_reason or session.host.unsaved else 0


def _next(args: argparse.Namespace, findings: list[Finding]) -> str:
    """What to try next, depending on what was found and on the remedy mode."""
    demo = f"{command()} demo" + (f" --task {args.task}" if args.task != "addition" else "")
    unresolved = [finding for finding in findings if finding.severity != "info" and finding.state != "resolved"]
    if not unresolved:
        return "" if args.variant else f"see a run go wrong: {demo} --variant unstable"
    mendable = any(remedy.safety != "advice" for finding in unresolved for remedy in finding.remedies)
    if not mendable or args.remedy not in ("off", "suggest", "approve"):
        return ""
    same = [f" --{name} {value}" for name in _RUN if (value := getattr(args, name)) is not None]
    meant = "this variant breaks on purpose; " if args.variant else ""
    return f"{meant}let remedies repair it: {demo}{''.join(same)} --remedy auto-full"


def _posthoc(args: argparse.Namespace) -> int:
    """Show the sample runs of the repository or of the wheel."""
    from dashboards.server import serve  # imports Dash

    samples = sample_runs()
    if not samples.is_dir():
        raise FileNotFoundError("this installation has no sample runs; use `stabilizer dashboard PATH`")
    serve([samples], "127.0.0.1", args.port, browser=sys.stdout.isatty(), find=CASES)
    return 0


def _report(run: Path) -> Path:
    """Write the report about the run, beside its directory."""
    from stabilizer.output.report import write  # imports plotly

    return write(analyse(load(run)), run.parent / f"{run.name}-report.html")
