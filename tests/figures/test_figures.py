"""Figures assert their data, not their picture."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from stabilizer.core.knobs import change_words
from stabilizer.core.metrics import VOCABULARY
from stabilizer.core.points import thin, wants_log
from stabilizer.core.records import Action, Event, Finding
from stabilizer.core.text import rounded, short
from stabilizer.figures import CORE, ICONS, abandoned, charts, incidents, metric_figure
from stabilizer.figures.growth import drawn, growth
from stabilizer.figures.marks import LETTER, open_spans
from stabilizer.figures.metric import MAX_POINTS
from stabilizer.figures.theme import PALETTES
from stabilizer.figures.words import concerns, definition, hover_number
from stabilizer.runs.blocks import Block
from stabilizer.runs.history import History

NAME = "optim/grad_norm"


def history(values: list[float], name: str = NAME, **about: object) -> History:
    run = History(about)
    for step, value in enumerate(values, 1):
        run.append(step, {name: value})
    return run


def finding(**changes: object) -> Finding:
    base = Finding("optim/grad-spike", "warn", "it jumped", 3, 4, 6, {"metric": NAME}, "open", incident=1)
    return replace(base, **changes)


def texts(figure: object) -> str:
    return " ".join(str(text) for trace in figure.data for text in trace.text or ())


# --- what is drawn ----------------------------------------------------------------------------------------------------


def test_values_reach_the_figure_unchanged_and_as_lists() -> None:
    values = [1.0, 3e38, 5e-324, -0.0, float(2**53 + 2), 3.5]
    figure = metric_figure(history(values, "reward/mean").view(), "reward/mean")
    line = figure.to_plotly_json()["data"][0]
    assert isinstance(line["x"], list) and isinstance(line["y"], list)
    assert line["x"] == [1, 2, 3, 4, 5, 6] and line["y"] == values


def test_nan_and_inf_are_gaps_in_the_line_and_marked_at_the_edge() -> None:
    figure = metric_figure(history([1.0, math.nan, math.inf, -math.inf, 2.0]).view(), NAME)
    line, edge = figure.data[:2]
    assert list(line.y) == [1.0, None, None, None, 2.0]
    assert list(edge.x) == [2, 3, 4] and edge.yaxis == "y2"
    assert [word in text for word, text in zip(("NaN", "+Inf", "−Inf"), edge.text, strict=True)] == [True] * 3
    assert edge.y[0] > 0.5 > edge.y[2]


def test_unit_is_on_the_axis_and_the_meaning_in_the_title_of_a_standalone_figure() -> None:
    view = history([0.1, 0.2], "policy/kl_ref").view()
    figure = metric_figure(view, "policy/kl_ref", title="Drift")
    assert figure.layout.yaxis.title.text == "nats/token"
    assert "Estimator: k3" in figure.layout.annotations[0].hovertext.replace("<br>", " ")
    assert not metric_figure(view, "policy/kl_ref").layout.annotations


def test_a_foreign_run_states_its_own_unit() -> None:
    view = history([0.1], "policy/kl_ref", metrics={"policy/kl_ref": {"unit": "nats/sequence"}}).view()
    assert definition(view, "policy/kl_ref").unit == "nats/sequence"
    assert metric_figure(view, "policy/kl_ref").layout.yaxis.title.text == "nats/sequence"


def test_positive_metrics_over_decades_get_a_log_axis_and_zeros_are_not_lost() -> None:
    values = [10 ** (step / 20) for step in range(80)] + [0.0]
    figure = metric_figure(history(values).view(), NAME)
    assert figure.layout.yaxis.type == "log"
    assert figure.data[0].y[-1] is None and "0 (below" in figure.data[1].text[0]


@pytest.mark.parametrize("values", [[1.0] * 50, [1.0, 2.0] * 30, [0.0] * 30 + [5.0] * 30, [1e-9] + [0.1] * 99, []])
def test_other_series_stay_linear(values: list[float]) -> None:
    assert not wants_log(np.array(values))


def test_a_metric_that_may_be_negative_never_gets_a_log_axis() -> None:
    view = history([10 ** (step / 10) for step in range(40)], "reward/mean").view()
    assert metric_figure(view, "reward/mean").layout.yaxis.type == "linear"


def test_an_axis_can_be_asked_for_and_is_given_where_it_can_show_the_values() -> None:
    view = history([1.0, 2.0, -1.0, 4.0], "reward/mean").view()
    figure = metric_figure(view, "reward/mean", y="log")
    assert figure.layout.yaxis.type == "log" and "-1 (below the log axis)" in figure.data[1].text[0]
    steep = history([10 ** (step / 20) for step in range(80)]).view()
    assert metric_figure(steep, NAME, y="linear").layout.yaxis.type == "linear"
    below = history([-1.0, -2.0, 3.0], "reward/mean").view()
    assert metric_figure(below, "reward/mean", y="log").layout.yaxis.type == "linear"


def test_points_are_dotted_only_where_there_are_few() -> None:
    few, many = History(), History()
    for step in range(0, 400, 10):
        few.append(step, {NAME: 1.0})
    for step in range(5000):
        many.append(step, {NAME: float(step % 7)})
    assert metric_figure(few.view(), NAME).data[0].mode == "lines+markers"
    assert metric_figure(many.view(), NAME).data[0].mode == "lines", "thinned points have gaps between them, too"


def test_tokens_replace_steps_on_the_axis_and_in_marks() -> None:
    run = History()
    for step in range(1, 9):
        run.append(step, {NAME: 1.0, "tokens/total": 100 * step})
    figure = metric_figure(run.view(), NAME, findings=[finding()], x="tokens")
    assert list(figure.data[0].x) == [100.0 * step for step in range(1, 9)]
    assert figure.layout.shapes[0].x0 == 300


def test_without_tokens_the_axis_stays_steps() -> None:
    figure = metric_figure(history([1.0, 2.0]).view(), NAME, x="tokens")
    assert figure.layout.xaxis.title.text == "step"


def test_a_figure_shows_no_more_than_its_view() -> None:
    run = history([1.0] * 50)
    assert metric_figure(run.view(20), NAME).to_json() == metric_figure(history([1.0] * 20).view(), NAME).to_json()


def test_an_unmeasured_metric_is_an_empty_chart() -> None:
    assert list(metric_figure(History().view(), NAME).data[0].x) == []


def test_themes_differ_in_colour_alone() -> None:
    view = history([1.0, 2.0, math.nan]).view()
    light, dark = (metric_figure(view, NAME, findings=[finding()], theme=theme) for theme in ("light", "dark"))
    assert light.data[0].y == dark.data[0].y and light.data[0].line.color != dark.data[0].line.color
    with pytest.raises(ValueError, match="'light' or 'dark'"):
        metric_figure(view, NAME, theme="blue")


# --- what happened ----------------------------------------------------------------------------------------------------


def test_an_incident_is_a_span_with_icon_word_and_hover() -> None:
    figure = metric_figure(history([1.0] * 10).view(), NAME, findings=[finding()])
    span = figure.layout.shapes[0]
    assert (span.x0, span.x1) == (3, 10)  # it still stands, so it reaches to now
    assert span.fillcolor == PALETTES["light"].severity["warn"]
    assert figure.layout.annotations[0].text.startswith(f"{ICONS['warn']} warning · grad-spike")
    assert "it jumped" in texts(figure)


def test_a_resolved_incident_ends_and_is_fainter() -> None:
    view = history([1.0] * 10).view()
    standing = metric_figure(view, NAME, findings=[finding()]).layout.shapes[0]
    over = metric_figure(view, NAME, findings=[finding(), finding(state="resolved")]).layout
    assert over.shapes[0].x1 == 6 and over.shapes[0].opacity < standing.opacity
    assert "resolved" in over.annotations[0].text


def test_on_charts_of_other_metrics_an_incident_is_faint_and_unlabelled() -> None:
    view = history([1.0] * 10, "policy/entropy").view()
    figure = metric_figure(view, "policy/entropy", findings=[finding()])
    assert not figure.layout.annotations and figure.layout.shapes[0].opacity < 0.1


def test_spans_that_stand_are_the_shapes_that_grow() -> None:
    records = [finding(state="resolved"), finding(incident=2, onset_step=5), finding(incident=3, onset_step=1)]
    figure = metric_figure(history([1.0] * 10).view(), NAME, findings=records, actions=[Action("a", "applied", "r", 5)])
    assert open_spans(records) == [0, 2]
    assert [figure.layout.shapes[index].x1 for index in open_spans(records)] == [10, 10]


def test_labels_never_lie_on_one_another_and_what_stands_keeps_its_own() -> None:
    spikes = [finding(incident=n, onset_step=10 * n, last_step=10 * n + 2, state="resolved") for n in range(1, 20)]
    standing = finding(incident=20, onset_step=100, last_step=200, severity="critical")
    figure = metric_figure(history([1.0] * 200).view(), NAME, findings=[*spikes, standing])
    labels = figure.layout.annotations
    assert len(figure.layout.shapes) == 40 and "critical" in labels[0].text
    for row in (1, 14):
        ends = sorted(
            (a.x - wide, a.x) if a.xanchor == "right" else (a.x, a.x + wide)
            for a in labels
            if a.yshift == row and (wide := len(a.text) * LETTER * 200)
        )
        assert all(before[1] <= after[0] for before, after in pairwise(ends))
    assert 3 <= len(labels) < 20


def test_merged_findings_are_one_span() -> None:
    records = [finding(), finding(id="policy/kl-runaway", onset_step=2, severity="critical", evidence={})]
    (incident,) = incidents(records)
    assert (incident.severity, incident.onset, incident.lead.id) == ("critical", 2, "policy/kl-runaway")
    figure = metric_figure(history([1.0] * 10).view(), NAME, findings=records)
    assert len([shape for shape in figure.layout.shapes if shape.type == "rect"]) == 1
    assert "grad-spike" in figure.layout.annotations[0].text  # the finding this chart is about


def test_fixes_and_declared_events_are_lines_that_say_what_they_are() -> None:
    change = {"control/beta": (0.0, 0.01)}
    actions = [Action("a", entry, "raise-beta", 5, change=change) for entry in ("proposed", "applied", "verified")]
    events = [Event(4, "rollback", "back to 3"), Event(2, "note", "hello"), Event(6, "schedule", "lr down")]
    figure = metric_figure(history([1.0] * 10).view(), NAME, actions=actions, events=events)
    assert sorted(shape.x0 for shape in figure.layout.shapes) == [4, 5, 5, 6]
    told = texts(figure)
    assert "applied" in told and "control/beta 0 → 0.01" in told and "rollback" in told
    assert "proposed" not in told and "hello" not in told


def test_checkpoints_are_at_the_foot_of_the_chart() -> None:
    figure = metric_figure(history([1.0] * 10).view(), NAME, events=[Event(5, "checkpoint", "")])
    marks = figure.data[2]
    assert (list(marks.x), list(marks.marker.symbol)) == ([5.0], ["triangle-up"])
    assert marks.y[0] < 0.1 and "checkpoint" in marks.text[0] and not figure.layout.shapes


def test_an_abandoned_branch_is_drawn_behind_from_where_it_left() -> None:
    attempts = [{"attempt": 0, "from_step": 0, "parent": None}, {"attempt": 1, "from_step": 6, "parent": 0}]
    first = history([float(step) for step in range(1, 11)], attempts=attempts)
    second = first.fork(6, 1)
    second.append(6, {NAME: 0.5})
    (branch,) = abandoned({0: first, 1: second})
    figure = metric_figure(second.view(), NAME, abandoned=[branch])
    old = figure.data[-1]
    assert list(old.x) == [5, 6, 7, 8, 9, 10] and old.zorder == -1
    assert list(figure.data[0].x) == [1, 2, 3, 4, 5, 6]


def test_a_resume_that_lost_nothing_leaves_no_branch() -> None:
    attempts = [{"attempt": 0, "from_step": 0, "parent": None}, {"attempt": 1, "from_step": 11, "parent": 0}]
    first = history([1.0] * 10, attempts=attempts)
    second = first.fork(11, 1)
    figure = metric_figure(second.view(), NAME, abandoned=abandoned({0: first, 1: second}))
    assert len(figure.data) == 3


PAYLOADS = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "<a href='javascript:alert(1)'>x</a>",
    "<b>x</b>",
    "<svg/onload=alert(1)>",
    '"><img src=x>',
    "<br>",
    "<i>%{y}</i>",
    "&lt;b&gt;",
    '<a href="//evil">',
]


@pytest.mark.parametrize("text", PAYLOADS)
def test_text_of_a_run_is_escaped_everywhere(text: str) -> None:
    name = f"{text}/m"
    run = history([1.0, math.nan, 2.0], name, metrics={name: {"unit": text, "estimator": text}})
    figure = metric_figure(
        run.view(),
        [name, "reward/mean"],
        title=text,
        findings=[finding(id=f"a/{text}", summary=text, evidence={"metric": name})],
        events=[Event(2, "rollback", text)],
        actions=[Action("a", "applied", text, 2, text=text, change={text: (1.0, 2.0)})],
    )
    drawn_text = json.dumps(figure.to_plotly_json(), default=str)
    for ours in ("<b>", "</b>", "<br>", "<extra></extra>"):
        drawn_text = drawn_text.replace(ours, "")
    assert "<" not in drawn_text
    assert "%{y}" not in figure.data[0].hovertemplate


# --- size and growth --------------------------------------------------------------------------------------------------


def test_a_million_points_become_two_thousand_and_keep_the_spike() -> None:
    run = History()
    rng = np.random.default_rng(0)
    values = rng.normal(1, 0.1, (1_000_000, 1))
    values[623_456] = 77.0
    values[700_001] = np.nan
    block = Block((NAME,))
    for step, row in enumerate(values.tolist()):
        block.add(step, row)
    run.extend(block)
    figure = metric_figure(run.view(), NAME, findings=[finding(onset_step=345_678)])
    line = figure.data[0]
    assert len(line.x) <= MAX_POINTS and 77.0 in line.y
    assert {623_456, 700_001, 345_678} <= set(line.x)
    assert list(figure.data[1].x) == [700_001]
    assert len(figure.to_json()) < 300_000


@pytest.mark.parametrize("count", [0, 1, 7, 99, 100, 101, 1000, 12_345])
def test_thinning_keeps_order_extremes_and_budget(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    chosen = thin(values, 100)
    assert len(chosen) <= 100 and (np.diff(chosen) > 0).all()
    if count:
        assert values[chosen].max() == values.max() and values[chosen].min() == values.min()
        assert chosen[0] == 0 and chosen[-1] == count - 1


def test_thinning_survives_nothing_but_nan() -> None:
    assert 0 < len(thin(np.full(10_000, np.nan), 100)) <= 100
    alternating = np.where(np.arange(10_000) % 2, np.nan, 1.0)
    assert len(thin(alternating, 100)) <= 100


def test_growth_is_the_difference_between_two_drawings() -> None:
    run = history([1.0, 2.0, 3.0])
    before = drawn(run.view(), [NAME])
    run.append(4, {NAME: 4.0})
    run.append(5, {NAME: math.nan})
    grown = growth(run.view(), [NAME], before)
    assert grown.lines[0]["x"] == [4, 5] and grown.lines[0]["y"] == [4.0, None]
    assert grown.off_axis["x"] == [5] and grown.now == 5
    assert grown.drawn == drawn(run.view(), [NAME])


def test_growth_asks_for_a_new_drawing_when_the_axis_or_the_budget_changes() -> None:
    run = history([1.0] * 20)
    before = drawn(run.view(), [NAME])
    for step in range(21, 60):
        run.append(step, {NAME: 1000.0})
    assert growth(run.view(), [NAME], before) is None
    calm = history([1.0] * 20)
    before = drawn(calm.view(), [NAME], max_points=10)
    for step in range(21, 60):
        calm.append(step, {NAME: 1.0})
    assert growth(calm.view(), [NAME], before, max_points=10) is None


# --- which charts, which words ----------------------------------------------------------------------------------------


def test_core_charts_are_of_our_vocabulary_with_ids_of_their_own() -> None:
    names = [name for chart in CORE for name in chart.metrics]
    assert set(names) <= set(VOCABULARY) and len(names) == len(set(names))
    assert len({chart.id for chart in CORE}) == len(CORE)


def test_a_run_gets_the_charts_it_has_numbers_for() -> None:
    run = History()
    run.append(1, {"reward/mean": 1.0, "policy/kl_old": 0.1, "reward/format/mean": 0.5, "other/x": 1.0})
    assert [(chart.id, chart.metrics) for chart in charts(run.view())] == [
        ("reward", ("reward/mean",)),
        ("components", ("reward/format/mean",)),
        ("kl", ("policy/kl_old",)),
    ]


def test_settings_are_drawn_once_they_were_turned() -> None:
    run = History()
    for step, beta in enumerate((0.01, 0.01, 0.02), start=1):
        run.append(step, {"reward/mean": 1.0, "control/beta": beta, "batch/prompts": 32})
    assert [chart.id for chart in charts(run.view(2))] == ["reward"]
    assert [chart.id for chart in charts(run.view(3))] == ["reward", "knobs"]


def test_a_run_of_unknown_names_gets_its_own() -> None:
    assert [chart.metrics for chart in charts(history([1.0], "loss").view())] == [("loss",)]
    assert charts(History().view()) == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.123456, "0.1235"),
        (1234.5, "1,234.5"),
        (3.0, "3"),
        (math.nan, "NaN"),
        (-math.inf, "−Inf"),
        (None, "not set"),
        (10**7, "10,000,000"),
        ([1, 0.5], "1, 0.5"),
        ({"a": 1}, "a 1"),
        (True, "yes"),
        ("x", "x"),
        (2e-7, "2e-07"),
    ],
)
def test_values_are_said_in_few_words(value: object, words: str) -> None:
    assert short(value) == words


@pytest.mark.parametrize(("value", "words"), [(1020.4, "1,020"), (123_456.0, "123,000"), (0.01234, "0.0123")])
def test_a_rounded_number_has_no_power_of_ten(value: float, words: str) -> None:
    assert rounded(value) == words


def test_hover_texts_write_large_numbers_out() -> None:
    assert hover_number([0.5, math.nan, -20_000.0]) == ",.4~r"
    assert hover_number([0.5, math.inf]) == ".4g" == hover_number([])


def test_changes_and_concerns_are_read_from_records() -> None:
    assert change_words({"control/beta": (None, 0.01)}) == ["control/beta ? → 0.01"]
    nested = finding(evidence={"a": ["policy/kl_ref", {"policy/entropy": 1}], "text": "plain"})
    assert concerns(nested) == {"policy/kl_ref", "policy/entropy"}


def test_one_tiny_value_does_not_stretch_a_log_axis() -> None:
    values = [8.6e-14] + [10 ** (-2 + step / 20) for step in range(80)]
    figure = metric_figure(history(values).view(), NAME)
    assert figure.layout.yaxis.type == "log"
    assert figure.data[0].y[0] is None and "8.6e-14 (below the log axis)" in figure.data[1].text[0]
    assert None not in figure.data[0].y[1:]


def test_a_log_axis_shows_a_metric_that_grows_over_many_decades_whole() -> None:
    values = [10 ** (-9 + step / 10) for step in range(100)]
    figure = metric_figure(history(values).view(), NAME)
    assert figure.layout.yaxis.type == "log" and None not in figure.data[0].y


@pytest.mark.parametrize("noise", [0.0, 1e-17])
def test_a_constant_has_an_axis_on_which_it_looks_constant(noise: float) -> None:
    values = [0.03 + noise * (step % 3) for step in range(50)]
    include = metric_figure(history(values).view(), NAME).layout.yaxis.autorangeoptions.include
    assert include[0] < 0.0299 and include[1] > 0.0301
    assert metric_figure(history([0.03, 0.04]).view(), NAME).layout.yaxis.autorangeoptions.include is None


def test_a_range_has_its_points_in_full_and_a_y_axis_that_fits_them() -> None:
    values = [float(step % 7) if step < 5_000 else 1000.0 + step for step in range(9_000)]
    view = history(values).view()
    whole = metric_figure(view, NAME, y="linear")
    drawn = len(whole.data[0].x)
    assert drawn < 2_100 and whole.layout.xaxis.title.text == f"step · {drawn:,} of 9,000 points"
    figure = metric_figure(view, NAME, y="linear", window=(100.0, 400.0))
    assert [x for x in figure.data[0].x if 100 <= x <= 400] == list(range(100, 401))
    assert figure.layout.xaxis.title.text == "step"
    low, high = figure.layout.yaxis.range
    assert -1 < low <= 0 and 6 <= high < 7


def test_a_range_along_time_and_along_tokens_takes_the_points_that_lie_in_it() -> None:
    run = History()
    for step in range(1, 5_001):
        run.append(step, {NAME: float(step), "tokens/total": 10.0 * step})
    figure = metric_figure(run.view(), NAME, x="tokens", y="linear", window=(20_000.0, 21_000.0))
    assert [x for x in figure.data[0].x if 20_000 <= x <= 21_000] == [10.0 * step for step in range(2_000, 2_101)]
