"""The command line as a user meets it: quick, helpful, and never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from stabilizer.cli import VERBS, build_parser, main


def stabilizer(*words: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "stabilizer", *words], capture_output=True, text=True, timeout=120, **options
    )


def loaded_modules(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_stabilizer_loads_neither_torch_nor_dash() -> None:
    assert not {"torch", "transformers", "dash", "plotly", "pandas"} & loaded_modules("import stabilizer")


def test_help_loads_nothing_heavy() -> None:
    code = "import contextlib, io\nfrom stabilizer.cli import main\nwith contextlib.redirect_stdout(io.StringIO()), " \
           "contextlib.suppress(SystemExit): main(['--help'])"  # fmt: skip
    assert not {"torch", "transformers", "dash", "plotly", "numpy", "pandas"} & loaded_modules(code)


def test_diagnose_does_not_load_torch() -> None:
    code = "import contextlib, io\nfrom stabilizer.cli import main\n" \
           "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):\n" \
           "    main(['diagnose', 'no-such-path', '--json'])"  # fmt: skip
    assert not {"torch", "transformers", "dash"} & loaded_modules(code)


def test_help_names_every_verb_and_each_verb_has_help_json_and_debug(capsys) -> None:
    for verb in VERBS:
        with pytest.raises(SystemExit) as stop:
            main([verb, "--help"])
        assert stop.value.code == 0
        text = capsys.readouterr().out
        assert "--json" in text and "--debug" in text
    assert all(verb in build_parser().format_help() for verb in VERBS)


@pytest.mark.parametrize(
    "words",
    [
        ("diagnose", "no-such-path"),
        ("report", "no-such-path"),
        ("fix", "no-such-path", "list"),
        ("train", "no-such-task-or-file"),
        ("train", "addition", "--set", "optim.lrr=1"),
        ("train", "addition", "--set", "optim.lr=fast"),
        ("train", "--resume", "no-such-run"),
        ("detectors", "explain", "policy/entropy-colapse"),
    ],
)
def test_a_mistake_is_answered_in_words_with_exit_code_2(words: tuple[str, ...], tmp_path) -> None:
    done = stabilizer(*words, "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr + done.stdout
    assert done.stderr.startswith(f"stabilizer {words[0]}: ")
    assert set(json.loads(done.stdout)) == {"error"}
    assert list(tmp_path.iterdir()) == [], "a mistake leaves nothing behind"


def test_a_misspelt_key_is_answered_with_the_nearest(tmp_path) -> None:
    done = stabilizer("train", "addition", "--set", "optim.lrr=1", cwd=tmp_path)
    assert "optim.lrr" in done.stderr and "optim.lr" in done.stderr.replace("optim.lrr", "")


def test_an_unknown_verb_lists_the_verbs() -> None:
    done = stabilizer("diagnoze")
    assert done.returncode == 2
    assert "diagnose" in done.stderr and "Traceback" not in done.stderr


def test_output_cut_short_by_a_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m stabilizer detectors explain policy/kl-runaway | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


@pytest.mark.slow
def test_help_answers_within_half_a_second() -> None:
    def once() -> float:
        began = time.perf_counter()
        stabilizer("--help")
        return time.perf_counter() - began

    assert min(once() for _ in range(5)) <= 0.5
