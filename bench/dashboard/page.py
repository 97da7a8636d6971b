"""One large run: how long its page takes to appear, what a poll of it costs, and TensorBoard on the same numbers.

TensorBoard runs in an environment of its own. Its first word is the list of the run's metrics, its first chart the
series of one of them: both as its server answers them, for what its page then does with them is its own affair.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from bench.dashboard.paint import callbacks, paint, write_run
from bench.environment import CACHE, install, python_of, says_yes

TENSORBOARD = "tensorboard==2.20.0"
VIEWERS = 8
COMPARED, STEPS = 20, 2_000
WRITE = """
import json, sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(sys.argv[2])
for line in open(sys.argv[1]):
    row = json.loads(line)
    values = [Summary.Value(tag=name, simple_value=value) for name, value in row["m"].items()]
    writer.add_event(Event(step=row["step"], wall_time=row["t"], summary=Summary(value=values)))
writer.close()
"""


def measure(*, seed: int = 0, quick: bool = False) -> list[dict[str, Any]]:
    """Rows for the page of a run of a million points, and for TensorBoard beside it."""
    steps = 2_000 if quick else 20_000
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "runs" / "large"
        run.parent.mkdir()
        write_run(run, steps=steps, seed=seed)
        rows: list[Times] = []
        try:
            for row in paint(run, times=1 if quick else 3):
                target = None if "zoomed" in row["what"] else 1500.0
                rows.append(Times(row["what"], row["ms"], row["worst_ms"], target))
        except (ValueError, ImportError) as error:
            print(f"pages are not measured: {error}", file=sys.stderr)
        rows += _tensorboard(run, Path(folder) / "events")
        for row in callbacks(run, polls=20 if quick else 200):
            rows.append(
                Times(f"{row['what']}, {row['bytes'] / 1024:.0f} KB; slowest: p95", row["ms"], row["p95_ms"], 25.0)
            )
        rows.append(_viewers(run, 5 if quick else 30))
        rows.append(_viewers(run, 5 if quick else 30, _many(Path(folder) / "many", 200 if quick else STEPS, seed)))
    return [
        {"what": row.what, "runs": 1, "steps": steps, "median ms": row.median, "slowest ms": row.slowest,
         "cpu ms": None, "at most ms": row.target, "metric files opened": None}
        for row in rows
    ]  # fmt: skip


class Times(NamedTuple):
    """One row: milliseconds, and what was aimed at."""

    what: str
    median: float
    slowest: float
    target: float | None = None


def _viewers(run: Path, seconds: int, compared: Path | None = None) -> Times:
    """Polls of eight viewers, once a second each, while the run writes a step a second; with `compared`, while another
    page of the same server compares all runs of that folder over and over."""
    from bench.dashboard.paint import Asking
    from dashboards.app import build
    from dashboards.server import SWITCH_S
    from stabilizer.runs.writer import RunWriter

    app = build([run.parent, *([compared] if compared else [])])
    switch, done = sys.getswitchinterval(), [0]
    sys.setswitchinterval(SWITCH_S)  # as the server has it
    took: list[float] = []
    over, there = threading.Event(), threading.Barrier(VIEWERS + 1, timeout=300)

    def look(first: Asking, place: int) -> None:
        seen = first.all()
        first.took.clear()
        there.wait()
        over.wait(place / VIEWERS)  # they did not open their pages at the same moment
        while not over.wait(1.0):
            seen = first.step(seen)
        took.extend(first.took)

    threads = [threading.Thread(target=look, args=(Asking(app, run.name), n)) for n in range(VIEWERS)]
    if compared:
        threads.append(threading.Thread(target=_compare, args=(app, compared, over, done)))
    for thread in threads:
        thread.start()
    there.wait()  # what it costs to open the page is another row
    writer = RunWriter.reopen(run)
    view = app.runs.get(run.name).refresh().history.view()
    last = {name: view.latest(name) for name in view.names()}
    for step in range(view.step + 1, view.step + 1 + seconds):
        writer.metrics(step, last)
        time.sleep(1.0)
    over.set()
    for thread in threads:
        thread.join()
    writer.close()
    sys.setswitchinterval(switch)
    took.sort()
    p95 = took[int(0.95 * len(took))]
    others = f" and a comparison of {COMPARED} runs, {done[0]} times" if compared else ""
    what = f"poll with a new step, {VIEWERS} viewers{others} at once; slowest: p95"
    return Times(what, statistics.median(took), p95, 100.0)


def _many(folder: Path, steps: int, seed: int) -> Path:
    """Runs to compare, under one folder."""
    folder.mkdir()
    for index in range(COMPARED):
        write_run(folder / f"run-{index:02}", steps=steps, seed=seed + index)
    return folder


def _compare(app: Any, folder: Path, over: threading.Event, done: list[int]) -> None:
    """Open the page that compares all runs, wait as a browser does until charts and all verdicts are there, and once
    more with runs that were written to, so that nothing is known of them. Counts how often it was done."""
    from bench.dashboard.paint import Asking
    from dashboards.data.comparison import MAX_RUNS
    from dashboards.pages import compare

    paths = sorted(folder.iterdir())[:MAX_RUNS]
    query = urlencode({"runs": ",".join(path.name for path in paths), "group": "run"})
    asking = Asking(app, paths[0].name)
    while not over.is_set():
        for path in paths:
            os.utime(path / "run.json")
        opened = {"url.pathname": compare.PATH, "url.search": f"?{query}", "scheme.data": "light"}
        page = json.dumps(asking.call("page.children", opened))
        if "compare-tick" not in page:
            raise ValueError("the page that compares did not open")
        seen: Any = {"query": dict(parse_qsl(query)), "theme": "light", "seen": [0, 0]}
        pause: Any = compare.WAITING_MS
        while pause != compare.RESTING_MS and not over.wait(pause / 1000):
            said = {"compare-tick.n_intervals": 1, "compare-seen.data": seen, "compare-tick.interval": pause}
            news = asking.call("compare-body.children", said) or {}
            seen = news.get("compare-seen", {}).get("data", seen)
            pause = news.get("compare-tick", {}).get("interval", pause)
        done[0] += pause == compare.RESTING_MS


# --- TensorBoard ------------------------------------------------------------------------------------------------------


def _tensorboard(run: Path, events: Path) -> list[Times]:
    python, problem = _environment()
    if problem:
        print(f"TensorBoard is left out: {problem}", file=sys.stderr)
        return []
    metrics = next((run / "metrics").glob("*.jsonl"))
    subprocess.run([python, "-c", WRITE, metrics, events / run.name], check=True)  # noqa: S603
    began = time.perf_counter()
    with _serving(python, events) as address:
        marks = {}
        tag = ""
        while not tag:
            tags = _ask(f"{address}/data/plugin/scalars/tags").get(run.name, {})
            tag = next(iter(tags), "")
            time.sleep(0.02)
        marks["list of metrics"] = time.perf_counter() - began
        wanted = f"{address}/data/plugin/scalars/scalars?run={run.name}&tag={tag}"
        while len(_ask(wanted)) < 1 or not _whole(_ask(wanted), run):
            time.sleep(0.02)
        marks["series of one metric, whole"] = time.perf_counter() - began
    return [Times(f"TensorBoard: {what}, from its start", 1000 * took, 1000 * took) for what, took in marks.items()]


def _whole(points: list[Any], run: Path) -> bool:
    """Whether the last step is among the points: it loads a file piece by piece, and thins it out."""
    return points[-1][1] >= int(json.loads((run / "status.json").read_text())["step"])


def _environment() -> tuple[Path, str]:
    folder = CACHE / f"peers-{TENSORBOARD}".replace("==", "-")
    python = python_of(folder)
    if not says_yes(python, "import tensorboard"):
        venv.create(folder, with_pip=True, clear=True)
        if problem := install(python, TENSORBOARD, "setuptools<81"):
            return python, problem
    return python, ""


@contextmanager
def _serving(python: Path, events: Path) -> Iterator[str]:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "tensorboard.main", "--logdir", events, "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=10)


def _ask(address: str) -> Any:
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310
            return json.load(answer)
    except (OSError, ValueError):
        return {}
