"""What all tests share: whether there is a browser, and saying loudly when there is none."""

from __future__ import annotations

import shutil

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require-browser", action="store_true", help="fail, rather than skip, tests that need a Chromium"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if BROWSER or config.getoption("--require-browser"):
        return
    for item in items:
        if item.get_closest_marker("ui"):
            item.add_marker(pytest.mark.skip(reason="no Chromium on this machine"))


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    if not BROWSER:
        terminalreporter.section("NOT RUN", sep="!", red=True, bold=True)
        terminalreporter.line("the dashboard's browser tests: install Chromium (Debian: apt-get install chromium)")


@pytest.fixture(scope="session")
def browser_path() -> str:
    """The Chromium that browser tests drive."""
    if BROWSER is None:
        pytest.fail("no Chromium on this machine: apt-get install chromium")
    return BROWSER
