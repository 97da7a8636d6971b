"""Arguments of the verbs that read a log or judge one."""

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
        help="the trainer's configuration (YAML, JSON, TOML), or its launch script",
    )
    add_map_argument(parser)
    parser.add_argument(
        "--format",
        metavar="NAME",
        help=f"the log's format, if it is not recognised: {', '.join(r.name for r in READERS)}",
    )


def add_map_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option `--map`."""
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="OURS=THEIRS",
        help="read the metric THEIRS of a log as OURS, e.g. accuracy/val=eval_accuracy; may be repeated",
    )


def add_fail_on_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option `--fail-on`."""
    parser.add_argument(
        "--fail-on",
        choices=("info", "warn", "critical", "never"),
        default="warn",
        help="lowest verdict that makes the exit code 1 (default: warn)",
    )


def mapping(pairs: list[str]) -> dict[str, str]:
    """`--map ours=theirs` as a dictionary."""
    found: dict[str, str] = {}
    for pair in pairs:
        ours, equals, theirs = (part.strip() for part in pair.partition("="))
        if not (equals and ours and theirs):
            raise RunError(f"--map {pair}: write it as OURS=THEIRS, e.g. --map reward/mean=train/score")
        if ours in found:
            raise RunError(f"--map {pair}: {ours} is already mapped to {found[ours]!r}")
        found[ours] = theirs
    return found
