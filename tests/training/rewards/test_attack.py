"""Attacks on reward functions: a sound one passes, and each kind of fault is named."""

from __future__ import annotations

import json
import time

import pytest

from stabilizer.cli import main
from stabilizer.training.rewards.attack import DEFAULT, answers, attack, problems_of

SOURCE = r"""
import random, re, time

def sound(completions, answer, **columns):
    found = [re.findall(r"\\boxed\{([^{}]*)\}", text) for text in completions]
    return [float(len(boxes) == 1 and boxes[0] == right) for boxes, right in zip(found, answer)]

def contains(completions, answer, **columns):
    return [float(right in text) for text, right in zip(completions, answer)]

def first_box(completions, answer, **columns):
    found = [re.findall(r"\\boxed\{([^{}]*)\}", text) for text in completions]
    return [float(right in boxes) for boxes, right in zip(found, answer)]

def raises(completions, answer, **columns):
    return [float(text.split("####")[1].strip() == right) for text, right in zip(completions, answer)]

def of_messages(completions, solution, **columns):
    return [float(text[0]["content"].strip() == right) for text, right in zip(completions, solution)]

def drawn(completions, **columns):
    return [random.random() for _ in completions]

def backtracks(completions, answer, **columns):
    return [float(bool(re.match(r"(a+)+$", text[:28] + "b"))) for text in completions]

def text_format(completions, **columns):
    return [float("<answer>" in text) for text in completions]

def nothing(completions, **columns):
    return [None] * len(completions)

def sleeps(completions, **columns):
    time.sleep(60)

def by_difficulty(completions, difficulty):
    return [float(value) for value in difficulty]

def tags_alone(completions, answer, **columns):
    return [float(text == f"<answer>{right}</answer>") for text, right in zip(completions, answer)]

def closeness(completions, answer, **columns):
    return [("<answer>" in text) + 1 / max(1, len(text)) for text in completions]

def one(completion, answer):
    return 1.0 if completion.strip().endswith("\\boxed{" + answer + "}.") else 0.0
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rewards.py"
    path.write_text(SOURCE)
    return path


def found(file, function):
    (report,) = attack([f"{file}:{function}"])
    return report, {finding.id: finding for finding in report.findings}


@pytest.mark.parametrize("function", ["sound", "one", "tags_alone"])
def test_a_sound_function_has_remarks_at_most(file, function):
    report, findings = found(file, function)
    assert set(findings) <= {"rewards/form"} and not report.failures
    form = "tags alone" if function == "tags_alone" else "boxed"
    assert report.values[f"right, {form}"] == 1.0 and report.values[f"wrong, {form}"] == 0.0


@pytest.mark.parametrize(("function", "by"), [("contains", "all numbers listed"), ("first_box", "many boxes")])
def test_what_an_exploit_earns_is_said_beside_a_right_answer(file, function, by):
    _, findings = found(file, function)
    assert findings["rewards/exploit"].severity == "critical" and by in findings["rewards/exploit"].what


def test_a_function_that_raises_is_named_with_its_line(file):
    _, findings = found(file, "raises")
    assert findings["rewards/fails-on-right"].severity == "critical"
    assert "IndexError" in findings["rewards/fails"].what and "rewards.py line" in findings["rewards/fails"].what


def test_a_function_of_chat_messages_gets_them(file):
    report, findings = found(file, "of_messages")
    assert report.form == "chat messages" and not report.failures and "rewards/fails" not in findings


def test_a_function_that_draws_is_not_deterministic(file):
    assert "rewards/not-deterministic" in found(file, "drawn")[1]


def test_a_pattern_that_backtracks_is_slow_or_ends_at_the_limit(file, monkeypatch):
    monkeypatch.setattr("stabilizer.training.rewards.attack.TIMEOUT_S", 2.0)
    report, findings = found(file, "backtracks")
    assert {"rewards/slow", "rewards/hangs"} & set(findings) and report.seconds > 1


def test_no_value_for_any_answer_is_no_all_clear(file):
    assert found(file, "nothing")[1]["rewards/no-value"].severity == "critical"


def test_a_function_that_hangs_is_given_up_after_one_call(file, monkeypatch):
    monkeypatch.setattr("stabilizer.training.rewards.attack.TIMEOUT_S", 1.0)
    began = time.monotonic()
    report, findings = found(file, "sleeps")
    assert findings["rewards/hangs"].severity == "critical" and len(report.values) == 1
    assert time.monotonic() - began < 10


def test_a_column_that_the_questions_lack_is_named_and_not_made_up(file, tmp_path):
    report, findings = found(file, "by_difficulty")
    assert "difficulty" in findings["rewards/needs-column"].what and not report.values
    data = tmp_path / "data.jsonl"
    data.write_text('{"question": "1+1?", "answer": "2", "difficulty": 3}\n')
    (report,) = attack([f"{file}:by_difficulty"], problems_of(data))
    assert report.values["empty"] == 3.0


def test_a_reward_for_form_may_value_a_wrong_answer(file):
    assert found(file, "text_format")[1]["rewards/blind"].severity == "info"


def test_a_file_that_cannot_be_imported_is_one_finding(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("import no_such_package\n\ndef mine(completions, **_):\n    return [0.0] * len(completions)\n")
    (report,) = attack([f"{path}:mine"])
    assert report.findings[0].id == "rewards/not-loaded" and "no_such_package" in report.findings[0].what


def test_questions_come_from_the_data_set(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text(
        json.dumps({"question": "1+1?", "answer": "so it is\n#### 2"}) + "\n" + json.dumps({"text": "no answer"}) + "\n"
    )
    (problem,) = problems_of(path)
    assert problem.answer == "2" and answers(problem)["right, boxed"].endswith("\\boxed{2}.")
    path.write_text("{}\n")
    with pytest.raises(ValueError, match="no row has both a question"):
        problems_of(path)


def test_the_command_prints_what_was_found_and_exits_1(file, capsys):
    assert main(["preflight", "--rewards", f"{file}:contains"]) == 1
    assert "rewards/exploit" in capsys.readouterr().out
    assert main(["preflight", "--rewards", f"{file}:sound", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdict"] == "info" and answer["rewards"][0]["values"]["empty"] == 0.0
    assert main(["preflight", "--data", "x.jsonl"]) == 2 and "no configuration given" in capsys.readouterr().err
    assert main(["preflight"]) == 2 and "no configuration given" in capsys.readouterr().err


def test_every_answer_is_another():
    assert len(set(answers(DEFAULT[0]).values())) == len(answers(DEFAULT[0]))


def test_a_reward_that_differs_only_by_length_is_blind(file):
    finding = found(file, "closeness")[1]["rewards/blind"]
    assert finding.severity == "critical"
    assert "tags alone" in finding.what


def test_a_file_without_a_function_is_attacked_whole(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(
        "def _hidden(completions):\n    return []\n\ndef helper(text):\n    return text\n\n"
        "def length_reward(completions, **columns):\n    return [float(len(text)) for text in completions]\n\n"
        "def score(completions, answer, **columns):\n    return [float(a == c) for a, c in zip(answer, completions)]\n"
    )
    assert [report.name for report in attack([str(file)])] == ["length_reward", "score"]


@pytest.mark.parametrize("source", ["x = 1\n", "def broken(:\n"])
def test_a_file_without_any_function_is_one_clear_line(tmp_path, capsys, source):
    file = tmp_path / "mine.py"
    file.write_text(source)
    assert main(["preflight", "--rewards", str(file)]) == 2
    said = capsys.readouterr().err
    assert str(file) in said
    assert "Traceback" not in said
