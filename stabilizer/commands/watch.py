"""`stabilizer watch PATH`: follow a run or a log of any readable format, with the same detectors, in the terminal.

It ends when the run is over, when the verdict reaches `--fail-on`, when a log ended (with an error or the trainer's
last line) and did not grow for a while, after `--idle` seconds without a new row, or with Ctrl-C. The exit code is 1
when `--fail-on` was reached, which a crash does at every level but `never`; else 0.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

from rich.console import Console

from stabilizer.analysis.log_end import GRACE_S, LONGER, PACE, Rest, Wait, log_end, pace
from stabilizer.analysis.watching import new_watch
from stabilizer.commands.printing import JsonPrinter, LivePrinter
from stabilizer.commands.sources import add_source_arguments, mapping
from stabilizer.core.records import Finding
from stabilizer.core.severity import reached
from stabilizer.core.text import plain, spoken
from stabilizer.incidents.watch import Watch
from stabilizer.live.follow import FollowedLog, FollowedRun, Load, News, follow
from stabilizer.live.mirror import Mirror, end
from stabilizer.live.monitor import STALLED
from stabilizer.live.notify import Notices
from stabilizer.live.people import EVERY_S
from stabilizer.live.tick import Tick
from stabilizer.live.webhook import SECRET_ENV, checked_secret
from stabilizer.output.sinks import KINDS
from stabilizer.runs.continued import row
from stabilizer.runs.history import RunView
from stabilizer.runs.reader import RunError
from stabilizer.trainers.reading import load

POLL_S = 0.5
"""Seconds between checks of the files."""
COPYING_S = 600.0
"""Longest wait at the end for tools of `--to`. Nothing else waits for them here, and Ctrl-C ends the wait."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.add_argument("path", type=Path, help="a run directory, a growing log, or the folder that holds it")
    add_source_arguments(parser)
    parser.add_argument(
        "--fail-on",
        choices=("info", "warn", "critical", "crash", "never"),
        default="crash",
        help="end with exit code 1 as soon as the verdict reaches this level. A run that ended with an error (see"
        " --grace) reaches every level except never; nothing else reaches crash (default: crash)",
    )
    parser.add_argument(
        "--on-critical",
        metavar="CMD",
        help="run this command when an incident becomes critical, with the finding as JSON on its standard input;"
        " what it prints goes to stderr",
    )
    parser.add_argument(
        "--notify",
        action="append",
        default=[],
        metavar="URL",
        help="send incidents to this address: https, or http on this machine, receives JSON by POST; webhooks of Slack"
        " and Discord get their own form (slack+https://... and discord+https://... ask for it); other addresses go"
        " through apprise (pip install apprise); may be repeated",
    )
    parser.add_argument(
        "--notify-every",
        type=_seconds,
        default=EVERY_S,
        metavar="S",
        help="least seconds between two messages to Slack, Discord or apprise: what comes meanwhile is sent as one, but"
        " critical findings and proposals at once (default: %(default)g)",
    )
    parser.add_argument(
        "--notify-unencrypted", action="store_true", help="let --notify send to another machine by http too"
    )
    parser.add_argument(
        "--answer-at",
        metavar="URL",
        help="address that accepts answers to proposals (see `stabilizer webhook`); sent with each proposal, as links"
        f" to approve or reject where {SECRET_ENV} is set",
    )
    parser.add_argument(
        "--to",
        action="append",
        default=[],
        metavar="TOOL[:WHERE]",
        help="copy a run directory to a tool while it grows, from where an earlier copy ended: "
        + ", ".join(f"{name}[:{kind.where}]" for name, kind in KINDS.items())
        + "; may be repeated",
    )
    parser.add_argument(
        "--wait", action="store_true", help="wait for a file that does not exist yet or holds no metrics"
    )
    parser.add_argument("--idle", type=_seconds, metavar="S", help="end after S seconds without a new row")
    parser.add_argument(
        "--grace",
        type=_seconds,
        metavar="S",
        help="end S seconds after the last growth of a log that ended with an error or with its trainer's last line"
        f" (default: {GRACE_S:g} or the time of {PACE} steps, whichever is longer; {LONGER} times as long if something"
        " was written after the error, or if the last planned step has no last line after it). What a restart writes"
        " is followed. `inf` waits forever. With --idle and without --grace, only --idle counts",
    )


