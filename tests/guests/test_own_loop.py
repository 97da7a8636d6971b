"""A foreign loop that logs rows: they are kept and judged, knobs act in the loop's thread, nothing raises into it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import stabilizer
from stabilizer.analysis.analyse import analyse
from stabilizer.cli import main
from stabilizer.guests.own_loop import GuestRun
from stabilizer.guests.trl_probe import tell_apart
from stabilizer.runs.reader import RunReader
from stabilizer.trainers.reading import load


def steps(run: GuestRun, count: int, **metrics: float) -> None:
    for step in range(1, count + 1):
        run.log({"reward": 0.3 + 0.01 * (step % 5), "kl": 0.01, **metrics}, step)


def waited(condition, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_rows_are_kept_under_our_names_and_judged(tmp_path):
    with stabilizer.init("mine", runs=tmp_path, config={"lr": 1e-6}) as run:
        steps(run, 60, grad_norm=0.5)
        for step in range(61, 121):
            run.log({"reward": 0.3 - 0.004 * (step - 60), "kl": 0.01 + 0.1 * (step - 60), "grad_norm": 0.5}, step)
    view = RunReader(run.path).history.view()
    assert len(view.series("reward/mean")) == len(view.series("policy/kl_ref")) == 120
    assert json.loads((run.path / "run.json").read_text())["config"] == {"lr": 1e-6}
    assert any(finding.id == "policy/kl-runaway" for finding in RunReader(run.path).findings)
    assert analyse(load(run.path)).verdict in ("warn", "critical")


def test_a_loop_that_raises_is_recorded_as_failed_and_its_error_passes(tmp_path):
    with pytest.raises(KeyError), GuestRun("mine", runs=tmp_path) as run:
        steps(run, 3)
        raise KeyError("answer")
    assert json.loads((run.path / "status.json").read_text())["state"] == "failed"
    assert analyse(load(run.path)).verdict == "crashed"


def test_a_crash_of_a_loop_is_explained_as_one_in_a_log(tmp_path):
    with pytest.raises(RuntimeError), GuestRun("mine", runs=tmp_path) as run:
        steps(run, 3)
        raise RuntimeError("[/pytorch/third_party/gloo/pair.cc:537] Read error: Connection reset by peer.")
    (found,) = [finding for finding in RunReader(run.path).findings if finding.id == "system/crashed"]
    assert found.evidence["trouble"] == "nccl/remote-gone" and "test_own_loop.py" in found.evidence["user_frame"]


@pytest.mark.parametrize("value", ["text", None, [1, 2], {"a": 1}, object(), 1 + 2j, math.nan, math.inf, 10**400])
def test_odd_values_cost_no_more_than_themselves(tmp_path, value):
    run = GuestRun("mine", runs=tmp_path)
    run.log({"odd": value, "reward": 0.5, 3: 4}, 1)
    run.log({"reward": 0.6}, "no step")
    run.finish()
    assert RunReader(run.path).history.view().series("reward/mean").values[0] == 0.5


class Odd:
    def __str__(self):
        raise RuntimeError("no text")

    def item(self):
        raise OverflowError("too large")


def test_a_value_a_key_or_a_step_of_an_odd_class_costs_only_itself(tmp_path):
    run = GuestRun("mine", runs=tmp_path)
    run.log({"odd": Odd(), "reward": 0.1}, 1)
    run.log({Odd(): 1.0, "reward": 0.2}, 2)
    run.log({"reward": 0.3}, math.nan)
    run.log({"reward": 0.4}, Odd())
    run.finish()
    rewards = RunReader(run.path).history.view().series("reward/mean")
    assert rewards.values.tolist() == [0.1, 0.2, 0.3, 0.4] and rewards.steps.tolist() == [1, 2, 3, 4]


def test_settings_of_any_class_are_kept_as_text(tmp_path):
    config = {"out": Path("x/y"), "names": {"a"}, "inner": {"dtype": complex}, "pair": (1, 2)}
    GuestRun("mine", runs=tmp_path, config=config).finish()
    (path,) = (p for p in tmp_path.iterdir() if p.is_dir())
    kept = json.loads((path / "run.json").read_text())["config"]
    assert kept == {"out": "x/y", "names": "{'a'}", "inner": {"dtype": "<class 'complex'>"}, "pair": [1, 2]}


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="runs = .*file.*no folder can be made there"):
        GuestRun("mine", runs=tmp_path / "file" / "runs")


def test_tensors_of_one_element_are_numbers(tmp_path):
    import numpy as np

    with GuestRun("mine", runs=tmp_path) as run:
        run.log({"reward": np.float32(0.5), "loss": np.array([0.25]), "many": np.ones(3)}, 1)
    view = RunReader(run.path).history.view()
    assert view.series("reward/mean").values[0] == 0.5 and "many" not in view


def test_a_request_turns_a_knob_inside_log(tmp_path, capsys):
    group, threads = {"lr": 1e-3}, []
    run = GuestRun("mine", runs=tmp_path)

    def set_rate(value: float) -> None:
        threads.append(threading.current_thread())
        group["lr"] = value

    run.knob("lr", lambda: group["lr"], set_rate)
    steps(run, 3)
    assert main(["fix", str(run.path), "set", "lr_scale=0.5"]) == 0
    assert waited(lambda: run.log({"reward": 0.3, "kl": 0.01}).changes or group["lr"] < 1e-3)
    run.finish()
    assert group["lr"] == 5e-4 and threads == [threading.main_thread()]
    assert any(action.entry == "applied" for action in RunReader(run.path).actions)


def test_a_knob_out_of_bounds_or_unknown_is_said_and_left_out(tmp_path, capsys):
    run = GuestRun("mine", runs=tmp_path)
    run.knob("beta", lambda: 0.01, lambda value: None, low=0.0, high=0.02)
    run.knob("betta", lambda: 0.01, lambda value: None)
    run.knob("temperature", lambda: 9.0, lambda value: None)
    run.knob("lr", lambda: 0.0, lambda value: None)
    run._controls.set("control/beta", 0.5)
    decision = run.log({"reward": 0.1}, 1)
    run.finish()
    said = capsys.readouterr().err
    assert "no knob 'betta'" in said and "temperature" in said and "outside 0 to 0.02" in said
    assert "lr is 0 now" in said
    assert not decision.changes and run._controls.get("control/beta") == 0.01


def test_automatic_modes_are_refused_with_the_reason(tmp_path):
    with pytest.raises(ValueError, match="inside another loop it is one of off, suggest"):
        GuestRun("mine", runs=tmp_path, remedy="auto-full")


def test_a_monitor_that_fails_is_said_once_and_the_loop_goes_on(tmp_path, monkeypatch, capsys):
    run = GuestRun("mine", runs=tmp_path)
    monkeypatch.setattr(run._monitor, "write", lambda *_: (_ for _ in ()).throw(OSError("disk gone")))
    steps(run, 50)
    run.finish()
    assert capsys.readouterr().err.count("disk gone") == 1


def test_a_monitor_that_hangs_blocks_no_log(tmp_path, monkeypatch):
    monkeypatch.setattr("stabilizer.guests.own_loop.WAITING", 100)
    monkeypatch.setattr("stabilizer.guests.own_loop.CLOSING_S", 0.1)
    run = GuestRun("mine", runs=tmp_path)
    monkeypatch.setattr(run._monitor, "write", lambda *_: time.sleep(60))
    began = time.monotonic()
    steps(run, 1000)
    assert time.monotonic() - began < 1.0 and run._dropped > 800
    run.finish()


def test_a_call_costs_less_than_a_fifth_of_a_millisecond(tmp_path):
    run, took = GuestRun("mine", runs=tmp_path), []
    metrics = {f"metric_{i}": 0.1 * i for i in range(45)} | {"reward": 0.3, "kl": 0.01}
    for step in range(200):
        began = time.perf_counter()
        run.log(metrics, step)
        took.append(time.perf_counter() - began)
        time.sleep(0.002)
    run.finish()
    assert sorted(took)[len(took) // 2] < 2e-4


KILLED = """
import sys, time, stabilizer
run = stabilizer.init("mine", runs=sys.argv[1])
for step in range(1, 10_000):
    run.log({"reward": 0.3, "kl": 0.01}, step)
    print(step, flush=True)
    time.sleep(0.005)
