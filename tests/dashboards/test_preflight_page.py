"""Preflight in the browser: what it says of a text, that it reads nothing else, and that no text takes it down."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from page_client import CALM, Client, components

from dashboards.data.preflight import MAX_TEXT, TITLES, PreflightInput, guessed, judged
from stabilizer.core.paths import sample_runs

FIELDS = ("text", "form", "trainer", "version", "gpus", "processes", "size", "prompts")
TRL = "learning_rate: 0.5\nnum_generations: 8\nbeta: 0.0\nper_device_train_batch_size: 7\nlogging_step: 3\n"
HOSTILE = '<img src=x onerror="window.pwned=1">'


def check(client: Client, text: Any, **said: Any) -> str:
    """Press Check; the answer as text."""
    given = {f"preflight-{name}.value": said.get(name, "") for name in FIELDS}
    given |= {"preflight-text.value": text, "preflight-check.n_clicks": 1}
    answer = client.call("preflight-found", "preflight-check.n_clicks", given)
    return json.dumps(answer["preflight-found"]["children"], ensure_ascii=False)


def test_a_pasted_text_gets_rule_severity_place_why_and_change(client) -> None:
    shown = check(client, TRL, trainer="trl", processes="1")
    for said in ("keys/unknown", "logging_step", "line 5", "Why: ", "Set instead: ", "TRL", "as given"):
        assert said in shown


def test_the_same_findings_as_on_the_command_line(client, tmp_path: Path, capsys) -> None:
    from stabilizer.cli import main

    path = tmp_path / "config.yaml"
    path.write_text(TRL)
    main(["preflight", str(path), "--trainer", "trl", "--processes", "1", "--json"])
    told = json.loads(capsys.readouterr().out)
    done = judged(PreflightInput(TRL, trainer="trl", processes="1"))
    assert [f.id for f in done.result.findings] == [f["id"] for f in told["findings"]]


@pytest.mark.parametrize("name", TITLES)
def test_every_example_is_judged_when_its_address_is_opened(client, name: str) -> None:
    page = json.dumps(client.open("/preflight", f"?example={name}"), ensure_ascii=False)
    assert "READY" in page or "WILL FAIL" in page
    assert "could not be judged" not in page


def test_every_configuration_of_a_sample_run_is_an_example() -> None:
    assert {path.parent.name for path in sample_runs().glob("*/config.*")} == set(TITLES)


def test_the_configuration_of_a_run_is_judged(client) -> None:
    page = json.dumps(client.open("/preflight", f"?run={CALM}"))
    assert "READY" in page and "3e-05" in page


def test_a_corrected_copy_is_offered_and_is_better(client) -> None:
    done = judged(PreflightInput((sample_runs() / "case-easyr1/config.yaml").read_text(), form="yaml"))
    assert done.result.verdict == "warn" and done.verdict_after == "info"
    assert "preflight-fixed" in json.dumps(client.open("/preflight", "?example=case-easyr1"))


@pytest.mark.parametrize("query", ["?example=../config.yaml", "?example=", "?run=../../etc", "?run=x", "?example=%00"])
def test_other_names_open_nothing(client, query: str) -> None:
    page = json.dumps(client.open("/preflight", query))
    assert "Preflight" in page and "READY" not in page


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("a: 1\nb:\n  c: 2\n", "yaml"),
        ('{"a": 1}', "json"),
        ("[trainer]\na = 1\n", "toml"),
        ("a = 1\n", "toml"),
        ("#!/bin/bash\nx\n", "sh"),
        ("accelerate launch x.py --beta 0.1", "sh"),
        ("python -m verl.trainer.main_ppo a=1", "sh"),
        ("from trl import GRPOConfig\nGRPOConfig(beta=0)", "py"),
        ("", "yaml"),
        ("beta: 0  # was --beta 0", "sh"),
    ],
)
def test_the_form_is_guessed_by_how_a_text_looks(text: str, form: str) -> None:
    assert guessed(text) == form


# --- what is not read -------------------------------------------------------------------------------------------------


def test_a_text_that_names_files_makes_nobody_read_them(client, tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text("api_key: hunter2\nlearning_rate: 1e-6\n")
    texts = {
        "yaml": f"defaults: {secret}\ngrpo:\n  num_prompts_per_step: 32\n",
        "sh": f"trl grpo --config {secret} --learning_rate 1e-6\n",
        "py": f"from trl import GRPOConfig\nGRPOConfig(learning_rate=open('{secret}').read())\n",
        "toml": f'toml_files = ["{secret}"]\n',
    }
    opened: list[str] = []
    watching = [True]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if watching and event == "open" and "secret" in str(args[0]):
            opened.append(str(args[0]))
        if watching and event in ("subprocess.Popen", "os.system", "exec", "socket.connect"):
            opened.append(event)

    for text in texts.values():
        check(client, text, trainer="trl")  # once before: modules are loaded by then
    sys.addaudithook(hook)
    shown = [check(client, text, form=form) for form, text in texts.items()]
    shown += [check(client, text, form=form, trainer="trl") for form, text in texts.items()]
    watching.clear()
    assert opened == [] and "hunter2" not in str(shown)
    assert "is not read here" in str(shown)


def test_nothing_is_written(client, tmp_path: Path) -> None:
    written: list[str] = []
    watching = [True]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if (
            watching
            and event == "open"
            and isinstance(args[2], int)
            and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        ):
            written.append(str(args[0]))

    sys.addaudithook(hook)
    for name in TITLES:
        client.open("/preflight", f"?example={name}")
    watching.clear()
    assert written == []


# --- no text takes it down --------------------------------------------------------------------------------------------

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MAPS = "a0: &a0 {x: 1, y: 2}\n" + "".join(
    f"a{n}: &a{n} {{" + ", ".join(f"k{i}: *a{n - 1}" for i in range(9)) + "}\n" for n in range(1, 12)
)
# fmt: off
NASTY = {
    "laughs in lists": LAUGHS, "laughs in maps": MAPS, "nested": "[" * 5000, "nested maps": "{a: " * 3000,
    "itself": "a: &a [*a]\n", "itself in a map": "a: &a {b: *a}\n",
    "a tag": "a: !!python/object/apply:os.system ['id']\n",
    "deep python": "from trl import GRPOConfig\nGRPOConfig(a=" + "(" * 3000 + "1" + ")" * 3000 + ")",
    "long python": "from trl import GRPOConfig\nGRPOConfig(a=" + "+".join("1" * 3000) + ")",
    "a huge power": "from trl import GRPOConfig\nGRPOConfig(a=9**9**9**9, b='x' * 10**12)",
    "huge numbers": "learning_rate: 1e999\nnum_generations: " + "9" * 5000 + "\n",
    "not a number": "beta: .nan\nlr: -.inf\n",
    "blank lines": "\n" * 60_000, "colons": ":" * 60_000, "one word": "a" * 60_000, "spaces": " " * 60_000 + "x",
    "brackets": "[" + "a" * 60_000, "quotes": "'" * 60_001, "equals": "a=" * 20_000, "dashes": "--" * 30_000,
    "flags": "python x.py " + "--a b " * 9000, "lone surrogates": "a: \ud800\n", "control": "a: \x1b]52;c;eA==\x07\n",
    "nul": "a: 1\0\n", "html": f"{HOSTILE}: {HOSTILE}\n", "negative": "num_generations: -8\nlearning_rate: -1\n",
    "zeros": "num_generations: 0\nper_device_train_batch_size: 0\ngradient_accumulation_steps: 0\n",
    "words for numbers": "num_generations: many\nlearning_rate: [1, 2]\nbeta: {a: 1}\nmax_steps: null\n",
    "a list": "- 1\n- 2\n", "json": '{"num_generations": 1e400, "beta": NaN}', "deep json": '{"a":' * 5000,
    "toml": "a = [" * 3000, "shell": "python x.py " + "$(" * 3000, "too long": "a" * (MAX_TEXT + 1),
}
# fmt: on


LONGEST_S = 4.0
"""Processor time for a text of at most 64 kB; one such text once took 16 s."""


@pytest.mark.parametrize("trainer", ["", "trl", "verl", "easyr1", "openrlhf", "stabilizer"])
@pytest.mark.parametrize("name", NASTY)
def test_no_text_is_a_server_error_or_takes_long(name: str, trainer: str) -> None:
    began = time.process_time()
    done = judged(PreflightInput(NASTY[name], trainer=trainer))
    assert time.process_time() - began < LONGEST_S
    assert done.result is not None or done.problem
    assert "please report it" not in done.problem


@pytest.mark.parametrize("form", ["yaml", "json", "toml", "sh", "py", "exe", HOSTILE])
@pytest.mark.parametrize("name", ["html", "nested", "control", "huge numbers", "blank lines", "colons"])
def test_a_form_that_does_not_fit_is_said(name: str, form: str) -> None:
    done = judged(PreflightInput(NASTY[name], form=form, trainer="trl"))
    assert "please report it" not in done.problem


@pytest.mark.parametrize("text", [None, 7, [], {"a": 1}, True])
def test_what_is_no_text_is_no_server_error(client, text: Any) -> None:
    assert "paste a configuration" in check(client, text)


@pytest.mark.parametrize(
    "said",
    [
        {"gpus": "-1"},
        {"gpus": "1e9"},
        {"processes": "0"},
        {"prompts": "٣"},
        {"size": "7 trillion"},
        {"size": "0"},
        {"version": "soon"},
        {"trainer": "nobody"},
        {"trainer": HOSTILE},
        {"gpus": "9" * 5000},
    ],
)
def test_a_field_that_makes_no_sense_is_said(client, said: dict[str, str]) -> None:
    assert "could not be judged" in check(client, TRL, **{"trainer": "trl", **said})


def test_text_of_a_configuration_is_only_ever_text(client) -> None:
    text = f"'{HOSTILE}': '{HOSTILE}'\nlearning_rate: 0.5\nmodel_name_or_path: '{HOSTILE}'\n"
    given = {f"preflight-{name}.value": "" for name in FIELDS}
    given |= {"preflight-text.value": text, "preflight-trainer.value": "trl", "preflight-check.n_clicks": 1}
    answer = client.call("preflight-found", "preflight-check.n_clicks", given)
    parts = components(answer)
    assert HOSTILE.replace('"', '\\"') in json.dumps(answer, ensure_ascii=False)
    assert not [p for p in parts if p["type"] == "Markdown" or any(n.startswith("dangerously") for n in p["props"])]


def test_a_run_in_the_picker_becomes_the_address(client) -> None:
    given = {"preflight-run.value": "a b&c", "url.search": ""}
    answer = client.call("url", "preflight-run.value", given)
    assert next(iter(answer.values()))["search"] == f"?run={quote('a b&c').replace('%20', '+')}"
    assert client.call("url", "preflight-run.value", {"preflight-run.value": "a", "url.search": "?run=a"}) is None


def test_the_settings_of_a_question_in_markdown_are_judged() -> None:
    text = "It doesn't start:\n```bash\ntrl grpo --num_generations 8 --per_device_train_batch_size 3\n```\nWhy?\n"
    answer = judged(PreflightInput(text))
    assert answer.result is not None and answer.result.config.trainer.name == "trl" and not answer.fixed
