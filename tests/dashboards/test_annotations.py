"""What a viewer writes at a step: kept beside the runs, drawn on every chart of the run, and nowhere in it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_client import CALM, RUN, Client

from dashboards.components.remarks import typed
from dashboards.data.comparison import Comparer, Question
from dashboards.data.incident_details import charts, incident_details
from dashboards.data.live_updates import full_update, update_since
from dashboards.data.run_registry import Runs
from dashboards.data.viewer_file import MAX_ANNOTATIONS, Annotation, Remarks, ViewerFile
from dashboards.data.viewer_settings import ViewerSettings
from dashboards.data.workspace import Wanted, answer, rows
from stabilizer.figures.marks import MAX_LABEL
from stabilizer.figures.run_groups import many_figure

TEXT = "a <b>new</b> reward from here on, of another service"


@pytest.fixture
def runs(runs_folder: Path) -> Runs:
    return Runs([runs_folder])


def note(runs: Runs, *notes: tuple[int, str]) -> None:
    told = Remarks(annotations=tuple(Annotation(step, text) for step, text in notes))
    assert runs.home.note(CALM, told) == ""


def drawn(figure: Any) -> tuple[str, str]:
    """The hover texts and the labels of a figure's marks."""
    texts = [text for trace in figure.data for text in (trace.text or ()) if isinstance(trace.text, (list, tuple))]
    return "\n".join(texts), "\n".join(label.text for label in figure.layout.annotations)


def test_a_note_is_drawn_as_text_and_labelled(runs: Runs) -> None:
    note(runs, (12, TEXT))
    first = full_update(runs.get(CALM), ViewerSettings(CALM)).charts[0]
    hover, labels = drawn(first.figure)
    assert "note</b> at step 12" in hover and "&lt;b&gt;new" in hover
    assert "★ a &lt;b&gt;new" in labels and "…" in labels and len(TEXT) > MAX_LABEL


def test_a_note_comes_to_charts_that_are_open_and_goes_with_the_switch(runs: Runs) -> None:
    settings, followed = ViewerSettings(CALM), runs.get(CALM)
    before = full_update(followed, settings).seen
    assert update_since(followed, before) is None
    note(runs, (12, TEXT))
    update = update_since(followed, before)
    assert update and update.changes and all("note" in drawn(change.figure)[0] for change in update.changes.values())
    hidden = full_update(followed, ViewerSettings(CALM, marks=False)).charts[0]
    assert "note" not in "".join(drawn(hidden.figure))


def test_a_note_stands_beside_its_run_in_the_workspace_and_a_change_of_it_is_seen(runs: Runs) -> None:
    before = {row["id"]: row["noted"] for row in rows(runs, (), "")["rows"]}
    note(runs, (12, TEXT))
    wanted = Wanted.read({"runs": [CALM, RUN], "metrics": ["reward/mean"]})
    told = answer(runs, wanted)["runs"]
    assert told[CALM]["notes"] == [[12, 12, TEXT]] and told[RUN]["notes"] == []
    assert answer(runs, replace(wanted, x="optim/lr"))["runs"][CALM]["notes"] == []  # no metric has a place for a step
    after = {row["id"]: row["noted"] for row in rows(runs, (), "")["rows"]}
    assert {id for id in after if after[id] != before[id]} == {CALM}


def test_a_note_stands_on_the_charts_and_the_timeline_of_a_comparison(runs: Runs, runs_folder: Path) -> None:
    asked = Question(((CALM, runs_folder / CALM), (RUN, runs_folder / RUN)), x="share", notes=((CALM, 12, TEXT),))
    found = Comparer().answer(asked)
    (timeline,) = [row for row in found.timelines if row.notes]
    (mark,) = timeline.notes
    assert timeline.name == CALM and mark.x == 40 and TEXT in mark.text  # of its 30 steps
    figure = many_figure(found.charts[0].curves, found.charts[0].places, x_title="", notes=[(mark, 1)])
    assert figure.layout.shapes[0].x0 == 40 and "&lt;b&gt;new" in figure.layout.annotations[0].hovertext
    assert asked.without_stamps == replace(asked, notes=())


def test_a_note_stands_on_the_charts_of_an_incident_that_it_is_near(runs: Runs) -> None:
    assert runs.home.note(RUN, Remarks(annotations=(Annotation(265, TEXT), Annotation(3, "far")))) == ""
    followed = runs.get(RUN)
    reader = followed.refresh()
    found = charts(reader, incident_details(reader, "2"), "light", followed.annotations())
    assert found and all(
        "note</b> at step 265" in drawn(figure)[0] and "far" not in drawn(figure)[0] for _, figure in found
    )


def test_the_run_stays_untouched(runs: Runs, runs_folder: Path) -> None:
    before = {path: path.read_bytes() for path in (runs_folder / CALM).rglob("*") if path.is_file()}
    note(runs, (12, TEXT))
    assert before == {path: path.read_bytes() for path in (runs_folder / CALM).rglob("*") if path.is_file()}


def test_a_note_is_typed_as_a_step_and_a_text() -> None:
    assert typed(" 5 five \n\n2 two words") == ([Annotation(5, "five"), Annotation(2, "two words")], "")
    assert typed(None) == ([], "") and "at most" in typed("1 one\n" * (MAX_ANNOTATIONS + 1))[1]


@pytest.mark.parametrize("line", ["x", "-1 x", "1.5 x", "3", "3  ", "9" * 30 + " x", "three x"])
def test_a_note_needs_a_step_and_a_text(line: str) -> None:
    assert typed(f"1 one\n{line}")[1].startswith("no step and text")


def test_a_file_of_somebody_else_breaks_no_page(runs: Runs, runs_folder: Path) -> None:
    rows: list[Any] = [1, None, {"step": "x", "text": "y"}, {"step": 3, "text": "kept"}]
    (runs_folder / ".viewer.json").write_text(json.dumps({"runs": {CALM: {"annotations": rows}}}))
    assert ViewerFile(runs_folder).remarks(CALM).annotations == (Annotation(3, "kept"),)


def test_the_page_lists_the_notes(client: Client, runs_folder: Path) -> None:
    note(client.app.runs, (12, TEXT))
    shown = json.dumps(client.open("/run", f"?run={CALM}"))
    assert "notes on charts" in shown and f"12 {TEXT}" in shown
