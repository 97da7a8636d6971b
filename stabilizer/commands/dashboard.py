"""`stabilizer dashboard`: look at runs in the browser."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from stabilizer.cli import error_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the runs are and where to listen."""
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        default=[Path("runs")],
        metavar="PATH",
        help="folders of runs, or logs of other trainers",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="the one address to listen on; any but a loopback one needs --token (default: %(default)s)",
    )
    parser.add_argument("--token", action="store_true", help="require the token that the printed address contains")
    parser.add_argument("--port", type=int, default=8050, help="0 picks a free one (default: %(default)s)")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted. The address is the first line printed."""
    from dashboards.server import say, serve

    for path in args.paths:  # no error: training that makes it may start later
        if not path.exists():
            print(error_line("dashboard", f"{path}: not there (yet); what appears there is shown"), file=sys.stderr)
    announce = (lambda address: print(json.dumps({"address": address}), flush=True)) if args.json else say
    serve(
        args.paths,
        args.host,
        args.port,
        token=args.token,
        browser=not (args.no_browser or args.json),
        announce=announce,
    )
    return 0
