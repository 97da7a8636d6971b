"""What is said of a run's health: only what detectors were asked, and the same on every page."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_client import components, page_now
from synthetic_run import EXPLOSION, PLATEAU, healthy, values
from watched import serving

from dashboards.components import run_overview
from dashboards.data.checks import Checked, Checks, ToCheck
from dashboards.data.run_list import ListSettings, run_list
from dashboards.data.run_page import Page
from dashboards.data.run_registry import Runs
from dashboards.data.viewer_file import Remarks
from stabilizer.analysis.analyse import analyse
from stabilizer.detectors import DETECTORS
from stabilizer.runs.writer import RunWriter
from stabilizer.trainers.reading import load

PATIENCE_S = 120.0
"""A check starts a process of its own, on a machine that may be busy."""


def unwatched(path: Path, steps: int = 60, row: Callable[[int], dict[str, float]] = values) -> RunWriter:
    """A finished run that was written without detectors."""
    writer = RunWriter.create(path, config={}, task="sorting", steps=steps, argv=[])
    for step in range(1, steps + 1):
        writer.metrics(step, row(step))
    writer.status("finished", steps, force=True)
    return writer


def collapsing(step: int) -> dict[str, float]:
    """A run that ruins itself half-way."""
    return values(step, trouble=max(0.0, min(1.0, (step - 60) / 30)))


def told(runs: Runs, id: str) -> tuple[Page, str]:
    """A run's page, and the verdict of its row in the list."""
    rows = {row.run: row for row in run_list(runs.lines(), ListSettings(), runs.clock()).rows}
    followed = runs.get(id)
    followed._read = 0.0  # as if the time viewers share a refresh had passed
    return page_now(followed), rows[id].verdict


def after_check(runs: Runs, id: str) -> tuple[Page, str]:
    assert runs.check(id) == ""
    until = time.monotonic() + PATIENCE_S
    while told(runs, id)[0].verdict == "waiting":
        assert time.monotonic() < until
        time.sleep(0.1)
    return told(runs, id)


def text_of(part: Any) -> str:
    tree = json.loads(json.dumps(part, default=lambda item: item.to_plotly_json()))
    words = [node["props"].get("children") for node in components(tree)]
    flat = [word for each in words for word in (each if isinstance(each, list) else [each])]
    return " ".join(word for word in flat if isinstance(word, str))


def words_of(page: Page) -> str:
    """All that the head and the incidents of a page say."""
    return text_of(
        [run_overview.head(page, "run", Remarks()), run_overview.incident_list(page.incidents, "run", page.run_verdict)]
    )


