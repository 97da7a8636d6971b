"""The report's page in a real browser: its charts are drawn from a file, with nothing loaded and nothing refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from page_client import RUN

from stabilizer.analysis.analyse import analyse
from stabilizer.output.report import write
from stabilizer.trainers.reading import load

pytestmark = pytest.mark.ui


@pytest.mark.parametrize("old", [False, True], ids=["of today", "without DecompressionStream"])
def test_the_charts_unpack_themselves_or_say_what_they_need(
    browser: Any, runs_folder: Path, tmp_path: Path, old: bool
) -> None:
    path = write(analyse(load(runs_folder / RUN)), tmp_path / "report.html")
    page = browser.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    if old:
        page.add_init_script("delete window.DecompressionStream")
    page.goto(path.as_uri())
    plots = page.locator(".plot")
    if old:
        plots.last.get_by_text("Charts need a browser of 2023 or later").wait_for()
    else:
        plots.last.locator(".main-svg").first.wait_for()
        assert page.locator(".js-plotly-plot").count() == plots.count()
    assert said == [] and asked == [path.as_uri()]
    page.close()
