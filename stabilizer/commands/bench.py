"""`stabilizer bench`: measure this checkout. Benchmarks are part of the source tree and not of the wheel."""

from __future__ import annotations

import argparse
import importlib.util

from stabilizer.cli import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the benchmarks, where they are present."""
    if _present():
        from bench import command  # not part of the wheel

        command.add_arguments(parser)
    else:
        parser.add_argument("which", nargs="*", help="needs a source checkout")


def run(args: argparse.Namespace) -> int:
    """Measure, or say where the benchmarks are."""
    if not _present():
        raise UsageError("the benchmarks are not part of an installation; clone the repository and run it there")
    from bench import command  # not part of the wheel

    return command.run(args)


def _present() -> bool:
    spec = importlib.util.find_spec("bench")
    return bool(spec and spec.submodule_search_locations and importlib.util.find_spec("bench.rescue"))
