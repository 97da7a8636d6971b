"""`stabilizer diagnose PATH...`: what went wrong, when it began, why, and what to change.

Exit codes: 0 for a verdict below `--fail-on`, 1 at or above it or for a crash, 2 when a path could not be read; for
several paths the highest.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from stabilizer.analysis.analyse import Analysis, analyse, as_json
from stabilizer.cli import error_line
from stabilizer.commands import pasted
from stabilizer.commands.progress import progress
from stabilizer.commands.sources import add_fail_on_argument, add_source_arguments, mapping
from stabilizer.core.severity import reached
from stabilizer.output.screen import console
from stabilizer.output.terminal import show
from stabilizer.preflight.check import Preflight
from stabilizer.preflight.check import as_json as preflight_json
from stabilizer.runs.loaded import LoadedRun, NoMetrics
from stabilizer.runs.reader import RunError
from stabilizer.trainers.reading import load

STDIN = Path("-")
"""The path that means standard input."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    add_source_arguments(parser)
    parser.add_argument(
        "path", nargs="+", type=Path,
        help="a run directory, a log, or the folder that holds it; - for text on standard input: a pasted log,"
        " traceback, table or configuration",
    )  # fmt: skip
    parser.add_argument(
        "--full",
        "--all",
        dest="all",
        action="store_true",
        help="all incidents with all their findings and fixes, and each check that lacks a metric",
    )
    add_fail_on_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Analyse every path and print the results."""
    wanted = mapping(args.map)
    if args.path == [STDIN]:
        return pasted.answer(args, lambda path: _answer(path, args, wanted), lambda run: _answer_run(run, args))
    if len(args.path) == 1:
        return _answer(args.path[0], args, wanted)
    answers: list[Analysis | dict[str, Any]] = []
    code = 0
    for path in args.path:
        try:
            analysis = _analysis(path, args, wanted)
        except (ValueError, OSError) as error:
            if args.debug:
                raise
            print(error_line("diagnose", error), file=sys.stderr)
            answers.append({"error": str(error), "path": str(path)})
            code = 2
            continue
        answers.append(analysis)
        code = max(code, int(reached(analysis.verdict, args.fail_on)))
    _show(answers, args)
    return code


def _answer(path: Path, args: argparse.Namespace, wanted: dict[str, str]) -> int:
    settings = pasted.settings_in(path) if args.path == [STDIN] else None
    if settings and not args.config:
        with suppress(RunError):  # a log that does not take these settings is read without them
            return _answer_with(path, args, wanted, settings, pasted.saved(settings, path.parent))
    return _answer_with(path, args, wanted, settings, args.config)


def _answer_with(
    path: Path, args: argparse.Namespace, wanted: dict[str, str], settings: Preflight | None, config: Path | None
) -> int:
    analysis = _analysis(path, args, wanted, config)
    told_nothing = analysis.verdict == "not-rl" and not analysis.findings
    if told_nothing and (settings or (args.path == [STDIN] and len(analysis.run.ticks) <= 1)):
        raise RunError("no log of a training")  # then the settings are judged alone, or the kind of text is named
    _show([analysis], args, pasted.not_refused(settings) if settings and analysis.run.ticks else settings)
    return int(reached(analysis.verdict, args.fail_on))


def _answer_run(run: LoadedRun, args: argparse.Namespace) -> int:
    analysis = analyse(pasted.renamed(run))
    _show([analysis], args)
    return int(reached(analysis.verdict, args.fail_on))


def _analysis(path: Path, args: argparse.Namespace, wanted: dict[str, str], config: Path | None = None) -> Analysis:
    with progress(f"reading {path}") as say:
        try:
            run = load(path, format=args.format, mapping=wanted, config=config or args.config)
        except NoMetrics as error:  # training failed before its first metric: that is a result too
            run = error.run
        if path.stem == pasted.NAME and args.path == [STDIN]:
            run = pasted.renamed(run)
        return analyse(run, told=lambda row, rows: say(f"judging row {row:,} of {rows:,}: {path}"))


def _show(
    answers: list[Analysis | dict[str, Any]], args: argparse.Namespace, settings: Preflight | None = None
) -> None:
    """Print the answers; `settings` are those that were pasted with the only one."""
    if args.json:
        objects = [as_json(answer) if isinstance(answer, Analysis) else answer for answer in answers]
        objects[0] |= {"settings": preflight_json(settings)} if settings else {}
        print(json.dumps(objects if len(args.path) > 1 else objects[0], indent=2, allow_nan=False))
        return
    out = console()
    for place, answer in enumerate(answer for answer in answers if isinstance(answer, Analysis)):
        if place:
            out.rule(style="dim")
        show(answer, out, everything=args.all, settings=settings)
