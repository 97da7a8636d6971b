"""What the page says, from the files of runs, without Dash."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from page_client import CALM, RUN
from synthetic_run import EXPLOSION, PLATEAU, RUNAWAY, SPIKE, eventful, healthy, values

from dashboards.components.run_overview import state_words
from dashboards.data.followed_run import FollowedRun
from dashboards.data.live_updates import BrowserState, Update, full_update, update_since
from dashboards.data.run_page import key_numbers, page_of, ranked
from dashboards.data.run_registry import FOLLOWED, Runs
from dashboards.data.viewer_settings import ViewerSettings
from stabilizer.core.records import Action
from stabilizer.figures import incidents
from stabilizer.runs.history import History
from stabilizer.runs.listing import verdict_of
from stabilizer.runs.reader import RunReader
from stabilizer.runs.writer import RunWriter


def looked(runs: Runs, id: str = RUN) -> tuple[FollowedRun, BrowserState]:
    followed = runs.get(id)
    return followed, full_update(followed, ViewerSettings(id, smooth=0)).seen


def poll(followed: FollowedRun, seen: BrowserState) -> Update | None:
    followed._read = 0.0  # as if the time viewers share a refresh had passed
    return update_since(followed, BrowserState.from_json(json.loads(json.dumps(seen.as_json()))))


def test_lists_runs_newest_first_with_state_and_verdict(runs_folder: Path) -> None:
    lines = {line.id: line for line in Runs([runs_folder]).lines()}
    assert list(lines) == [RUN, CALM]
    assert (lines[RUN].state, lines[RUN].step, lines[RUN].steps) == ("running", 400, 500)
    assert lines[CALM].state == "finished"
    assert lines[RUN].worst == "critical"


def test_running_without_a_heartbeat_is_stalled_by_the_given_clock(runs_folder: Path) -> None:
    runs = Runs([runs_folder], clock=lambda: time.time() + 3600)
    assert runs.lines()[0].state == "stalled"


def test_two_runs_of_one_name_are_told_apart_by_their_parents(tmp_path: Path) -> None:
    for parent in ("a", "b"):
        healthy(tmp_path / parent / "same", 3).close()
    assert set(Runs([tmp_path]).scan()) == {"a/same", "b/same"}


def test_an_id_is_looked_up_and_never_joined_to_a_path(runs_folder: Path) -> None:
    runs = Runs([runs_folder])
    for id in (
        "../runs/" + RUN,
        f"{RUN}/../{RUN}",
        str(runs_folder / RUN),
        "..",
        "",
        "\0",
        "%2e%2e",
        f"{RUN}/",
        "a" * 5000,
    ):
        assert runs.get(id) is None


def test_only_so_many_runs_are_kept_in_memory(tmp_path: Path) -> None:
    for number in range(FOLLOWED + 3):
        healthy(tmp_path / f"run-{number:02}", 2).close()
    runs = Runs([tmp_path])
    for id in runs.scan():
        runs.get(id)
    assert len(runs._followed) == FOLLOWED


def test_page_tells_incidents_with_cause_evidence_and_journal(runs_folder: Path) -> None:
    page = page_of(RunReader(runs_folder / RUN), time.time())
    assert page.verdict == "info"
    assert page.attempt == 1
    assert [card.number for card in page.incidents] == [3, 2, 1]  # what stands first, then the newest
    grave = page.incidents[1]
    assert (grave.severity, grave.state, grave.onset) == ("critical", "resolved", 262)
    assert grave.causes[0].id == "no-kl-anchor"
    assert {other.id for other in grave.others} | {grave.id} == {EXPLOSION.id, RUNAWAY.id}
    (trial,) = page.trials
    assert [entry.entry for entry in trial.entries] == ["proposed", "approved", "applied", "verified"]
    assert trial.change == {"control/beta": (0.001, 0.01), "control/lr_scale": (1.0, 0.5)}
    assert "anchor" in trial.entries[0].text


def test_newest_record_of_a_finding_counts() -> None:
    records = [replace(SPIKE, state="open"), replace(PLATEAU, state="open"), replace(SPIKE, state="resolved")]
    assert verdict_of("healthy", records, frozenset({"reward/mean"})) == "info"
    assert [incident.open for incident in ranked(incidents(records))] == [True, False]


@pytest.mark.parametrize(("lost", "verdict"), [(False, "healthy"), (True, "warn")])
def test_a_summary_that_warns_is_not_outvoted_by_the_findings_that_can_still_be_read(lost: bool, verdict: str) -> None:
    readable = [replace(SPIKE, state="resolved")]
    assert verdict_of("warn", readable, frozenset({"reward/mean"}), lost=lost) == verdict


def test_key_numbers_name_the_kl_that_they_show() -> None:
    history = History({})
    history.append(1, {"policy/kl_old": 0.003, "reward/mean": 0.5})
    numbers = {number.label: number.unit for number in key_numbers(history.view())}
    assert numbers == {"Reward": "", "KL to old policy": "nats/token"}


def test_key_numbers_say_unit_and_step_and_show_nan(tmp_path: Path) -> None:
    writer = healthy(tmp_path / "run", 12)
    writer.metrics(13, {"optim/grad_norm": math.nan})
    page = page_of(RunReader(tmp_path / "run"), time.time())
    numbers = {number.label: number for number in page.numbers}
    assert (numbers["Gradient norm"].value, numbers["Gradient norm"].finite) == ("NaN", False)
    assert (numbers["Accuracy, held out"].step, numbers["Accuracy, held out"].unit) == (10, "share of problems")


# --- following --------------------------------------------------------------------------------------------------------


def test_nothing_new_is_nothing_sent(runs_folder: Path) -> None:
    followed, seen = looked(Runs([runs_folder]))
    assert poll(followed, seen) is None


def test_a_new_step_adds_its_points_alone(runs_folder: Path) -> None:
    followed, seen = looked(Runs([runs_folder]))
    RunWriter.reopen(runs_folder / RUN).metrics(401, values(401))
    found = poll(followed, seen)
    assert isinstance(found, Update)
    assert found.page.step == 401
    change = found.changes["reward"]
    assert change.figure is None
    assert change.points.lines[0]["x"] == [401]
    assert change.points.lines[0]["y"] == [values(401)["reward/mean"]]
    assert list(change.open_spans) == [1], "the plateau's shade grows, not the spike's; the branch has its own"
    assert poll(followed, found.seen) is None


def test_a_finding_draws_the_charts_again(runs_folder: Path) -> None:
    followed, seen = looked(Runs([runs_folder]))
    RunWriter.reopen(runs_folder / RUN).finding(replace(PLATEAU, state="resolved", attempt=1))
    found = poll(followed, seen)
    assert isinstance(found, Update) and found.story
    assert all(change.points is None and change.figure is not None for change in found.changes.values())
    assert found.page.verdict == "healthy"


def test_a_rollback_redraws_with_the_old_branch_behind(runs_folder: Path) -> None:
    followed, seen = looked(Runs([runs_folder]))
    writer = RunWriter.reopen(runs_folder / RUN)
    writer.begin_attempt(380, "rollback")
    writer.metrics(380, values(380))
    found = poll(followed, seen)
    assert found.page.attempt == 2
    hovers = [trace.hovertemplate for trace in found.changes["reward"].figure.data]
    assert any("attempt 1, rolled back" in text for text in hovers)


def test_an_incident_of_a_branch_that_was_rolled_back_shades_that_branch_alone(runs_folder: Path) -> None:
    _, seen = looked(Runs([runs_folder]))
    found = full_update(Runs([runs_folder]).get(RUN), seen.settings)
    figure = {chart.chart.id: chart.figure for placed in found.placed for chart in placed.charts}["reward"]
    spans = [(shape.x0, shape.x1) for shape in figure.layout.shapes if shape.type == "rect"]
    assert spans == [(SPIKE.onset_step, SPIKE.last_step), (PLATEAU.onset_step, 400)]
    shades = [trace for trace in figure.data if "on attempt 0, rolled back" in str(trace.text)]
    assert [(min(trace.x), max(trace.x)) for trace in shades] == [(RUNAWAY.onset_step - 1, EXPLOSION.last_step)]


def test_a_metric_measured_for_the_first_time_brings_its_chart(tmp_path: Path) -> None:
    writer = healthy(tmp_path / "run", 5)
    followed, seen = looked(Runs([tmp_path]), "run")
    writer.metrics(6, {"value/explained_variance": 0.5})
    found = poll(followed, seen)
    assert "critic" in [view.chart.id for view in found.charts] and "critic" in found.seen.charts
    assert [placed.section.id for placed in found.placed] == ["first"], "the other sections stay as they are"


def test_a_number_measured_anew_redraws(tmp_path: Path) -> None:
    writer = healthy(tmp_path / "run", 5)
    followed, seen = looked(Runs([tmp_path]), "run")
    writer.metrics(5, {"reward/mean": 0.75})
    found = poll(followed, seen)
    assert found.changes["reward"].figure.data[0].y[-1] == 0.75


def test_a_long_tail_is_drawn_anew_within_its_budget(tmp_path: Path) -> None:
    writer = healthy(tmp_path / "run", 5)
    followed, seen = looked(Runs([tmp_path]), "run")
    for step in range(6, 4200):
        writer.metrics(step, {"reward/mean": 0.5})
    found = poll(followed, seen)
    assert len(found.changes["reward"].figure.data[0].x) <= 2000
    assert poll(followed, found.seen) is None


def test_only_a_heartbeat_sends_only_a_heartbeat(runs_folder: Path) -> None:
    followed, seen = looked(Runs([runs_folder]))
    RunWriter.reopen(runs_folder / RUN).status("running", 400, force=True)
    found = poll(followed, seen)
    assert isinstance(found, Update) and found.page is None and not found.changes


def test_first_charts_come_first_and_the_rest_with_the_next_poll(runs_folder: Path) -> None:
    followed = Runs([runs_folder]).get(RUN)
    first = full_update(followed, ViewerSettings(RUN), first=6)
    assert len(first.charts) == 6 and len(first.seen.rest) > 3
    assert len(first.placed[2].charts) == 6 + len(first.seen.rest), "the place of each chart is there from the start"
    came, seen = [], first.seen
    while seen.rest:
        rest = poll(followed, seen)
        came += list(rest.more)
        seen = rest.seen
    assert came == list(first.seen.rest)
    assert poll(followed, seen) is None


# --- how it is looked at ----------------------------------------------------------------------------------------------


def changed(
    followed: FollowedRun, seen: BrowserState, visible: list[str] | None = None, **settings: object
) -> Update | None:
    followed._read = 0.0
    return update_since(
        followed,
        BrowserState.from_json(json.loads(json.dumps(seen.as_json()))),
        replace(seen.settings, **settings),
        visible,
    )


def test_other_axes_redraw_what_is_seen_now_and_the_rest_when_it_is(runs_folder: Path) -> None:
    followed, seen = looked(Runs([runs_folder]))
    found = changed(followed, seen, ["reward"], x="tokens")
    assert list(found.changes) == ["reward"] and not found.placed
    assert found.changes["reward"].figure.layout.xaxis.title.text == "tokens"
    assert "kl" in found.seen.behind
    later = changed(followed, found.seen, ["kl"])
    assert later.changes["kl"].figure.layout.xaxis.title.text == "tokens"


def test_smoothed_lines_grow_with_the_values_behind_them(runs_folder: Path) -> None:
    followed, seen = looked(Runs([runs_folder]))
    seen = changed(followed, seen, smooth=20).seen
    RunWriter.reopen(runs_folder / RUN).metrics(401, values(401))
    change = poll(followed, seen).changes["reward"]
    assert change.lines == 2 and [line["x"] for line in change.points.lines] == [[401], [401]]


def test_a_family_is_drawn_when_it_is_opened_and_its_metrics_are_counted_before(tmp_path: Path) -> None:
    writer = healthy(tmp_path / "run", 5)
    writer.metrics(6, {"policy/dual_clip_frac": 0.1, "loss": 2.0})
    followed, seen = looked(Runs([tmp_path]), "run")
    assert "policy/dual_clip_frac" not in seen.charts
    found = changed(followed, seen, open=("policy",))
    (placed,) = found.placed
    assert (placed.section.id, [view.chart.id for view in placed.charts]) == ("policy", ["policy/dual_clip_frac"])
    closed = changed(followed, found.seen, open=())
    assert (closed.placed[0].section.count, closed.placed[0].charts) == (1, ())
    assert "policy/dual_clip_frac" not in closed.seen.charts


def test_a_pinned_chart_is_first_and_in_no_other_place(runs_folder: Path) -> None:
    followed, seen = looked(Runs([runs_folder]))
    found = changed(followed, seen, pins=("kl", "nothing", "entropy"))
    there = {placed.section.id: [view.chart.id for view in placed.charts] for placed in found.placed}
    assert there["pinned"] == ["kl", "entropy"]
    assert there["first"] and not {"kl", "entropy"} & {*there["first"]}


def test_a_search_shows_what_it_finds_and_a_bad_one_says_why_and_hides_nothing(runs_folder: Path) -> None:
    followed, seen = looked(Runs([runs_folder]))
    found = changed(followed, seen, find="policy/kl|grad")
    assert {view.chart.id for view in found.charts} == {"kl", "grad-norm"} == set(found.seen.charts)
    bad = changed(followed, seen, find="policy/" * 30)
    assert "at most 200 characters" in bad.seen.problem
    assert set(bad.seen.charts) | set(bad.seen.rest) == set(seen.charts)


def test_many_metrics_are_drawn_up_to_a_limit_and_the_rest_is_counted(tmp_path: Path) -> None:
    writer = healthy(tmp_path / "run", 2)
    writer.metrics(3, {f"trl/m{n}": 1.0 for n in range(500)})
    followed, seen = looked(Runs([tmp_path]), "run")
    found = changed(followed, seen, open=("other",))
    section = next(placed.section for placed in found.placed)
    assert (section.count, len(section.charts)) == (500, 48)


def test_checkpoints_are_marked_and_a_new_one_draws_the_charts_again(runs_folder: Path) -> None:
    followed, seen = looked(Runs([runs_folder]))
    (runs_folder / RUN / "checkpoints" / "step-399-a1").mkdir(parents=True)
    (runs_folder / RUN / "checkpoints" / "step-x.new").mkdir()
    found = poll(followed, seen)
    figure = found.changes["reward"].figure
    assert found.story and any(399.0 in trace.x for trace in figure.data if trace.mode == "markers")


def test_the_words_of_an_address_mean_the_same_when_they_come_back() -> None:
    words = {"x": "time", "y": "log", "smooth": "0", "find": "kl|lo=&s", "open": "reward,policy"}
    words |= {"pin": "kl,policy/ess", "link": "1", "zoom": "1.5:200"}
    assert ViewerSettings.read("a", "dark", words).words() == words
    each = {"zoom": "kl:1.5:200~policy/ess:-3:4:0.5:0.75"}
    assert ViewerSettings.read("a", "light", each).words() == each
    assert ViewerSettings.read("a", "light", {}).words() == {}


@pytest.mark.parametrize(
    "words",
    [
        {"x": "y"},
        {"y": "z"},
        {"smooth": "7"},
        {"smooth": "²"},
        {"smooth": "9" * 4000},
        {"open": "x,y"},
        {"link": "2"},
        {"link": "0", "zoom": "1:2"},
        {"zoom": "kl:2:1~kl:1:2:3~:1:2~kl"},
        {"x": None, "find": 0, "pin": ""},
    ],
)
def test_words_that_mean_nothing_leave_the_page_as_usual(words: dict[str, object]) -> None:
    assert ViewerSettings.read("a", "blue", words) == ViewerSettings("a")


@pytest.mark.parametrize("zoom", ["1", "a:b", "2:1", "nan:1", "0:inf", "1:2:3", ""])
def test_a_zoom_that_is_none_shows_all(zoom: str) -> None:
    assert ViewerSettings.read("a", "light", {"link": "1", "zoom": zoom}).window("kl") is None


# --- what matters now -------------------------------------------------------------------------------------------------


def test_proposals_wait_for_an_answer_until_there_is_one(tmp_path: Path) -> None:
    writer = healthy(tmp_path / "run", 5)
    proposal = Action("t1", "proposed", "raise-beta", 4, incident=1, change={"control/beta": (0.0, 0.001)}, text="why")
    writer.action(proposal)
    page = page_of(RunReader(tmp_path / "run"), time.time())
    assert [trial.action for trial in page.waiting] == ["t1"] and page.news == ()
    writer.action(replace(proposal, action="t0", safety="advice", remedy="check-reward"))
    page = page_of(RunReader(tmp_path / "run"), time.time())
    assert [trial.action for trial in page.waiting] == ["t1"] and page.news == (), "advice asks for no answer"
    writer.action(replace(proposal, entry="approved"))
    writer.action(replace(proposal, entry="applied", step=5))
    page = page_of(RunReader(tmp_path / "run"), time.time())
    assert page.waiting == () and [trial.newest.entry for trial in page.news] == ["applied"]
    for entry in ("proposed", "expired"):  # approved by a person, and refused by the run
        writer.action(replace(proposal, action="t2", entry=entry, step=6, text="approved by ann but not applied: why"))
    page = page_of(RunReader(tmp_path / "run"), time.time())
    assert [trial.newest.entry for trial in page.news] == ["expired", "applied"]
    writer.status("finished", 6, force=True)
    page = page_of(RunReader(tmp_path / "run"), time.time())
    assert [trial.newest.entry for trial in page.news] == ["applied"]


def test_open_incidents_come_gravest_first(tmp_path: Path) -> None:
    writer = healthy(tmp_path / "run", 5)
    for number, finding in enumerate((PLATEAU, EXPLOSION, SPIKE), start=1):
        writer.finding(replace(finding, incident=number, state="open"))
    page = page_of(RunReader(tmp_path / "run"), time.time())
    assert [card.severity for card in page.open] == ["critical", "warn", "info"]


def test_a_process_that_is_gone_is_told_before_the_run_counts_as_stalled(tmp_path: Path) -> None:
    healthy(tmp_path / "run", 3).close()
    file = tmp_path / "run" / "status.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "pid": 2**22 + 5}))
    page = page_of(RunReader(tmp_path / "run"), time.time())
    assert (page.state, page.lives) == ("running", False)
    assert "is gone" in state_words(page)
    late = page_of(RunReader(tmp_path / "run"), time.time() + 10_000)
    assert late.state == "stalled" and "is gone" in state_words(late), "nobody need guess why it is silent"


def test_a_cut_file_is_read_anew(runs_folder: Path) -> None:
    followed, seen = looked(Runs([runs_folder]))
    file = runs_folder / RUN / "metrics" / "r0-a1.jsonl"
    os.truncate(file, file.stat().st_size // 2)
    found = poll(followed, seen)
    assert found is not None and found.page.step < 400


@pytest.mark.parametrize("kept", [None, 5, "x", {}, {"run": "a"}, {"run": "a", "charts": {"b": 3}}, {"charts": []}])
def test_what_a_browser_makes_up_is_not_believed(kept: object) -> None:
    assert BrowserState.from_json(kept) is None


# --- hostile and broken folders ---------------------------------------------------------------------------------------


def spoil(path: Path, name: str, content: bytes) -> None:
    (path / name).write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", b""),
        ("run.json", b"[]"),
        ("run.json", b"\x00" * 100),
        ("run.json", b'{"attempts": [{"attempt": "x"}]}'),
        ("run.json", b'{"attempts": [{"attempt": 0, "parent": [], "from_step": "a"}], "steps": "many", "task": 7}'),
        ("run.json", b'{"metrics": 5, "config": [], "steps": -1, "created": "x"}'),
        ("status.json", b'{"state": 5, "t": "x", "step": null}'),
        ("status.json", b'{"state": {"a": 1}, "t": 1e400}'),
        ("summary.json", b'{"metrics": {"reward/mean": 3}, "verdict": ["x"]}'),
        (
            "findings.jsonl",
            b'{"id": 3, "severity": "x", "summary": null, "onset_step": "a", "detected_step": 1, "last_step": 2}\n',
        ),
        ("events.jsonl", b'{"step": "x", "kind": 3, "text": []}\n'),
        ("actions.jsonl", b'{"action": [], "entry": 3, "remedy": {}, "step": 1}\n'),
        ("metrics/r0-a0.jsonl", b'{"step": 1, "m": {"reward/mean": 1e308}}\nnot json\n{"step": 2, "m": {"\xff": 1}}\n'),
        ("metrics/r0-a0.jsonl", b'{"step": 1, "m": {"a": [1]}}\n' * 50),
    ],
)
def test_a_broken_run_never_takes_the_app_down(client, runs_folder: Path, name: str, content: bytes) -> None:
    spoil(runs_folder / CALM, name, content)
    lines = client.app.runs.lines()
    assert {line.path.name for line in lines} == {RUN, CALM}
    shown = client.show(f"?run={CALM}")
    assert shown["head"]["children"]
    assert client.show(f"?run={RUN}")["body"]["hidden"] is False


def test_a_fifo_in_place_of_a_small_file_does_not_hang(client, runs_folder: Path) -> None:
    (runs_folder / CALM / "status.json").unlink()
    os.mkfifo(runs_folder / CALM / "status.json")
    assert len(client.app.runs.lines()) == 2
    shown = client.show(f"?run={CALM}")
    assert "can't be read" in json.dumps(shown["head"])


def test_a_run_that_can_be_read_again_comes_back(client, runs_folder: Path) -> None:
    path = runs_folder / CALM / "run.json"
    good = path.read_bytes()
    path.write_bytes(b"{")
    shown = client.show(f"?run={CALM}")
    assert shown["body"]["hidden"] is True
    path.write_bytes(good)
    assert client.poll(shown["seen"]["data"])["body"]["hidden"] is False


def test_a_thousand_runs_list_without_opening_metrics(tmp_path: Path) -> None:
    for number in range(1000):
        folder = tmp_path / f"run-{number:04}"
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({"steps": 10, "created": number}))
        (folder / "metrics").mkdir()
        os.mkfifo(folder / "metrics" / "r0-a0.jsonl")  # opening it would never return
    runs = Runs([tmp_path])
    begin = time.perf_counter()
    assert len(runs.lines()) == 1000
    cold = time.perf_counter() - begin
    begin = time.perf_counter()
    runs.lines()
    assert (cold, time.perf_counter() - begin) < (2.0, 0.5)


def test_eventful_run_has_what_the_page_must_show(tmp_path: Path) -> None:
    reader = RunReader((eventful(tmp_path / "run"), tmp_path / "run")[1])
    assert sorted(reader.histories) == [0, 1] and reader.skipped == 0


def test_a_run_whose_folder_is_gone_is_said_to_be(tmp_path: Path) -> None:
    healthy(tmp_path / "run", 3).close()
    followed = Runs([tmp_path]).get("run")
    followed.refresh()
    followed._read = 0
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(ValueError, match="the folder of this run is gone"):
        followed.refresh()


# --- zoom -------------------------------------------------------------------------------------------------------------


def test_a_zoomed_chart_is_redrawn_with_all_points_of_its_range_and_the_others_stay(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "long", config={}, task="t", steps=9_000, argv=[])
    for step in range(1, 9_001):
        writer.metrics(step, {"reward/mean": math.sin(step), "policy/entropy": 1.0 + math.cos(step)})
    writer.close()
    followed, seen = looked(Runs([tmp_path]), "long")
    whole = full_update(followed, seen.settings).charts[0].figure
    assert whole.layout.xaxis.title.text.startswith("step · ")
    assert whole.layout.xaxis.title.text.endswith(" of 9,000 points")

    zoomed = ViewerSettings.read("long", "light", {"zoom": "reward:3000:3500", "smooth": "0"})
    found = update_since(followed, seen, zoomed)
    assert set(found.changes) == {"reward"}
    figure = found.changes["reward"].figure
    shown = [x for x in figure.data[0].x if 3000 <= x <= 3500]
    assert shown == list(range(3000, 3501)) and figure.layout.xaxis.title.text == "step"
    assert list(figure.layout.xaxis.range) == [3000, 3500]
    assert figure.data[0].x[0] == 1 and figure.data[0].x[-1] == 9_000  # for whoever pans

    back = update_since(followed, found.seen, ViewerSettings("long", smooth=0))
    assert "range" not in back.changes["reward"].figure.layout.xaxis.to_plotly_json()


def test_growth_of_a_thinned_chart_tells_how_many_points_there_are_now(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "long", config={}, task="t", steps=9_000, argv=[])
    for step in range(1, 5_001):
        writer.metrics(step, {"reward/mean": math.sin(step)})
    followed, seen = looked(Runs([tmp_path]), "long")
    drawn = seen.charts["reward"].shown
    writer.metrics(5_001, {"reward/mean": 0.5})
    assert poll(followed, seen).changes["reward"].title == f"step · {drawn + 1:,} of 5,001 points"
