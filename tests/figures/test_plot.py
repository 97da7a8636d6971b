"""Plots and pages of a run for Python and notebooks."""

from __future__ import annotations

from pathlib import Path

import pytest

import stabilizer
from stabilizer.runs.reader import RunError

RUN = Path(__file__).parents[2] / "sample_runs" / "addition-unstable"


@pytest.fixture(scope="module")
def analysis():
    return stabilizer.diagnose(RUN)


def test_a_plot_of_an_analysis_shades_its_incidents_and_that_of_a_run_does_not(analysis) -> None:
    assert len(stabilizer.plot(analysis, "policy/kl_ref").layout.shapes) > len(
        stabilizer.plot(RUN, "policy/kl_ref").layout.shapes
    )
    assert list(stabilizer.plot(analysis.run).data[0].x) == list(range(1, 121))
    assert stabilizer.plot(analysis, "reward/mean", smooth=10).data[0].y[-1] == pytest.approx(
        analysis.run.frame()["reward/mean"].tail(10).mean(), rel=1e-6
    )


def test_a_metric_that_was_not_logged_is_named_with_the_nearest(analysis) -> None:
    with pytest.raises(RunError, match="no metric 'rward/mean'.*reward/mean"):
        stabilizer.plot(analysis, "rward/mean")


def test_a_notebook_shows_the_report_cut_off_from_its_own_page(analysis) -> None:
    shown = stabilizer.show(analysis, height=500)._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts" srcdoc="') and 'height="500"' in shown
    assert "<script" not in shown and "addition-unstable" in shown
