"""`python -m dashboards [PATH...]`: look at runs in the browser."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

PORT_IN_USE = 3
"""Exit code when another program listens on the port; `stabilizer train` then picks a free one."""


def main(argv: list[str] | None = None) -> int:
    """Serve until interrupted; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dashboards", description="Look at runs in the browser.")
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
    args = parser.parse_args(argv)
    from dashboards.server import PortInUse, serve

    try:
        serve(args.paths, args.host, args.port, token=args.token)
    except KeyboardInterrupt:
        return 130
    except (ValueError, OSError) as error:
        print(f"dashboards: {error}", file=sys.stderr)
        return PORT_IN_USE if isinstance(error, PortInUse) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
