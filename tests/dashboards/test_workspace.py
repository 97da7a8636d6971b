"""The workspace's rows and lines, without a browser."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from page_client import CALM, RUN, Client
from synthetic_run import many

from dashboards.data import viewer_file
from dashboards.data.run_list import ListSettings, run_list
from dashboards.data.run_registry import Runs
from dashboards.data.viewer_file import NAME, Annotation, Remarks, ViewerFile
from dashboards.data.workspace import MAX_RUNS, Wanted, answer, columns_of, rows
from stabilizer.core.text import natural
from stabilizer.runs.writer import RunWriter


def wanted(*runs: str, **more: object) -> Wanted:
    found = Wanted.read({"runs": list(runs), **more})
    assert found is not None
    return found


def long_run(folder: Path, steps: int = 5_000) -> Runs:
    writer = RunWriter.create(folder / "long", config={}, task="t", steps=steps, argv=[])
    for step in range(1, steps + 1):
        writer.metrics(step, {"reward/mean": float(step % 10), "optim/lr": 0.03})
    writer.close()
    runs = Runs([folder])
    runs.scan()
    return runs


# --- rows -------------------------------------------------------------------------------------------------------------


def test_runs_that_need_attention_come_first(tmp_path: Path) -> None:
    many(tmp_path, recipes=3, seeds=3, steps=12)
    found = rows(Runs([tmp_path]), (), "")["rows"]
    verdicts = [row["verdict"] for row in found]
    assert verdicts[0] == "critical" and verdicts.index("healthy") > verdicts.index("warn")
    assert {row["id"] for row in found} == {line.id for line in Runs([tmp_path]).lines()}


def test_columns_hold_last_best_lowest_and_highest_values_and_settings(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "a", config={"optim": {"lr": 0.5}}, task="t", steps=9, argv=[])
    for step, reward in enumerate([0.1, 0.9, 0.4], start=1):
        writer.metrics(step, {"reward/mean": reward, "value/loss": reward, "optim/grad_norm": math.nan})
    writer.summary(verdict="healthy", worst=None, force=True)
    writer.close()
    columns = ("reward/mean:last", "reward/mean:best", "reward/mean:min", "reward/mean:max", "optim.lr", "lr")
    (row,) = rows(Runs([tmp_path]), (*columns, "optim/grad_norm:last", "nothing:max"), "")["rows"]
    assert row["cells"] == [0.4, 0.9, 0.1, 0.9, "0.5", "0.5", None, None]


def test_seeds_of_one_configuration_are_a_group_named_by_what_sets_it_apart(tmp_path: Path) -> None:
    many(tmp_path, recipes=2, seeds=3, steps=12)
    found = [row for row in rows(Runs([tmp_path]), (), "seeds")["rows"] if "-r" in row["id"]]
    groups = {row["group"]: row["groupLabel"] for row in found}
    assert len(groups) == 2 and all("model" in label for label in groups.values())


def test_names_with_numbers_are_in_natural_order() -> None:
    names = ["layers/12/norm", "layers/2/norm", "b", "10", "layers/2/bias"]
    assert sorted(names, key=natural) == ["10", "b", "layers/2/bias", "layers/2/norm", "layers/12/norm"]


# --- lines ------------------------------------------------------------------------------------------------------------


def test_a_line_is_smoothed_before_it_is_thinned_and_says_how_many_points_there_are(tmp_path: Path) -> None:
    runs = long_run(tmp_path)
    found = answer(runs, wanted("long", metrics=["reward/mean", "optim/lr"], smooth=20))
    line = found["charts"]["reward/mean"]["lines"]["long"]
    assert line["drawn"] == len(line["x"]) <= 600 and line["of"] == 5_000
    assert set(line["y"][100:]) == {4.5}  # the mean over 20 steps of a sawtooth
    assert max(line["faint"]["y"]) == 9
    assert set(found["charts"]["optim/lr"]["lines"]["long"]["y"]) == {0.03}
    assert found["runs"]["long"]["reach"] == [1, 5_000]


def test_a_range_comes_with_its_points_in_full(tmp_path: Path) -> None:
    found = answer(long_run(tmp_path), wanted("long", metrics=["reward/mean"], window=[1000, 1400]))
    line = found["charts"]["reward/mean"]["lines"]["long"]
    assert (line["drawn"], line["of"]) == (401, 401)
    assert [x for x in line["x"] if 1000 <= x <= 1400] == list(range(1000, 1401))
    assert line["x"][0] < 850 and line["x"][-1] > 1550  # to pan on before the next answer


def test_any_metric_can_run_along_the_x_axis(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "long", config={}, task="t", steps=40, argv=[])
    for step in range(1, 41):
        more = {"policy/kl_ref": float((step * 7) % 41)} if step % 2 else {}
        writer.metrics(step, {"reward/mean": float((step * 7) % 41) / 10, **more})
    writer.metrics(41, {"reward/mean": 5.0, "policy/kl_ref": math.nan})
    writer.close()
    runs = Runs([tmp_path])
    runs.scan()
    found = answer(runs, wanted("long", metrics=["reward/mean"], x="policy/kl_ref"))
    line = found["charts"]["reward/mean"]["lines"]["long"]
    assert line["x"] == sorted(line["x"]) and len(line["x"]) == 20
    assert line["y"] == pytest.approx([x / 10 for x in line["x"]])
    told = found["runs"]["long"]
    assert told["reach"] == [line["x"][0], line["x"][-1]] and told["axis"] == "policy/kl_ref"
    zoomed = answer(runs, wanted("long", metrics=["reward/mean"], x="policy/kl_ref", window=[10, 20]))
    assert {x for x in line["x"] if 10 <= x <= 20} <= set(zoomed["charts"]["reward/mean"]["lines"]["long"]["x"])
    assert answer(runs, wanted("long", metrics=["reward/mean"], x="no/such"))["charts"] == {}


def test_a_run_that_is_gone_or_broken_leaves_the_others(runs_folder: Path) -> None:
    (runs_folder / CALM / "run.json").unlink()
    (runs_folder / CALM / "run.json").mkdir()
    runs = Runs([runs_folder])
    found = answer(runs, wanted(RUN, "nothing", CALM, metrics=["reward/mean", "no/such"]))
    assert list(found["charts"]) == ["reward/mean"] and list(found["charts"]["reward/mean"]["lines"]) == [RUN]
    assert found["problems"]["nothing"] == "not found" and found["problems"][CALM]


@pytest.mark.parametrize("row", [None, [], {}, {"runs": {}}, {"runs": "x"}, {"runs": []}, {"runs": [1, None]}])
def test_a_malformed_wish_is_none(row: object) -> None:
    assert Wanted.read(row) is None


def test_a_wish_is_bounded() -> None:
    found = wanted(*map(str, range(500)), metrics=["m"] * 500, smooth=7, window=[2, 1], x="y", count="x")
    assert len(found.runs) == MAX_RUNS and len(found.metrics) <= 40
    assert (found.smooth, found.window, found.x) == (0, None, "y")
    assert wanted("a").x == "step" and len(wanted("a", x="m" * 5000).x) == 300
    assert columns_of(["a", 1, "a"]) == ("a",) and columns_of("x") == ()


# --- the file beside the runs -----------------------------------------------------------------------------------------


def test_what_viewers_note_is_kept_beside_the_runs_and_the_runs_stay_as_they_are(runs_folder: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        files = (path for path in (runs_folder / RUN).rglob("*") if path.is_file())
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}

    before = state()
    remarks = Remarks("a name", ("good", "ünïcode"), "line one\nline two", True)
    assert ViewerFile(runs_folder).note(RUN, remarks) == ""
    assert ViewerFile(runs_folder).keep_view("mine", "q=x") == ""
    assert ViewerFile(runs_folder).remarks(RUN) == remarks and ViewerFile(runs_folder).views() == {"mine": "q=x"}
    assert state() == before and (runs_folder / NAME).is_file()
    assert {line.id for line in Runs([runs_folder]).lines()} == {RUN, CALM}
    assert ViewerFile(runs_folder).note(RUN, Remarks()) == "" and ViewerFile(runs_folder).keep_view("mine", None) == ""
    assert json.loads((runs_folder / NAME).read_text()) == {"runs": {}, "views": {}}


def test_dashboards_in_several_processes_lose_nothing_of_one_another(tmp_path: Path) -> None:
    write = (
        "import sys; from pathlib import Path; from dashboards.data.viewer_file import Remarks, ViewerFile;"
        " print('up', flush=True); sys.stdin.readline();"
        " print([ViewerFile(Path(sys.argv[1])).note(f'{sys.argv[2]}-{n}', Remarks(name='x')) for n in range(50)])"
    )
    several = [
        subprocess.Popen([sys.executable, "-c", write, str(tmp_path), str(n)], text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for n in range(3)
    ]  # fmt: skip
    assert [process.stdout.readline() for process in several] == ["up\n"] * 3
    for process in several:
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[0] for process in several] == [f"{[''] * 50}\n"] * 3
    assert len(json.loads((tmp_path / NAME).read_text())["runs"]) == 150


def test_a_folder_that_another_process_holds_is_said_in_words(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(viewer_file, "LONGEST_WAIT_S", 0.05)
    with viewer_file._alone(tmp_path) as alone:
        assert alone and "another process holds" in ViewerFile(tmp_path).note("a", Remarks(name="x"))
    assert ViewerFile(tmp_path).note("a", Remarks(name="x")) == ""


def test_the_viewer_file_is_not_taken_for_a_log(runs_folder: Path) -> None:
    runs = Runs([runs_folder])
    assert runs.home.note(RUN, Remarks("a", ("b",), "c")) == ""
    runs.logs.settle()
    assert {line.id for line in runs.lines()} == {RUN, CALM}


def test_a_viewer_file_that_is_not_ours_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("somebody's notes")
    assert "not a readable JSON object" in ViewerFile(tmp_path).note("run", Remarks("x"))
    assert (tmp_path / NAME).read_text() == "somebody's notes"
    assert ViewerFile(tmp_path).remarks("run") == Remarks() and ViewerFile(tmp_path).views() == {}


def test_a_folder_that_can_not_be_written_to_is_said_in_words(tmp_path: Path) -> None:
    assert "can't be written to" in ViewerFile(tmp_path / "gone").note("run", Remarks("x"))


@pytest.mark.parametrize(
    "content", ['{"runs": 3}', '{"runs": {"r": [1]}, "views": []}', '{"runs": {"r": {"tags": 3}}}']
)
def test_a_strange_viewer_file_adds_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / NAME).write_text(content)
    assert ViewerFile(tmp_path).remarks("r") == Remarks() and ViewerFile(tmp_path).views() == {}


def test_views_need_a_name_and_a_short_address(tmp_path: Path) -> None:
    file = ViewerFile(tmp_path)
    assert file.keep_view("  ", "q=x") == "a view needs a name"
    assert "longer than" in file.keep_view("a", "x" * 10_000)
    assert not os.path.exists(tmp_path / NAME)


# --- callbacks --------------------------------------------------------------------------------------------------------


def test_rows_come_once_and_again_only_when_something_changed(client: Client) -> None:
    client.open("/workspace")
    given = {"workspace-tick.n_intervals": 1, "workspace-ask.data": {"columns": ["reward/mean:last"], "group": ""}}
    first = client.call("workspace-rows", "workspace-ask.data", given)
    assert {row["id"] for row in first["workspace-rows"]["data"]["rows"]} == {RUN, CALM}
    given["workspace-known.data"] = first["workspace-known"]["data"]
    assert client.call("workspace-rows", "workspace-tick.n_intervals", given) is None


def test_a_view_is_saved_by_pages_of_this_server_alone(client: Client, runs_folder: Path) -> None:
    client.open("/workspace")
    save = {"workspace-save.data": {"name": "mine", "query": "q=x"}}
    refused = client.call("workspace-views", "workspace-save.data", save)
    assert "Not saved" in refused["workspace-views"]["data"]["problem"] and not (runs_folder / NAME).exists()


# --- remarks in the lists and on the page of a run --------------------------------------------------------------------


def test_a_name_and_tags_are_shown_searched_and_an_archived_run_leaves_the_lists(runs_folder: Path) -> None:
    runs = Runs([runs_folder])
    assert runs.home.note(CALM, Remarks("the calm one", ("baseline",))) == ""
    line = {line.id: line for line in runs.lines()}[CALM]
    assert (line.name, line.tags) == ("the calm one", ("baseline",))

    def listed(query: str) -> list[str]:
        return [row.run for row in run_list(runs.lines(), ListSettings(find=query), 0.0).rows]

    assert listed("calm one") == listed("tag=baseline") == [CALM] and listed("tag=other") == []
    assert runs.notes.archive(runs_folder / CALM, True) == ""
    assert listed("") == [RUN] and listed("archived=true") == [CALM] and set(listed("archived!=x")) == {RUN, CALM}
    assert runs.remarks(runs_folder / CALM).name == "the calm one"


def test_the_page_of_a_run_shows_what_changed_and_leads_to_its_setup(client: Client, runs_folder: Path) -> None:
    Runs([runs_folder]).home.note(RUN, Remarks("my favourite", ("good",), "it *works*"))
    shown = json.dumps(client.open("/run", f"?run={RUN}"))
    assert "my favourite" in shown and "it *works*" in shown
    assert "reward rose from" in shown and f"/setup?run={RUN}" in shown and "detectors had no data" in shown


def remark(client: Client, run: str, **given: object) -> str:
    """Press Save of the form, as a page of this server does."""
    key, entry = next((key, entry) for key, entry in client.app.callback_map.items() if '"remark":"told"' in key)

    def item(each: dict[str, str]) -> dict[str, object]:
        if not each["id"].startswith("{"):
            return {**each, "value": client.app.runs.token}
        field = json.loads(each["id"])["remark"]
        return {"id": {"remark": field, "run": run}, "property": each["property"], "value": given.get(field, 1)}

    body = {
        "output": key,
        "outputs": {"id": {"remark": "told", "run": run}, "property": "children"},
        "inputs": [item(each) for each in entry["inputs"]],
        "state": [item(each) for each in entry["state"]],
        "changedPropIds": [json.dumps({"remark": "save", "run": run}, separators=(",", ":")) + ".n_clicks"],
    }
    headers = {"Host": "127.0.0.1:8050", "Origin": "http://127.0.0.1:8050", "Sec-Fetch-Site": "same-origin"}
    answer = client.http.post("/_dash-update-component", json=body, headers=headers)
    return str(next(iter(answer.get_json()["response"].values()))["children"])


def test_the_form_saves_beside_the_run(client: Client, runs_folder: Path) -> None:
    client.open("/run", f"?run={RUN}")
    said = remark(client, RUN, name="mine", tags="a, b,,a", note="text", annotations="12 new reward")
    assert said == f"Saved in {runs_folder / NAME}"
    assert ViewerFile(runs_folder).remarks(RUN) == Remarks(
        "mine", ("a", "b"), "text", annotations=(Annotation(12, "new reward"),)
    )
    assert remark(client, RUN, name="", tags="", note="", annotations="new reward").startswith("Not saved: no step")
    assert "no longer exists" in remark(client, "../nothing", name="x", tags="", note="", archived=False)


def test_any_name_has_a_natural_place() -> None:
    names = ["9" * 5_000, "٣" * 5_000, "", "a\x00", "²", "-1"]
    assert sorted(names, key=natural)
