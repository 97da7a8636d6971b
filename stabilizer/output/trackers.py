"""A run's metrics as other tools keep them, in a folder of one's own: nothing is sent anywhere.

TensorBoard's event file is written here; W&B, MLflow and trackio are asked to write their own, offline, so that what
lies there is what their release expects. To send it to a server, use the tool itself afterwards.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from stabilizer.core.settings import flat
from stabilizer.output.event_file import EventFile
from stabilizer.runs.history import RunView
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.secrets import redacted
from stabilizer.runs.story import summary

BATCH = 900
"""Numbers handed to MLflow at once; it takes 1,000."""
LONGEST = 5_000
"""Characters of a parameter that MLflow keeps; it refuses more than 6,000."""


@dataclass(frozen=True)
class Row:
    """What was logged at a step, and when, in seconds since the epoch."""

    step: int
    t: float
    values: Mapping[str, float]


@dataclass(frozen=True)
class Tracker:
    """A tool that keeps runs. `write` puts one into a folder; `look` is how to see it there."""

    what: str
    write: Callable[[str, list[Row], dict[str, Any], Path], None]
    look: str
    needs: str = ""
    """What must be installed for it."""


def rows_of(view: RunView) -> list[Row]:
    """A run, step by step. A step without a time counts as one second after the one before."""
    by_step: dict[int, dict[str, float]] = {}
    for name in view.names():
        series = view.series(name)
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            by_step.setdefault(step, {})[name] = value
    times = view.times()
    when = dict(zip(times.steps.tolist(), times.values.tolist(), strict=True))
    steps = sorted(by_step)
    begun = min(when.values(), default=time.time() - len(steps))
    rows: list[Row] = []
    for step in steps:
        t = when.get(step) or (rows[-1].t + 1 if rows else begun)
        rows.append(Row(step, t, by_step[step]))
    return rows


def export(run: LoadedRun, to: str, out: Path) -> int:
    """Write a run's metrics and configuration for a tool of `TRACKERS`, whole or not at all; returns the number of
    steps. Values of keys that look like secrets are left out, as in a run directory."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out}: there already, and no empty folder; name another with -o")
    view = run.history.view()
    rows = rows_of(view)
    if not rows:
        raise ValueError(f"{run.name}: no metrics in it, so there is nothing to export")
    tracker, made = TRACKERS[to], not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # a tool's own messages must not mix with --json
            tracker.write(run.name, rows, settings(run), out)
    except BaseException as error:
        _empty(out, remove=made)
        if tracker.needs and isinstance(error, (TypeError, AttributeError)):
            version = getattr(sys.modules.get(tracker.needs), "__version__", "of unknown version")
            raise ValueError(
                f"{tracker.needs} {version} does not know what it is asked for ({error}):"
                f" pip install --upgrade {tracker.needs}"
            ) from error
        raise
    return len(rows)


def _empty(folder: Path, *, remove: bool) -> None:
    """Take away what a failed export left."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if remove:
        folder.rmdir()


def settings(run: LoadedRun) -> dict[str, Any]:
    """A run's configuration by dotted keys, and that it is no plain run of it where it was changed while it trained."""
    made = summary(run.actions)
    settings = flat(redacted(run.history.view().about("config") or {}))
    return settings | ({"stabilizer.interventions": made["text"]} if made["count"] else {})


def _tool(name: str) -> ModuleType:
    try:
        tool = importlib.import_module(name)
        if getattr(tool, "__file__", None) is None:  # a folder that happens to be called so, as W&B's own is
            raise ImportError(f"no module of that name, only a folder: {list(tool.__path__)}")
    except ImportError as error:
        raise ImportError(f"--to {name} needs {name} to write its own format: pip install {name} ({error})") from None
    return tool


