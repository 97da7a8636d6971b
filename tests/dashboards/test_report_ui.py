"""Files that open without a server, in a real browser: charts are drawn, nothing is loaded and nothing is refused."""

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


def test_any_page_is_saved_as_one_file_without_scripts(browser: Any, looked_at: str, tab: Any, tmp_path: Path) -> None:
    page = tab
    for path, there in ((f"run?run={RUN}", ".chart .main-svg"), (f"journal?run={RUN}", ".trial"), ("detectors", "td")):
        page.goto(looked_at + path)
        page.locator(there).first.wait_for(timeout=60_000)
        title, count = page.title(), page.locator("main .main-svg").count()
        with page.expect_download() as waited:
            page.get_by_label("save this page").click()
        file = tmp_path / waited.value.suggested_filename
        waited.value.save_as(file)
        saved, said, asked = browser.new_page(), [], []
        saved.on("console", lambda message, said=said: said.append(message.text))
        saved.on("request", lambda request, asked=asked: asked.append(request.url))
        saved.goto(file.as_uri())
        saved.locator(there).first.wait_for()
        assert saved.title() == title and saved.locator("main .main-svg").count() >= count
        assert saved.locator("script, a[href]").count() == 0
        assert said == [] and [url for url in asked if not url.startswith("data:")] == [file.as_uri()]
        saved.close()
