"""Listing runs: 1,000 run directories of 10,000 steps each, as the dashboard and its page of all runs show them.

The small files are a run's own; the metrics of one run stand in all of them (hard links), which costs the disk little
and a reader, if it opened them, as much as different ones would.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from stabilizer.runs.trend import KEY_METRICS
from stabilizer.runs.writer import RunWriter

METRICS = (*KEY_METRICS, *(f"trl/metric_{number}" for number in range(33)))
RUNNING = 10
"""Runs that go on while the list is looked at."""


def measure(*, seed: int = 0, quick: bool = False) -> list[dict[str, Any]]:
    """Milliseconds for the list, cold and warm, and for the page that shows it."""
    from dashboards.app import build
    from dashboards.data.run_registry import Runs

    runs, steps = (100, 300) if quick else (1_000, 10_000)
    with tempfile.TemporaryDirectory() as folder:
        paths = make(Path(folder), runs, steps, seed)
        opened = _Opened(folder)
        known: list[Runs] = []

        def cold() -> None:
            known.append(Runs([Path(folder)]))
            assert len(known[-1].lines()) == runs

        app = build([Path(folder)])
        http = app.server.test_client()
        pages = _Page(app, http)
        pages.open()
        rows = [
            ("list of runs, cold", _times(cold, 3), 2000.0),
            ("list of runs, warm", _times(lambda: known[-1].lines(), 10), 300.0),
            ("first page of it, opened", _times(pages.open, 5), None),
            ("... a poll with nothing new", _times(pages.poll, 10), None),
        ]
        polls = []
        for turn in range(10):
            for path in paths[:RUNNING]:
                _advance(path, steps + turn)
            polls += _times(pages.poll, 1)
        rows.append((f"... a poll with {RUNNING} runs a step on", polls, None))
        rows.append(("... sorted by another column", _times(pages.sort, 6), None))
        seeds = _times(lambda: pages.poll(group="seeds"), 3)
        rows.append(("... seeds grouped", seeds, None))
        table = [
            {"what": what, "runs": runs, "steps": steps, "median ms": statistics.median(wall for wall, _ in times),
             "slowest ms": max(wall for wall, _ in times), "cpu ms": statistics.median(cpu for _, cpu in times),
             "at most ms": target, "metric files opened": opened.count}
            for what, times, target in rows
        ]  # fmt: skip
        opened.stop()
    return table


def make(folder: Path, runs: int, steps: int, seed: int = 0) -> list[Path]:
    """Runs as a writer leaves them: one that was written, and others of its kind."""
    rng = np.random.default_rng(seed)
    pattern = folder / "run-0000"
    writer = RunWriter.create(pattern, config=_config(0), task="task-0", steps=2 * steps, argv=[])
    for step in range(1, steps + 1):
        writer.metrics(step, dict(zip(METRICS, rng.random(len(METRICS)).tolist(), strict=True)))
    writer.status("running", steps, force=True)
    writer.summary(verdict="healthy", worst=None, force=True)
    writer.close()
    about, status, summary = (orjson.loads((pattern / name).read_bytes()) for name in _SMALL)
    paths = [pattern]
    for number in range(1, runs):
        path = folder / f"run-{number:04}"
        (path / "metrics").mkdir(parents=True)
        os.link(pattern / "metrics" / "r0-a0.jsonl", path / "metrics" / "r0-a0.jsonl")
        mine = {**about, "run": path.name, "task": f"task-{number % 4}", "config": _config(number)}
        state = "running" if number < RUNNING else ("finished", "failed", "stopped")[number % 3]
        for name, value in zip(_SMALL, (mine, {**status, "state": state}, summary), strict=True):
            (path / name).write_bytes(orjson.dumps(value))
        paths.append(path)
    return paths


_SMALL = ("run.json", "status.json", "summary.json")


def _config(number: int) -> dict[str, Any]:
    fixed = {f"setting_{place}": place for place in range(50)}
    return {"seed": number % 4, "optim": {"lr": 1e-6 * (1 + number // 4 % 10), **fixed}, "policy": {"beta": 0.001}}


def _advance(path: Path, step: int) -> None:
    status = orjson.loads((path / "status.json").read_bytes())
    temporary = path / ".status"
    temporary.write_bytes(orjson.dumps({**status, "step": step, "t": time.time()}))
    temporary.replace(path / "status.json")


class _Opened:
    """Counts files of metrics that are opened below a folder."""

    def __init__(self, folder: str):
        self.count, self._folder = 0, folder
        sys.addaudithook(self._hook)

    def stop(self) -> None:
        """Count no more; an audit hook can't be taken away."""
        self._folder = ""

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if self._folder and event == "open" and isinstance(args[0], (str, os.PathLike)):
            name = os.fspath(args[0])
            self.count += isinstance(name, str) and name.startswith(self._folder) and f"{os.sep}metrics{os.sep}" in name


