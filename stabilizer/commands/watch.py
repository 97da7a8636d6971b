"""`stabilizer watch PATH`: follow a run or a log of any readable format, with the same detectors, in the terminal.

Ends when a run directory says that its run is over, when the verdict reaches `--fail-on`, when a log ended (in an
error, or with the trainer's own last line) and rested for a while, after `--idle` seconds without a new row, or with
Ctrl-C.
Exit code 1 when `--fail-on` was reached, which a crash does unless it is `never`; else 0.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stabilizer.analysis.log_end import GRACE_S, LONGER, PACE, Rest, Wait, log_end, pace
from stabilizer.analysis.watching import new_watch
from stabilizer.commands.diagnose import add_source_arguments, mapping
from stabilizer.core.durations import spoken
from stabilizer.core.records import SEVERITIES, Action, Finding
from stabilizer.core.text import plain
from stabilizer.incidents.watch import Watch
from stabilizer.live.follow import FollowedLog, FollowedRun, Load, News, follow
from stabilizer.live.notify import Notices
from stabilizer.runs.continued import row
from stabilizer.runs.history import RunView
from stabilizer.runs.reader import RunError
from stabilizer.trainers.reading import load

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
    troubles: tuple[str, ...] = ()
    """None: what a run told of itself is among its events."""

    @property
    def known(self) -> dict[str, float]:
        """What a printer may read at every tick: here all of it, for it was read from a file."""
        return self.metrics


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.add_argument("path", type=Path, help="a run directory, a log that grows, or the folder that holds it")
    add_source_arguments(parser)
    parser.add_argument(
        "--fail-on",
        choices=("info", "warn", "critical", "crash", "never"),
        default="crash",
        help="end with exit code 1 as soon as the verdict reaches this level; a run or a log that ended in an error"
        " (see --grace) reaches every level but never, and nothing else reaches crash (default: crash)",
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
    parser.add_argument("--idle", type=_seconds, metavar="S", help="end after S seconds without a new row")
    parser.add_argument(
        "--grace",
        type=_seconds,
        metavar="S",
        help=f"a log that ended in an error, or with its trainer's last line, is waited for S seconds without growth"
        f" (default: {GRACE_S:g}, or {PACE} steps where they take longer; {LONGER} times as long where something was"
        " written after the error, or the last planned step is there but no last line). What a restart writes is"
        " followed on. `inf` waits for ever; with --idle alone only that counts",
    )


def run(args: argparse.Namespace) -> int:
    """Follow until there is a reason to end."""
    from rich.console import Console

    from stabilizer.commands.printing import JsonPrinter, LivePrinter

    wanted = mapping(args.map)
    followed, news = _begin(args, lambda path: load(path, format=args.format, mapping=wanted, config=args.config))
    printer: Any = JsonPrinter() if args.json else LivePrinter(Console(highlight=False), catching_up=True)
    notices = Notices(args.path.name, args.on_critical, args.notify, tell=lambda text: print(text, file=sys.stderr))
    reading = True
    watch, newest = new_watch(), time.monotonic()
    grace = math.inf if args.grace is None and args.idle is not None else args.grace
    rest, wait, slowest, ended = Rest(grace, newest), None, 0.0, False
    verdict, newest_view = "too-short", None
    try:
        while True:
            if news.anew:
                watch = new_watch()
            _tell_of_log(args, news, newest_view)
            notices.ask(news.asked, args.answer_at)
            for view in news.views:
                changed = watch.tick(view)
                printer.tick(_tick(view, watch, changed))
                notices.tell_of(changed)
                verdict = watch.verdict(view)[0]
                if newest_view is not None and not ended:  # a restart's pause is no step
                    slowest = max(slowest, time.monotonic() - newest)
                newest, newest_view, ended = time.monotonic(), view, False
                if _reached(verdict, args.fail_on):
                    return _end(args, verdict, 1)
            if reading and news.views:
                printer.caught_up()
                reading = False
            idle = args.idle is not None and time.monotonic() - newest >= args.idle
            wait = _ended(followed.newest, rest, news.grew, slowest)
            ended = ended or wait is not None
            if wait and wait.new:
                _tell(args, wait)
            if (news.over and not news.views) or idle or (wait and wait.over):
                last = followed.newest or newest_view
                if last is not None:
                    changed = watch.end(last)
                    printer.end(changed)
                    notices.tell_of(changed)
                    verdict = watch.verdict(last)[0]
                return _end(args, verdict, int(_reached(verdict, args.fail_on)))
            if not news.views:
                time.sleep(POLL_S)
            news = followed.look()
    except KeyboardInterrupt:
        return _end(args, verdict, 0)
    finally:
        notices.close()


def _ended(newest: RunView | None, rest: Rest, grew: bool, slowest: float) -> Wait | None:
    """How long what has ended is waited for. `slowest` is the longest that was waited for a row so far."""
    if newest is None:
        return None
    return rest.look(log_end(newest), grew=grew, now=time.monotonic(), step_s=max(pace(newest), slowest))


def _tell(args: argparse.Namespace, wait: Wait) -> None:
    """That the log seems to be over, why, and how long it is waited for more."""
    if args.json:
        waits = {} if math.isinf(wait.seconds) else {"waits_s": wait.seconds}
        said = {"crashed": wait.end.crashed, "what": wait.end.what, "wrote_on": wait.wrote_on}
        row = {"kind": "log-end", **said, **waits}
        print(json.dumps(row), flush=True)
    how = "ended in an error" if wait.end.crashed else "is over"
    more = "; something was written after it, which is followed" if wait.wrote_on else ""
    until = f"this ends after {spoken(wait.seconds)} in which nothing is written (--grace); a restart is followed on"
    if math.isinf(wait.seconds):
        until = "waiting on; Ctrl-C ends it" if args.idle is None else f"--idle {args.idle:g} ends this"
    print(f"stabilizer watch: {plain(args.path)} {how}: {plain(wait.end.what)}{more}; {until}", file=sys.stderr)


def _tell_of_log(args: argparse.Namespace, news: News, judged: RunView | None) -> None:
    """What happened to the log other than that it grew."""
    at = f"step {judged.step}" if judged else "its beginning"
    said = {
        "log-replaced": "was replaced by another training; starting anew" if news.anew else "",
        "log-cut": f"was rotated or cut; what was judged, up to {at}, stands, and what follows is judged as before"
        if news.cut else "",
        "log-unreadable": f"can't be read now: {plain(news.trouble)}; what was judged, up to {at}, stands, and it is"
        " looked at again when it changes" if news.trouble else "",
    }  # fmt: skip
    for kind, what in said.items():
        if what and args.json:
            why = {"what": news.trouble} if kind == "log-unreadable" else {}
            print(json.dumps({"kind": kind, **({"judged": judged.step} if judged else {}), **why}), flush=True)
        if what:
            print(f"stabilizer watch: {plain(args.path)} {what}", file=sys.stderr)


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
    if level == "never" or verdict == "crashed":
        return level != "never"
    return level != "crash" and verdict in SEVERITIES and SEVERITIES.index(verdict) >= SEVERITIES.index(level)


def _end(args: argparse.Namespace, verdict: str, code: int) -> int:
    if args.json:
        print(json.dumps({"kind": "end", "verdict": verdict, "exit": code}))
    else:
        print(f"verdict: {verdict}" + (f" (reached --fail-on {args.fail_on})" if code else ""))
    return code


def _seconds(text: str) -> float:
    """A time of zero or more. argparse would take `nan` and `-5` for one."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds; write it as 60, 0.5 or inf")
    return value
