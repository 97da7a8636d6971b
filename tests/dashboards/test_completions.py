"""Completions: what is read, what is chosen of it, and what a viewer is shown, whatever the texts hold."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from page_client import CALM, Client, components

from dashboards.app import build
from dashboards.data import text_search
from dashboards.data.completions import PER_PAGE, CompletionsQuery, nearest, view_of_step, whole_text
from dashboards.data.completions_store import MAX_ROWS, CompletionsStore, LogCompletions, read_step
from dashboards.data.distributions import MOST_STEPS, chosen, spread_of
from dashboards.data.model_text import MAX_PIECES, excerpt, one_line, pieces, spelt, word_diff
from dashboards.data.text_search import PatternError, find
from stabilizer.analysis.importing import write_run
from stabilizer.core.records import Sample, encode
from stabilizer.figures.completions import GroupRewards, group_rewards_figure
from stabilizer.figures.spread import spread_figure
from stabilizer.runs.loaded import Texts
from stabilizer.runs.reader import RunError
from stabilizer.trainers.reading import load

RLO, ESC = "\u202e", "\x1b"
HOSTILE = (
    f'<img src=x onerror="window.pwned=1"> {ESC}[31mred{ESC}[0m {RLO}gnp.exe\u2069 a\u200bb\r\x00\x85 &amp; \U000e0041'
)


def sample(step: int, group: int, reward: float, text: str = "42", **more: Any) -> Sample:
    return Sample(step, group, more.pop("prompt", f"{group}+1="), text, reward, reward - 0.5, length=len(text), **more)


def log(run: Path, step: int, samples: list[Sample], rank: int = 0) -> None:
    file = run / "samples" / f"{step:06d}-r{rank}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "ab") as out:
        out.write(b"".join(map(encode, samples)))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for step in (10, 20, 30):
        group0 = [
            sample(step, 0, float(i == 0), f"answer {i} of {step}", rewards={"exact": float(i == 0), "short": 0.1})
            for i in range(4)
        ]
        group1 = [sample(step, 1, 0.0, "no " * (i + 1), truncated=i == 3) for i in range(4)]
        log(tmp_path, step, [*group0, *group1])
    return tmp_path


# --- texts ------------------------------------------------------------------------------------------------------------


def test_what_a_screen_hides_or_obeys_is_spelt_out_and_the_rest_kept_as_it_is() -> None:
    shown = pieces(HOSTILE)
    text = "".join(piece.text for piece in shown)
    assert text.startswith(
        '<img src=x onerror="window.pwned=1"> ⟨ESC⟩[31mred⟨ESC⟩[0m ⟨RLO⟩gnp.exe⟨PDI⟩ a⟨ZWSP⟩b⟨CR⟩⟨NUL⟩⟨U+0085⟩ &amp;'
    )
    assert {piece.kind for piece in shown} == {"", "odd"} and RLO not in text and ESC not in text
    assert spelt("\x7f") == "⟨DEL⟩"


@pytest.mark.parametrize("text", ["  two\n\n\tlines  ", "שלום عليكم", "👩‍👩‍👧 é", "x = {a: 'b'} <|im_end|>"])
def test_ordinary_text_stays_one_piece_exactly_as_written(text: str) -> None:
    assert [piece.text for piece in pieces(text)] == [text]


def test_a_text_of_nothing_but_hidden_characters_stays_small_on_the_page() -> None:
    text = (ESC + "x") * 50_000
    shown = pieces(text)
    assert len(shown) <= MAX_PIECES + 2 and "".join(p.text for p in shown) == "⟨ESC⟩x" * 50_000


def test_an_excerpt_shows_the_hit_even_far_into_a_long_text() -> None:
    text = "a" * 5000 + "needle" + "b" * 5000
    shown = excerpt(text, 700, [(5000, 5006)])
    assert [p.text for p in shown.pieces if p.kind == "hit"] == ["needle"]
    assert shown.before + shown.after + sum(len(p.text) for p in shown.pieces) == len(text)


def test_a_label_is_one_line_of_bounded_length() -> None:
    assert one_line(f"two\n lines {RLO}", 60) == "two lines ⟨RLO⟩" and len(one_line("x" * 10_000, 60)) == 61


def test_words_that_went_and_came_are_told_apart() -> None:
    shown = word_diff("the sum is 41", "the sum is 42 indeed")
    assert [p.text for p in shown if p.kind == "gone"] == ["41"]
    assert "".join(p.text for p in shown if p.kind != "gone") == "the sum is 42 indeed"
    assert word_diff("a. " * 1000, "b") is None and word_diff("x" * 300_000, "b") is None


def test_texts_of_thousands_of_words_are_compared_and_their_long_common_passages_shortened() -> None:
    before = " ".join(f"step {n} follows from step {n - 1}." for n in range(600))
    shown = word_diff(before, before.replace("step 300 follows", "step 300 is guessed"))
    assert "follows" in [p.text for p in shown if p.kind == "gone"]
    assert "is guessed" in [p.text for p in shown if p.kind == "new"]
    assert "characters the same" in shown[0].text and sum(len(p.text) for p in shown) < 2_000


def test_repeating_texts_are_compared_in_little_time() -> None:
    began = time.process_time()
    word_diff("a. " * 690, "b. a. " * 340)
    assert time.process_time() - began < 1.0


# --- the right answer, and all steps at once --------------------------------------------------------------------------


def test_the_right_answer_is_shown_under_its_prompt_where_it_was_logged(tmp_path: Path) -> None:
    log(tmp_path, 1, [sample(1, 0, 1.0, expected="42"), sample(1, 1, 0.0, "7")])
    first, second = view_of_step(CompletionsStore(), tmp_path, 1, CompletionsQuery()).groups
    assert first.expected.pieces[0].text == "42" and second.expected.pieces == ()
    assert b"expected" not in encode(sample(1, 0, 1.0))


def test_the_spread_over_steps_counts_each_step_on_its_own(run: Path) -> None:
    found = spread_of(CompletionsStore(), run, "reward")
    assert found.steps == (10, 20, 30) and found.counts == (8, 8, 8) and found.lines == (0.0, 0.0, 0.0)
    assert all(sum(share) == pytest.approx(1) for share in found.shares)
    assert found.shares[0][0] == 7 / 8 and found.shares[0][-1] == 1 / 8
    assert spread_of(CompletionsStore(), run, "reward", "short").lines == (0.1, 0.1, 0.1)
    spread_figure(found)


def test_the_spread_of_numbers_that_are_not_finite_or_all_alike_is_drawn(tmp_path: Path) -> None:
    log(tmp_path, 1, [sample(1, 0, math.nan), sample(1, 0, math.inf), sample(1, 0, 0.5)])
    log(tmp_path, 2, [sample(2, 0, math.nan)])
    found = spread_of(CompletionsStore(), tmp_path, "reward")
    assert found.steps == (1,) and found.counts == (1,)
    spread_figure(found)
    spread_figure(spread_of(CompletionsStore(), tmp_path / "none", "length"))


def test_the_spread_of_tokens_has_their_mean_surprise_and_is_offered_only_where_tokens_are_logged(
    client: Client, runs_folder: Path
) -> None:
    run = runs_folder / CALM
    log(run, 1, [sample(1, 0, 1.0)])
    assert "tokens by step" not in json.dumps(client.open("/completions", f"?run={CALM}"))
    log(run, 2, [sample(2, 0, 1.0, tokens=("a", "b", "tool"), logps=(-1.0, -3.0, None)), sample(2, 0, 0.0)])
    found = spread_of(CompletionsStore(), run, "tokens")
    assert found.steps == (2,) and found.counts == (2,) and found.lines == (2.0,) and found.of == "tokens"
    assert "tokens by step" in json.dumps(client.open("/completions", f"?run={CALM}"))


def test_at_most_sixty_steps_are_read_the_first_and_newest_among_them() -> None:
    assert chosen(range(1000))[0] == 0 and chosen(range(1000))[-1] == 999 and len(chosen(range(1000))) == MOST_STEPS


# --- searching --------------------------------------------------------------------------------------------------------


def test_plain_search_takes_patterns_as_they_are_and_ignores_case() -> None:
    assert find("A.b", ["xa.B", "axb"]) == [[(1, 4)], None]


def test_a_pattern_finds_and_a_broken_one_says_what_is_wrong() -> None:
    assert find(r"\d+", ["ab 12 3", "none"], regex=True) == [[(3, 5), (6, 7)], None]
    with pytest.raises(PatternError, match="not a regular expression.*Turn regex off"):
        find("(", ["x"], regex=True)


def test_a_pattern_that_would_take_forever_is_given_up() -> None:
    began = time.monotonic()
    with pytest.raises(PatternError, match="make it narrower"):
        find("(a+)+$", ["a" * 40 + "b"], regex=True, seconds=0.5)
    assert time.monotonic() - began < 30


# --- reading ----------------------------------------------------------------------------------------------------------


def test_steps_are_listed_without_opening_a_file(run: Path) -> None:
    for path in (run / "samples").iterdir():
        path.write_bytes(b"\xff not a record")
    (run / "samples" / "notes.txt").write_text("")
    assert CompletionsStore().steps(run) == [10, 20, 30]


def test_a_step_taken_again_after_a_rollback_keeps_both_and_shows_the_newest(run: Path) -> None:
    log(run, 20, [sample(20, 0, 1.0, "again"), sample(20, 1, 1.0, "again")])
    found = view_of_step(CompletionsStore(), run, 20, CompletionsQuery())
    assert (found.takes, found.take, found.total) == (2, 2, 2) and "ran 2 times" in found.notes[0]
    assert view_of_step(CompletionsStore(), run, 20, CompletionsQuery(take=1)).total == 8


def test_damage_and_size_are_said_and_nothing_blocks(run: Path) -> None:
    file = run / "samples" / "000010-r0.jsonl"
    file.write_bytes(b"{}\n\xff\n" + encode(sample(10, 0, 1.0)) + b'{"step": 10, "torn')
    held = CompletionsStore().step(run, 10)
    assert len(held.rows) == 1 and held.skipped == 2
    os.mkfifo(run / "samples" / "000040-r0.jsonl")
    assert CompletionsStore().step(run, 40).rows == ()
    log(run, 50, [sample(50, 0, 1.0)] * (MAX_ROWS + 5))
    assert read_step(50, [run / "samples" / "000050-r0.jsonl"]).cut


def test_a_step_is_read_once_until_it_changes(run: Path) -> None:
    store = CompletionsStore()
    first = store.step(run, 10)
    assert store.step(run, 10) is first
    log(run, 10, [sample(10, 2, 1.0)])
    assert len(store.step(run, 10).rows) == 9


def test_ranks_keep_their_groups_apart(run: Path) -> None:
    log(run, 20, [sample(20, 0, 1.0, prompt="other")], rank=1)
    labels = [group.label for group in view_of_step(CompletionsStore(), run, 20, CompletionsQuery()).groups]
    assert labels == ["rank 0, group 0", "rank 0, group 1", "rank 1, group 0"]


def test_the_same_prompt_is_found_in_other_steps_nearest_first(run: Path) -> None:
    assert CompletionsStore().elsewhere(run, 30, "0+1=") == [20, 10]
    assert CompletionsStore().elsewhere(run, 30, "never asked") == []


# --- choosing ---------------------------------------------------------------------------------------------------------


def test_groups_say_what_they_got(run: Path) -> None:
    first, second = view_of_step(CompletionsStore(), run, 30, CompletionsQuery()).groups
    assert (first.count, first.mean, first.outcome) == (4, 0.25, "") and first.std == pytest.approx(0.5)
    assert (second.mean, second.std, second.outcome) == (0.0, 0.0, "wrong")


def test_the_tasks_own_judgement_counts_more_than_the_reward(tmp_path: Path) -> None:
    log(tmp_path, 1, [sample(1, 0, 0.9, solved=False), sample(1, 0, 0.1, solved=True)])
    found = view_of_step(CompletionsStore(), tmp_path, 1, CompletionsQuery(only="right"))
    assert found.groups[0].items[0].reward == 0.1 and "as logged by the task" in found.judged


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (CompletionsQuery(only="right"), 1),
        (CompletionsQuery(only="wrong"), 7),
        (CompletionsQuery(cut=True), 1),
        (CompletionsQuery(low=0.5), 1),
        (CompletionsQuery(high=0.5), 7),
        (CompletionsQuery(by="short", low=0.05), 4),
        (CompletionsQuery(q="ANSWER 2"), 1),
        (CompletionsQuery(q="1+1="), 4),
        (CompletionsQuery(q="^no no$|no no $", regex=True), 3),
        (CompletionsQuery(q="nowhere"), 0),
        (CompletionsQuery(by="gone"), 8),
    ],
)
def test_filters(run: Path, wanted: CompletionsQuery, expected: int) -> None:
    found = view_of_step(CompletionsStore(), run, 30, wanted)
    assert (found.found, found.total, found.problem) == (expected, 8, "")


def test_a_broken_pattern_is_said_and_nothing_is_shown(run: Path) -> None:
    found = view_of_step(CompletionsStore(), run, 30, CompletionsQuery(q="(", regex=True))
    assert "not a regular expression" in found.problem and found.groups == ()


def test_orders_put_what_is_no_number_last(tmp_path: Path) -> None:
    log(tmp_path, 1, [sample(1, 0, reward, "x" * n) for n, reward in enumerate((0.5, float("nan"), 1.0, -1.0))])
    order = {
        sort: [
            i.index
            for g in view_of_step(CompletionsStore(), tmp_path, 1, CompletionsQuery(sort=sort)).groups
            for i in g.items
        ]
        for sort in ("reward", "-reward", "length")
    }
    assert order == {"reward": [2, 0, 3, 1], "-reward": [3, 0, 2, 1], "length": [3, 2, 1, 0]}


def test_a_step_without_completions_leads_to_the_nearest_before_it(run: Path) -> None:
    found = view_of_step(CompletionsStore(), run, 28, CompletionsQuery())
    assert found.step == 20 and "step 28 logged no completions" in found.notes[0]
    assert nearest([10, 20], 3) == 10 and nearest([10, 20], None) == 20


def test_another_step_is_held_against_this_one_best_against_best(run: Path) -> None:
    found = view_of_step(CompletionsStore(), run, 30, CompletionsQuery(vs=10))
    best = found.groups[0].items[0]
    assert [p.text for p in best.diff if p.kind == "new"] == ["30"] and "reward 1" in best.diff_note
    assert "4 completions of this prompt at step 10" in found.groups[0].vs_note
    same = found.groups[1].items[0]
    assert same.diff is None and "same text" in same.diff_note and same.text.pieces
    log(run, 40, [sample(40, 0, 1.0, prompt="new")])
    assert (
        "did not log this prompt"
        in view_of_step(CompletionsStore(), run, 40, CompletionsQuery(vs=10)).groups[0].vs_note
    )


def test_tokens_are_coloured_by_their_probability(tmp_path: Path) -> None:
    log(tmp_path, 1, [sample(1, 0, 1.0, tokens=("a", "b", "\n", "c"), logps=(-0.01, -3.5, None, float("nan")))])
    (item,) = view_of_step(CompletionsStore(), tmp_path, 1, CompletionsQuery(tokens=True)).groups[0].items
    assert [shade for _, shade, _ in item.tokens] == ["t0", "t4", "tn", "tn"]
    assert view_of_step(CompletionsStore(), tmp_path, 1, CompletionsQuery()).groups[0].items[0].tokens == ()


def test_the_address_says_everything_and_nonsense_in_it_counts_as_not_given() -> None:
    wanted = CompletionsQuery(
        q="a&b", regex=True, low=-0.5, only="right", cut=True, sort="-length", page=3, vs=10, whole=True
    )
    assert CompletionsQuery.of(wanted.query()) == wanted and CompletionsQuery().query() == {}
    nonsense = {"low": "x", "page": "-4", "sort": "DROP", "only": "../", "vs": "1e999", "take": "nan", "cut": "maybe"}
    assert CompletionsQuery.of(nonsense) == CompletionsQuery()


# --- the picture ------------------------------------------------------------------------------------------------------


def test_groups_are_drawn_from_the_lowest_mean_up_and_text_in_them_is_no_markup() -> None:
    groups = [GroupRewards("<b>b</b>", (1.0, 0.0, float("nan"))), GroupRewards("a", (0.0, 0.0))]
    differ, alike = group_rewards_figure(groups).data
    assert list(differ.x) == [2, 2] and sorted(differ.y) == [0.0, 1.0] and list(alike.x) == [1]
    assert "&lt;b&gt;" in differ.text[0]


def test_ten_thousand_groups_make_a_small_picture() -> None:
    figure = group_rewards_figure([GroupRewards(str(i), (0.0, i / 10_000)) for i in range(10_000)])
    assert sum(len(trace.x) for trace in figure.data) <= 3000


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def logged(runs_folder: Path) -> Path:
    folder = runs_folder / CALM
    for step in (5, 10):
        log(
            folder, step, [sample(step, g, float(g == i), f"step {step} {HOSTILE}") for g in range(3) for i in range(4)]
        )
    return folder


def text_of(tree: Any) -> str:
    return json.dumps(tree, ensure_ascii=False)


def controls(client: Client, search: str) -> dict[str, Any]:
    """What a browser would send of the page's controls."""
    tree = client.open("/completions", search)
    parts = {c["props"]["id"]: c["props"] for c in components(tree) if isinstance(c["props"].get("id"), str)}
    return {f"{id}.{name}": value for id, props in parts.items() for name, value in props.items() if name != "id"}


