"""Logs that end in a failure, from the text a trainer leaves to the answer of `diagnose`. All logs are made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stabilizer.analysis.analyse import Analysis, analyse
from stabilizer.cli import main
from stabilizer.formats.console import Failures, Line
from stabilizer.runs.loaded import NoMetrics
from stabilizer.trainers.reading import load
from stabilizer.trainers.refused import accepted
from tests.trainers.console_logs import RAY, verl

OUT_OF_MEMORY = (
    "Traceback (most recent call last):\n"
    '  File "/opt/verl/verl/workers/actor/dp_actor.py", line 388, in update_policy\n'
    "    loss.backward()\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.07 GiB.\n"
)
WHAT_OTHERS_SAY = (
    "Traceback (most recent call last):\n"
    '  File "/opt/verl/verl/trainer/main_ppo.py", line 42, in main\n'
    "ray.exceptions.RayTaskError(OutOfMemoryError): ray::TaskRunner.run()\n"
)
GROUPS = (
    "[2025-02-10 12:00:00] launching\n"
    "Traceback (most recent call last):\n"
    '  File "/opt/open-r1/src/open_r1/grpo.py", line 291, in main\n'
    "    trainer = GRPOTrainer(\n"
    '  File "/usr/lib/python3/site-packages/trl/trainer/grpo_trainer.py", line 404, in __init__\n'
    "    raise ValueError(\n"
    "ValueError: The global train batch size (7 x 1) must be evenly divisible by the number of generations per prompt"
    " (8). Given the current train batch size, the valid values for the number of generations are: [7].\n"
)
NCCL = (
    "[rank3]:[E ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12,"
    " OpType=ALLREDUCE) ran for 600012 milliseconds before timing out.\n"
)
KILLED = (
    "(raylet) The worker died unexpectedly while executing this task. Exit code -9, SIGKILL.\n"
    "ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task.\n"
)


def rows(first: int, last: int) -> str:
    names = ("critic/rewards/mean", "actor/grad_norm", "actor/entropy")
    return "".join(
        verl(step, {name: 0.4 + 0.01 * ((step * 7 + place) % 5) for place, name in enumerate(names)})
        for step in range(first, last + 1)
    )


def by_ray(text: str) -> str:
    return "".join(f"{RAY}{line}\n" for line in text.splitlines())


def answer(tmp_path: Path, text: str) -> Analysis:
    path = tmp_path / "train.log"
    path.write_text(text)
    try:
        return analyse(load(path))
    except NoMetrics as told:
        return analyse(told.run)


def ended(tmp_path: Path, text: str):
    found = answer(tmp_path, text)
    assert found.verdict == "crashed"
    (finding,) = (f for f in found.findings if f.id in ("system/crashed", "system/config-error"))
    return finding


@pytest.mark.parametrize(
    ("text", "cause", "line", "advice"),
    [
        (rows(1, 60) + by_ray(OUT_OF_MEMORY), "out-of-memory", 64, "ppo_micro_batch_size_per_gpu"),
        (rows(1, 60) + NCCL, "undetermined", 61, "the rank that has no such line"),
        (rows(1, 60) + by_ray(KILLED), "undetermined", 61, "dmesg"),
        (rows(1, 60) + "OSError: [Errno 28] No space left on device\n", "linux/disk-full", 61, "keep fewer"),
        (rows(1, 60) + "slurmstepd: error: Detected 1 oom-kill event(s) in StepId\n", "linux/oom-kill", 61, "memory"),
        (rows(1, 60) + "!!!!!!! Segmentation fault encountered !!!!!!!\n", "undetermined", 61, "PYTHONFAULTHANDLER"),
        (rows(1, 60) + "Traceback (most recent call last):\n  x\nKeyError: 'colour'\n", "undetermined", 63, "fix"),
    ],
)  # fmt: skip
def test_a_crash_names_the_failure_its_place_and_the_next_action(tmp_path, text, cause, line, advice):
    finding = ended(tmp_path, text)
    assert finding.id == "system/crashed" and finding.severity == "critical" and finding.onset_step == 60
    assert finding.causes[0].id == cause
    assert f"train.log, line {line}" in finding.summary
    assert advice in finding.remedies[0].how
    assert not any("needs a restart" in remedy.how for remedy in finding.remedies), (
        "it has ended: it goes without saying"
    )


def test_a_crash_names_the_line_that_raised(tmp_path):
    assert (
        "raised in /opt/verl/verl/workers/actor/dp_actor.py, line 388"
        in ended(tmp_path, rows(1, 9) + by_ray(OUT_OF_MEMORY)).summary
    )


WATCHDOG = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL("
    "SeqNum=812, OpType={op}, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600013 milliseconds before timing"
    " out.\n"
)


def test_ranks_in_different_collectives_are_named(tmp_path):
    ops = ["ALLREDUCE", "_ALLGATHER_BASE", "_ALLGATHER_BASE", "_ALLGATHER_BASE", "_ALLGATHER_BASE"]
    text = rows(1, 60) + "".join(WATCHDOG.format(rank=rank, op=op) for rank, op in reversed(list(enumerate(ops))))
    finding = ended(tmp_path, text)
    assert "collective 812 rank 4 in _ALLGATHER_BASE and rank 0 in ALLREDUCE" in finding.causes[0].why
    assert "synced_gpus" in finding.remedies[0].how


def test_ranks_in_the_same_collective_leave_the_cause_open(tmp_path):
    finding = ended(tmp_path, rows(1, 60) + "".join(WATCHDOG.format(rank=rank, op="ALLREDUCE") for rank in (0, 1)))
    assert finding.causes[0].id == "undetermined" and "synced_gpus" not in finding.remedies[0].how


DUMP = """Fatal Python error: Segmentation fault