class _Page:
    """The page of all runs, asked as a browser asks it."""

    def __init__(self, app: Any, http: Any):
        self._app, self._http = app, http
        self._key = next(key for key in app.callback_map if "runs-rows.children" in key)
        self._view: dict[str, Any] = {}
        self._seen: Any = None
        self._clicks = 0

    def open(self) -> None:
        """Open the page anew."""
        answer = self._call("page", next(key for key in self._app.callback_map if "page.children" in key), {
            "url.pathname": "/", "url.search": "", "scheme.data": "light",
        })  # fmt: skip
        parts = {part["props"].get("id"): part["props"] for part in _parts(answer["page"]["children"])}
        self._view, self._seen = parts["runs-view"]["data"], parts["runs-seen"]["data"]

    def poll(self, **changed: Any) -> None:
        """A tick of its interval, or another choice."""
        self._ask("runs-tick.n_intervals", **changed)

    def sort(self) -> None:
        """A click on a column's head."""
        self._clicks += 1
        self._ask("runs-click.data", click={"what": "sort", "value": "reward", "n": self._clicks})

    def _ask(self, trigger: str, group: str = "", click: Any = None) -> None:
        answer = self._call("runs", self._key, {
            "runs-tick.n_intervals": 1, "runs-find.value": "", "runs-states.value": [], "runs-verdicts.value": [],
            "runs-group.value": group, "runs-click.data": click, "runs-view.data": self._view,
            "runs-seen.data": self._seen, "runs-picked.data": [], "scheme.data": "light",
        }, trigger)  # fmt: skip
        if answer:
            self._seen = answer["runs-seen"]["data"]
            self._view = answer.get("runs-view", {}).get("data", self._view)

    def _call(self, what: str, key: str, given: dict[str, Any], trigger: str = "url.pathname") -> Any:
        entry = self._app.callback_map[key]
        outputs: list[Any] = []
        for part in key.strip(".").split("..."):
            id, name = part.rsplit(".", 1)
            rows = range(len((self._seen or {}).get("rows", ())))
            wild = [{"id": {"runs-row": place}, "property": name} for place in rows]
            outputs.append(wild if id.startswith("{") else {"id": id, "property": name})
        body = {
            "output": key, "outputs": outputs, "changedPropIds": [trigger],
            **{kind: [{**item, "value": given.get(f"{item['id']}.{item['property']}")} for item in entry[kind]]
               for kind in ("inputs", "state")},
        }  # fmt: skip
        answer = self._http.post("/_dash-update-component", json=body, headers={"Host": "127.0.0.1"})
        if answer.status_code == 204:
            return None
        if answer.status_code != 200:
            raise RuntimeError(f"{what}: the dashboard answered {answer.status_code}")
        return orjson.loads(answer.data)["response"]


def _parts(tree: Any) -> list[dict[str, Any]]:
    found, pending = [], [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            if "namespace" in node and isinstance(node["props"].get("id"), str):
                found.append(node)
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return found


def _times(function: Callable[[], Any], turns: int) -> list[tuple[float, float]]:
    """Milliseconds by the clock and of this process's own work, for each turn."""
    times = []
    for _ in range(turns):
        began, worked = time.perf_counter(), time.process_time()
        function()
        times.append((1000 * (time.perf_counter() - began), 1000 * (time.process_time() - worked)))
    return times