def test_the_newest_step_opens_and_a_link_opens_its_own(client: Client, logged: Path) -> None:
    assert "following the newest" in text_of(client.open("/completions", f"?run={CALM}"))
    assert "following the newest" not in text_of(client.open("/completions", f"?run={CALM}&step=5"))
    shown = text_of(client.open("/completions", f"?run={CALM}&step=7&q=step+5"))
    assert "step 7 logged no completions" in shown and '"type": "Mark"' in shown


def test_walking_through_steps_changes_list_and_address(client: Client, logged: Path) -> None:
    values = controls(client, f"?run={CALM}&step=10&sort=-length")
    answer = client.call("completions-list", "completions-prev.n_clicks", values)
    assert answer["completions-at"]["data"]["step"] == 5
    assert answer["completions-query"]["data"] == f"run={CALM}&step=5&sort=-length"


def test_a_new_step_is_followed_and_a_chosen_one_stays(client: Client, logged: Path) -> None:
    following, chosen = controls(client, f"?run={CALM}"), controls(client, f"?run={CALM}&step=5")
    assert client.call("completions-steps", "completions-news.n_intervals", following) is None
    log(logged, 15, [sample(15, 0, 1.0)])
    news = client.call("completions-steps", "completions-news.n_intervals", following)
    assert news == {"completions-steps": {"data": 3}, "completions-slider": {"max": 2}}
    answer = client.call("completions-list", "completions-steps.data", following)
    assert answer["completions-at"]["data"]["shown"] == 15
    quiet = client.call("completions-steps", "completions-news.n_intervals", chosen)
    assert quiet == {"completions-slider": {"max": 2}}


