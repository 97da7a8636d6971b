"""`stabilizer watch PATH`: follow a run or a log of any readable format, with the same detectors, in the terminal.

Ends when a run directory says that its run is over, when the verdict reaches `--fail-on`, after `--idle` seconds
without a new row, or with Ctrl-C. Exit code 1 when `--fail-on` was reached, else 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stabilizer.commands.diagnose import add_source_arguments, mapping
from stabilizer.following import FollowedLog, FollowedRun, Load, News, follow, row
from stabilizer.notify import Notices
from stabilizer.readers import load
from stabilizer.records import SEVERITIES, Action, Finding
from stabilizer.runs.history import RunView
from stabilizer.runs.reader import RunError
from stabilizer.watch import Watch

POLL_S = 0.5
"""Seconds between looks at the files."""


@dataclass(frozen=True)
class Tick:
    """One new row, as the printers of `live.py` take it."""

    step: int
    steps: int | None
    metrics: dict[str, float]
    findings: list[Finding]
    actions: tuple[Action, ...]
    open_incidents: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.add_argument("path", type=Path, help="a run directory, a log that grows, or the folder that holds it")
    add_source_arguments(parser)
    parser.add_argument(
        "--fail-on",
        choices=("info", "warn", "critical", "never"),
        default="never",
        help="end with exit code 1 as soon as the verdict reaches this level (default: never)",
    )
    parser.add_argument(
        "--on-critical",
        metavar="CMD",
        help="run this command when an incident becomes critical; the finding is on its standard input, as JSON",
    )
    parser.add_argument(
        "--notify",
        action="append",
        default=[],
        metavar="URL",
        help="tell this address of incidents: http(s) gets a JSON object by POST, anything else is apprise's"
        " (pip install apprise); may be repeated",
    )
    parser.add_argument(
        "--answer-at",
        metavar="URL",
        help="where answers to proposals are taken (see `stabilizer webhook`); told with each proposal under --notify",
    )
    parser.add_argument(
        "--wait", action="store_true", help="if there is no such file yet, or no metrics in it, wait for them"
    )
    parser.add_argument("--idle", type=float, metavar="S", help="end after S seconds without a new row")


def run(args: argparse.Namespace) -> int:
    """Follow until there is a reason to end."""
    from rich.console import Console

    from stabilizer.commands.live import JsonPrinter, LivePrinter

    wanted = mapping(args.map)
    followed, news = _begin(args, lambda path: load(path, format=args.format, mapping=wanted, config=args.config))
    printer: Any = JsonPrinter() if args.json else LivePrinter(Console(highlight=False))
    notices = Notices(args.path.name, args.on_critical, args.notify, tell=lambda text: print(text, file=sys.stderr))
    watch, newest = Watch(), time.monotonic()
    verdict, newest_view = "too-short", None
    try:
        while True:
            if news.anew:
                watch = Watch()
                print(f"stabilizer watch: {args.path} was replaced; starting anew", file=sys.stderr)
            notices.ask(news.asked, args.answer_at)
            for view in news.views:
                changed = watch.tick(view)
                printer.tick(_tick(view, watch, changed))
                notices.tell_of(changed)
                verdict = watch.verdict(view)[0]
                newest, newest_view = time.monotonic(), view
                if _reached(verdict, args.fail_on):
                    return _end(args, verdict, 1)
            idle = args.idle is not None and time.monotonic() - newest >= args.idle
            if (news.over and not news.views) or idle:
                if newest_view is not None:
                    changed = watch.end(newest_view)
                    printer.end(changed)
                    notices.tell_of(changed)
                    verdict = watch.verdict(newest_view)[0]
                return _end(args, verdict, int(_reached(verdict, args.fail_on)))
            if not news.views:
                time.sleep(POLL_S)
            news = followed.look()
    except KeyboardInterrupt:
        return _end(args, verdict, 0)
    finally:
        notices.close()


def _begin(args: argparse.Namespace, load: Load) -> tuple[FollowedRun | FollowedLog, News]:
    """What is followed, and the first look at it: with --wait as soon as there is something to see."""
    began, said = time.monotonic(), False
    while True:
        looked = time.monotonic()
        try:
            followed = follow(args.path, load)
            return followed, followed.look()
        except RunError:
            now = time.monotonic()
            if not args.wait or (args.idle is not None and now - began >= args.idle):
                raise
            if not said:
                print(f"waiting for metrics in {args.path} (Ctrl-C ends it)", file=sys.stderr)
            said = True
            time.sleep(max(POLL_S, 9 * (now - looked)))  # a tenth of the time goes into reading


def _tick(view: RunView, watch: Watch, changed: list[Finding]) -> Tick:
    planned = view.about("steps")
    standing = {finding.incident for finding in watch.active() if finding.severity != "info"}
    steps = planned if isinstance(planned, int) else None
    return Tick(view.step, steps, row(view), changed, (), len(standing))


def _reached(verdict: str, level: str) -> bool:
    if level == "never":
        return False
    return verdict == "crashed" or verdict in SEVERITIES and SEVERITIES.index(verdict) >= SEVERITIES.index(level)


def _end(args: argparse.Namespace, verdict: str, code: int) -> int:
    if args.json:
        print(json.dumps({"kind": "end", "verdict": verdict, "exit": code}))
    else:
        print(f"verdict: {verdict}" + (f" (reached --fail-on {args.fail_on})" if code else ""))
    return code
