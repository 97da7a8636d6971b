"""`stabilizer bench`: measure this installation; every table says how its figures were taken."""

from __future__ import annotations

import argparse
import importlib
import json

from rich.console import Console
from rich.table import Table
from rich.text import Text

BENCHES = ("cost", "read")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to measure."""
    parser.add_argument("which", choices=BENCHES, help="cost: monitoring per step; read: loading a run of 1M points")
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--seed", type=int, default=0, help="seed of the generated stream")


def run(args: argparse.Namespace) -> int:
    """Measure and print the table, with how it was taken."""
    module = importlib.import_module(f"stabilizer.bench.{args.which}")
    rows = module.measure(seed=args.seed, quick=args.quick)
    if args.json:
        print(json.dumps(rows))
        return 0
    table = Table(*rows[0], box=None, padding=(0, 3, 0, 0), header_style="bold")
    for row in rows:
        table.add_row(*(Text(f"{value:.4g}" if isinstance(value, float) else f"{value}") for value in row.values()))
    console = Console(highlight=False)
    console.print(table)
    console.print(Text((module.__doc__ or "").split("\n\n", 1)[-1].strip(), style="dim"))
    return 0
