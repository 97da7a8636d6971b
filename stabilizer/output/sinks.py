"""Where a run can be copied while it trains: one class a tool, each given rows and incidents in their order.

A sink may raise or hang: `live.mirror` calls it in a thread of its own and comes back to it later. It may get a row
twice after that, with the same step.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import orjson

from stabilizer.core.records import Finding, as_json
from stabilizer.output.event_file import EventFile
from stabilizer.output.trackers import in_mlflow

PROMETHEUS_PORT = 9464
"""As exporters of OpenTelemetry use."""
LOOPBACK = "127.0.0.1"
LONGEST_TITLE = 60
"""Characters of a title; W&B takes fewer than 64."""
LONGEST_TAG = 4_000
"""Characters of a tag; MLflow takes 5,000."""


@dataclass(frozen=True)
class Place:
    """What a sink is made for: a run, and the part of `--to` behind the colon."""

    run: str
    folder: Path
    """A folder inside the run directory that is the sink's own."""
    config: Mapping[str, Any]
    """The run's settings by dotted keys, without secrets."""
    where: str = ""

    def target(self, default: str) -> Path:
        """The file or folder to write: the one asked for, else one in the sink's own folder."""
        path = Path(self.where) if self.where else self.folder / default
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class Sink(Protocol):
    """A tool that takes a run as it grows."""

    def row(self, step: int, t: float, values: Mapping[str, float]) -> None:
        """The numbers of a step."""

    def incident(self, finding: Finding) -> None:
        """A finding that opened or was resolved."""

    def close(self) -> None:
        """The run has ended, or the sink is made again."""


def words(finding: Finding) -> tuple[str, str]:
    """A finding as a title and a text."""
    title = f"{finding.severity}: {finding.id} {finding.state}"[:LONGEST_TITLE]
    return title, f"step {finding.last_step:,}, since step {finding.onset_step:,}: {finding.summary}"


class TensorBoard:
    """Event files; incidents and settings are on TensorBoard's text page."""

    def __init__(self, place: Place):
        folder = place.target("tensorboard")
        folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        self._file = EventFile(folder, now)
        self._file.settings(place.config, now)

    def row(self, step: int, t: float, values: Mapping[str, float]) -> None:
        self._file.row(step, t, values)

    def incident(self, finding: Finding) -> None:
        title, text = words(finding)
        self._file.text(finding.last_step, time.time(), "incidents", f"**{title}**\n\n{text}")

    def close(self) -> None:
        self._file.close()


class JsonLines:
    """One object a line: rows with `step`, `t` and `metrics`, incidents with `finding`."""

    def __init__(self, place: Place):
        self._file = place.target("rows.jsonl").open("ab")

    def row(self, step: int, t: float, values: Mapping[str, float]) -> None:
        self._write({"kind": "row", "step": step, "t": t, "metrics": values})

    def incident(self, finding: Finding) -> None:
        self._write({"kind": "incident", "step": finding.last_step, "finding": as_json(finding)})

    def _write(self, record: Mapping[str, Any]) -> None:
        self._file.write(orjson.dumps(record) + b"\n")  # NaN and infinity become null
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class Wandb:
    """A run of W&B, as its environment says (`WANDB_MODE`, `WANDB_PROJECT`); incidents are alerts."""

    def __init__(self, place: Place):
        wandb: Any = importlib.import_module("wandb")
        project = place.where or os.environ.get("WANDB_PROJECT", "stabilizer")
        settings = wandb.Settings(console="off", x_disable_stats=True)
        self._run = wandb.init(
            project=project, name=place.run, id=place.run, resume="allow", config=dict(place.config),
            dir=str(place.folder), settings=settings, reinit="create_new",
        )  # fmt: skip
        self._run.define_metric("*", step_metric="train/global_step")

    def row(self, step: int, t: float, values: Mapping[str, float]) -> None:
        self._run.log({**values, "train/global_step": step})

    def incident(self, finding: Finding) -> None:
        title, text = words(finding)
        level = {"critical": "ERROR", "warn": "WARN"}.get(finding.severity, "INFO")
        self._run.alert(title=title, text=text, level=level)

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """A run of MLflow at `MLFLOW_TRACKING_URI`, or in a database of the run directory; incidents are tags."""

    def __init__(self, place: Place):
        from mlflow import entities
        from mlflow.tracking import MlflowClient

        self._entities = entities
        store = f"sqlite:///{(place.folder / 'mlflow.db').absolute()}"
        self._client = MlflowClient(tracking_uri=place.where or os.environ.get("MLFLOW_TRACKING_URI") or store)
        begun = place.folder / "run_id"
        if begun.exists():
            self._id = begun.read_text()
            return
        found = self._client.get_experiment_by_name("stabilizer")
        experiment = found.experiment_id if found else self._client.create_experiment("stabilizer")
        self._id = self._client.create_run(experiment, run_name=place.run).info.run_id
        begun.write_text(self._id)
        keys = in_mlflow(place.config)
        params = [entities.Param(keys[key], str(value)[:500]) for key, value in place.config.items()]
        for first in range(0, len(params), 100):
            self._client.log_batch(self._id, params=params[first : first + 100])

    def row(self, step: int, t: float, values: Mapping[str, float]) -> None:
        names = in_mlflow(values)
        numbers = [self._entities.Metric(names[name], value, int(1000 * t), step) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=numbers)

    def incident(self, finding: Finding) -> None:
        title, text = words(finding)
        key = f"incident.{finding.incident}.{finding.id.replace('/', '.')}"
        self._client.set_tag(self._id, key, f"{title}: {text}"[:LONGEST_TAG])

    def close(self) -> None:
        self._client.set_terminated(self._id)


