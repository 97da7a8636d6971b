"""Which charts a page shows: knobs that never changed are a line, not a chart each."""

from __future__ import annotations

from dataclasses import replace

from dashboards.data.chart_sections import Section, sections
from dashboards.data.viewer_settings import ViewerSettings
from stabilizer.runs.history import History


def knobs(*, turned: bool, open: bool = True) -> Section:
    run = History()
    for step in range(1, 11):
        run.append(
            step,
            {
                "reward/mean": 0.1 * step,
                "control/prompts": 8.0,
                "batch/prompts": 8.0,
                "control/group_size": 8.0 if turned and step > 5 else 4.0,
            },
        )
    return sections(run.view(), replace(ViewerSettings("run"), open=("knobs",) if open else ()))["knobs"]


def test_knobs_that_never_changed_are_a_line() -> None:
    found = knobs(turned=False)
    assert found.still == "group_size 4, prompts 8"
    assert [chart.metrics for chart in found.charts] == [("batch/prompts",)] and found.count == 1


def test_a_knob_that_was_turned_keeps_its_chart_and_the_section_says_so_anew() -> None:
    found = knobs(turned=True)
    assert ("control/group_size",) in [chart.metrics for chart in found.charts] and found.still == "prompts 8"
    assert found.key != knobs(turned=False).key


def test_a_folded_family_counts_what_moves() -> None:
    assert knobs(turned=True, open=False).charts == () and knobs(turned=True, open=False).count == 2