def run(args: argparse.Namespace) -> int:
    """Follow the run until there is a reason to end."""
    wanted = mapping(args.map)
    followed, news = _begin(args, lambda path: load(path, format=args.format, mapping=wanted, config=args.config))
    notices = Notices(
        args.path.name,
        args.on_critical,
        args.notify,
        report=lambda text: print(text, file=sys.stderr),
        unencrypted=args.notify_unencrypted,
        every=args.notify_every,
    )
    following = _Following(args, notices)
    copies = _copies(args, followed)
    try:
        while (code := following.take(news, followed.newest)) is None:
            if not news.views:
                time.sleep(POLL_S)
            news = followed.look()
    except KeyboardInterrupt:
        code = 0
    finally:
        notices.close()
        end(copies, COPYING_S)
    _print_end(args, following.verdict, code)
    return code


def _copies(args: argparse.Namespace, followed: FollowedRun | FollowedLog) -> list[Mirror]:
    """What copies the run; ValueError where there is no run directory to copy."""
    if args.to and not isinstance(followed, FollowedRun):
        raise ValueError(
            f"--to {args.to[0]}: {args.path} is a log; `stabilizer export {args.path} --to TOOL` copies it"
        )
    return [Mirror(args.path, asked, lambda text: print(text, file=sys.stderr)) for asked in args.to]


class _Following:
    """The state of the run that is followed."""

    def __init__(self, args: argparse.Namespace, notices: Notices):
        self.verdict = "too-short"
        self._args, self._notices = args, notices
        given = os.environ.get(SECRET_ENV, "") if args.answer_at else ""
        self._secret = checked_secret(given, SECRET_ENV) if given else b""
        self._printer = JsonPrinter() if args.json else LivePrinter(Console(highlight=False), catching_up=True)
        self._catching_up = True
        self._watch = new_watch()
        self._view: RunView | None = None
        """The newest row that was judged."""
        self._newest = time.monotonic()
        """When it arrived."""
        grace = math.inf if args.grace is None and args.idle is not None else args.grace
        self._rest = Rest(grace, self._newest)
        self._slowest = 0.0
        """Longest time in seconds from one row to the next."""
        self._ended = False

    def take(self, news: News, newest: RunView | None) -> int | None:
        """Judge what one look brought; the exit code once there is a reason to end. `newest` is all that was read."""
        if news.replaced:
            self._watch = new_watch()
        _report_log(self._args, news, self._view)
        self._notices.ask(news.asked, self._args.answer_at, self._secret)
        for view in news.views:
            self._judge(view)
            if reached(self.verdict, self._args.fail_on):
                return 1
        if news.stalled is not None:
            self._report(self._watch.ask(STALLED, news.stalled))
            self.verdict = self._watch.verdict(news.stalled)[0]
            if reached(self.verdict, self._args.fail_on):
                return 1
        if self._catching_up and news.views:
            self._printer.caught_up()
            self._catching_up = False
        if not self._is_over(news, newest):
            return None
        last = newest or self._view
        if last is not None:
            self._report(self._watch.end(last))
            self.verdict = self._watch.verdict(last)[0]
        return int(reached(self.verdict, self._args.fail_on))

    def _report(self, changed: list[Finding]) -> None:
        """Findings that no new row brought."""
        self._printer.end(changed)
        self._notices.send(changed)

    def _judge(self, view: RunView) -> None:
        changed = self._watch.tick(view)
        self._printer.tick(_tick(view, self._watch, changed))
        self._notices.send(changed)
        self.verdict = self._watch.verdict(view)[0]
        now = time.monotonic()
        if self._view is not None and not self._ended:  # the pause before a restart is no step
            self._slowest = max(self._slowest, now - self._newest)
        self._newest, self._view, self._ended = now, view, False

    def _is_over(self, news: News, newest: RunView | None) -> bool:
        """Whether nothing more is to be expected: by the run's own state, `--idle`, or the end of the log."""
        idle = self._args.idle is not None and time.monotonic() - self._newest >= self._args.idle
        wait = _ended(newest, self._rest, news.grew, self._slowest)
        self._ended = self._ended or wait is not None
        if wait and wait.new:
            _report_end(self._args, wait)
        return (news.over and not news.views) or idle or bool(wait and wait.over)


