"""`stabilizer bench`: measure this checkout. The wheel does not contain the benchmarks."""

from __future__ import annotations

import argparse
import importlib.util

from stabilizer.cli import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the benchmarks, if they are installed."""
    if _present():
        from bench import command  # not part of the wheel

        command.add_arguments(parser)
    else:
        parser.add_argument("which", nargs="*", help="(requires a source checkout)")


def run(args: argparse.Namespace) -> int:
    """Measure, or say where to get the benchmarks."""
    if not _present():
        raise UsageError("the installed package has no benchmarks; run `stabilizer bench` in a clone of the repository")
    from bench import command  # not part of the wheel

    return int(command.run(args))


def _present() -> bool:
    spec = importlib.util.find_spec("bench")
    return bool(spec and spec.submodule_search_locations and importlib.util.find_spec("bench.rescue"))