DUMPS = Path(__file__).parent.parent / "trainers" / "samples" / "verl-dumps"


def test_another_trainers_completions_are_read_in_place_and_once_imported(tmp_path: Path) -> None:
    shutil.copytree(DUMPS / "rollout", tmp_path / "rollout")
    write_run(load(DUMPS / "rollout"), tmp_path / "imported")
    client = Client(build([tmp_path]))
    client.app.runs.logs.settle()
    for run in ("rollout", "imported"):
        shown = text_of(client.open("/completions", f"?run={run}&step=2&by=format_reward"))
        assert "What is 3 + 6?" in shown and "#### 9" in shown and "12 in 3 groups" in shown
        assert re.search(r"\d characters", shown) and not re.search(r"\d tokens", shown)
        assert not re.search(r'"advantage [^"b]', shown)  # not in the dump
        values = controls(client, f"?run={run}&step=10")
        answer = client.call("completions-list", "completions-prev.n_clicks", values)
        assert answer["completions-at"]["data"]["step"] == 2


def test_a_log_whose_files_went_away_shows_an_empty_step() -> None:
    def gone(step: int) -> list[Sample]:
        raise RunError("no such file") if step == 1 else FileNotFoundError(step)

    store = LogCompletions(Texts((1, 2), gone))
    assert [view_of_step(store, Path(), step, CompletionsQuery()).total for step in (1, 2)] == [0, 0]


