"""Comparing runs on a page: what is asked and answered, who waits for whom, and what a viewer is shown."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_client import Client, components
from synthetic_run import EXPLOSION, record, values

from dashboards.app import build
from dashboards.data.comparison import MAX_RUNS, WAITING, Answer, Comparer, Comparisons, Question, question_of, stamp
from dashboards.data.worker import Worker
from dashboards.pages import compare as page
from stabilizer.core.records import Action
from stabilizer.runs.writer import RunWriter


def trained(path: Path, steps: int = 60, seed: int = 0, **settings: Any) -> Path:
    config = {"optim": {"lr": 3e-5}, "policy": {"beta": 0.0}, "seed": seed, **settings}
    writer = RunWriter.create(path, config=config, task="addition", steps=steps, argv=[])
    for step in range(1, steps + 1):
        writer.metrics(step, {name: v + 0.01 * seed for name, v in values(step).items()})
    writer.status("finished", steps, force=True)
    writer.close()
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    runs = tmp_path / "runs"
    for seed in range(2):
        trained(runs / f"plain-{seed}", seed=seed)
    trained(runs / "anchored", policy={"beta": 0.01})
    return runs


def question(folder: Path, *ids: str, **more: Any) -> Question:
    paths = [folder / id for id in ids]
    return Question(tuple(zip(ids, paths, strict=True)), stamps=tuple(map(stamp, paths)), **more)


# --- the address ------------------------------------------------------------------------------------------------------


def test_an_address_names_known_runs_even_with_commas_and_says_what_is_lost() -> None:
    known = {"a,b": Path("x"), "a": Path("y"), "c": Path("z")}
    asked, lost = question_of({"runs": "a%2Cb,c,../../etc,c", "ref": "c", "group": "policy.beta", "x": "share"}, known)
    assert [id for id, _ in asked.runs] == ["a,b", "c"] and lost == ["../../etc"]
    assert (asked.ref, asked.by, asked.x) == ("c", "policy.beta", "share")


def test_nonsense_in_an_address_is_as_good_as_nothing() -> None:
    asked, lost = question_of({"runs": ",,", "ref": "../x", "x": "moon"}, {"a": Path("a")})
    assert (asked.runs, asked.ref, asked.x, lost) == ((), "", "step", [])


# --- answers ----------------------------------------------------------------------------------------------------------


def test_seeds_become_a_group_with_a_band_named_by_what_sets_it_apart(folder: Path) -> None:
    answer = Comparer().answer(question(folder, "plain-0", "plain-1", "anchored"))
    assert answer.labels == ("beta 0.0", "beta 0.01") and answer.members == (("plain-0", "plain-1"), ("anchored",))
    reward = answer.charts[0]
    assert reward.metric == "reward/mean" and reward.curves[0].band == "range of 2 runs" and not reward.curves[1].band
    assert [row.key for row in answer.settings] == ["policy.beta", "seed"]


def test_groups_by_a_setting_and_every_run_alone(folder: Path) -> None:
    by_seed = Comparer().answer(question(folder, "plain-0", "plain-1", "anchored", by="seed"))
    assert by_seed.labels == ("seed 0", "seed 1")
    alone = Comparer().answer(question(folder, "plain-0", "plain-1", by="run", ref="plain-1"))
    assert alone.labels == ("plain-0", "plain-1") and alone.reference == 1


def test_what_compare_concludes_of_each_group_beside_the_reference(folder: Path) -> None:
    answer = Comparer().answer(question(folder, "plain-0", "plain-1", "anchored", ref="anchored", verdicts=True))
    (judgement,) = answer.judgements
    assert judgement.label == "beta 0.0" and judgement.words and judgement.headline and judgement.rows


def test_verdicts_come_one_by_one_and_only_what_was_written_to_is_judged_anew(folder: Path) -> None:
    bench = Comparer()
    trained(folder / "other", policy={"beta": 0.1})

    def judged() -> Answer:
        return bench.answer(question(folder, "plain-0", "anchored", "other", verdicts=True))

    parts = [judged() for _ in range(3)]
    assert [(len(part.judgements), part.left) for part in parts] == [(1, 1), (2, 0), (2, 0)]
    writer = RunWriter.reopen(folder / "other")
    writer.metrics(61, values(61))
    writer.close()
    anew = judged()
    assert anew.left == 0 and anew.judgements[0] is parts[-1].judgements[0]
    assert anew.judgements[1] is not parts[-1].judgements[1]


def test_verdicts_that_are_out_of_date_stand_until_their_turn_comes(folder: Path) -> None:
    bench = Comparer()
    trained(folder / "other", policy={"beta": 0.1})
    asked = question(folder, "plain-0", "anchored", "other", verdicts=True)
    while (old := bench.answer(asked)).left:
        pass
    writer = RunWriter.reopen(folder / "plain-0")  # the reference: all are to be judged again
    writer.metrics(61, values(61))
    writer.close()
    part = bench.answer(question(folder, "plain-0", "anchored", "other", verdicts=True))
    assert part.left == 1 and len(part.judgements) == 2 and part.judgements[1] is old.judgements[1]


def test_incidents_and_fixes_lie_on_the_chosen_axis_and_interventions_are_noted(folder: Path) -> None:
    writer = RunWriter.reopen(folder / "anchored")
    writer.finding(record(EXPLOSION, "open", 50))
    writer.action(Action("t", "applied", "lower-lr", 30, change={"control/lr_scale": (1.0, 0.5)}))
    writer.close()
    answer = Comparer().answer(question(folder, "plain-0", "anchored", x="share"))
    fixed = answer.timelines[1]
    assert fixed.marks[0].x == 50.0 and fixed.spans[0].open and fixed.spans[0].end == fixed.end == 100.0
    assert "no baseline" in answer.notes[0]


def test_a_run_that_cannot_be_read_is_said_and_the_others_are_shown(folder: Path) -> None:
    (folder / "anchored" / "run.json").write_text("[")
    answer = Comparer().answer(question(folder, "plain-0", "anchored"))
    assert answer.labels == ("plain-0",) and "anchored could not be read" in answer.notes[0]


def test_too_many_runs_are_cut_and_nothing_in_common_is_no_error(tmp_path: Path) -> None:
    ids = [trained(tmp_path / f"r{i:02}", 3, i).name for i in range(MAX_RUNS + 1)]
    writer = RunWriter.create(tmp_path / "other", config={}, argv=[])
    writer.metrics(1, {"own/metric": 1.0})
    writer.close()
    answer = Comparer().answer(question(tmp_path, *ids))
    assert f"the first {MAX_RUNS}" in answer.notes[0]
    apart = Comparer().answer(question(tmp_path, "r00", "other", verdicts=True))
    assert "no metric in common" in apart.judgements[0].problem


def test_a_run_is_read_again_only_when_it_was_written_to(folder: Path) -> None:
    bench = Comparer()
    bench.answer(question(folder, "plain-0"))
    kept = bench._read[folder / "plain-0"][1]
    bench.answer(question(folder, "plain-0", x="share"))
    assert bench._read[folder / "plain-0"][1] is kept
    writer = RunWriter.reopen(folder / "plain-0")
    writer.metrics(61, values(61))
    writer.close()
    bench.answer(question(folder, "plain-0"))
    assert bench._read[folder / "plain-0"][1] is not kept


# --- who waits --------------------------------------------------------------------------------------------------------


class Slow:
    """Answers when told to."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)
        self.asked: list[Question] = []

    def __call__(self, asked: Question) -> Answer:
        self.asked.append(asked)
        self.begun.release()
        assert self.go.acquire(timeout=30)
        if asked.by == "broken":
            raise ValueError("no such luck")
        return Answer((f"{len(self.asked)}",), (), 0, "step")


