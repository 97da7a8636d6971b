"""Real commands under `stabilizer supervise`: what is restarted, what is not, and what is passed on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stabilizer.live import supervise
from stabilizer.live.resume_command import resuming, with_arguments
from stabilizer.live.supervise import RECORD, _message, hung
from stabilizer.runs import processes
from stabilizer.runs.heartbeats import Beat
from stabilizer.runs.reader import RunReader

RUN = [sys.executable, "-m", "stabilizer", "supervise", "--pause", "0.1"]

TORCHRUN = """[rank1]: Traceback (most recent call last):
[rank1]: ModuleNotFoundError: No module named 'a_module_that_is_not_there'
[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:21432
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


def supervised(*words: str, code: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
    command = [*RUN, *words, "--", sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def test_a_command_that_ends_well_runs_once_and_its_output_passes():
    done = supervised(code="import sys; print('out'); print('err', file=sys.stderr)")
    assert done.returncode == 0 and done.stdout == "out\n" and "err\n" in done.stderr
    assert "attempt 1 started" in done.stderr and "attempt 1: ended well" in done.stderr
    assert "attempt 2" not in done.stderr


def test_a_crash_is_restarted_within_the_budget_and_its_code_returned():
    done = supervised(
        "--restarts", "2", code="import os; raise RuntimeError('lost ' + os.environ['STABILIZER_ATTEMPT'])"
    )
    assert done.returncode == 1 and "attempt 3: exit code 1: RuntimeError: lost 3" in done.stderr
    assert "the budget of 2 restarts is used up" in done.stderr and "attempt 4" not in done.stderr


def test_a_crash_that_does_not_come_back_ends_well(tmp_path):
    done = supervised(
        code=f"import os; f={str(tmp_path / 'x')!r}; n=os.path.exists(f); open(f,'w').close(); os._exit(0 if n else 9)"
    )
    assert done.returncode == 0 and "exit code 9" in done.stderr and "attempt 2: ended well" in done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import a_module_that_is_not_there",
        "raise ValueError('global batch 7 must be evenly divisible by num_generations 8')",
        "raise SystemExit(2)",
        f"import sys; sys.stderr.write({TORCHRUN!r}); sys.exit(1)",
    ],
    ids=["import", "configuration", "usage", "import in one of two processes"],
)
def test_an_error_that_would_come_again_is_not_restarted(code):
    done = supervised(code=code)
    assert done.returncode in (1, 2) and "not restarted: a configuration" in done.stderr
    assert "attempt 2" not in done.stderr


LOOP = """
import os, sys, time, stabilizer
run = stabilizer.init("mine", runs=sys.argv[1])
for step in range(1, 6):
    with run.phase("reward"):
        if step == 4 and (sys.argv[2] == "always" or os.environ["STABILIZER_ATTEMPT"] == "1"):
            if sys.argv[3] == "hang":
                time.sleep(600)
            raise RuntimeError("worker lost")
    run.log({"reward": 0.5}, step)
    time.sleep(0.05)
run.finish()
"""


def looped(tmp_path: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], list[Path]]:
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    command = [*RUN, "--hang", "2", "--", sys.executable, str(script), str(tmp_path / "runs"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done, sorted((tmp_path / "runs").glob("*"), key=lambda run: (run / "run.json").stat().st_mtime)


def test_a_located_hang_is_ended_and_restarted_and_on_record(tmp_path):
    done, (run,) = looped(tmp_path, "once", "hang")
    assert done.returncode == 0 and "hang: the reward" in done.stderr and "attempt 2: ended well" in done.stderr
    rows = [json.loads(line) for line in (run / RECORD).read_text().splitlines()]
    assert rows[0]["code"] == 124 and rows[0]["step"] == 3 and "loop.py:8 <module>" in rows[0]["why"]
    assert "restarted by `stabilizer supervise`, attempt 2" in (run / "events.jsonl").read_text()


def test_workers_in_sessions_of_their_own_end_with_the_hung_launcher(monkeypatch):
    monkeypatch.setattr(supervise, "GRACE_S", 0.2)
    worker = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    launcher = (
        "import subprocess, sys, time; w = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=-1,"
        " start_new_session=True); w.stdout.readline(); print(w.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", launcher, worker]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as process:
        pid = int(process.stdout.readline())
        supervise.Supervisor._end(process)
        assert process.returncode == -signal.SIGTERM
    until = time.monotonic() + 10
    while (left := processes.process(pid)) is not None and left.state != "Z" and time.monotonic() < until:
        time.sleep(0.05)
    assert left is None or left.state == "Z"


ROOT_CAUSE = """[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:21432
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
[0]:
  time      : 2026-11-27_10:00:00
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 4711)
  traceback : Signal 9 (SIGKILL) received by PID 4711
"""


def test_a_process_of_several_that_was_killed_is_named():
    assert _message(ROOT_CAUSE) == "rank 1 (pid 4711) was ended by SIGKILL"
    assert "4711" not in _message(ROOT_CAUSE.replace("-9 (pid", "1 (pid")), "its own traceback says more"


@pytest.mark.parametrize(("how", "code"), [("hang", 124), ("crash", 1)])
def test_the_same_failure_at_the_same_step_is_restarted_once(tmp_path, how, code):
    done, _ = looped(tmp_path, "always", how)
    assert done.returncode == code and "the same failure at step 3 twice" in done.stderr
    assert "attempt 2" in done.stderr and "attempt 3 started" not in done.stderr


def test_a_signal_is_forwarded_and_nothing_is_restarted():
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7));"
        " print('up', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([*RUN, "--", sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout and process.stderr and process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 7
    assert b"SIGTERM was asked for" in process.stderr.read()


