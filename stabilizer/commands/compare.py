"""`stabilizer compare RUN REFERENCE [RUN...]`: is it like the reference, and if not, why, and what to change first.

Exit codes: 0 when the question was answered, whatever the answer ("undetermined" is one), 2 when something could not
be read or compared.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from stabilizer.commands.sources import mapping
from stabilizer.compare import CURVE_HELP, as_json, compare, group, read_side
from stabilizer.compare.sides import CLOCKS, Side
from stabilizer.core.text import plain
from stabilizer.output.compare_terminal import show
from stabilizer.output.terminal import console
from stabilizer.runs.reader import OwnNames


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = CURVE_HELP
    parser.add_argument("run", metavar="RUN", help="a run or log; A,B,C are seeds of one configuration")
    parser.add_argument("reference", metavar="REFERENCE", help="a run, seeds of a run, a CSV, or a curve (see below)")
    parser.add_argument(
        "more",
        nargs="*",
        metavar="RUN",
        help="further seeds of RUN or REFERENCE, where only the seed differs; others are compared one by one",
    )
    parser.add_argument("--by", choices=CLOCKS, help="what to align by (default: chosen, and said why)")
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME[=NAME]",
        help="metric to compare, RUN's name and the reference's where it differs; the first is judged; may be repeated",
    )
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="OURS=THEIRS",
        help="read THEIRS of a foreign log or CSV as our OURS, e.g. reward/mean=score; may be repeated",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="also write one self-contained page (.html)")


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
        out.print(f"\nThe same with charts: {plain(args.output)}", style="dim", soft_wrap=True)
    return 0


def _read(word: str, wanted: dict[str, str]) -> Side:
    """A side; --map applies to whichever inputs are foreign logs or tables."""
    try:
        return read_side(word, mapping=wanted)
    except OwnNames:
        return read_side(word)