def answered(desk: Comparisons, asked: Question) -> Any:
    pause = threading.Event()
    while (state := desk.ask(asked)).working:
        pause.wait(0.005)
    return state


def test_asking_never_waits_and_one_question_is_worked_on_once(folder: Path) -> None:
    slow = Slow()
    desk = Comparisons(slow)
    asked = question(folder, "plain-0")
    assert [desk.ask(asked).working for _ in range(8)] == [True] * 8
    assert slow.begun.acquire(timeout=30)
    slow.go.release()
    assert answered(desk, asked).answer.labels == ("1",) and len(slow.asked) == 1


def test_while_a_run_goes_on_the_old_answer_stays_until_the_new_one_is_there(folder: Path) -> None:
    slow = Slow()
    desk = Comparisons(slow)
    slow.go.release()
    old, new = Question((), stamps=(((1, 1),),)), Question((), stamps=(((2, 2),),))
    first = answered(desk, old)
    waiting = desk.ask(new)
    assert waiting.working and waiting.answer is first.answer
    slow.go.release()
    assert answered(desk, new).revision == first.revision + 1


def test_an_answer_comes_in_parts_and_other_questions_get_their_turn_between(folder: Path) -> None:
    parts = iter((Answer((), (), 0, "step", left=1), Answer(("other",), (), 0, "step"), Answer((), (), 0, "step")))
    asked: list[str] = []
    both = threading.Event()

    def compute(question: Question) -> Answer:
        asked.append(question.by)
        assert both.wait(30)
        return next(parts)

    desk = Comparisons(compute)
    long, short = Question((), by="long"), Question((), by="short")
    desk.ask(long), desk.ask(short)
    both.set()
    answered(desk, short)
    assert answered(desk, long).revision == 2 and asked == ["long", "short", "long"]