def files(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_a_run_whose_detectors_were_never_asked_is_not_checked(tmp_path: Path) -> None:
    unwatched(tmp_path / "run").close()
    page, listed = told(Runs([tmp_path]), "run")
    assert (page.verdict, listed, page.run_verdict.ask) == ("unchecked", "unchecked", "Check this run")
    said = words_of(page)
    assert "not checked" in said and "healthy" not in said and "no failure" not in said and "Nothing found" not in said


def test_a_check_says_what_diagnose_says_and_writes_nothing_into_the_run(tmp_path: Path) -> None:
    unwatched(tmp_path / "run", 140, collapsing).close()
    before = files(tmp_path)
    runs = Runs([tmp_path])
    page, listed = after_check(runs, "run")
    wanted = analyse(load(tmp_path / "run"))
    assert wanted.verdict == "critical" and (page.verdict, listed) == (wanted.verdict, wanted.verdict)
    assert page.run_verdict.ask == "", "nothing is left to check"
    assert {card.number for card in page.incidents} == {incident.number for incident in wanted.incidents}
    assert files(tmp_path) == before
    assert runs.checks._compute._process is None, "its process ends with the last check"


def test_a_run_that_goes_on_after_its_check_says_how_far_the_check_came(tmp_path: Path) -> None:
    writer = unwatched(tmp_path / "run", 40)
    runs = Runs([tmp_path])
    after_check(runs, "run")
    writer.metrics(41, values(41))
    page, listed = told(runs, "run")
    assert page.verdict == listed and page.run_verdict.ask == "Check again"
    assert "checked up to step 40" in page.run_verdict.note and "checked up to step 40" in runs.lines()[0].note


def test_what_the_run_says_of_itself_comes_before_a_check(tmp_path: Path) -> None:
    writer = unwatched(tmp_path / "run", 40)
    runs = Runs([tmp_path])
    after_check(runs, "run")
    writer.finding(replace(EXPLOSION, state="open"))
    writer.summary(verdict="critical", worst="critical", force=True)
    page, listed = told(runs, "run")
    assert (page.verdict, listed, page.run_verdict.ask) == ("critical", "critical", "")
    assert [card.id for card in page.incidents] == [EXPLOSION.id]


def test_a_check_that_fails_says_why_and_can_be_asked_again(tmp_path: Path) -> None:
    unwatched(tmp_path / "run", 40).close()
    runs = Runs([tmp_path])

    def fails(_: ToCheck) -> Checked:
        raise ValueError("no more memory")

    runs.checks = Checks(lambda path: 0, fails)
    page, listed = after_check(runs, "run")
    assert (page.verdict, listed) == ("unchecked", "unchecked")
    assert (page.run_verdict.ask, page.run_verdict.problem) == ("Check this run", "no more memory")


def _no_summary(writer: RunWriter) -> None:
    (writer.path / "summary.json").unlink()


def _newer_finding(writer: RunWriter) -> None:
    writer.finding(replace(EXPLOSION, state="open"))


def _found_and_over(writer: RunWriter) -> None:
    writer.summary(verdict="critical", worst="critical", force=True)
    writer.finding(replace(EXPLOSION, state="resolved"))


def _only_informed(writer: RunWriter) -> None:
    writer.finding(replace(PLATEAU, state="open"))


def _crashed(writer: RunWriter) -> None:
    writer.summary(verdict="crashed", worst="critical", force=True)


def _nonsense(writer: RunWriter) -> None:
    (writer.path / "summary.json").write_text('{"verdict": "splendid", "metrics": {"reward/mean": {"last": 1}}}')


@pytest.mark.parametrize(
    ("happened", "verdict"),
    [
        (_no_summary, "unchecked"),
        (_newer_finding, "critical"),
        (_found_and_over, "healthy"),
        (_only_informed, "info"),
        (_crashed, "crashed"),
        (_nonsense, "unchecked"),
    ],
)
def test_the_list_and_the_page_give_the_same_verdict(
    tmp_path: Path, happened: Callable[[RunWriter], None], verdict: str
) -> None:
    writer = healthy(tmp_path / "run", 40)
    happened(writer)
    runs = Runs([tmp_path])
    page, listed = told(runs, "run")
    assert (page.verdict, listed) == (verdict, verdict)
    assert runs.lines()[0].note == page.run_verdict.note


def test_a_run_that_is_no_rl_run_says_that_and_nothing_else(tmp_path: Path) -> None:
    unwatched(tmp_path / "sft", 60, lambda step: {"loss": 3 / step, "optim/lr": 1e-5}).close()
    page, listed = told(Runs([tmp_path]), "sft")
    assert (page.verdict, listed, page.run_verdict.ask, page.run_verdict.note) == ("not-rl", "not-rl", "", "")
    said = words_of(page)
    assert "not an RL run" in said and "no failure" not in said and "detectors had no data" not in said
    assert page.incidents == ()


def test_beside_healthy_stands_how_many_detectors_had_no_data_and_which(tmp_path: Path) -> None:
    writer = unwatched(tmp_path / "run", 40, lambda step: {"reward/mean": 0.1 + step / 100})
    writer.summary(verdict="healthy", worst=None, force=True)
    runs = Runs([tmp_path])
    page, listed = told(runs, "run")
    missing = {item.id for item in analyse(load(tmp_path / "run")).not_checked if not item.why}
    assert (page.verdict, listed) == ("healthy", "healthy") and len(missing) > len(DETECTORS) / 2
    assert {each.detector for each in page.run_verdict.without_data} == missing
    counted = f"{len(missing)} of {len(DETECTORS)} detectors had no data"
    assert counted in words_of(page) and counted in runs.lines()[0].note
    assert all(id in words_of(page) for id in missing)


@pytest.mark.ui
def test_the_list_of_detectors_without_data_stays_open_while_steps_come(tmp_path: Path, tab: Any) -> None:
    writer = healthy(tmp_path / "run", 40)
    with serving(tmp_path) as address:
        tab.goto(f"{address}run?run=run")
        tab.locator("#incidents .unseen summary", has_text="had no data").click(timeout=30_000)
        for step in (41, 42):
            writer.metrics(step, values(step))
            writer.status("running", step, force=True)
            writer.summary(verdict="healthy", worst=None, force=True)
            tab.locator(".reach strong", has_text=str(step)).wait_for(timeout=30_000)
        assert tab.locator(".unseen[open] a").count() > 0


@pytest.mark.ui
def test_a_button_checks_a_run_and_the_list_then_says_the_same(tmp_path: Path, tab: Any) -> None:
    unwatched(tmp_path / "run", 140, collapsing).close()
    with serving(tmp_path) as address:
        tab.goto(f"{address}run?run=run")
        tab.locator(".verdict-unchecked").wait_for(timeout=30_000)
        tab.get_by_role("button", name="Check this run").click()
        tab.locator(".verdict-critical").wait_for(timeout=PATIENCE_S * 1000)
        tab.locator("#incidents .incident.critical").first.wait_for()
        tab.get_by_role("button", name="Check this run").wait_for(state="detached")
        tab.goto(address)
        tab.locator(".runs-table .verdict-critical").wait_for()