"""


def test_a_killed_loop_leaves_a_readable_run(tmp_path):
    root = Path(stabilizer.__file__).parents[1]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(root)},
    )  # fmt: skip
    said = [process.stdout.readline() for _ in range(100)]
    process.kill()
    process.wait()
    (path,) = (p for p in tmp_path.iterdir() if p.is_dir())
    rows = len(RunReader(path).history.view().series("reward/mean"))
    assert int(said[-1]) - 20 <= rows


def test_the_end_of_a_script_closes_the_run(tmp_path):
    script = "import sys, stabilizer; r = stabilizer.init('mine', runs=sys.argv[1]); r.log({'reward': 0.1}, 1)"
    root = Path(stabilizer.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], check=True, env=environment, capture_output=True, text=True
    )
    (path,) = (p for p in tmp_path.iterdir() if p.is_dir())
    assert f"recorded in {path}" in done.stderr
    assert json.loads((path / "status.json").read_text())["state"] == "finished"


def test_importing_it_brings_neither_torch_nor_a_trainer():
    script = "import sys, stabilizer.guests.attach, stabilizer.guests.own_loop; print('torch' in sys.modules)"
    root = Path(stabilizer.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(root)}
    )
    assert done.stdout.strip() == "False", done.stderr


def test_an_exception_nobody_catches_is_on_record_when_the_program_ends(tmp_path):
    code = (
        f"import stabilizer; run = stabilizer.init('mine', runs={str(tmp_path)!r}); run.log({{'reward': 1.0}}); 1 / 0"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "ZeroDivisionError" in done.stderr
    (folder,) = tmp_path.iterdir()
    assert json.loads((folder / "status.json").read_text())["state"] == "failed"
    assert analyse(load(folder)).verdict == "crashed"


@pytest.mark.parametrize("kind", ["LambdaLR", "SequentialLR", "OneCycleLR", "CosineAnnealingLR", None])
def test_a_changed_rate_scales_all_groups_and_whatever_the_schedule_does_next(tmp_path, kind):
    import torch
    from torch.optim import lr_scheduler

    def made():
        groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in (0.1, 0.01)]
        optimizer = torch.optim.SGD(groups, lr=0.1)
        schedules = {
            "LambdaLR": lambda: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
            "SequentialLR": lambda: lr_scheduler.SequentialLR(
                optimizer,
                [lr_scheduler.ConstantLR(optimizer, 0.5, 2), lr_scheduler.ExponentialLR(optimizer, 0.9)],
                milestones=[4],
            ),
            "OneCycleLR": lambda: lr_scheduler.OneCycleLR(optimizer, [0.1, 0.01], total_steps=20),
            "CosineAnnealingLR": lambda: lr_scheduler.CosineAnnealingLR(optimizer, 20),
        }
        return optimizer, schedules[kind]() if kind else None

    def rates(run=None, scale_at=None):
        optimizer, schedule = made()
        if run:
            run.rates(optimizer, schedule)
        found = []
        for step in range(1, 11):
            optimizer.step()
            if schedule:
                schedule.step()
            if run and step == scale_at:
                run._controls.set("control/lr_scale", 0.5)
            if run:
                run.log({"reward": 0.1}, step)
            found.append([group["lr"] for group in optimizer.param_groups])
        return torch.tensor(found, dtype=torch.float64)

    with GuestRun("mine", runs=tmp_path) as run:
        scaled, plain = rates(run, scale_at=3), rates()
    assert torch.allclose(scaled[:2], plain[:2]) and torch.allclose(scaled[2:], plain[2:] / 2, rtol=1e-9)


def test_an_optimizer_without_a_rate_costs_only_its_knob(tmp_path, capsys):
    with GuestRun("mine", runs=tmp_path) as run:
        run.rates(object())
        run.log({"reward": 0.5}, 1)
    assert "AttributeError" in capsys.readouterr().err


def test_no_adapter_imports_a_library_before_it_is_used():
    modules = ["accelerate", "adapter", "attach", "lightning", "own_loop", "sb3", "transformers"]
    code = f"import sys\nfor name in {modules}:\n    __import__('stabilizer.guests.' + name)\n"
    code += "heavy = {'torch', 'transformers', 'trl', 'accelerate', 'lightning', 'stable_baselines3'}\n"
    code += "print(sorted(heavy & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_a_disk_that_refuses_rows_is_said_once_and_at_the_end(tmp_path):
    code = f"""
        import resource, stabilizer
        run = stabilizer.init("mine", runs={str(tmp_path / "runs")!r})
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        for step in range(1, 201):
            run.log({{"reward": 0.5, "kl": 0.01}}, step)
        run.finish()
        print("trained")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "trained\n" and done.stderr.count("File too large; rows wait in memory") == 1
    assert done.stderr.count("records of the run are missing") == 1


