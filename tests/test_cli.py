"""The command line as a user meets it: quick, helpful, and never a traceback."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from stabilizer.cli import VERBS, build_parser, main
from stabilizer.commands import live_run, printing, train
from stabilizer.core.records import Action, Cause, Finding
from stabilizer.live.tick import Tick
from stabilizer.runs.asking import waiting
from stabilizer.runs.atomic import replace_json
from stabilizer.runs.reader import read_json
from stabilizer.runs.writer import RunWriter

SAMPLE = Path(__file__).parents[1] / "sample_runs/addition-unstable"


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


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_diagnose_does_not_load_torch(words: tuple[str, ...]) -> None:
    command = ["diagnose", str(SAMPLE), *words]
    code = "import contextlib, io\nfrom stabilizer.cli import main\nout = io.StringIO()\n" \
           f"with contextlib.redirect_stdout(out):\n    main({command})\n" \
           "assert 'critical' in out.getvalue().lower()"  # fmt: skip
    assert not {"torch", "transformers", "dash"} & loaded_modules(code)


def test_what_train_prints_needs_no_torch() -> None:
    assert "torch" not in loaded_modules("import stabilizer.commands.printing, stabilizer.commands.fix")


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
        ("train", "addition", "--set", "optim="),
        ("train", "--resume", "no-such-run"),
        ("detectors", "explain", "policy/entropy-colapse"),
    ],
)
def test_a_mistake_is_answered_in_words_with_exit_code_2(words: tuple[str, ...], tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--json"]) == 2
    out, err = capsys.readouterr()
    assert "Traceback" not in err + out
    assert err.startswith(f"stabilizer {words[0]}: ")
    assert set(json.loads(out)) == {"error"}
    assert list(tmp_path.iterdir()) == [], "a mistake leaves nothing behind"


@pytest.mark.parametrize(
    "words",
    [("diagnose",), ("diagnose", "x", "--fail-on", "bad"), ("bench", "detect", "--seed", "-1"), ("no-such-verb",)],
)
def test_words_that_make_no_command_are_an_error_in_json_too(words: tuple[str, ...], capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*words, "--json"])
    out, err = capsys.readouterr()
    assert stop.value.code == 2 and set(json.loads(out)) == {"error"} and json.loads(out)["error"] in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("diagnos", "x"), "stabilizer: error: unknown verb 'diagnos'; did you mean 'diagnose'?"),
        (("xyzzy",), "stabilizer: error: unknown verb 'xyzzy'; choose from train, demo, "),
        (("diagnose", "x", "--fail-one=warn"), "stabilizer diagnose: error: unrecognized argument --fail-one=warn;"
                                               " did you mean --fail-on?"),
        (("diagnose", "x", "--xyzzy"), "unrecognized argument --xyzzy; see `stabilizer diagnose --help`"),
        (("watch", "a", "b"), "stabilizer watch: error: unrecognized argument b; see `stabilizer watch --help`"),
    ],
)  # fmt: skip
def test_a_word_that_is_not_known_is_answered_with_the_nearest_in_its_verbs_own_usage(words, said, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    assert stop.value.code == 2 and said in capsys.readouterr().err


def test_no_words_at_all_show_the_help(capsys) -> None:
    assert main([]) == 2
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in VERBS) and "Start with `stabilizer demo`" in shown


def test_the_dashboard_says_that_a_folder_is_not_there_and_opens_all_the_same(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("dashboards.server.serve", lambda paths, *rest, **options: print("served", *paths))
    assert main(["dashboard", str(tmp_path / "rusn"), str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out == f"served {tmp_path / 'rusn'} {tmp_path}\n"
    assert err == f"stabilizer dashboard: {tmp_path / 'rusn'}: does not exist yet; it is shown once it does\n"


def test_a_mistake_ends_the_process_with_exit_code_2(tmp_path) -> None:
    done = stabilizer("diagnose", "no-such-path", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("stabilizer diagnose: ") and not done.stdout


def test_a_misspelt_key_is_answered_with_the_nearest(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    main(["train", "addition", "--set", "optim.lrr=1"])
    said = capsys.readouterr().err
    assert "optim.lrr" in said and "optim.lr" in said.replace("optim.lrr", "")


def test_a_group_set_to_nothing_is_answered_with_one_of_its_keys(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "addition", "--set", "optim="]) == 2
    assert "--set optim=: optim is a group of keys; set one of them, e.g. --set optim.kind=" in capsys.readouterr().err


@pytest.mark.parametrize("seed", ["-1", "1.5", "x"])
def test_a_seed_that_is_none_is_refused_by_bench(seed, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["bench", "detect", "--seed", seed])
    assert stop.value.code == 2 and "give a whole number from 0 on" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words,named",
    [(("addition",), "CONFIG"), (("--set", "optim.lr=1"), "--set"), (("--steps", "5"), "--steps"),
     (("--seed", "0"), "--seed"), (("--task", "addition"), "--task"), (("--variant", "unstable"), "--variant")],
)  # fmt: skip
def test_what_a_resumed_run_cannot_heed_is_refused_not_ignored(words, named, tmp_path, capsys) -> None:
    assert main(["train", *words, "--resume", str(tmp_path)]) == 2
    assert f"so {named} can't be given" in capsys.readouterr().err


def test_a_dashboard_whose_port_is_taken_takes_a_free_one(tmp_path, capsys) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with live_run.dashboard(tmp_path, "run", port, printing.Console()) as address:
            assert address is not None and f":{port}/" not in address
    assert f"port {port} is in use" in capsys.readouterr().out


def test_a_resumed_run_is_shown_with_its_neighbours(tmp_path, monkeypatch) -> None:
    session = pytest.importorskip("stabilizer.live.session")
    served = []

    @contextlib.contextmanager
    def dashboard(runs, run, port, console):
        served.append((runs, run))
        yield None

    resumed = SimpleNamespace(writer=SimpleNamespace(path=tmp_path / "there/run"))
    monkeypatch.setattr(session.Session, "resume", lambda path, mode, **how: resumed)
    monkeypatch.setattr(train, "dashboard", dashboard)
    monkeypatch.setattr(train, "follow", lambda session, console, **how: 0)
    assert main(["train", "--resume", str(tmp_path / "there/run"), "--dashboard"]) == 0
    assert served == [(tmp_path / "there", "run")]


@pytest.mark.parametrize(
    ("was", "asked", "goes_on"),
    [("auto-full", [], "auto-full"), ("auto-full", ["--remedy", "off"], "off"), (None, [], "suggest"),
     ("format-disk", [], "suggest"), (["auto-full"], [], "suggest")],
)  # fmt: skip
def test_a_resumed_run_keeps_the_remedies_it_had(was, asked, goes_on, tmp_path, monkeypatch) -> None:
    session = pytest.importorskip("stabilizer.live.session")
    modes, resumed = [], SimpleNamespace(writer=SimpleNamespace(path=tmp_path))
    monkeypatch.setattr(session.Session, "resume", lambda path, mode, **how: modes.append(mode) or resumed)
    monkeypatch.setattr(train, "follow", lambda session, console, **how: 0)
    if was:
        (tmp_path / "status.json").write_text(json.dumps({"state": "running", "remedy": was}))
    assert main(["train", "--resume", str(tmp_path), *asked]) == 0
    assert modes == [goes_on]


HOSTILE = "\x1b]52;c;eA==\x07\x1b[31mred\u202e\x00"
"""What a file might hold to paint, or type into, the terminal that shows it."""


def run_with_proposal(path: Path, **status: str) -> Path:
    writer = RunWriter.create(path, config={}, argv=[])
    writer.action(Action("a1", "proposed", f"lower-lr{HOSTILE}", 3, text=HOSTILE, change={HOSTILE: (1.0, 0.5)}))
    writer.status("running", 3, **status)
    writer.close()
    return path


def test_a_journal_cannot_paint_the_terminal(tmp_path, capsys) -> None:
    assert main(["fix", str(run_with_proposal(tmp_path / "run")), "list"]) == 0
    shown = capsys.readouterr().out
    assert "lower-lr" in shown and not set(shown) & set(HOSTILE[:1] + "\x07\x00\u202e")


def test_what_train_prints_cannot_paint_the_terminal() -> None:
    finding = Finding(HOSTILE, "warn", HOSTILE, 1, 1, 1, state="open", causes=(Cause(HOSTILE, 0.5, HOSTILE),))
    action = Action("a1", "proposed", HOSTILE, 3, text=HOSTILE, change={HOSTILE: (1.0, None)})
    shown = "".join(str(part) for part in (*printing.finding_lines(finding), *printing.action_lines(action)))
    assert "red" in shown and not set(shown) & set("\x1b\x07\x00\u202e")


def test_an_error_cannot_paint_the_terminal(capsys) -> None:
    assert main(["diagnose", f"no-such-{HOSTILE[:-1]}"]) == 2
    said = capsys.readouterr().err
    assert "no-such-" in said and not set(said) & set("\x1b\x07\u202e")


@pytest.mark.parametrize("mode,code", [("off", 2), ("suggest", 2), ("approve", 0), ("auto-full", 0), (None, 0)])
def test_approving_is_refused_where_nothing_would_be_done(mode, code, tmp_path, capsys) -> None:
    run = run_with_proposal(tmp_path / "run", **({"remedy": mode} if mode else {}))
    assert main(["fix", str(run), "approve", "a1"]) == code
    said = capsys.readouterr().err
    assert (f"--resume {run} --remedy approve" in said) == bool(code)
    assert len(list(run.glob("requests/*.json"))) == int(code == 0)
    assert main(["fix", str(run), "reject", "a1"]) == 0


def test_the_command_line_says_what_an_approval_would_cost(tmp_path, capsys) -> None:
    writer = RunWriter.create(tmp_path / "run", config={}, argv=[])
    for step in range(1, 41):
        writer.metrics(step, {"reward/mean": 0.01 * step})
    data = {"hypothesis": {"rollback_to": 15}}
    writer.action(Action("a1", "proposed", "roll-back", 20, safety="hard", data=data))
    writer.status("running", 40, remedy="approve", force=True)
    run = str(tmp_path / "run")
    assert main(["fix", run, "list"]) == 0
    listed = " ".join(capsys.readouterr().out.split())
    assert "Cost of approval: 25 steps would be discarded" in listed and "reward/mean: 0.355 now, 0.105" in listed
    assert main(["fix", run, "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["cost"][0].startswith("25 steps")
    assert main(["fix", run, "approve", "a1"]) == 0
    assert "25 steps would be discarded" in capsys.readouterr().out
    writer.action(Action("a1", "expired", "roll-back", 41, safety="hard", text="the incident is over"))
    assert main(["fix", run, "approve", "a1"]) == 2
    assert "a1 has expired, at step 41: the incident is over" in capsys.readouterr().err
    writer.close()


@pytest.mark.parametrize("alive", [True, False])
def test_a_long_step_takes_requests_and_a_dead_process_does_not(tmp_path, alive, capsys) -> None:
    run = run_with_proposal(tmp_path / "run")
    status = read_json(run / "status.json")
    pid = status["pid"] if alive else 2**22 + 1  # beyond what Linux gives out
    replace_json(run / "status.json", status | {"t": status["t"] - 3600, "pid": pid})
    assert main(["fix", str(run), "set", "beta=0.01"]) == (0 if alive else 2)
    said = capsys.readouterr().err
    assert ("process is gone" in said and f"train --resume {run}" in said) != alive


def test_several_knobs_are_asked_for_at_once_or_none(tmp_path, capsys) -> None:
    run = run_with_proposal(tmp_path / "run")
    assert main(["fix", str(run), "set", "minibatches=4", "prompts=many"]) == 2
    assert "prompts" in capsys.readouterr().err and not list(run.glob("requests/*.json"))
    assert main(["fix", str(run), "set", "minibatches=4", "prompts=12"]) == 0
    assert "set minibatches=4 prompts=12" in capsys.readouterr().out
    assert [(r.kind, r.action) for r in waiting(run)] == [("set", "minibatches=4"), ("set", "prompts=12")]
    assert main(["fix", str(run), "approve", "a1", "a2"]) == 2
    assert "takes one argument" in capsys.readouterr().err


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


def test_a_list_of_runs_names_them_whole(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    name = "20260102-101500-addition-with-a-long-name-3f2a"
    run_with_proposal(tmp_path / name)
    assert main(["runs", str(tmp_path)]) == 0
    assert name in capsys.readouterr().out


def ticked(step: int, metrics: dict[str, float]) -> Tick:
    return Tick(step, 90, metrics, [], (), 0)


def test_a_line_shows_the_newest_validation_though_its_step_was_not_printed(monkeypatch, capsys) -> None:
    now = [100.0]
    monkeypatch.setattr(printing.time, "monotonic", lambda: now[0])
    printer = printing.LivePrinter(printing.Console(width=100))
    for step in range(1, 11):
        printer.tick(ticked(step, {"reward/mean": step / 100} | ({"accuracy/val": 0.25} if step == 3 else {})))
        now[0] += printing.EVERY_S / 4
    first, second, third = (line.split() for line in capsys.readouterr().out.splitlines()[2:])
    assert first[:4] == ["1/90", "0.010", "–", "–"] and third[:4] == ["9/90", "0.090", "–", "25.0%"]
    assert second[:4] == ["5/90", "0.050", "–", "25.0%"]


@pytest.mark.parametrize(("catching_up", "first"), [(True, "–"), (False, "0:09")])
def test_the_time_left_is_told_by_steps_that_were_waited_for_not_by_rows_that_were_read(
    catching_up, first, monkeypatch, capsys
) -> None:
    now = [100.0]
    monkeypatch.setattr(printing.time, "monotonic", lambda: now[0])
    printer = printing.LivePrinter(printing.Console(width=100), catching_up=catching_up)

    def left(step: int, after: float) -> str:
        now[0] += after
        printer.tick(ticked(step, {}))
        return capsys.readouterr().out.split()[-1]

    assert [left(10, 0.1), left(50, 10.0)][1] == first
    printer.caught_up()
    assert left(60, 20.0) == "1:00", "10 steps in 20 s, although it is one row; 30 are left"
