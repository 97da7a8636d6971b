"""Keeps GRPO/PPO training of language models stable: trains, watches, explains and repairs runs.

    import stabilizer

    answer = stabilizer.diagnose("path/to/log")
    print(answer.verdict, [incident.summary for incident in answer.incidents])

Importing this package is cheap and never imports torch. `Session` and `load_config` need the extra `train`.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stabilizer.core.version import __version__

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from stabilizer.analysis.analyse import Analysis
    from stabilizer.compare import Comparison
    from stabilizer.guests.own_loop import GuestRun
    from stabilizer.live.session import Session
    from stabilizer.output.embedded import Embedded
    from stabilizer.preflight.check import Preflight
    from stabilizer.runs.loaded import LoadedRun
    from stabilizer.training.config import load_config

__all__ = [
    "Session", "__version__", "attach", "changed_arguments", "check_config", "compare_runs", "diagnose", "init", "load",
    "load_config", "plot", "report", "show",
]  # fmt: skip

_FROM_TRAINING = {"Session": "stabilizer.live.session", "load_config": "stabilizer.training.config"}
"""Names that need torch, and the module each comes from."""


def load(
    path: str | PathLike[str],
    *,
    format: str | None = None,
    mapping: Mapping[str, str] | None = None,
    config: str | PathLike[str] | None = None,
) -> LoadedRun:
    """Read a run directory or a log of any known format.

    `mapping` says which of the log's names is which of our metrics (ours -> theirs). `config` is the trainer's
    configuration where the log does not hold it. An unreadable path raises `RunError`, which says what to do.
    """
    from stabilizer.trainers.reading import load

    return load(Path(path), format=format, mapping=mapping, config=Path(config) if config else None)


def diagnose(run: str | PathLike[str] | LoadedRun, **options: Any) -> Analysis:
    """Say what went wrong in a run, when it began, why, and what to change. `options` as for `load`."""
    from stabilizer.analysis.analyse import analyse

    return analyse(load(run, **options) if isinstance(run, (str, PathLike)) else run)


def check_config(path: str | PathLike[str], **options: Any) -> Preflight:
    """Judge a trainer's configuration before the first step. `options`: trainer, version, processes, gpus, ..."""
    from stabilizer.preflight.check import Options, preflight

    return preflight(Path(path), Options(**options))


def compare_runs(run: str | PathLike[str], reference: str | PathLike[str]) -> Comparison:
    """Compare a run with a reference: measure the gaps, explain them, and name one change to try.

    Either may be several paths separated by commas: seeds of one configuration.
    """
    from stabilizer.compare import compare
    from stabilizer.compare.sides import read_side

    return compare(read_side(str(run)), read_side(str(reference)))


def report(run: str | PathLike[str] | LoadedRun, out: str | PathLike[str]) -> Path:
    """Write one self-contained page about a run; the suffix (.html or .md) says which form."""
    from stabilizer.output.report import write

    return write(diagnose(run), Path(out))


def plot(run: str | PathLike[str] | LoadedRun | Analysis, *metrics: str, smooth: int = 0) -> Figure:
    """Draw metrics of a run over its steps, as a plotly figure; the reward where none is named.

    Metrics of one chart share an axis. Given an analysis (what `diagnose` returns), incidents are shaded. `smooth` is
    the number of steps of a running mean.
    """
    from stabilizer.analysis.analyse import Analysis
    from stabilizer.figures.plot import plot

    if isinstance(run, Analysis):
        return plot(run.run, metrics, run.findings, smooth)
    return plot(load(run) if isinstance(run, (str, PathLike)) else run, metrics, smooth=smooth)


def show(run: str | PathLike[str] | LoadedRun | Analysis, height: int = 900) -> Embedded:
    """Show the report of a run in a notebook: the last line of a cell is enough."""
    from stabilizer.analysis.analyse import Analysis
    from stabilizer.output.embedded import Embedded
    from stabilizer.output.report import html

    return Embedded(html(run if isinstance(run, Analysis) else diagnose(run)), height)


def init(name: str = "run", **options: Any) -> GuestRun:
    """Begin to monitor a training loop of your own: then `run.log(metrics, step)` once a step.

    Options: runs (folder), config, remedy ("off" or "suggest"), steps, names (the loop's name -> ours), sinks
    (tools that get a live copy, such as "tensorboard").
    """
    from stabilizer.guests.own_loop import init as begin

    return begin(name, **options)


def attach(trainer: Any, **options: Any) -> GuestRun | None:
    """Monitor a trainer of TRL; call it before `trainer.train()`. Options: runs (folder), remedy, name,
    sinks.

    None in every process but the main one.
    """
    from stabilizer.guests.attach import attach

    return attach(trainer, **options)


def changed_arguments() -> dict[str, Any]:
    """Arguments that a restart by `stabilizer supervise` changed: `GRPOConfig(**settings | changed_arguments())`."""
    from stabilizer.live.announced import changed_arguments

    return changed_arguments()


def __getattr__(name: str) -> Any:
    if name not in _FROM_TRAINING:
        raise AttributeError(f"module 'stabilizer' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_FROM_TRAINING[name]), name)
