"""`stabilizer compare RUN REFERENCE [RUN...]`: how a run differs from a reference, why, and what to change first.

Exit codes: 0 when the comparison was made, whatever its result, 2 when something could not be read or compared.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from stabilizer.commands.sources import add_map_argument, mapping
from stabilizer.compare import CURVE_HELP, as_json, compare, group, read_side
from stabilizer.compare.sides import CLOCKS, Side
from stabilizer.core.text import plain
from stabilizer.output.compare_terminal import show
from stabilizer.output.screen import console
from stabilizer.runs.reader import OwnNames


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = CURVE_HELP
    parser.add_argument("run", metavar="RUN", help="a run or log; A,B,C for several seeds of one configuration")
    parser.add_argument(
        "reference", metavar="REFERENCE", help="a run, several seeds of a run, a CSV file, or a curve (see below)"
    )
    parser.add_argument(
        "more",
        nargs="*",
        metavar="RUN",
        help="more runs: seeds of RUN or REFERENCE join them, others are compared one by one",
    )
    parser.add_argument(
        "--by", choices=CLOCKS, help="axis to align by (default: chosen automatically, with the reason shown)"
    )
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME[=NAME]",
        help="metric to compare (NAME=NAME if the reference calls it differently); the first one decides the verdict;"
        " may be repeated",
    )
    add_map_argument(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="also write a self-contained page (.html)")


def run(args: argparse.Namespace) -> int:
    """Compare and show."""
    wanted = mapping(args.map)
    first, reference, *others = (_read(word, wanted) for word in (args.run, args.reference, *args.more))
    runs, reference = group(first, reference, others)
    answers = [compare(side, reference, by=args.by, metrics=args.metric) for side in runs]
    if args.output:
        from stabilizer.output.compare_page import write  # imports plotly, which most comparisons do without

        write(answers, args.output)
    if args.json:
        objects = [as_json(answer) for answer in answers]
        print(json.dumps(objects if len(objects) > 1 else objects[0], indent=2, allow_nan=False))
        return 0
    out = console()
    for place, answer in enumerate(answers):
        if place:
            out.rule(style="dim")
        show(answer, out)
    if args.output:
        out.print(f"\nWith charts: {plain(args.output)}", style="dim", soft_wrap=True)
    return 0


def _read(word: str, wanted: dict[str, str]) -> Side:
    """A side. `--map` applies to the inputs that are logs or tables of other trainers."""
    try:
        return read_side(word, mapping=wanted)
    except OwnNames:
        return read_side(word)