def test_a_folder_that_is_moved_is_said_while_the_loop_goes_on(tmp_path, capsys):
    run = GuestRun("moved", runs=tmp_path / "runs")
    steps(run, 3)
    run.path.rename(tmp_path / "elsewhere")
    assert waited(lambda: run.log({"reward": 0.3}) and "was moved or deleted" in capsys.readouterr().err)
    run.finish()


class Unknown:
    """A trainer that has little of what `attach` knows of TRL's."""

    model = accelerator = None

    def __init__(self):
        self.args = SimpleNamespace(max_steps=3, max_grad_norm=1.0)
        self.state, self.control = SimpleNamespace(global_step=0), SimpleNamespace(should_training_stop=False)
        self.optimizer = None
        self._metrics = {"train": {"reward": []}}
        self.add_callback = lambda callback: setattr(self, "callback", callback)

    def train(self):
        self.callback.on_train_begin(self.args, self.state, self.control)
        for _ in range(3):
            self.state.global_step += 1
            self._metrics["train"]["reward"].append(0.5)
            self.callback.on_step_end(self.args, self.state, self.control)
        self.callback.on_train_end(self.args, self.state, self.control)


def test_a_trainer_of_an_unknown_version_is_watched_and_its_other_knobs_are_refused(tmp_path, capsys):
    trainer = Unknown()
    guest = stabilizer.attach(trainer, runs=tmp_path)
    assert "watching Unknown" in (said := capsys.readouterr().out) and "knobs: max_grad_norm\n" in said
    with pytest.raises(ValueError, match="this run has no knob 'control/beta'; it has control/max_grad_norm"):
        guest._controls.set("control/beta", 0.1)
    trainer.train()
    assert RunReader(guest.path).history.view().series("reward/mean").values.tolist() == [0.5] * 3
    assert trainer.state.global_step == 3


def test_reward_functions_of_trl_that_share_a_name_are_numbered():
    trainer = SimpleNamespace(reward_func_names=["format", "right", "format", "format-a"])
    assert tell_apart(trainer) == ["format-1", "format-2"]
    assert trainer.reward_func_names == ["format-1", "right", "format-2", "format-a"]
    assert tell_apart(trainer) == tell_apart(SimpleNamespace()) == [], "nothing shares a name"