def test_a_command_that_ignores_signals_is_ended_by_one_that_comes_again():
    ignores = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    worker = f"[sys.executable, '-c', {ignores + 'time.sleep(60)'!r}]"
    stuck = (
        ignores
        + f"import subprocess, sys; w = subprocess.Popen({worker}, start_new_session=True); "
        + ("time.sleep(0.5); print(w.pid, flush=True); time.sleep(60)")
    )
    ours = "import sys; from stabilizer.live import supervise; supervise.GRACE_S = 1.0; from stabilizer.cli import main"
    ours += f"; sys.exit(main(['supervise', '--', sys.executable, '-c', {stuck!r}]))"
    process = subprocess.Popen([sys.executable, "-c", ours], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout and process.stderr
    worker_id = int(process.stdout.readline())
    for wait in (0.0, 0.1, 1.5):  # the second comes at once, and counts as the first
        time.sleep(wait)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGKILL
    assert b"SIGTERM again" in process.stderr.read()
    state = Path(f"/proc/{worker_id}/stat")
    assert not state.exists() or " Z " in state.read_text()


def test_a_command_that_is_not_there_is_named(tmp_path):
    done = subprocess.run([*RUN, "--", str(tmp_path / "no")], capture_output=True, text=True, check=False)
    assert done.returncode == 127 and "can't be started" in done.stderr and "Traceback" not in done.stderr


def test_our_trainer_is_resumed_and_finishes(tmp_path):
    command = [
        *RUN, "--restarts", "2", "--", sys.executable, "-m", "stabilizer", "train", "addition", "--steps", "30",
        "--runs", str(tmp_path / "runs"), "--set", "checkpoint.every=1",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end, step = time.monotonic() + 100, 0
    while time.monotonic() < end and step < 2:
        time.sleep(0.02)
        for file in (tmp_path / "runs").glob("*/status.json"):
            step = json.loads(file.read_text())["step"]
    run = next((tmp_path / "runs").iterdir())
    os.kill(json.loads((run / "status.json").read_text())["pid"], signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    assert "SIGKILL" in err and f"train --resume {run}" in err and process.returncode in (0, 1), err
    assert "attempt 3" not in err  # a training that is done with a warning has not crashed
    assert json.loads((run / "status.json").read_text())["state"] == "finished"
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_only_what_fits_a_resume_is_kept_of_our_command(tmp_path):
    (tmp_path / "checkpoints" / "step-3-a0").mkdir(parents=True)
    start = [
        "torchrun",
        "-m",
        "stabilizer",
        "train",
        "a.yaml",
        "--set",
        "a=1",
        "--remedy",
        "approve",
        "--seed=3",
        "--json",
    ]
    resumed = ["torchrun", "-m", "stabilizer", "train", "--resume", str(tmp_path), "--remedy", "approve", "--json"]
    assert resuming(start, tmp_path) == resumed
    assert resuming(start, None) == start
    assert resuming(["python", "train.py"], tmp_path) == ["python", "train.py"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["train.py", "--num_generations", "8", "--lr=1"], ["train.py", "--num_generations", "16", "--lr=1"]),
        (["train.py", "--num-generations=8"], ["train.py", "--num-generations=16"]),
        (["trl", "grpo", "--config", "a.yaml"], ["trl", "grpo", "--config", "a.yaml", "--num_generations", "16"]),
        (["python", "train.py"], ["python", "train.py"]),
        (["train.py", "--num_generations"], ["train.py", "--num_generations"]),
    ],
)
def test_a_changed_argument_replaces_the_one_of_the_command(before, after):
    assert with_arguments(before, {"num_generations": 16}) == after


PLANNING = """
import os, sys, stabilizer
settings = {"group": 4, "rate": 1.0} | stabilizer.changed_arguments()
print(os.environ["STABILIZER_ATTEMPT"], settings, sys.argv[2:])
run = stabilizer.init("mine", runs=sys.argv[1], config=settings)
run.restart_knob("group_size", lambda: settings["group"], "group", lambda: "here/3")
for step in range(1, 4):
    if step == 3 and settings["group"] < 16:
        run._controls.set("control/group_size", settings["group"] * 2)
    if run.log({"reward": 0.5}, step).stop:
        break
run.finish()
"""


def planned(tmp_path: Path, restarts: int) -> tuple[subprocess.CompletedProcess[str], list[Path]]:
    script = tmp_path / "loop.py"
    script.write_text(PLANNING)
    command = [
        *RUN,
        "--restarts",
        str(restarts),
        "--",
        sys.executable,
        str(script),
        str(tmp_path / "runs"),
        "--group=4",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done, sorted((tmp_path / "runs").glob("*"), key=lambda run: (run / "run.json").stat().st_mtime)


def test_a_restart_plan_is_carried_out_with_the_changed_arguments(tmp_path):
    done, runs = planned(tmp_path, 3)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{attempt} {{'group': {group}, 'rate': 1.0}} ['--group={group}']"
        for attempt, group in ((1, 4), (2, 8), (3, 16))
    ]
    run = RunReader(runs[0])
    assert len(runs) == 1 and run.status["state"] == "finished" and run.about["config"]["group"] == 16
    assert [attempt["from_step"] for attempt in run.about["attempts"]] == [0, 1, 1]
    assert "changed: group=8 (was 4)" in next(event.text for event in run.events if event.kind == "resume")
    ended = json.loads((runs[0] / RECORD).read_text().splitlines()[0])
    assert ended["plan"] == {"step": 3, "arguments": {"group": 8}, "checkpoint": "here/3"} and ended["restart"]
    assert "it ended for a change of group=8" in done.stderr


def test_a_knob_that_takes_a_restart_is_there_only_while_restarts_are_left(tmp_path):
    done, runs = planned(tmp_path, 1)
    assert done.returncode == 1 and "control/group_size takes a restart with another group" in done.stderr
    assert len(RunReader(runs[0]).about["attempts"]) == 2, "the second attempt has no restart left"


GOING_ON = """
import json, os, pathlib, sys, time, stabilizer
from stabilizer.runs.requests import ask
kept = pathlib.Path(sys.argv[1]) / "step"
attempt, weights = int(os.environ["STABILIZER_ATTEMPT"]), {"beta": 0.1}
run = stabilizer.init("mine", runs=sys.argv[1])
run.knob("beta", lambda: weights["beta"], lambda value: weights.update(beta=value), follow=True)
for step in range(int(kept.read_text()) + 1 if kept.exists() else 1, 9):
    if step == 2 and attempt == 1:
        ask(run.path, "set", "beta=0.5")
    run.log({"reward": 0.5}, step)
    time.sleep(0.05)
    if step == 4:
        kept.write_text("4")
    if step == 6 and attempt == 1:
        os.kill(os.getpid(), 9)
with stabilizer.init("mine", runs=sys.argv[1]) as other:
    other.log({"reward": 0.5}, 1)
"""


def test_an_attempt_goes_on_in_the_run_of_the_one_before_with_the_knobs_of_its_journal(tmp_path):
    done = supervised(code=GOING_ON.replace("sys.argv[1]", repr(str(tmp_path / "runs"))))
    assert done.returncode == 0 and "exit code 137 (SIGKILL)" in done.stderr, done.stderr
    folders = sorted((tmp_path / "runs").glob("*-mine-*"), key=lambda run: (run / "run.json").stat().st_mtime)
    run = RunReader(folders[0])
    assert [attempt["from_step"] for attempt in run.about["attempts"]] == [0, 5]
    assert run.history.view().series("control/beta").values.tolist() == [0.1] * 2 + [0.5] * 2 + [0.1] + [0.5] * 3
    assert run.status["state"] == "finished" and run.actions[-1].entry == "applied"
    assert len(folders) == 2, "a second run of the same name in one process is another one"


def test_a_stall_has_to_last_before_a_process_is_ended():
    now = time.time()
    beat = Beat(pid=1, t=now, for_s=130.0, limit_s=120.0, stall={"kind": "slow-reward", "text": "slow"})
    longer = {**beat.__dict__, "for_s": 250.0}
    assert hung([beat], None, now - 9) is None
    assert hung([Beat(**longer)], None, now - 9) is not None
    assert hung([Beat(**longer | {"stall": {"kind": "compiling"}})], None, now - 9) is None
    assert hung([Beat(**longer)], 0, now - 9) is None
    assert hung([Beat(**longer | {"phase": "paused"})], None, now - 9) is None
    assert hung([Beat(**longer)], None, now + 9) is None, "the heartbeat of an earlier attempt"


def test_a_training_that_is_done_with_a_warning_is_not_restarted(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, stabilizer\n"
        f"run = stabilizer.init(name='done', trainer='stabilizer', runs={str(tmp_path / 'runs')!r})\n"
        "for step in range(3):\n"
        "    run.log({'reward': 0.1 * step}, step=step)\n"
        "run.finish()\n"
        "sys.exit(1)\n"
    )
    done = subprocess.run([*RUN, "--", sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "attempt 2" not in done.stderr, done.stderr


def test_a_warning_or_a_progress_bar_explains_no_end():
    noise = "lib.py:12: FutureWarning: gone in v6\n  warnings.warn(\n 40%|####   | 4/10 [00:01<00:02]\n"
    assert _message(noise) == ""
    assert _message(f"Bus error\n{noise}") == "Bus error"
    assert _message(f"ValueError: bad\n{noise}") == "ValueError: bad"
