"""How long a reader waits: until a page says something, until it shows a chart, and what a poll costs meanwhile.

A chart is there twice: as a picture, which is what a reader waits for, and once the drawing library has started as one
that zooms and says its values. Both are measured.

The pages are opened in a Chromium of their own with an empty cache, from a server in a process of its own that has
never read the run, as after `stabilizer dashboard`. Callbacks are asked without a browser, so that they are counted
alone.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from stabilizer.core.metrics import VOCABULARY
from stabilizer.runs.writer import RunWriter

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
MARKS = """
window.waited = {};
const look = () => {
  const mark = (name, there) => { if (!(name in window.waited) && there) window.waited[name] = performance.now(); };
  mark("words", document.querySelector("#head h1"));
  const shown = (chart) => chart && (chart.tagName !== "IMG" || (chart.complete && chart.naturalWidth > 0));
  mark("look", shown(document.querySelector(".glimpse img, .graph .main-svg .trace path")));
  mark("chart", document.querySelector(".graph .main-svg .trace path"));
  requestAnimationFrame(look);
};
look();
"""
"""Looks once a frame, so a figure is right to the 17 ms of one."""
MARKED = (("words", "verdict and numbers"), ("look", "first chart is seen"), ("chart", "first chart can be zoomed"))


def write_run(path: Path, *, steps: int = 20_000, metrics: int = 50, seed: int = 0) -> None:
    """A run of `steps` x `metrics` points under the names of our vocabulary."""
    names = [name for name in VOCABULARY if name.count("/") == 1][:metrics]
    values = np.abs(np.random.default_rng(seed).normal(1, 0.1, (steps, len(names))))
    writer = RunWriter.create(path, config={}, task="bench", steps=steps, argv=[])
    for step, row in enumerate(values.tolist(), start=1):
        writer.metrics(step, dict(zip(names, row, strict=True)))
    writer.status("running", steps, force=True)
    writer.summary(verdict="healthy", worst=None, force=True)
    writer.close()


def paint(run: Path, *, times: int = 3) -> list[dict[str, Any]]:
    """Milliseconds until there are words, until a chart is seen and until one can be zoomed, for a server that has not
    read the run yet and for one that has; the median of so many openings, each with an empty browser cache."""
    from playwright.sync_api import sync_playwright

    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        raise ValueError("no Chromium on this machine; install one (`apt-get install chromium`) to measure pages")
    cold: list[dict[str, float]] = []
    warm: list[dict[str, float]] = []
    with sync_playwright() as playwright:
        for _ in range(times):
            browser = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
            with _serving(run.parent) as address:
                for kept in (cold, warm):
                    context = browser.new_context(viewport={"width": 1440, "height": 900})
                    page = context.new_page()
                    page.add_init_script(MARKS)
                    page.goto(f"{address}run?run={run.name}")
                    page.locator(".graph .main-svg .trace path").first.wait_for(state="attached", timeout=60_000)
                    page.wait_for_timeout(100)
                    kept.append(page.evaluate("window.waited"))
                    context.close()
            browser.close()
    rows = []
    for what, kept in (("run not read yet", cold), ("run read before", warm)):
        for mark, words in MARKED:
            found = [row[mark] for row in kept]
            rows.append({"what": f"{words}, {what}", "ms": float(np.median(found)), "worst_ms": max(found)})
    return rows


def callbacks(run: Path, *, polls: int = 100, charts: int = 12) -> list[dict[str, Any]]:
    """What a poll costs the server while the run writes a step before each, so many charts in sight: milliseconds from
    the request to the whole answer, and bytes. The run is written to; give it a copy of one that matters."""
    from dashboards.app import build

    app = build([run.parent])
    followed = app.runs.get(run.name)
    view = followed.refresh().history.view()  # the page of a large run that was not read yet shows no chart to poll
    asking = Asking(app, run.name)
    seen = asking.all()
    writer = RunWriter.reopen(run)
    last = {name: view.latest(name) for name in view.names()}
    asking.took.clear()
    asking.sizes.clear()
    for step in range(view.step + 1, view.step + 1 + polls):
        writer.metrics(step, last)
        followed._read = 0.0  # as if the time viewers share a refresh had passed
        seen = asking.step(seen, charts)
    writer.close()
    return [
        {"what": f"poll with a new step, {charts} charts", "ms": float(np.median(asking.took)),
         "p95_ms": float(np.quantile(asking.took, 0.95)), "bytes": max(asking.sizes)},
    ]  # fmt: skip


class Asking:
    """Polls the run page's callback as a browser does."""

    def __init__(self, app: Any, run: str):
        self.app, self.http, self.run = app, app.server.test_client(), run
        self.took: list[float] = []
        self.sizes: list[int] = []
        self.key, self.entry = next(
            (key, entry)
            for key, entry in app.callback_map.items()
            if "...seen.data" in key and not entry.get("clientside_function")
        )

    def all(self) -> dict[str, Any]:
        """Open the page, to its last chart."""
        from dashboards.data.chart_sections import SECTIONS
        from dashboards.data.live_updates import BrowserState
        from dashboards.data.viewer_settings import ViewerSettings

        seen = self.ask(BrowserState(ViewerSettings(self.run)).as_json(), [], SECTIONS)
        while seen["rest"]:
            seen = self.ask(seen, list(seen["charts"]), SECTIONS)
        return seen

    def step(self, seen: dict[str, Any], charts: int = 12) -> dict[str, Any]:
        """A poll with so many charts in sight, the same ones every time."""
        from dashboards.data.chart_sections import SECTIONS

        return self.ask(seen, list(seen["charts"]), SECTIONS, sorted(seen["charts"])[:charts])

    def call(self, name: str, values: dict[str, Any]) -> dict[str, Any] | None:
        """Any callback of plain outputs, by a part of its name; what it answers, None for nothing."""
        key, entry = next((key, entry) for key, entry in self.app.callback_map.items() if name in key)
        named = [part.rpartition(".") for part in key.strip(".").split("...")]
        parts = [{"id": id, "property": prop} for id, _, prop in named]
        body = {
            "output": key, "outputs": parts, "changedPropIds": [next(iter(values))],
            **{sort: [{**item, "value": values.get(f"{item['id']}.{item['property']}")} for item in entry[sort]]
               for sort in ("inputs", "state")},
        }  # fmt: skip
        answer = self._post(body)
        return answer.get_json()["response"] if answer.status_code == 200 else None

    def ask(
        self, seen: dict[str, Any], charts: Sequence[str], places: Sequence[str], visible: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """One poll; what the browser keeps of the answer."""
        values = {
            "tick.n_intervals": 1, "settings.data": seen["settings"], "seen.data": seen, "visible.data": visible,
        }  # fmt: skip
        kinds = {"section": places, "slot": [*charts, *seen["rest"]], "chart": charts}

        def sent(id: str, property: str) -> Any:
            """A part of the page, or all parts that a pattern of ids means, as the browser names them."""
            if not id.startswith("{"):
                return {"id": id, "property": property, "value": values.get(f"{id}.{property}")}
            (kind,) = json.loads(id)
            return [{"id": {kind: of}, "property": property, "value": {kind: of}} for of in kinds[kind]]

        body = {
            "output": self.key, "changedPropIds": ["tick.n_intervals"],
            "outputs": [sent(*part.rsplit(".", 1)) for part in self.key.strip(".").split("...")],
            **{sort: [sent(item["id"], item["property"]) for item in self.entry[sort]] for sort in ("inputs", "state")},
        }  # fmt: skip
        began = time.perf_counter()
        answer = self._post(body)
        self.took.append(1000 * (time.perf_counter() - began))
        self.sizes.append(len(answer.data))
        return answer.get_json()["response"]["seen"]["data"] if answer.status_code == 200 else seen

    def _post(self, body: dict[str, Any]) -> Any:
        answer = self.http.post("/_dash-update-component", json=body, headers={"Host": "127.0.0.1"})
        if answer.status_code not in (200, 204):  # it would count as a quick answer
            raise ValueError(f"the dashboard refused a poll ({answer.status_code}): {answer.text.strip()[:200]}")
        return answer


@contextmanager
def _serving(folder: Path) -> Iterator[str]:
    """The dashboard over `folder` in a process of its own; its address."""
    command: Sequence[str] = [sys.executable, "-m", "dashboards", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        line = process.stdout.readline()
        yield line.removeprefix("dashboard: ").strip()
    finally:
        process.terminate()
        process.wait(timeout=10)
