"""Runs to look at, an app over them, and a server and a browser for those tests that need one."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))

from page_client import CALM, CHROMIUM, LARGE, RUN, Client  # noqa: E402
from synthetic_run import eventful, healthy  # noqa: E402
from watched import Watched, serving, watching  # noqa: E402


def two_runs(folder: Path) -> Path:
    """Fill a folder with an eventful run, still going, and a calm one that is finished."""
    calm = healthy(folder / CALM)
    calm.status("finished", 30, force=True)
    calm.close()
    eventful(folder / RUN).close()
    return folder


@pytest.fixture
def runs_folder(tmp_path: Path) -> Path:
    """A folder with an eventful run, still going, and a calm one that is finished."""
    return two_runs(tmp_path / "runs")


@pytest.fixture
def client(runs_folder: Path) -> Client:
    from dashboards.app import build

    return Client(build([runs_folder]))


@pytest.fixture
def served(runs_folder: Path) -> Iterator[tuple[str, Path]]:
    """The address of a served app and the folder it shows."""
    with serving(runs_folder) as address:
        yield address, runs_folder


@pytest.fixture(scope="session")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a served app over the same runs, for tests that only look: none may write there."""
    with serving(two_runs(tmp_path_factory.mktemp("looked-at"))) as address:
        yield address


@pytest.fixture(scope="session")
def browser(browser_path: str) -> Iterator[Any]:
    """A Chromium, driven by Playwright."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser_path, args=list(CHROMIUM))
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def only_tab(browser: Any) -> Iterator[Any]:
    """The tab that tests share: it keeps compiled scripts, so a page opens in half the time of a new tab."""
    context = browser.new_context(accept_downloads=True)
    yield context.new_page()
    context.close()


@pytest.fixture
def tab(only_tab: Any) -> Iterator[Any]:
    """The shared tab as if it were new: large, light, with nothing stored and nothing open.

    A fixture that serves pages comes before it in the arguments of a test, so that the tab leaves before they end.
    """
    only_tab.set_viewport_size(LARGE)
    only_tab.emulate_media(media="screen", color_scheme="light")
    yield only_tab
    only_tab.unroute_all(behavior="ignoreErrors")
    only_tab.context.clear_cookies()
    with contextlib.suppress(Error):  # where no page came there is no storage
        only_tab.evaluate("localStorage.clear(), sessionStorage.clear()")
    only_tab.goto("about:blank")


@pytest.fixture
def watched(served: tuple[str, Path], tab: Any) -> Iterator[Watched]:
    with watching(tab, served[0]) as watched:
        yield watched


@pytest.fixture
def looking(looked_at: str, tab: Any) -> Iterator[Watched]:
    """A page of the shared server, for tests that write nothing."""
    with watching(tab, looked_at) as watched:
        yield watched