def _ended(newest: RunView | None, rest: Rest, grew: bool, slowest: float) -> Wait | None:
    """Whether the log has ended, and how long to wait for more. `slowest` is the longest wait for a row so far."""
    if newest is None:
        return None
    return rest.look(log_end(newest), grew=grew, now=time.monotonic(), step_s=max(pace(newest), slowest))


def _report_end(args: argparse.Namespace, wait: Wait) -> None:
    """Report that the log seems to have ended, why, and how long it is still followed."""
    if args.json:
        waits = {} if math.isinf(wait.seconds) else {"waits_s": wait.seconds}
        end = {"crashed": wait.end.crashed, "what": wait.end.what, "wrote_on": wait.wrote_on}
        row = {"kind": "log-end", **end, **waits}
        print(json.dumps(row), flush=True)
    how = "ended with an error" if wait.end.crashed else "ended"
    more = "; something was written after it" if wait.wrote_on else ""
    until = f"watching for a restart for {spoken(wait.seconds)} (--grace)"
    if math.isinf(wait.seconds):
        until = "watching until Ctrl-C" if args.idle is None else f"watching until --idle {args.idle:g} ends it"
    print(f"stabilizer watch: {plain(args.path)} {how}: {plain(wait.end.what)}{more}; {until}", file=sys.stderr)


def _report_log(args: argparse.Namespace, news: News, judged: RunView | None) -> None:
    """Report what happened to the log other than growth."""
    at = f"step {judged.step}" if judged else "its beginning"
    if news.replaced:
        _report_change(args, "log-replaced", "was replaced by another run; starting over", judged)
    if news.cut:
        rest = f"results up to {at} are kept, and new rows are judged as before"
        _report_change(args, "log-cut", f"was rotated or truncated; {rest}", judged)
    if news.trouble:
        rest = f"results up to {at} are kept, and it is read again when it changes"
        text = f"can't be read now: {plain(news.trouble)}; {rest}"
        _report_change(args, "log-unreadable", text, judged, what=news.trouble)


def _report_change(args: argparse.Namespace, kind: str, text: str, judged: RunView | None, **data: str) -> None:
    if args.json:
        print(json.dumps({"kind": kind, **({"judged": judged.step} if judged else {}), **data}), flush=True)
    print(f"stabilizer watch: {plain(args.path)} {text}", file=sys.stderr)


def _begin(args: argparse.Namespace, load: Load) -> tuple[FollowedRun | FollowedLog, News]:
    """The run to follow and the first look at it; with --wait as soon as there is something to read."""
    began, announced = time.monotonic(), False
    while True:
        looked = time.monotonic()
        try:
            followed = follow(args.path, load)
            return followed, followed.look()
        except RunError:
            now = time.monotonic()
            if not args.wait or (args.idle is not None and now - began >= args.idle):
                raise
            if not announced:
                print(f"waiting for metrics in {args.path} (press Ctrl-C to stop)", file=sys.stderr)
            announced = True
            time.sleep(max(POLL_S, 9 * (now - looked)))  # reading takes a tenth of the time at most


def _tick(view: RunView, watch: Watch, changed: list[Finding]) -> Tick:
    planned = view.about("steps")
    unresolved = {finding.incident for finding in watch.active() if finding.severity != "info"}
    steps = planned if isinstance(planned, int) else None
    return Tick(view.step, steps, row(view), changed, (), len(unresolved))


def _print_end(args: argparse.Namespace, verdict: str, code: int) -> None:
    if args.json:
        print(json.dumps({"kind": "end", "verdict": verdict, "exit": code}))
    else:
        print(f"verdict: {verdict}" + (f" (reached --fail-on {args.fail_on})" if code else ""))


def _seconds(text: str) -> float:
    """A time of zero or more; argparse's float would accept `nan` and `-5`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in seconds; write it as 60, 0.5 or inf")
    return value