class Trackio:
    """A run of trackio; incidents are alerts."""

    def __init__(self, place: Place):
        self._tool: Any = importlib.import_module("trackio")
        self._tool.init(
            project=place.where or "stabilizer", name=place.run, config=dict(place.config), embed=False,
            auto_log_cpu=False, auto_log_gpu=False, resume="allow",
        )  # fmt: skip

    def row(self, step: int, t: float, values: Mapping[str, float]) -> None:
        self._tool.log(dict(values), step=step)

    def incident(self, finding: Finding) -> None:
        title, text = words(finding)
        levels = self._tool.AlertLevel
        level = {"critical": levels.ERROR, "warn": levels.WARN}.get(finding.severity, levels.INFO)
        self._tool.alert(title=title, text=text, level=level)

    def close(self) -> None:
        self._tool.finish()


class SwanLab:
    """A run of SwanLab, as `SWANLAB_MODE` says (`offline`); incidents are texts."""

    def __init__(self, place: Place):
        self._tool: Any = importlib.import_module("swanlab")
        self._tool.init(
            project=place.where or "stabilizer", experiment_name=place.run, config=dict(place.config),
            logdir=str(place.folder), mode=os.environ.get("SWANLAB_MODE", "offline"),
        )  # fmt: skip

    def row(self, step: int, t: float, values: Mapping[str, float]) -> None:
        self._tool.log(dict(values), step=step)

    def incident(self, finding: Finding) -> None:
        title, text = words(finding)
        self._tool.log({"incidents": self._tool.Text(f"{title}: {text}")}, step=finding.last_step)

    def close(self) -> None:
        self._tool.finish()


class Prometheus:
    """The newest numbers for Prometheus to fetch, on this machine alone; incidents are a count of what is open."""

    def __init__(self, place: Place):
        from prometheus_client import CollectorRegistry, Gauge, start_http_server

        registry = CollectorRegistry()
        self._metric = Gauge("stabilizer_metric", "newest value of a metric", ["run", "metric"], registry=registry)
        self._step = Gauge("stabilizer_step", "newest step", ["run"], registry=registry)
        self._open = Gauge("stabilizer_open_findings", "open findings", ["run", "severity"], registry=registry)
        self._run = place.run
        self._unresolved: dict[tuple[int, str], str] = {}
        port = int(place.where or PROMETHEUS_PORT)
        self._server, self._thread = start_http_server(port, addr=LOOPBACK, registry=registry)

    def row(self, step: int, t: float, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._metric.labels(self._run, name).set(value)
        self._step.labels(self._run).set(step)

    def incident(self, finding: Finding) -> None:
        key = (finding.incident, finding.id)
        if finding.state == "resolved":
            self._unresolved.pop(key, None)
        else:
            self._unresolved[key] = finding.severity
        for severity in ("warn", "critical"):
            count = sum(known == severity for known in self._unresolved.values())
            self._open.labels(self._run, severity).set(count)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass(frozen=True)
class Kind:
    """A tool by its name in `--to`."""

    make: Callable[[Place], Sink]
    needs: str = ""
    """The package that must be installed."""
    where: str = ""
    """What may follow the colon."""


KINDS: dict[str, Kind] = {
    "tensorboard": Kind(TensorBoard, where="FOLDER"),
    "jsonl": Kind(JsonLines, where="FILE"),
    "wandb": Kind(Wandb, "wandb", "PROJECT"),
    "mlflow": Kind(MLflow, "mlflow", "URI"),
    "trackio": Kind(Trackio, "trackio", "PROJECT"),
    "swanlab": Kind(SwanLab, "swanlab", "PROJECT"),
    "prometheus": Kind(Prometheus, "prometheus_client", "PORT"),
}


def chosen(asked: str) -> tuple[str, Kind, str]:
    """The tool that `NAME[:WHERE]` asks for; ValueError or ImportError says what is wrong with it."""
    name, _, where = asked.partition(":")
    if name not in KINDS:
        forms = ", ".join(f"{known}[:{kind.where}]" for known, kind in KINDS.items())
        raise ValueError(f"no place {asked!r} to copy a run to; there are {forms}")
    if name == "prometheus" and where and not (where.isdigit() and 0 < int(where) < 65536):
        raise ValueError(f"prometheus:{where}: the port is a number from 1 to 65535")
    kind = KINDS[name]
    if kind.needs and find_spec(kind.needs) is None:
        package = kind.needs.replace("_", "-")
        raise ImportError(f"{name} needs {package}: pip install {package}")
    return name, kind, where
