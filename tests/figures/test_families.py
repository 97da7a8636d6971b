"""Every metric has a chart, once, in its family, and can be found."""

from __future__ import annotations

import time

import pytest

from stabilizer.core.metrics import VOCABULARY
from stabilizer.figures import FAMILIES, charts, every_chart, others, searched
from stabilizer.figures.families import chart_id, family_of
from stabilizer.runs.history import History

NAMES = (
    "reward/mean",
    "optim/lr",
    "policy/ess",
    "policy/kl_old",
    "trl/x",
    "loss",
    "value/loss",
    "<b>",
    "control/beta",
    "π/κ",
)


def run(names: tuple[str, ...] = NAMES) -> History:
    history = History()
    for step in (1, 2):
        history.append(step, dict.fromkeys(names, float(step)))
    return history


@pytest.mark.parametrize("names", [NAMES, tuple(VOCABULARY), ("loss",), ()])
def test_every_metric_is_on_one_chart(names: tuple[str, ...]) -> None:
    view = run(names).view()
    shown = [name for chart in every_chart(view).values() for name in chart.metrics]
    assert sorted(shown) == sorted(names)


def test_metrics_beyond_the_first_charts_are_in_families() -> None:
    history = run(("reward/mean", "policy/dual_clip_frac", "accuracy/x", "time/eval_s", "trl/x", "loss"))
    left = {id: [chart.title for chart in members] for id, members in others(history.view()).items() if members}
    assert left == {
        "reward": ["accuracy/x"],
        "policy": ["policy/dual_clip_frac"],
        "speed": ["time/eval_s"],
        "other": ["loss", "trl/x"],
    }


def test_every_family_of_the_vocabulary_is_known() -> None:
    assert "other" not in {family_of(name) for name in VOCABULARY}
    assert {family_of(name) for name in VOCABULARY} | {"other"} == set(FAMILIES)


def test_a_chart_is_named_after_its_metric_where_that_is_plain() -> None:
    assert chart_id("policy/ess") == "policy/ess"
    ids = [chart_id(name) for name in ("reward", "a.b", "a..b/c", "<img>", "π/κ", "a b/c", "\ud800/x")]
    assert len(set(ids)) == len(ids) and all(id.startswith("m-") and id.isascii() for id in ids)


def test_names_are_searched_in_any_case_and_by_any_line_of_a_chart() -> None:
    every = every_chart(run().view()).values()
    assert [chart.id for chart in searched(every, "KL_old")] == ["kl"]
    assert {chart.id for chart in searched(every, "policy/*|LOSS")} == {"kl", "ess", "value", chart_id("loss")}


def test_the_pieces_of_a_search_stand_in_a_name_in_order() -> None:
    every = every_chart(run(("alpha/beta/gamma",)).view()).values()
    for words, found in (("a*gamma", 1), ("beta*alpha", 0), ("*gam*", 1), ("alpha/beta*beta", 0), ("*", 0), ("|", 0)):
        assert len(searched(every, words)) == found, words


@pytest.mark.parametrize("words", ["(", "[", "a{2,1}", "(?P<", "\\", "(a+)+$", ".*"])
def test_a_search_is_words_and_never_a_regular_expression(words: str) -> None:
    every = every_chart(run((f"odd{words}name", "aaaa")).view()).values()
    assert [chart.metrics for chart in searched(every, words)] == [(f"odd{words}name",)]


def test_a_search_of_too_many_characters_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="at most 200 characters"):
        searched((), "x" * 201)


@pytest.mark.parametrize("words", ["a*a*a*a*b", "a*" * 99 + "b", "*".join("a" * 100), "a?" * 60 + "b"])
def test_no_search_takes_longer_than_a_moment(words: str) -> None:
    every = every_chart(run(tuple("a" * 400 + str(n) for n in range(200))).view()).values()
    began = time.process_time()
    assert not [chart for chart in searched(every, words) if "b" in words]
    assert time.process_time() - began < 1


def test_a_run_of_unknown_names_has_them_once() -> None:
    view = run(tuple(f"m{n}" for n in range(40))).view()
    first = charts(view)
    assert len(first) + sum(map(len, others(view).values())) == 40
