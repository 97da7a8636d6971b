"""`stabilizer import PATH`: convert the log of another trainer to a run directory.

The run can then be listed and shown like any other. The log itself is not changed.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

from stabilizer.analysis.importing import write_run
from stabilizer.commands.sources import add_source_arguments, mapping
from stabilizer.core.text import plain, spoken
from stabilizer.trainers.reading import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.add_argument("path", type=Path, help="a log, or the folder that holds it")
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of runs (default: runs)")
    parser.add_argument("--name", help="name of the new run (default: the name of the log)")
    add_source_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Read, write, and print the path of the run."""
    loaded = load(args.path, format=args.format, mapping=mapping(args.map), config=args.config)
    if loaded.source.format == "stabilizer":
        raise ValueError(f"{args.path}: already a run directory; `stabilizer dashboard {args.path}` shows it")
    name = args.name or loaded.name
    if Path(name).name != name or name in ("", ".", ".."):
        raise ValueError(f"--name {name!r}: must be a plain name without a folder")
    if (args.runs / name / "run.json").exists():
        raise FileExistsError(f"{args.runs / name}: a run of this name exists; choose another one with --name NAME")
    began = time.perf_counter()
    path = write_run(replace(loaded, name=name), args.runs / name)
    rows = len(loaded.ticks)
    if args.json:
        print(json.dumps({"run": str(path), "rows": rows, "format": loaded.source.format}))
    else:
        print(f"{plain(path)}: {rows:,} rows of {loaded.source.format}, in {spoken(time.perf_counter() - began)}")
        print(f"stabilizer dashboard {plain(args.runs)}")
    return 0
