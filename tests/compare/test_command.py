"""The verb as a user meets it: the shipped case, the page, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stabilizer.cli import main
from tests.output.test_report import Page

SAMPLES = Path(__file__).parents[2] / "sample_runs"
RUN = SAMPLES / "length-vs-published"
CASE = [str(RUN), str(RUN / "reference.json")]


def test_the_terminal_says_the_verdict_first_and_one_change(capsys) -> None:
    assert main(["compare", *CASE]) == 0
    text = capsys.readouterr().out
    assert text.startswith("■ NOT COMPARABLE")
    order = ["What reward/mean can be", "time to peak", "What was set differently", "explains what", "What to do next"]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)
    first = text[text.index("What to do next") :]
    assert "plot the same reward on both sides" in first and "prompts per step 4 -> 32" in first


def test_a_terminal_without_unicode_gets_plain_marks(capsys, monkeypatch) -> None:
    import io

    from rich.console import Console

    from stabilizer.compare import compare, read_side
    from stabilizer.output.compare_terminal import show

    raw = io.BytesIO()
    out = Console(file=io.TextIOWrapper(raw, encoding="ascii"), width=100, markup=False, highlight=False)
    show(compare(*(read_side(word) for word in CASE)), out)
    out.file.flush()
    assert raw.getvalue().startswith(b"[X] NOT COMPARABLE")


def test_json_is_one_object_or_a_list_for_several_runs(capsys) -> None:
    assert main(["compare", *CASE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "not-comparable"
    assert (
        main(["compare", str(RUN), str(SAMPLES / "addition-healthy"), str(SAMPLES / "length-healthy"), "--json"]) == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert [each["run"]["name"] for each in told] == ["length-vs-published", "length-healthy"]


def test_a_run_beside_itself_has_nothing_to_change(capsys) -> None:
    assert main(["compare", str(RUN), str(RUN)]) == 0
    text = capsys.readouterr().out
    assert "IDENTICAL" in text and "nothing to change" in text and "What was set differently" not in text


def test_every_clock_can_be_asked_for(capsys) -> None:
    pair = [str(RUN), str(SAMPLES / "length-healthy")]
    for clock in ("step", "tokens", "samples", "time"):
        assert main(["compare", *pair, "--by", clock, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["clock"]["by"] == clock


def test_the_page_is_complete_in_itself_and_hostile_names_stay_text(tmp_path: Path, capsys) -> None:
    evil = json.loads((RUN / "reference.json").read_text())
    evil |= {
        "name": "<script>alert(1)</script>",
        "note": "<img src=x onerror=alert(1)>",
        "config": {"<b>": "</script>"},
    }
    (tmp_path / "curve.json").write_text(json.dumps(evil))
    target = tmp_path / "page.html"
    assert main(["compare", str(RUN), str(tmp_path / "curve.json"), "-o", str(target)]) == 0
    text = target.read_text()
    page = Page(text)
    assert len(page.scripts) == 3 and "Content-Security-Policy" in text
    assert not [tag for tag, _ in page.tags if tag in ("img", "iframe", "link", "b1")]
    assert "NOT COMPARABLE" in page.shown and "alert(1)" in page.shown
    figures = json.loads(page.scripts[0][1])["figures"]
    shown = [attributes["data-figure"] for _, attributes in page.tags if "data-figure" in attributes]
    assert shown == list(figures) == ["c0-main", "c0-shape"]
    assert str(target) in capsys.readouterr().out.replace("\n", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([str(RUN), "no-such"], "no such file"),
        ([*CASE, "--metric", "reward/men"], "reward/mean"),
        ([*CASE, "--by", "tokens"], "tokens"),
        ([*CASE, "-o", "page.txt"], ".html"),
        ([*CASE, "-o", str(RUN / "page.html")], "inside the run directory"),
        ([*CASE, str(RUN)], "is not a second seed of itself"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, words: list[str], said: str) -> None:
    assert main(["compare", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error and error.count("\n") == 1


def test_help_holds_the_schema_of_a_curve(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    text = capsys.readouterr().out
    assert all(f'"{key}"' in text for key in ("points", "smoothing", "support", "completions_per_step", "hardware"))
