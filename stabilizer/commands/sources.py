"""Arguments that say how a log is to be read, shared by the verbs that read one."""

from __future__ import annotations

import argparse
from pathlib import Path

from stabilizer.runs.reader import RunError
from stabilizer.trainers.reading import READERS


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options `--config`, `--map` and `--format`."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the trainer's configuration (YAML, JSON, TOML), or the script that starts it",
    )
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="OURS=THEIRS",
        help="read the log's metric THEIRS as our OURS, e.g. accuracy/val=eval_accuracy; may be repeated",
    )
    parser.add_argument(
        "--format",
        metavar="NAME",
        help=f"the log's format, where it is not recognised: {', '.join(r.name for r in READERS)}",
    )


def mapping(pairs: list[str]) -> dict[str, str]:
    """`--map ours=theirs` as a dictionary."""
    found: dict[str, str] = {}
    for pair in pairs:
        ours, equals, theirs = (part.strip() for part in pair.partition("="))
        if not (equals and ours and theirs):
            raise RunError(f"--map {pair}: write it as OURS=THEIRS, e.g. --map reward/mean=train/score")
        if ours in found:
            raise RunError(f"--map {pair}: {ours} is mapped to {found[ours]!r} already")
        found[ours] = theirs
    return found
