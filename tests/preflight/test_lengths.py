"""`stabilizer preflight CONFIG --data FILE`: lengths of a data set against the caps."""

import json

import pytest

from stabilizer.cli import main

VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 data.max_prompt_length=100"
)
TRL = "trl grpo --num_generations 8 --max_completion_length 100"
LONG, SHORT = "x" * 1000, "x" * 40  # 250 and 10 tokens by the estimate


def asked(tmp_path, capsys, command, rows, *words, name="rows.jsonl"):
    script, data = tmp_path / "run.sh", tmp_path / name
    script.write_text(command + "\n", encoding="utf-8")
    if isinstance(rows, list):
        rows = "\n".join(map(json.dumps, rows))
    data.write_text(rows, encoding="utf-8")
    code = main(["preflight", str(script), "--data", str(data), "--json", *words])
    answer = json.loads(capsys.readouterr().out)
    return code, [one for one in answer.get("findings", []) if one["id"] == "data/lengths"], answer.get("error", "")


@pytest.mark.parametrize(
    ("command", "severity", "done"),
    [
        (VERL, "critical", "refused (data.truncation is error)"),
        (f"{VERL} data.truncation=left", "warn", "cut (data.truncation is left)"),
        (f"{VERL} data.filter_overlong_prompts=True", "warn", "left out"),
    ],
)
def test_long_prompts_meet_what_the_trainer_does_with_them(command, severity, done, tmp_path, capsys):
    rows = [{"prompt": SHORT}] * 6 + [{"prompt": [{"role": "user", "content": LONG}]}] * 4
    _, found, _ = asked(tmp_path, capsys, command, rows)
    assert (found[0]["severity"], done in found[0]["summary"]) == (severity, True)
    assert "4 of 10 prompts (40.0%)" in found[0]["summary"] and "255" in found[0]["how"]


def test_prompts_that_fit_are_only_described(tmp_path, capsys):
    _, found, _ = asked(tmp_path, capsys, VERL, [{"prompt": SHORT}] * 10)
    assert [one["severity"] for one in found] == ["info"] and "estimated" in found[0]["summary"]


def test_reference_answers_above_the_cap_are_counted(tmp_path, capsys):
    rows = [{"question": SHORT, "answer": LONG}] * 2 + [{"question": SHORT, "answer": "4"}] * 2
    _, found, _ = asked(tmp_path, capsys, TRL, rows)
    assert found[0]["severity"] == "warn" and "2 of 4 reference answers" in found[0]["summary"]


def test_the_column_that_the_configuration_names_is_read(tmp_path, capsys):
    rows = [{"prompt": SHORT, "long one": LONG, "other": LONG}] * 3
    _, found, _ = asked(tmp_path, capsys, f"{VERL} data.prompt_key=other", rows)
    assert "column other" in found[-1]["summary"] and found[0]["severity"] == "critical"


def test_comma_separated_rows_are_read(tmp_path, capsys):
    _, found, _ = asked(tmp_path, capsys, VERL, f"prompt,answer\n{LONG},4\n", name="rows.csv")
    assert "1 of 1 prompts" in found[0]["summary"]


def test_a_tokenizer_counts(tmp_path, capsys):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    rows = [{"prompt": "a " * 101}, {"prompt": "a " * 99}]
    _, found, _ = asked(tmp_path, capsys, VERL, rows, "--tokenizer", str(tmp_path))
    assert "1 of 2 prompts" in found[0]["summary"] and found[0]["confidence"] == "certain"


@pytest.mark.parametrize(
    ("rows", "words", "said"),
    [
        ("not json", (), "not readable"),
        ("", (), "no rows"),
        ('{"text": "x"}', (), "no column of prompts among text"),
        ('{"prompt": "x"}', ("--tokenizer", "nowhere"), "no tokenizer.json there"),
    ],
)
def test_bad_data_is_one_clear_line(rows, words, said, tmp_path, capsys):
    code, _, error = asked(tmp_path, capsys, VERL, rows, *words)
    assert code == 2 and said in error


def test_a_tokenizer_without_data_is_refused(tmp_path, capsys):
    script = tmp_path / "run.sh"
    script.write_text(VERL, encoding="utf-8")
    assert main(["preflight", str(script), "--tokenizer", "x", "--json"]) == 2
    assert "--data" in json.loads(capsys.readouterr().out)["error"]
