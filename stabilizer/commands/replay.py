"""`stabilizer replay RUN`: train a run again with its interventions and compare the numbers.

Exit codes: 1 with `--check` when a number differs, 2 when the run can't be replayed, else 0.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from math import isfinite
from pathlib import Path

from rich.console import Console

from stabilizer.commands.shared import need_train_extra
from stabilizer.core.text import plain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.add_argument("run_directory", type=Path, metavar="RUN", help="run directory of `stabilizer train`")
    parser.add_argument(
        "-o", "--out", type=Path, metavar="DIR", help="new run directory (default: RUN-replay beside RUN)"
    )
    parser.add_argument("--steps", type=int, metavar="N", help="replay only the first N steps")
    parser.add_argument(
        "--check", action="store_true", help="exit with code 1 when a number differs; the new run is kept only with -o"
    )


def run(args: argparse.Namespace) -> int:
    """Replay and compare."""
    need_train_extra()
    if args.steps is not None and args.steps < 1:
        raise ValueError(f"--steps {args.steps}: must be at least 1")
    if args.check and args.out is None:
        with tempfile.TemporaryDirectory(prefix="stabilizer-replay-") as folder:
            return _replay(args, Path(folder) / "run", kept=False)
    path: Path = args.run_directory
    return _replay(args, args.out or path.with_name(f"{path.name}-replay"), kept=True)


def _replay(args: argparse.Namespace, out: Path, *, kept: bool) -> int:
    from stabilizer.live.replay import replay  # imports torch

    with Console(stderr=True).status("replaying") as status:
        done = replay(
            args.run_directory,
            out,
            steps=args.steps,
            progress=lambda n, of: status.update(f"replaying: step {n} of {of}"),
        )
    code = int(args.check and done.first is not None)
    if args.json:
        first = done.first
        row = {
            "run": str(args.run_directory),
            "replay": str(out) if kept else None,
            "agrees": first is None,
            "rows": done.rows,
            "values": done.values,
            "interventions": done.interventions,
            "first_difference": None
            if first is None
            else {
                "attempt": first.attempt,
                "step": first.step,
                "metric": first.metric,
                "run": _plain(first.run),
                "replay": _plain(first.replay),
            },
            "notes": list(done.notes),
        }
        print(json.dumps(row))
        return code
    changes = {0: "no intervention", 1: "1 intervention"}.get(done.interventions, f"{done.interventions} interventions")
    if done.first is None:
        print(f"identical: {done.values:,} values in {done.rows:,} rows agree to the last bit, with {changes}")
    else:
        print(f"different from {plain(done.first.words())}")
    for note in done.notes:
        print(f"note: {plain(note)}")
    if kept:
        print(f"replay: {plain(out)}")
    return code


def _plain(value: float | None) -> float | str | None:
    return value if value is None or isfinite(value) else str(value)
