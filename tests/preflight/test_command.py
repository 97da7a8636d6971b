"""`stabilizer preflight` as it is typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stabilizer.cli import main
from stabilizer.core.paths import sample_runs

SAMPLES = sample_runs()
FLAT = str(SAMPLES / "case-easyr1/config.yaml")
HOSTILE = "\x1b]52;c;eA==\x07\x1b[31mred\u202e"


def test_the_page_names_place_value_reason_cure_and_how_sure(capsys) -> None:
    assert main(["preflight", FLAT]) == 1
    page = " ".join(capsys.readouterr().out.split())
    assert page.startswith("▲ NOT READY: warnings") or page.startswith("[!] NOT READY: warnings")
    for words in ("EasyR1", "config.yaml:16", "worker.actor.global_batch_size 8", "How sure", "folklore", "--fix"):
        assert words in page


def test_json_has_the_form_of_diagnose(capsys) -> None:
    assert main(["preflight", FLAT, "--json"]) == 1
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert not err and {"schema", "source", "verdict", "worst", "findings", "not_checked"} <= set(answer)
    assert answer["verdict"] == "warn" and answer["source"]["trainer"] == "easyr1"
    first = answer["findings"][0]
    assert first["id"] == "batch/too-few-prompts"
    assert first["location"] == {"key": "worker.actor.global_batch_size", "file": FLAT, "line": 16}
    assert first["change"] == {"worker.actor.global_batch_size": [8, 32]}
    assert first["why"] and first["confidence"] == "likely" and first["source"]


@pytest.mark.parametrize(
    "name,level,code",
    [
        ("case-easyr1/config.yaml", "warn", 1),
        ("case-easyr1/config.yaml", "critical", 0),
        ("case-easyr1/config.yaml", "never", 0),
        ("length-vs-published/config.py", "warn", 0),
        ("length-vs-published/config.py", "info", 1),
        ("case-open-r1/config.sh", "critical", 1),
    ],
)
def test_exit_codes_follow_the_verdict(name: str, level: str, code: int) -> None:
    assert main(["preflight", str(SAMPLES / name), "--fail-on", level, "--json"]) == code


def test_fix_writes_a_copy_and_leaves_the_configuration(tmp_path, capsys) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(Path(FLAT).read_text())
    assert main(["preflight", str(path), "--fix"]) == 1
    assert "Written:" in capsys.readouterr().out and path.read_text() == Path(FLAT).read_text()
    assert main(["preflight", str(tmp_path / "c.fixed.yaml")]) == 0
    capsys.readouterr()
    assert main(["preflight", str(path), "--fix", "--json"]) == 2
    assert "exists already" in json.loads(capsys.readouterr().out)["error"]
    assert main(["preflight", str(path), "--fix", str(path), "--only", "batch/too-few-prompts", "--json"]) == 1
    done = json.loads(capsys.readouterr().out)["fix"]
    assert [f["id"] for f in done["applied"]] == ["batch/too-few-prompts"] and done["written"] == str(path)
    assert "global_batch_size: 32" in path.read_text() and "val_freq: -1" in path.read_text()


@pytest.mark.parametrize(
    "words,said",
    [(["gone.yaml"], "no such file"), ([FLAT, "--trainer", "trlx"], "did you mean"),
     ([FLAT, "--set", "x"], "key=value"), ([FLAT, "--version", "new"], "0.18.0"),
     ([FLAT, "--only", "kl/doubled"], "--fix"),
     ([FLAT, "--fix", "--only", "kl/double"], "did you mean 'kl/doubled'")],
)  # fmt: skip
def test_a_mistake_is_answered_in_words(words: list[str], said: str, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["preflight", *words, "--json"]) == 2
    out, err = capsys.readouterr()
    assert said in json.loads(out)["error"] and err.startswith("stabilizer preflight: ") and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--processes", "0"], ["--gpus", "x"], ["--model-size", "big"], ["--prompts", "-3"]])
def test_a_number_that_is_none_is_refused(words: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["preflight", FLAT, *words])
    assert stop.value.code == 2


def test_gpus_less_the_servers_own_are_the_processes(tmp_path, capsys) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("per_device_train_batch_size: 1\nnum_generations: 8\nuse_vllm: true\nvllm_mode: server\n")
    assert main(["preflight", str(path), "--gpus", "8", "--version", "0.20", "--json"]) == 1
    first = json.loads(capsys.readouterr().out)["findings"][0]
    assert first["id"] == "trainer/rejects" and first["change"] == {"num_generations": [8, 7]}  # 8 - 1 = 7


def test_a_configuration_cannot_paint_the_terminal(tmp_path, capsys) -> None:
    path = tmp_path / "a.py"
    path.write_text(f"a = GRPOConfig(num_generation={HOSTILE!r}, max_grad_norm=0, optim='8bit' + x)\n")
    assert main(["preflight", str(path)]) == 1
    shown = capsys.readouterr().out
    assert "num_generation" in shown and not set(shown) & set("\x1b\x07\u202e")


def test_preflight_loads_nothing_heavy() -> None:
    code = (
        "import contextlib, io, sys\nfrom stabilizer.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    main(['preflight', {FLAT!r}])\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "jsonargparse", "dash"} & set(done.stdout.split())


@pytest.mark.parametrize("model", ["builtin", "builtin:addition"])
def test_the_tiny_model_may_learn_at_a_tiny_models_rate(tmp_path, capsys, model) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"task: addition\nmodel: {model}\noptim: {{lr: 8e-4}}\nrollout: {{prompts: 64}}\n")
    main(["preflight", str(path), "--trainer", "stabilizer", "--json"])
    assert "lr/range" not in capsys.readouterr().out
