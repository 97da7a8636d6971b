"""`stabilizer train`: a run with detectors, remedies and, if wanted, the dashboard beside it."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from stabilizer.cli import UsageError
from stabilizer.commands.live_run import add_run_arguments, dashboard, follow
from stabilizer.commands.missing import need_train_extra
from stabilizer.control.arbiter import MODES, Mode
from stabilizer.runs.identity import new_run_id
from stabilizer.runs.reader import read_json

if TYPE_CHECKING:
    from stabilizer.live.session import Session  # imports torch

FIXED_AT_START = {
    "config": "CONFIG", "task": "--task", "set": "--set", "variant": "--variant", "steps": "--steps", "seed": "--seed",
}  # fmt: skip
"""What a run is given when it starts and keeps: arguments that mean nothing beside `--resume`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.add_argument(
        "config", nargs="?", help="YAML file, or the name of a built-in task (addition, sorting, length, search)"
    )
    parser.add_argument("--task", help="built-in task; alone it is a full configuration")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change one key, e.g. optim.lr=1e-4"
    )
    parser.add_argument("--variant", help="a named set of changes, e.g. `unstable`: a run that breaks on purpose")
    parser.add_argument("--steps", type=int, help="outer iterations")
    parser.add_argument("--seed", type=int, help="seed of everything random")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with this run directory")
    add_run_arguments(parser)
    parser.set_defaults(remedy=None)  # a run that goes on keeps its mode unless told otherwise
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = key_reference()


def key_reference() -> str:
    """Every key of a configuration, for `--help`."""
    try:
        need_train_extra()
    except ImportError as error:
        return f"The keys of a configuration are listed here once the trainer is installed: {error}."
    from stabilizer.training.key_help import as_text  # imports torch

    return as_text(min(shutil.get_terminal_size().columns, 120) - 2)


def run(args: argparse.Namespace) -> int:
    """Start a run, or go on with one, and follow it to its end."""
    if args.fork < 0:
        raise UsageError(f"--fork {args.fork}: must be 0 (don't) or a number of steps")
    if args.resume:
        _check_resume(args)
    need_train_extra()
    _check_overrides(args.set)
    _check_something_to_train(args)
    console = Console(stderr=args.json, highlight=False)
    with _asked_to_end() as asked:
        session = _begun(args)
        path = session.writer.path.resolve()
        shown = dashboard(path.parent, path.name, args.port, console) if args.dashboard else contextlib.nullcontext()
        with shown:
            session.stop_reason = asked.get("by")
            return follow(session, console, json=args.json)


def _check_something_to_train(args: argparse.Namespace) -> None:
    overrides = [text.partition("=") for text in args.set]
    paths = [value.strip() for key, _, value in overrides if key.strip() == "data.path"]
    if not (args.config or args.task or args.variant or args.resume or any(paths)):
        raise UsageError(
            "what should be trained? Give a YAML file or a built-in task (addition, sorting, length or search), or"
            f" --set data.path=FILE for problems of your own{' (data.path is empty)' if paths else ''}"
        )


def _begun(args: argparse.Namespace) -> Session:
    """The run that was asked for, new or gone on with."""
    from stabilizer.live.session import Session  # imports torch
    from stabilizer.training.config import load_config

    if args.resume:
        return Session.resume(args.resume, args.remedy or _mode_of(args.resume), fork_steps=args.fork)
    config = load_config(
        args.config, overrides=args.set, task=args.task, variant=args.variant, steps=args.steps, seed=args.seed
    )
    path = args.runs / new_run_id(config.task)
    return Session.start(config, path, args.remedy or "suggest", fork_steps=args.fork)


@contextlib.contextmanager
def _asked_to_end() -> Iterator[dict[str, str]]:
    """While a run is set up SIGTERM is noted (`by`), and heeded as soon as there is a state to save. The run's own way
    of heeding it takes over while it trains."""
    asked: dict[str, str] = {}

    def note(number: int, frame: Any) -> None:
        asked["by"] = signal.Signals(number).name

    try:
        before = signal.signal(signal.SIGTERM, note)
    except ValueError:  # not the main thread: its owner handles signals
        yield asked
        return
    try:
        yield asked
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_overrides(overrides: list[str]) -> None:
    """A group of keys is no key: `--set optim=` would say nothing, and train with what it was meant to change."""
    from stabilizer.training.config import GROUPS, SCHEMA  # imports torch

    for text in overrides:
        group = text.partition("=")[0].strip()
        if group in GROUPS:
            first = next(key for key in SCHEMA if key.startswith(f"{group}."))
            raise UsageError(f"--set {text}: {group} is a group of keys; set one of them, e.g. --set {first}=...")


def _mode_of(run: Path) -> Mode:
    """What a run was allowed to do about incidents: one that was killed in `auto-full` goes on in it."""
    said = read_json(run / "status.json").get("remedy")
    return next((mode for mode in MODES if mode == said), "suggest")


def _check_resume(args: argparse.Namespace) -> None:
    ignored = [shown for name, shown in FIXED_AT_START.items() if getattr(args, name) not in (None, [])]
    if ignored:
        raise UsageError(
            f"--resume goes on with the configuration in {args.resume / 'run.json'}, so {', '.join(ignored)} can't be"
            f" given beside it; leave it out, or start a new run without --resume"
        )