def test_a_failure_is_an_answer_and_too_many_questions_are_turned_away() -> None:
    slow = Slow()
    desk = Comparisons(slow)
    slow.go.release()
    assert answered(desk, Question((), by="broken")).problem == "no such luck"
    states = [desk.ask(Question((), by=str(n))) for n in range(WAITING + 3)]
    assert "busy" in states[-1].problem and states[0].working
    for _ in range(WAITING + 3):
        slow.go.release()


def test_the_process_answers_survives_a_failure_and_is_ended_when_it_takes_too_long(folder: Path) -> None:
    worker = Worker()
    try:
        assert worker(question(folder, "plain-0")).labels == ("plain-0",)
        with pytest.raises(ValueError, match="could not be read"):
            worker(question(folder, "gone"))
        worker.seconds = 0.0
        with pytest.raises(ValueError, match="choose fewer runs"):
            for _ in range(50):
                worker(question(folder, "plain-0", "plain-1", "anchored", verdicts=True))
        worker.seconds = 60.0
        assert worker(question(folder, "plain-1")).labels == ("plain-1",)
    finally:
        worker.close()


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Comparisons:
    made = Comparisons(Comparer().answer)
    monkeypatch.setattr(page, "COMPARISONS", made)
    return made


@pytest.fixture
def viewer(folder: Path, desk: Comparisons) -> Iterator[Callable[[str], str]]:
    client = Client(build([folder]))

    def settled(search: str) -> str:
        tree = client.open("/compare", search)
        while "compare-waiting" in (text := json.dumps(tree, ensure_ascii=False)):
            tree = client.open("/compare", search)
        settled.tree, settled.client = tree, client
        return text

    yield settled


def test_without_runs_the_page_offers_some(viewer: Any) -> None:
    text = viewer("")
    assert "Nothing to compare yet" in text and "runs=" in text


def test_a_shared_address_shows_groups_charts_settings_and_the_verdict(viewer: Any) -> None:
    text = viewer("?runs=plain-0,plain-1,anchored,gone&ref=anchored&x=share")
    assert "left out: gone" in text and "beta 0.01" in text and "Compared with" in text
    axes = {
        c["props"]["figure"]["layout"]["xaxis"]["title"]["text"]
        for c in components(viewer.tree)
        if c["type"] == "Graph"
    }
    assert axes == {"% of the run"}


def test_a_poll_without_news_answers_nothing_and_choices_change_the_address(viewer: Any) -> None:
    search = "?runs=plain-0,plain-1"
    viewer(search)
    parts = {c["props"]["id"]: c["props"] for c in components(viewer.tree) if isinstance(c["props"].get("id"), str)}
    values = {
        "compare-seen.data": parts["compare-seen"]["data"],
        "compare-tick.interval": parts["compare-tick"]["interval"],
    }
    assert viewer.client.call("compare-body", "compare-tick.n_intervals", values) is None
    chosen = {
        "compare-runs.value": ["plain-0", "plain-1"],
        "compare-by.value": "",
        "compare-ref.value": "",
        "compare-x.value": "step",
        "compare-metrics.value": [],
        "url.search": search,
    }
    assert viewer.client.call("url", "compare-by.value", chosen) is None
    answer = viewer.client.call("url", "compare-x.value", {**chosen, "compare-x.value": "tokens"})
    assert answer["url"]["search"] == "?runs=plain-0%2Cplain-1&x=tokens"


def test_hostile_names_are_only_ever_text(folder: Path, viewer: Any) -> None:
    hostile = '<img src=x onerror="window.pwned=1">'
    trained(folder / hostile, policy={hostile: hostile})
    viewer(f"?runs=plain-0,{hostile}")
    for component in components(viewer.tree):
        for name, value in component["props"].items():
            if name in ("style", "className", "config"):
                assert "onerror" not in json.dumps(value)
        if component["type"] == "Graph":
            figure = component["props"]["figure"]
            shown = [trace.get(key) for trace in figure["data"] for key in ("name", "text", "hovertemplate")]
            assert "<img" not in json.dumps([shown, figure["layout"]])