@contextlib.contextmanager
def _environment(**values: str | None) -> Iterator[None]:
    """A while in which some variables are as the tool must find them; None for those it must not find."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


# --- TensorBoard ----------------------------------------------------------------------------------------------------


def _tensorboard(name: str, rows: list[Row], config: dict[str, Any], out: Path) -> None:
    with EventFile(out, rows[0].t) as file:
        file.settings(config, rows[0].t)
        for row in rows:
            file.row(row.step, row.t, row.values)


# --- tools that write their own -------------------------------------------------------------------------------------


def _wandb(name: str, rows: list[Row], config: dict[str, Any], out: Path) -> None:
    wandb = _tool("wandb")
    apart = dict.fromkeys(("WANDB_RUN_ID", "WANDB_RESUME", "WANDB_SWEEP_ID"))  # else it would be taken for another run
    with _environment(WANDB_MODE="offline", WANDB_SILENT="true", **apart):
        of_the_run_alone = wandb.Settings(
            console="off", x_disable_stats=True, x_disable_meta=True, x_save_requirements=False
        )
        run = wandb.init(
            project="stabilizer",
            name=name,
            config=config,
            dir=str(out),
            mode="offline",
            settings=of_the_run_alone,
        )
        for row in rows:
            run.log({**row.values, "train/global_step": row.step, "_timestamp": row.t}, step=row.step)
        run.finish()


def _mlflow(name: str, rows: list[Row], config: dict[str, Any], out: Path) -> None:
    entities, tracking = _tool("mlflow").entities, _tool("mlflow.tracking")
    client = tracking.MlflowClient(tracking_uri=f"sqlite:///{out.absolute() / 'mlflow.db'}")
    experiment = client.create_experiment("stabilizer", artifact_location=(out.absolute() / "artifacts").as_uri())
    run = client.create_run(experiment, start_time=int(1000 * rows[0].t), run_name=name).info.run_id
    keys = in_mlflow(config)
    params = [entities.Param(keys[key], str(value)[:LONGEST]) for key, value in config.items()]
    names = in_mlflow({name: None for row in rows for name in row.values})
    numbers = [
        entities.Metric(names[metric], value, int(1000 * row.t), row.step)
        for row in rows
        for metric, value in row.values.items()
    ]
    for first in range(0, len(params), 100):
        client.log_batch(run, params=params[first : first + 100])
    for first in range(0, len(numbers), BATCH):
        client.log_batch(run, metrics=numbers[first : first + BATCH])
    client.set_terminated(run, end_time=int(1000 * rows[-1].t))


def in_mlflow(names: Iterable[str]) -> dict[str, str]:
    """Each name as MLflow takes it, no two alike: letters, digits and `_-. /`, in a path without detours. `@` becomes
    `_at_`, as trainers have it."""
    taken: dict[str, str] = {}
    used: set[str] = set()
    for name in names:
        plain = re.sub(r"[^\w\-. /]", "_", name.replace("@", "_at_"))
        plain = "/".join(part for part in plain[:200].split("/") if part.strip(". ")) or "_"
        other, count = plain, 1
        while other in used:
            other, count = f"{plain}_{count + 1}", count + 1
        taken[name] = other
        used.add(other)
    return taken


def _trackio(name: str, rows: list[Row], config: dict[str, Any], out: Path) -> None:
    servers = ("SPACE_ID", "SERVER_URL", "DATASET_ID", "BUCKET_ID", "WEBHOOK_URL")
    nowhere = dict.fromkeys(f"TRACKIO_{server}" for server in servers)
    with _environment(TRACKIO_DIR=str(out.absolute()), **nowhere):
        trackio = _tool("trackio")  # which asks for its folder as soon as it is imported
        trackio.init(
            project="stabilizer", name=name, config=config, embed=False, auto_log_cpu=False, auto_log_gpu=False
        )
        for row in rows:
            trackio.log(dict(row.values), step=row.step)
        trackio.finish()


TRACKERS: dict[str, Tracker] = {
    "tensorboard": Tracker("an event file for TensorBoard", _tensorboard, "tensorboard --logdir {out}"),
    "wandb": Tracker("an offline run of W&B", _wandb, "wandb sync {out}/wandb/offline-run-*", "wandb"),
    "mlflow": Tracker(
        "a database of MLflow", _mlflow, "mlflow ui --backend-store-uri sqlite:///{out}/mlflow.db", "mlflow"
    ),
    "trackio": Tracker(
        "a project of trackio", _trackio, "TRACKIO_DIR={out} trackio show --project stabilizer", "trackio"
    ),
}
"""Tools by the name that `--to` takes."""