def test_lengths_nobody_counted_are_characters() -> None:
    texts = Texts((1,), lambda step: [Sample(1, 0, "p", "x" * n, 1.0, math.nan) for n in (30, 10)])
    found = view_of_step(LogCompletions(texts), Path(), 1, CompletionsQuery(sort="-length"))
    assert [item.length for item in found.groups[0].items] == ["10 characters", "30 characters"]
    assert dict(found.summary)["length, mean and max"] == "20.0, 30 characters"


def test_empty_and_unknown_runs_say_what_to_do(client: Client, runs_folder: Path) -> None:
    assert "samples.every=1" in text_of(client.open("/completions", f"?run={CALM}"))
    assert "no such run" in text_of(client.open("/completions", "?run=../../etc&step=../../passwd"))


def test_run_text_is_only_ever_a_child(client: Client, logged: Path) -> None:
    for component in components(client.open("/completions", f"?run={CALM}&whole=1")):
        for name, value in component["props"].items():
            if name not in ("children", "figure", "content"):
                assert "onerror" not in json.dumps(value), (component["type"], name)


def test_ten_thousand_completions_are_paged(client: Client, logged: Path) -> None:
    log(logged, 20, [sample(20, g, float(i % 3), "word " * 400) for g in range(1250) for i in range(8)])
    tree = client.open("/completions", f"?run={CALM}&page=7")
    assert sum(c["props"].get("className") == "sample" for c in components(tree)) == PER_PAGE
    assert len(text_of(tree)) < 300_000


