"""`stabilizer report PATH -o FILE`: a self-contained page about a run. The suffix of FILE chooses its format."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from stabilizer.analysis.analyse import analyse
from stabilizer.commands.sources import add_source_arguments, mapping
from stabilizer.core.text import plain
from stabilizer.runs.loaded import NoMetrics
from stabilizer.trainers.reading import load


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.add_argument("path", type=Path, help="a run directory, a log, or the folder that holds it")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="output file: .html, .md or .json (default: NAME-report.html in this folder)",
    )
    add_source_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Analyse, write, and print the path of the report."""
    from stabilizer.output.report import default_name, write  # imports plotly, which `--help` need not wait for

    try:
        loaded = load(args.path, format=args.format, mapping=mapping(args.map), config=args.config)
    except NoMetrics as error:
        if not error.run.history.events:
            raise  # a document: nothing to report on
        loaded = error.run  # training failed before its first metric: the page says why
    analysis = analyse(loaded)
    target = write(analysis, args.output or Path(default_name(analysis)))
    if args.json:
        print(json.dumps({"report": str(target), "run": analysis.run.name, "verdict": analysis.verdict}))
    else:
        print(f"{plain(target)}  ({analysis.verdict})")
    return 0
