"""What several verbs share and that imports nothing heavy."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path


def need_train_extra() -> None:
    """Raise ImportError with the command to run when the trainer's packages are missing."""
    absent = [name for name in ("torch", "transformers", "safetensors", "jsonargparse") if find_spec(name) is None]
    if absent:
        raise ImportError(
            f"training requires {', '.join(absent)}: run `pip install '.[train]'` in the project folder"
            " (diagnose, report and dashboard work without it)"
        )


def add_runs_argument(parser: argparse.ArgumentParser) -> None:
    """Add the folder of runs as a positional argument."""
    parser.add_argument(
        "runs", nargs="?", type=Path, default=Path("runs"), metavar="DIR", help="folder of runs (default: runs)"
    )


def runs_folder(args: argparse.Namespace) -> Path:
    """The folder of runs; ValueError where there is none."""
    folder: Path = args.runs
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; give a folder of runs (`stabilizer demo` creates one)")
    return folder
