"""A page in a browser, what went wrong on it, and hands that wait until it has done what they want."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dashboards.server import prepare

SECONDS = 60.0
"""How long something may take on a machine that is busy with other things; what must be quick is counted in polls."""
POLL_MS = 100
"""Between two looks at a page: asking more often takes the time that the page needs to draw."""


class Watched:
    """A page, and what went wrong or out on it."""

    def __init__(self, page: Any, address: str):
        self.page, self.address = page, address
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.hears = {
            "console": lambda message: self.errors.append(message.text) if message.type == "error" else None,
            "pageerror": lambda error: self.errors.append(str(error)),
            "request": lambda request: self.requests.append(request.url),
        }
        for event, hear in self.hears.items():
            page.on(event, hear)

    def open(self, query: str = "") -> Watched:
        self.page.goto(self.address + "run" + query)
        self.page.locator(".graph .main-svg").first.wait_for()
        return self

    def last_step(self) -> int:
        """The newest step of the first chart; -1 while it is being redrawn."""
        return self.page.evaluate("document.querySelector('.js-plotly-plot')?.data?.[0]?.x.at(-1) ?? -1")

    def zoom(self, graph: Any) -> list[int]:
        """Drag over a part of a chart, as a hand does; the steps it shows from then on."""
        shown = "graph => graph.querySelector('.js-plotly-plot')?.layout?.xaxis?.range?.map(Math.round) ?? []"
        graph.scroll_into_view_if_needed()
        before, after = [], []

        def dragged() -> bool:  # a chart that is drawn just then takes no drag, and one not yet drawn shows no steps
            before[:] = before or graph.evaluate(shown)
            if not before:
                return False
            box = graph.locator(".nsewdrag").bounding_box()
            if box is None:  # the page was redrawn between the two calls
                return False
            mouse, y = self.page.mouse, box["y"] + box["height"] / 2
            mouse.move(box["x"] + box["width"] * 0.3, y)
            mouse.down()
            mouse.move(box["x"] + box["width"] * 0.6, y, steps=8)
            mouse.up()
            after[:] = graph.evaluate(shown)
            return bool(after) and after != before

        self.until(dragged, SECONDS)
        return after

    def until(self, condition: Callable[[], bool], seconds: float = SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "not seen in time"
            self.page.wait_for_timeout(POLL_MS)


@contextmanager
def watching(page: Any, address: str) -> Iterator[Watched]:
    """A page that is watched for a while."""
    watched = Watched(page, address)
    yield watched
    for event, hear in watched.hears.items():
        page.remove_listener(event, hear)


@contextmanager
def serving(folder: Path, **how: Any) -> Iterator[str]:
    """The address of a dashboard that shows a folder for a while."""
    server, address = prepare([folder], port=0, **how)
    threading.Thread(target=server.run, daemon=True).start()
    yield address
    server.close()
