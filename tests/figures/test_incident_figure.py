"""How an incident is drawn: the data of the figure, and that a run's text stays text."""

from __future__ import annotations

import json

from stabilizer.core.records import Event, Finding
from stabilizer.figures.incident import around, how_far, order_figure
from stabilizer.incidents.diagnosis.order import Departed, Onset
from stabilizer.runs.history import History

HOSTILE = '<img src=x onerror="alert(1)">'
SIGNALS = (
    Departed("policy/kl_ref", "update", 200, True, 0.1, 1.0),
    Departed("optim/grad_norm", "update", 210, True, 0.4, 30.0),
    Departed("reward/mean", "reward", 220, False, 0.5, -0.1),
)
ONSET = Onset(200, 197, 210)
FOUND = Finding("policy/kl-runaway", "critical", "", 200, 215, 230, evidence={"metric": "policy/kl_ref"}, incident=1)


def test_one_row_per_signal_the_first_on_top() -> None:
    figure = order_figure(SIGNALS, ONSET, [FOUND], noticed=215)
    marks = next(trace for trace in figure.data if trace.mode == "markers+text")
    assert list(marks.x) == [200, 210, 220]
    assert list(marks.y) == ["policy/kl_ref", "optim/grad_norm", "reward/mean"]
    assert figure.layout.yaxis.autorange == "reversed"
    assert list(marks.text) == ["↑ ×10", "↑ ×75", "↓"]


def test_the_onset_is_a_span_and_the_finding_a_point_on_its_metric() -> None:
    figure = order_figure(SIGNALS, ONSET, [FOUND], noticed=215)
    span = figure.layout.shapes[0]
    assert (span.x0, span.x1) == (197, 210)
    found = [trace for trace in figure.data if trace.mode == "markers"]
    assert [(list(trace.x), list(trace.y)) for trace in found] == [([215], ["policy/kl_ref"])]


def test_how_far_says_both_ends_and_the_factor_where_there_is_one() -> None:
    assert [how_far(signal) for signal in SIGNALS] == ["0.1 → 1 (×10)", "0.4 → 30 (×75)", "0.5 → -0.1"]
    assert how_far(Departed("a/b", "update", 1, True, None, 2.0)) == ""


def test_text_of_a_run_is_escaped() -> None:
    signal = Departed(HOSTILE, "update", 200, True, 0.1, 1.0)
    found = Finding(HOSTILE, "warn", HOSTILE, 200, 215, 230, evidence={"metric": HOSTILE}, incident=1)
    drawn = json.dumps(order_figure([signal], ONSET, [found]).to_plotly_json(), default=str)
    assert "<img" not in drawn and "&lt;img" in drawn


def history() -> History:
    run = History()
    for step in range(1, 100_001, 5):
        run.append(step, {"policy/kl_ref": 0.1 + (step == 50_001)})
    return run


def test_a_stretch_of_a_long_run_is_drawn_point_by_point() -> None:
    figure = around(history().view(), "policy/kl_ref", 49_500, 50_500)
    line = figure.data[0]
    assert len(line.x) == 200 and max(line.y) == 1.1
    assert list(figure.layout.xaxis.range) == [49_500, 50_500]


def test_what_happened_elsewhere_is_left_out() -> None:
    far = Finding("optim/grad-spike", "warn", "", 90_000, 90_010, 90_020, evidence={}, incident=2)
    near = Finding("policy/kl-runaway", "critical", "", 50_000, 50_010, 50_020, evidence={}, incident=1)
    events = [Event(10, "rollback", "long ago"), Event(50_100, "schedule", "here")]
    drawn = str(around(history().view(), "policy/kl_ref", 49_500, 50_500, findings=[far, near], events=events))
    assert "kl-runaway" in drawn and "grad-spike" not in drawn
    assert "here" in drawn and "long ago" not in drawn


def test_a_metric_that_was_never_measured_gives_an_empty_chart() -> None:
    assert len(around(History().view(), "policy/kl_ref", 1, 10).data[0].x) == 0
