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


def words_counted(folder):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.save(str(folder / "tokenizer.json"))


def test_a_tokenizer_counts(tmp_path, capsys):
    words_counted(tmp_path)
    rows = [{"prompt": "a " * 101}, {"prompt": "a " * 99}]
    _, found, _ = asked(tmp_path, capsys, VERL, rows, "--tokenizer", str(tmp_path))
    assert "1 of 2 prompts" in found[0]["summary"] and found[0]["confidence"] == "certain"


TEMPLATE = (
    "{% if messages[0].role != 'system' %}" + "a " * 50 + "{% endif %}{% for one in messages %}a {{ one.content }}\n"
    "{% endfor %}{% if add_generation_prompt %}a{% endif %}"
)


@pytest.mark.parametrize("written", ["tokenizer_config.json", "chat_template.jinja"])
def test_messages_are_counted_with_the_chat_template_and_its_own_system_message(written, tmp_path, capsys):
    words_counted(tmp_path)
    whole = json.dumps({"chat_template": TEMPLATE}) if written.endswith(".json") else TEMPLATE
    (tmp_path / written).write_text(whole, encoding="utf-8")
    user = {"role": "user", "content": "a " * 30}
    rows = [{"prompt": [user]}, {"prompt": [{"role": "system", "content": "a"}, user]}, {"prompt": "a " * 30}]
    _, found, _ = asked(tmp_path, capsys, VERL, rows, "--tokenizer", str(tmp_path))
    assert "34 tokens in the median" in found[0]["summary"] and "the longest 82" in found[0]["summary"]


def test_the_system_message_of_the_configuration_counts(tmp_path, capsys):
    rows = [{"prompt": SHORT}] * 3
    _, found, _ = asked(tmp_path, capsys, "swift rlhf --rlhf_type grpo --system " + "x" * 400, rows)
    assert "120 tokens in the median" in found[0]["summary"]


@pytest.mark.parametrize("template", ["{% if", "{{ raise_exception('no system role') }}"])
def test_a_chat_template_that_fails_is_one_clear_line(template, tmp_path, capsys):
    words_counted(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(template, encoding="utf-8")
    rows = [{"prompt": [{"role": "user", "content": "a"}]}]
    code, _, error = asked(tmp_path, capsys, VERL, rows, "--tokenizer", str(tmp_path))
    assert code == 2 and "its chat template" in error


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