def test_a_whole_text_is_given_by_number_alone(logged: Path) -> None:
    assert whole_text(CompletionsStore(), logged, 5, 0) == f"step 5 {HOSTILE}"
    assert (
        whole_text(CompletionsStore(), logged, 5, -1) is None
        and whole_text(CompletionsStore(), logged, 5, 10**9) is None
    )


def test_rewards_too_large_to_average_and_files_that_cannot_be_opened_take_no_page_down(
    client: Client, logged: Path
) -> None:
    log(logged, 15, [sample(15, 0, 1.7e308), sample(15, 0, 1.7e308), sample(15, 0, -1.7e308)])
    assert "1.7e+308" in text_of(client.open("/completions", f"?run={CALM}&step=15"))
    loop = logged / "samples" / "000020-r0.jsonl"
    loop.symlink_to(loop.name)
    assert "step 20" in text_of(client.open("/completions", f"?run={CALM}&step=20"))


def test_patterns_that_take_long_leave_threads_to_those_who_look() -> None:
    assert text_search.AT_ONCE.acquire() and text_search.AT_ONCE.acquire()
    try:
        with pytest.raises(text_search.PatternError, match="try again in a moment"):
            text_search.find("a+", ["aa"], regex=True)
        assert text_search.find("a", ["ab"]) == [[(0, 1)]]
    finally:
        text_search.AT_ONCE.release(2)
    assert text_search.find("a+", ["aa"], regex=True) == [[(0, 2)]]
