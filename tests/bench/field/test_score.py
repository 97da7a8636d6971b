"""An answer counts by what its top says in words of its own."""

import json
import subprocess

import pytest

from bench import command
from bench.field.answers import TOP_LINES, ask, read_answer, without_echo
from bench.field.cases import Case, _compiled
from bench.field.measure import as_json, details, tables
from bench.field.score import score
from stabilizer.cli import main

PASTED = """Traceback (most recent call last):
  File "/exp/train.py", line 9, in <module>
    raise ValueError(
ValueError: The global train batch size (5 x 2) must be evenly divisible by the number of generations per prompt (4).
"""


def case(**changes):
    fields = {
        "reference": "huggingface/trl#1", "trainer": "TRL", "kind": "configuration", "shape": "traceback",
        "cause": "c", "fix": "f", "solved": _compiled([["num_generations", "divis"]]),
        "helped": _compiled([["batch"]]), "wrong": _compiled([["learning rate"]]), "input": PASTED,
    }  # fmt: skip
    return Case(**(fields | changes))


def printed(text, *, cause="known-trouble", finding="system/crashed", verdict="crashed", code=1, lines=0):
    found = {"id": finding, "incident": 1, "summary": text if not lines else "", "causes": [{"id": cause}]}
    data = {"verdict": verdict, "incidents": [{"incident": 1}], "findings": [found]}
    page = "\n".join(["a line of the page"] * lines + [text])
    return read_answer(case(), done(json.dumps(data), code), done(page, code))


def done(stdout, code=1, stderr=""):
    return subprocess.CompletedProcess([], code, stdout, stderr)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("choose num_generations 2, 5 or 10: each divides the batch of 10", "HELPED"),
        ("choose num_generations 2, 5 or 10: the batch of 10 is divisible by them", "SOLVED"),
        ("the learning rate is too high", "WRONG"),
        ("something else happened", "WRONG"),
    ],
)
def test_the_top_of_an_answer_decides(text, outcome):
    assert score(case(), printed(text)).outcome == outcome


def test_an_unnamed_cause_is_silent_and_not_wrong():
    assert score(case(), printed("the program raised an exception", cause="program-error")).outcome == "SILENT"


def test_another_true_finding_about_metrics_is_silent_and_not_wrong():
    assert score(case(), printed("lengths grow", finding="rollout/length-explosion")).outcome == "SILENT"


def test_a_cause_far_down_the_page_only_helps():
    text = "num_generations: the batch is not divisible by it"
    assert score(case(), printed(text, lines=TOP_LINES - 1)).outcome == "SOLVED"
    assert score(case(), printed(text, lines=TOP_LINES + 4)).outcome == "HELPED"


def test_a_false_verdict_is_wrong_whatever_else_is_said():
    healthy = printed("num_generations: divisible", verdict="healthy")
    assert score(case(wrong_verdicts=("healthy",)), healthy).outcome == "WRONG"


def test_a_refused_input_is_unreadable():
    answer = read_answer(case(), done("", 2, "not a log in a known format"), done("", 2))
    assert score(case(), answer)[2:] == ("UNREADABLE", "not a log in a known format")


def test_words_quoted_from_the_input_do_not_count():
    assert score(case(), printed(PASTED, cause="program-error")).outcome == "SILENT"
    assert without_echo("From the log: KeyError: 'solution' in rewards", "KeyError: 'solution'\n") != ""
    assert "must be evenly" not in without_echo(f"From the log: {PASTED}", PASTED)
    assert "group size" in without_echo(f"{PASTED} change the group size", PASTED)


def test_the_command_line_is_asked_as_a_user_would():
    answer = ask(case(), from_stdin=False)
    assert answer.readable and answer.verdict == "crashed" and "evenly divisible by" not in answer.top
    config = case(command="preflight", suffix=".yaml", input="num_generations: 8\nper_device_train_batch_size: 3\n")
    answer = ask(config)
    assert answer.readable and answer.verdict and answer.finding


def test_answers_to_the_unseen_half_are_counted_and_not_shown(capsys):
    hidden = case(reference="huggingface/trl#2")
    assert hidden.half == "unseen"
    scored = [score(one, printed("something else happened")) for one in (case(), hidden)]
    assert [row["threads"] for row in tables(scored)[0][1]] == [1, 1, 2]
    assert list(as_json(scored)["open"]) == [case().reference]
    assert hidden.reference not in "\n".join(details(scored))
    assert main(["bench", "field", "--half", "unseen", "--show"]) == 2
    assert "--show needs --half open" in capsys.readouterr().err
    assert main(["bench", "field", "--show"]) == 2


def test_halves_belong_to_their_bench(capsys):
    assert main(["bench", "field", "--half", "report"]) == 2
    assert main(["bench", "detect", "--half", "open"]) == 2
    assert "halves develop and report" in capsys.readouterr().err
    assert "field" in command.BENCHES