Thread 0x00007f2b1d7fe640 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 355 in wait
Current thread 0x00007f2b1e7fe640 (most recent call first):
  File "/opt/venv/lib/python3.12/site-packages/vllm/device_allocator/cumem.py", line 78 in unmap_and_release
  File "/opt/venv/lib/python3.12/site-packages/trl/trainer/grpo_trainer.py", line 1102 in _generate
Extension modules: numpy.core
"""


def test_a_crash_in_compiled_code_names_the_package_that_its_threads_show(tmp_path):
    finding = ended(tmp_path, rows(1, 60) + DUMP)
    assert finding.causes[0].id == "linux/crashed-in-package" and "that vllm called" in finding.causes[0].why
    assert "raised in /opt/venv/lib/python3.12/site-packages/vllm/device_allocator/cumem.py, line 78" in finding.summary


def test_a_traceback_after_a_crash_without_threads_is_read_too():
    failures = Failures()
    text = "Fatal Python error: Aborted\n" + OUT_OF_MEMORY + "\n"
    told = [failures.see(Line(number, line, True)) for number, line in enumerate(text.splitlines(), 1)]
    messages = [event.data["message"] for event in (*told, *failures.pending()) if event]
    assert messages[0] == "Fatal Python error: Aborted" and "Tried to allocate 4.07 GiB" in messages[1]


@pytest.mark.parametrize("others", [WHAT_OTHERS_SAY, NCCL, "torch.distributed.elastic.ChildFailedError: \n"])
@pytest.mark.parametrize("first", [True, False])
def test_the_failure_ranks_before_its_consequences(tmp_path, others, first):
    told = (OUT_OF_MEMORY, others) if first else (others, OUT_OF_MEMORY)
    finding = ended(tmp_path, rows(1, 9) + "ok\n".join(map(by_ray, told)))
    assert "Tried to allocate 4.07 GiB" in finding.summary and "dp_actor.py" in finding.summary


@pytest.mark.parametrize(
    "text",
    [
        rows(1, 60) + by_ray(OUT_OF_MEMORY) + rows(61, 120),  # survived
        rows(1, 60) + by_ray(OUT_OF_MEMORY) + rows(51, 120),  # restarted from a checkpoint
        rows(1, 60) + by_ray(OUT_OF_MEMORY + WHAT_OTHERS_SAY) + "launching\n" + rows(1, 40),  # restarted from the start
        GROUPS + rows(1, 60),  # mended and started again
        rows(1, 60) + "no error so far, errors: 0\nError rate 0.1\nValueError was not seen\n",
    ],
    ids=["survived", "from-a-checkpoint", "from-the-start", "mended", "the-word-error"],
)
def test_a_run_that_continued_has_not_crashed(tmp_path, text):
    found = answer(tmp_path, text)
    assert found.verdict not in ("crashed", "critical", "warn")
    assert not [f for f in found.findings if f.id in ("system/crashed", "system/config-error")]


def test_the_last_of_very_many_failures_is_the_one_that_ended_it(tmp_path):
    survived = "Traceback (most recent call last):\n  x\nKeyError: 'a'\nok\n"
    found = ended(tmp_path, rows(1, 5) + survived * 50 + rows(6, 9) + survived * 50 + rows(10, 12) + OUT_OF_MEMORY)
    assert found.causes[0].id == "out-of-memory" and found.onset_step == 12


# --- a configuration that is refused -------------------------------------------------------------------------------


def test_a_rejected_configuration_gets_every_valid_alternative(tmp_path, capsys):
    path = tmp_path / "train.log"
    path.write_text(GROUPS)
    assert main(["diagnose", str(path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    (finding,) = found["findings"]
    assert (found["verdict"], finding["id"]) == ("crashed", "system/config-error")
    assert found["incidents"][0]["cause"] == "config-error" and found["source"]["trainer"] == "open-r1"
    assert finding["evidence"]["valid"] == {
        "num_generations": [7], "per_device_train_batch_size": [8, 16, 24, 32, 40, 48],
    }  # fmt: skip
    how = finding["remedies"][0]["how"]
    assert "1 is never valid" in how and "On a machine of 8 GPUs vLLM takes one" in how and "stabilizer plan" in how


def test_the_report_of_a_log_without_a_step_shows_only_the_failure(tmp_path, capsys):
    (tmp_path / "train.log").write_text(GROUPS)
    assert main(["diagnose", str(tmp_path)]) == 1  # the folder will do
    shown = capsys.readouterr().out
    assert "CRASHED" in shown and "no steps" in shown and "num_generations 7" in shown
    assert "Not checked" not in shown and "stabilizer report" not in shown


def test_the_suggested_plan_command_exists(tmp_path, capsys):
    how = ended(tmp_path, GROUPS).remedies[0].how
    command = how.split("`stabilizer ")[1].split("`")[0]
    assert main([*command.split(), "--model-size", "0.5B"]) == 0
    assert "num_generations" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("message", "settings"),
    [
        ("The effective train batch size (7 x 1 x 4) must be evenly divisible by the number of generations per prompt"
         " (8)",
         {"num_generations": [7, 4, 2, 14, 28], "per_device_train_batch_size": [2, 4, 6, 8, 10, 12],
          "gradient_accumulation_steps": [8, 16, 24, 32, 40, 48]}),
        ("The global eval batch size (8 * 3) must be divisible by the number of generations used for"
         " evaluation (16)",
         {"num_generations": [12, 8, 24, 6, 4, 3, 2], "per_device_eval_batch_size": [16, 32, 48, 64, 80, 96]}),
    ],
)  # fmt: skip
def test_valid_settings_come_nearest_first(message, settings):
    found = accepted(f"ValueError: {message}.")
    assert found.settings == settings
    assert all(str(values[0]) in found.how for values in settings.values())


def test_another_message_is_looked_up_in_the_whole_configuration():
    assert "stabilizer preflight CONFIG" in accepted("a and b are mutually exclusive").how


def test_the_page_of_a_failing_detector_is_there_too(capsys):
    assert main(["detectors", "explain", "system/detector-error"]) == 0
    assert "Training is not affected" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("number of blocks must be >= 1", False),
        ("generation_batch_size (12) must be divisible by num_generations (8)", True),
    ],
)
def test_a_check_of_some_program_is_no_certain_fault_of_the_configuration(tmp_path, message, named):
    finding = ended(
        tmp_path,
        rows(1, 9) + f'Traceback (most recent call last):\n  File "/x/a.py", line 3, in f\nValueError: {message}\n',
    )
    assert finding.id == "system/config-error" and (finding.causes[0].id != "undetermined") is named
    assert ("rejected its configuration" in finding.summary) is named


WARNED = "2025-11-02 10:00:01 WARNING utils.py:31] No module named 'apex', using torch layers\n"
UNKNOWN = "Traceback (most recent call last):\n  File \"/me/a.py\", line 3, in f\n    b = c[name]\nKeyError: 'blue'\n"


@pytest.mark.parametrize("text", [WARNED + UNKNOWN, WARNED + "ok\n" + UNKNOWN])
def test_a_warning_before_an_unknown_exception_is_only_a_possibility(tmp_path, text):
    finding = ended(tmp_path, rows(1, 9) + text)
    assert "KeyError: 'blue'" in finding.summary and finding.causes[0].id == "undetermined"
    assert "a warning before it" in str(finding.causes[0]) and "Docker" in finding.remedies[0].how


def test_a_warning_explains_no_exception_that_is_known(tmp_path):
    finding = ended(tmp_path, rows(1, 9) + WARNED + "torch.OutOfMemoryError: CUDA out of memory.\n")
    assert finding.causes[0].id == "out-of-memory" and "warning before" not in finding.summary


TRL_ROW = "{{'loss': 0.01, 'grad_norm': 0.4, 'learning_rate': 1e-06, 'reward': {}, 'reward_std': 0.2, 'kl': 0.01}}\n"
EVALUATED = "evaluate.py: error: unrecognized arguments: --output results.json\n"
DONE = "{'train_runtime': 60.0, 'train_steps_per_second': 0.5, 'train_loss': 0.01, 'epoch': 1.0}\n"


@pytest.mark.parametrize(("summary", "crashed"), [(DONE, False), ("", True)])
def test_another_programs_failure_after_the_end_is_no_crash(tmp_path: Path, summary: str, crashed: bool) -> None:
    text = "".join(TRL_ROW.format(0.3 + 0.01 * (row % 5) + 0.005 * row) for row in range(30))
    assert (answer(tmp_path, text + summary + EVALUATED).verdict == "crashed") is crashed
