"""`stabilizer train`: a run with detectors, remedies and, if wanted, the dashboard."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from stabilizer.cli import UsageError
from stabilizer.commands.live_run import add_run_arguments, dashboard, follow
from stabilizer.commands.shared import need_train_extra
from stabilizer.control.engine import MODES, Mode
from stabilizer.runs.identity import new_run_id
from stabilizer.runs.reader import read_json

if TYPE_CHECKING:
    from stabilizer.live.session import Session  # imports torch
    from stabilizer.training.ranks import Ranks
    from stabilizer.training.settings import TrainConfig

FIXED_AT_START = {
    "config": "CONFIG",
    "task": "--task",
    "set": "--set",
    "variant": "--variant",
    "steps": "--steps",
    "seed": "--seed",
    "stage": "--stage",
}
"""Arguments that are fixed when a run starts, and so can't be combined with `--resume`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this verb."""
    parser.add_argument(
        "config", nargs="?", help="YAML file, or the name of a built-in task (addition, sorting, length, search)"
    )
    parser.add_argument("--task", help="built-in task, used with its default configuration")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set one configuration key, e.g. optim.lr=1e-4; may be repeated",
    )
    parser.add_argument("--variant", help="named set of changes, e.g. `unstable` for a run that breaks on purpose")
    parser.add_argument(
        "--stage", choices=("rl", "sft"), help="sft: supervised fine-tuning on demonstrations, as a start for rl"
    )
    parser.add_argument("--steps", type=int, help="number of training steps")
    parser.add_argument("--seed", type=int, help="random seed")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="resume this run")
    add_run_arguments(parser)
    parser.set_defaults(remedy=None)  # a resumed run keeps its mode unless --remedy is given
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = key_reference()


def key_reference() -> str:
    """Every key of a configuration, for `--help`."""
    try:
        need_train_extra()
    except ImportError as error:
        return f"The configuration keys are listed here once the trainer is installed: {error}."
    from stabilizer.training.key_help import as_text  # imports torch

    return as_text(min(shutil.get_terminal_size().columns, 120) - 2)


def run(args: argparse.Namespace) -> int:
    """Start or resume a run, and follow it to its end. Of several processes, the first one does it."""
    if not _launched_by_another():
        return _trained(args)
    need_train_extra()
    from stabilizer.live.rank_watch import RankWatch
    from stabilizer.training.loop import Trainer  # imports torch
    from stabilizer.training.ranks import follow as follow_lead
    from stabilizer.training.ranks import joined

    with joined() as ranks:
        if ranks.leads:
            return _led(args, ranks)
        watch = RankWatch(ranks.rank, ranks.size)

        def built(config: TrainConfig) -> Trainer:
            trainer = Trainer(config, checkpoints=Path(os.devnull), ranks=ranks)
            watch.follow(trainer)
            return trainer

        try:
            follow_lead(ranks, built, lambda: watch.heart.enter("paused"))
            watch.close()
        except (ValueError, OSError) as error:
            raise ValueError(f"rank {ranks.rank}: {error}") from error
        return 0


def _launched_by_another() -> bool:
    """Whether `torchrun` or a similar program started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ or os.environ.get("WORLD_SIZE", "1").strip() not in ("", "1")


def _led(args: argparse.Namespace, ranks: Ranks) -> int:
    """Train as the first of several processes. After a restart by the launcher, the run it had begun is resumed.

    A verdict is not an exit code here: the launcher restarts whatever fails, and a finished run has nothing to train.
    """
    from stabilizer.live.resuming import RunComplete  # imports torch

    earlier = ranks.remembered()
    if earlier is None:
        return _trained(args, ranks)
    given: dict[str, Any] = dict.fromkeys(FIXED_AT_START) | {"set": [], "resume": Path(earlier)}
    try:
        return _trained(argparse.Namespace(**(vars(args) | given)), ranks)
    except RunComplete as error:
        print(error, file=sys.stderr)
        return 0


def _trained(args: argparse.Namespace, ranks: Ranks | None = None) -> int:
    if args.fork < 0:
        raise UsageError(f"--fork {args.fork}: must be 0 (off) or a number of steps")
    if args.resume:
        _check_resume(args)
    need_train_extra()
    _check_overrides(args.set)
    _check_something_to_train(args)
    console = Console(stderr=args.json, highlight=False)
    with _asked_to_end() as asked:
        session = _begun(args, ranks)
        path = session.writer.path.resolve()
        if ranks is not None:
            ranks.remember(str(path))
        shown = dashboard(path.parent, path.name, args.port, console) if args.dashboard else contextlib.nullcontext()
        with shown:
            session.stop_reason = asked.get("by")
            return follow(session, console, json=args.json, judged=ranks is None)


def _check_something_to_train(args: argparse.Namespace) -> None:
    overrides = [text.partition("=") for text in args.set]
    paths = [value.strip() for key, _, value in overrides if key.strip() == "data.path"]
    if not (args.config or args.task or args.variant or args.resume or any(paths)):
        raise UsageError(
            "nothing to train: give a YAML file, a built-in task (addition, sorting, length or search), or"
            f" --set data.path=FILE for your own problems{' (data.path is empty)' if paths else ''}"
        )


def _begun(args: argparse.Namespace, ranks: Ranks | None) -> Session:
    """The new or resumed run."""
    from stabilizer.live.session import Session  # imports torch
    from stabilizer.training.config import load_config
    from stabilizer.training.ranks import ALONE

    ranks = ranks or ALONE
    if args.resume:
        return Session.resume(args.resume, args.remedy or _mode_of(args.resume), fork_steps=args.fork, ranks=ranks)
    config = load_config(
        args.config,
        overrides=args.set,
        task=args.task,
        variant=args.variant,
        steps=args.steps,
        seed=args.seed,
        stage=args.stage,
    )
    path = args.runs / new_run_id(config.task)
    return Session.start(config, path, args.remedy or "suggest", fork_steps=args.fork, ranks=ranks)


@contextlib.contextmanager
def _asked_to_end() -> Iterator[dict[str, str]]:
    """Note a SIGTERM (as `by`) while the run is set up, so that it ends as soon as there is a state to save.

    While the run trains, it handles the signal itself.
    """
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
    """Refuse `--set optim=`: a group of keys can't be set, and would be ignored."""
    from stabilizer.training.config import GROUPS, SCHEMA  # imports torch

    for text in overrides:
        group = text.partition("=")[0].strip()
        if group in GROUPS:
            first = next(key for key in SCHEMA if key.startswith(f"{group}."))
            raise UsageError(f"--set {text}: {group} is a group of keys; set one of them, e.g. --set {first}=...")


def _mode_of(run: Path) -> Mode:
    """The remedy mode of a run that is resumed without `--remedy`."""
    stored = read_json(run / "status.json").get("remedy")
    return next((mode for mode in MODES if mode == stored), "suggest")


def _check_resume(args: argparse.Namespace) -> None:
    ignored = [shown for name, shown in FIXED_AT_START.items() if getattr(args, name) not in (None, [])]
    if ignored:
        raise UsageError(
            f"--resume uses the configuration in {args.resume / 'run.json'}, so {', '.join(ignored)} can't be"
            f" given with it; leave it out, or start a new run without --resume"
        )
