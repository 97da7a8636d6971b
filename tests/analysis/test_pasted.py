"""Pasted texts without metrics and errors: where the program stands."""

import io
import json
import sys

import pytest

from stabilizer.cli import main
from stabilizer.commands import pasted


def answered(text, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    code = main(["diagnose", "-", "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("last", "trouble"),
    [
        ("node1:31:31 [0] NCCL INFO ncclCommInitRank comm 0x55 rank 0 nranks 4 - Init START", "waits-for-processes"),
        ("  0%|          | 0/500 [00:00<?, ?it/s]", "first-step"),
        ("12:01:02 Using /data/cache/torch_extensions/py310_cu121 as PyTorch extensions root...", "builds-extension"),
        ("INFO 07-21 13:02:44 Capturing CUDA graph shapes:   0%|          | 0/67 [00:00<?, ?it/s]", "engine-compiles"),
        ("12:01:02 INFO nothing known", "without-error"),
    ],
)
def test_a_log_that_only_stops_is_explained_by_its_last_line(last, trouble, monkeypatch, capsys):
    text = f"2025-07-21 13:02:40 INFO starting\n2025-07-21 13:02:41 INFO model config read\n{last}\n"
    code, found = answered(text, monkeypatch, capsys)
    assert found["findings"][0]["evidence"]["trouble"] == f"log/ends-{trouble}"
    assert found["findings"][0]["severity"] == "warn" and code == 1


def test_the_summary_of_a_training_alone_is_read(monkeypatch, capsys):
    text = (
        "{'train_runtime': 12.3, 'train_samples_per_second': 8.1, 'train_loss': 0.0, 'epoch': 1.0}\n"
        "100%|##########| 12/12 [00:12<00:00,  1.02s/it]\n"
    )
    code, found = answered(text, monkeypatch, capsys)
    assert code == 0 and "mean loss 0.0" in found["findings"][0]["summary"]


def test_the_pace_of_a_progress_bar_counts(monkeypatch, capsys):
    row = "{'loss': 0.0, 'grad_norm': 0.2, 'completion_length': 812.6, 'reward': 0.04, 'reward_std': 0.1, 'epoch': 0.0}"
    text = f"{row}\n  0%|          | 1/1000 [04:44<78:50:12, 284.09s/it]\n"
    _, found = answered(text, monkeypatch, capsys)
    assert [sign["id"] for sign in found["signs"]] == ["step-slow"] and "284 s" in found["signs"][0]["what"]


def test_a_value_that_a_pasted_part_lacks_is_no_failure(monkeypatch, capsys):
    text = (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=1024 \\\n"
        "  actor_rollout_ref.actor.ppo_mini_batch_size=2048 actor_rollout_ref.rollout.n=8 trainer.n_gpus_per_node=8\n"
    )
    _, found = answered(text, monkeypatch, capsys)
    critical = [finding for finding in found["findings"] if finding["severity"] == "critical"]
    assert critical and all("ppo_mini_batch_size" in json.dumps(finding) for finding in critical)
    missing = [finding for finding in found["findings"] if finding["summary"].startswith("if the text is complete")]
    assert missing and {finding["severity"] for finding in missing} == {"info"}


def test_a_quoted_summary_is_read(monkeypatch, capsys):
    text = "wandb: Run summary:\nwandb:   train/reward 0.0\nwandb:   train/kl 0.0021\nwandb:   train/loss -0.2\n"
    _, found = answered(text, monkeypatch, capsys)
    assert found["source"]["steps"] == 1


def test_an_exception_with_a_small_letter_ends_a_traceback(monkeypatch, capsys):
    text = (
        'Traceback (most recent call last):\n  File "/w/a.py", line 3, in f\n    g(x)\nstruct.error: bad char in it\n'
    )
    _, found = answered(text, monkeypatch, capsys)
    assert found["verdict"] == "crashed" and "bad char in it" in found["findings"][0]["summary"]


COMMAND = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=256 \\\n"
    "  actor_rollout_ref.actor.ppo_mini_batch_size=512 actor_rollout_ref.rollout.n=8 trainer.n_gpus_per_node=8\n"
)
CRASH = 'Traceback (most recent call last):\n  File "/rl/a.py", line 3, in f\n    assert x.ready\nAssertionError\n'


def page(text, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    main(["diagnose", "-"])
    return capsys.readouterr().out


def test_settings_beside_a_failure_are_judged_too(monkeypatch, capsys):
    _, found = answered(f"I run this:\n```\n{COMMAND}```\n```\n{CRASH}```\n", monkeypatch, capsys)
    assert found["findings"][0]["id"] == "system/crashed"
    assert any("ppo_mini_batch_size" in finding["summary"] for finding in found["settings"]["findings"])


def test_a_run_that_has_trained_was_not_refused(monkeypatch, capsys):
    rows = "".join(f"{{'loss': 0.1, 'reward': 0.{row}, 'kl': 0.01, 'learning_rate': 1e-06}}\n" for row in range(10, 30))
    _, found = answered(f"```\n{COMMAND}```\n{rows}", monkeypatch, capsys)
    assert found["settings"] and "trainer/rejects" not in {finding["id"] for finding in found["settings"]["findings"]}


@pytest.mark.parametrize(("crash", "first"), [(CRASH, True), ("MemoryError\n", False)])
def test_settings_come_first_where_the_failure_is_unexplained(crash, first, monkeypatch, capsys):
    shown = page(f"{COMMAND}\n{crash}", monkeypatch, capsys)
    assert (shown.index("In the settings") < shown.index("Incident 1")) is first


def test_a_log_without_settings_has_no_such_part(monkeypatch, capsys):
    assert "In the settings" not in page(CRASH, monkeypatch, capsys)


def test_settings_of_the_same_text_explain_its_rows(monkeypatch, capsys):
    rows = "".join(
        f"{{'loss': {0.04 * kl:.5f}, 'grad_norm': 0.4, 'reward': 0.3, 'reward_std': 0.3, 'kl': {kl}, 'epoch': {kl}}}\n"
        for kl in (0.0, 0.004, 0.012, 0.02)
    )
    _, alone = answered(rows, monkeypatch, capsys)
    text = f"```python\nGRPOConfig(output_dir='x', beta=0.04, max_grad_norm=0.1)\n```\n{rows}"
    _, beside = answered(text, monkeypatch, capsys)
    known = {one["id"] for one in beside["normal"]}
    assert "norm-above-limit" in known - {one["id"] for one in alone["normal"]}
    assert not any("epoch" in change["metric"] for change in beside["what_changed"])


def rows(count):
    values = ((step, 0.4 + step % 7 / 100, 0.3 + step % 3 / 100) for step in range(1, count + 1))
    row = "{{'loss': 0.01, 'grad_norm': 0.4, 'reward': {1}, 'reward_std': {2}, 'kl': 0.01, 'step': {0}}}\n"
    return "".join(row.format(*each) for each in values)


def test_a_long_text_keeps_its_beginning_and_its_end(monkeypatch, capsys):
    monkeypatch.setattr(pasted, "HEAD", 2_000)
    monkeypatch.setattr(pasted, "TAIL", 5_000)
    text = (
        "trl==0.19.0\n" + rows(400) + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0\n"
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    main(["diagnose", "-", "--json"])
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["verdict"] == "crashed" and 50 < found["source"]["steps"] < 100
    assert "left out" in said.err and "give a longer log as a file" in said.err


@pytest.mark.parametrize(("count", "told"), [(90, "every 5th of 90 rows"), (20, "")])
def test_detectors_are_asked_at_some_rows_of_many_and_that_is_said(count, told, monkeypatch, capsys):
    monkeypatch.setattr(pasted, "MOST_ASKED", 20)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(rows(count).encode())))
    main(["diagnose", "-"])
    page = " ".join(capsys.readouterr().out.split())
    assert f"{count} rows" in page and told in page and ("asked at every" in page) == bool(told)


def crashed(last, monkeypatch, capsys):
    code = 'Traceback (most recent call last):\n  File "/me/run.py", line 4, in <module>\n    go()\n'
    return answered(f"{code}{last}\n", monkeypatch, capsys)[1]["findings"][0]


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        ("AssertionError: Correction requires to configure `calculate_probs=True` and is not for servers.",
         "do what the message asks: configure `calculate_probs=True`."),
        ("RuntimeError: kernel failed: nnja (build tool) not found.", "what it looked for: nnja (build tool)."),
        ("ValueError: bad mode. Please set alpha_mode to 3", "do what the message asks: set alpha_mode to 3."),
        ("ValueError: 17 wobbles", ""),
        ("RuntimeError: a user was set up twice", ""),
    ],
)  # fmt: skip
def test_an_unknown_message_that_says_what_to_do_is_heeded(message, asked, monkeypatch, capsys):
    found = crashed(message, monkeypatch, capsys)
    how = found["remedies"][0]["how"]
    assert asked in how and how.startswith("do what the message asks") == bool(asked)


def test_an_exception_that_nothing_explains_is_called_that(monkeypatch, capsys):
    (cause,) = crashed("ValueError: 17 wobbles", monkeypatch, capsys)["causes"]
    assert (cause["id"], cause["why"]) == ("undetermined", "no known trouble has this message")


def test_updates_that_were_left_out_are_a_finding_without_any_row(monkeypatch, capsys):
    text = "[Step 20] Update Actor Ends ...\n" + "WARN: rank 0 grad_norm is not finite: inf\n" * 2
    _, found = answered(text, monkeypatch, capsys)
    assert found["findings"][0]["evidence"]["trouble"] == "verl/gradient-not-finite"


def test_a_training_script_is_checked_and_its_arguments_are_no_row_of_metrics(monkeypatch, capsys) -> None:
    script = (
        "from trl import GRPOConfig, GRPOTrainer\n"
        "args = GRPOConfig(output_dir='out', per_device_train_batch_size=4, num_generations=6,\n"
        "    learning_rate=5e-5, beta=0.0, num_train_epochs=1, max_completion_length=256)\n"
        "GRPOTrainer(model='m', reward_funcs=f, args=args).train()\n"
    )
    code, told = answered(script, monkeypatch, capsys)
    assert code == 1 and {"lr/range", "kl/no-anchor"} <= {finding["id"] for finding in told["findings"]}


def test_settings_on_one_line_above_a_failure_are_no_row_of_metrics(monkeypatch, capsys) -> None:
    text = "GRPOTrainer, num_generations=8, max_completion_length=4096, reward_weights=1, kl_coef=0.1\n" + CRASH
    assert "no steps" in page(text, monkeypatch, capsys)


CALL = """args = GRPOConfig(
    use_vllm = True,
    learning_rate = 5e-6,
    per_device_train_batch_size = 1, # Increase to 4 for smoother training
    num_generations = 6, # Decrease if out of memory
    max_completion_length = 200,
)
trainer = GRPOTrainer(model=model, reward_funcs=[a, b], args=args, train_dataset=data)
"""
YAML = """grpo:
  num_prompts_per_step: 64
  num_generations_per_prompt: 32
loss_fn:
  reference_policy_kl_penalty: 0.01
  ratio_clip_min: 0.2
  ratio_clip_max: 0.2
policy:
  train_global_batch_size: 512
"""
FLAGS = (
    "ref_num_nodes reward_num_nodes critic_num_nodes actor_num_nodes micro_train_batch_size micro_rollout_batch_size"
)
FLAGGED = f"python3 /w/old/train.py {' '.join(f'--{flag} 8' for flag in FLAGS.split())} --init_kl_coef 0.01\n"


@pytest.mark.parametrize("text", [CALL, YAML, FLAGGED], ids=["a call", "a mapping", "flags of one trainer alone"])
def test_settings_alone_are_judged_as_settings(text, monkeypatch, capsys):
    _, found = answered(text, monkeypatch, capsys)
    assert found["config"] == "pasted text" and found["verdict"] in ("warn", "healthy", "info", "critical")


@pytest.mark.parametrize(
    ("line", "crash"),
    [
        ("x = 6  # decrease if out of memory", False),
        ("INFO lowering the batch to avoid Out Of Memory", False),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.batch", True),
        ("RuntimeError: HIP out of memory. Tried to allocate 2 GiB", True),
    ],
)
def test_a_failure_that_is_only_spoken_of_is_none(line, crash, monkeypatch, capsys):
    _, found = answered(rows(30) + line + "\n", monkeypatch, capsys)
    assert (found["verdict"] == "crashed") == crash


FATAL = """Train:  27%|###  | 1250/4708 [31:08:58<88:27:54, 92.10s/it]
Fatal Python error: none_dealloc: deallocating None: bug likely caused by a refcount error in a C extension
Thread 0x00007f08417fe640 (most recent call first):
W0802 23:48:41.941000 103473 torch/distributed/elastic/api.py:900] Sending process 103491 closing signal SIGTERM
"""


def test_a_sure_remark_about_what_followed_is_not_the_cause_of_a_crash(monkeypatch, capsys):
    shown = " ".join(page(FATAL, monkeypatch, capsys).split())
    assert "CRASHED" in shown and "the interpreter itself stopped" in shown
    assert "Likely cause nccl/closing-signal" not in shown


def test_a_sure_warning_before_a_crash_that_nothing_explains_is_not_its_cause(monkeypatch, capsys):
    warning = "wandb: Network error (ConnectTimeout), entering retry loop.\n"
    crash = 'Traceback (most recent call last):\n  File "/me/a.py", line 4, in f\n    go()\nValueError: 17 wobbles\n'
    shown = page(warning + crash, monkeypatch, capsys)
    assert "Likely cause" not in shown and "undetermined" in shown


def test_a_text_without_numbers_is_not_called_another_kind_of_run(monkeypatch, capsys):
    _, found = answered(FATAL.splitlines()[-1] + "\n", monkeypatch, capsys)
    assert found["verdict"] == "too-short"


ZERO_LOSS = "Step\tTraining Loss\treward\treward_std\tkl\n" + "".join(
    f"{step}\t0.000000\t{0.2 + step / 50}\t0.3\t{step / 9e6}\n" for step in range(1, 6)
)
CHINESE = (
    "| 步骤 | loss | reward | kl |\n|---|---|---|---|\n| 1 | 0.0 | 0.1 | 0.0 |\n| 2 | 0.0 | 0.1 | 0.001 |\n"
    "| 3 | 0.0001 | 0.1 | 0.002 |\n"
)


@pytest.mark.parametrize("text", [ZERO_LOSS, CHINESE], ids=["a notebook's table with tabs", "an issue's table"])
def test_a_loss_of_zero_is_answered_under_any_of_its_names(text, monkeypatch, capsys):
    shown = " ".join(page(text, monkeypatch, capsys).split())
    assert "policy term is 0 in value" in shown and "步骤 rose" not in shown


GPU = "| 30%   41C    P8             18W /  230W |   18528MiB /  24564MiB |      0%      Default |"
STACK = 'Thread 88123 (idle): "MainThread"\n    all_gather (torch/distributed/distributed_c10d.py:3346)\n'


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        (
            f"Tue Jul 28 11:37:56 2026\n|   0  RTX A5000   Off |   00000000:01:00.0 Off |\n{GPU}\n",
            "gpu",
            "18,528 of 24,564",
        ),
        (GPU.replace("  0%", "100%"), "gpu", "a collective"),
        (STACK, "stack-collective", "waits for a rank"),
        ('Thread 1 (active): "MainThread"\n    read (http/client.py:1052)\n', "stack-request", "answer of a server"),
        ("Package      Version\n------------ -------\ntorch        2.6.0\n", "packages", "list of packages"),
        ("    PID USER      PR  NI COMMAND\n  88123 me        20   0 python3\n", "processes", "list of processes"),
        ("diff --git a/t.py b/t.py\n-    learning_rate=1e-6,\n+    learning_rate=1e-4,\n", "change", "a change"),
        ("https://wandb.ai/me/grpo/runs/abc\n", "link", "nothing is fetched"),
        ("my run stands still, what now?\n", "words", "no metrics"),
        ("0.31\n0.35\n0.40\n", "words", "no metrics"),
    ],
)
def test_a_text_without_metrics_and_errors_is_answered_with_what_it_shows(text, kind, told, monkeypatch, capsys):
    code, found = answered(text, monkeypatch, capsys)
    assert code == 0 and found["verdict"] == "too-short"
    assert found["findings"][0]["evidence"]["trouble"] == f"text/{kind}" and told in found["findings"][0]["summary"]


@pytest.mark.parametrize("beside", [GPU, STACK, "https://wandb.ai/me/grpo/runs/abc\n", "transformers==4.57.1\n"])
def test_an_error_in_a_text_comes_before_what_else_it_shows(beside, monkeypatch, capsys):
    text = f"{beside}\nRuntimeError: CUDA error: an illegal memory access was encountered\n"
    _, found = answered(text, monkeypatch, capsys)
    assert found["verdict"] == "crashed" and found["findings"][0]["evidence"]["trouble"] == "cuda/kernel-failed"


def test_the_newest_row_alone_is_read_in_json_and_in_the_summary_of_wandb(monkeypatch, capsys):
    for text in (
        '{"train/reward": 0.31, "train/kl": 6.2, "train/global_step": 120}\n',
        "wandb: Run summary:\nwandb:          train/reward 0.31\nwandb:              train/kl 6.2\n",
    ):
        _, found = answered(text, monkeypatch, capsys)
        assert found["source"]["steps"] == 1 and found["findings"][0]["id"] == "policy/kl-runaway"


def test_settings_as_json_are_no_row(monkeypatch, capsys):
    text = '{"reward_weight": 0.5, "kl_coef": 0.04, "learning_rate": 1e-6, "num_train_epochs": 1}\n'
    _, found = answered(text, monkeypatch, capsys)
    assert not found.get("source", {}).get("steps")


HEAD = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\n'
REMARKS = (
    "Could not load bitsandbytes native library: /x/libbitsandbytes_cpu.so: cannot open shared object file\n",
    "[W socket.cpp:601] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99).\n",
    "ERROR: Failed building wheel for flash-attn\n",
    "/bin/sh: 1: nvcc: not found\n",
    "(autoscaler +14s) Error: No available node types can fulfill resource request {'GPU': 8.0}.\n",
)


@pytest.mark.parametrize("remark", REMARKS)
def test_a_remark_before_an_exception_is_not_its_cause(remark, monkeypatch, capsys):
    text = f"{remark}{HEAD}RuntimeError: No CUDA GPUs are available\n"
    _, found = answered(text, monkeypatch, capsys)
    assert found["findings"][0]["evidence"]["trouble"] == "cuda/no-device"


@pytest.mark.parametrize(
    ("cause", "trouble"),
    [
        (
            "gpu:7:7 [0] init.cc:907 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 40\n",
            "vllm/pynccl-same-gpu",
        ),
        ("[123.4] Out of memory: Killed process 3141 (python3) total-vm:9kB\n", "linux/oom-kill"),
        (
            "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2025-03-02T10:00:12 DUE TO TIME LIMIT ***\n",
            "linux/slurm-time-limit",
        ),
    ],
)
def test_a_line_that_names_the_cause_comes_before_the_exception_that_follows(cause, trouble, monkeypatch, capsys):
    text = f"{cause}{HEAD}RuntimeError: NCCL error: invalid usage\n"
    _, found = answered(text, monkeypatch, capsys)
    assert found["findings"][0]["evidence"]["trouble"] == trouble


def test_what_a_program_tells_as_information_ends_nothing(monkeypatch, capsys):
    line = (
        "05/25/2024 15:20:32 - INFO - llm - Failed to load x: saves/a does not appear to have a file named head.bin.\n"
    )
    _, found = answered(f"05/25/2024 15:20:31 - INFO - start\n{line}", monkeypatch, capsys)
    assert found["verdict"] != "crashed"


def test_image_tokens_that_are_too_many_were_generated_and_too_few_were_cut(monkeypatch, capsys):
    line = "ValueError: Image features and image tokens do not match: tokens: {}, features 4096\n"
    for tokens, told in ((4097, "generated an image token"), (3800, "cut in the middle")):
        _, found = answered(line.format(tokens), monkeypatch, capsys)
        assert told in json.dumps(found["findings"][0]["causes"])


def refused(data, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["diagnose", "-"]) == 2
    return capsys.readouterr().err


def test_a_command_that_trains_nothing_is_named_as_what_it_is(monkeypatch, capsys):
    said = refused(b"vllm serve Qwen/Qwen2.5-7B-Instruct --tensor-parallel-size 2\n", monkeypatch, capsys)
    assert "serves a model" in said


def test_binary_data_is_no_log_that_stopped(monkeypatch, capsys):
    data = b"\0\1\2 12:01:02 INFO \n 12:01:03 INFO x\n" * 20
    assert "binary data" in refused(data, monkeypatch, capsys)


CELL = """KeyError                                  Traceback (most recent call last)
Cell In[14], line 3
      1 trainer = GRPOTrainer(model, reward_funcs=[f]{more})
----> 3 trainer.train()
KeyError: 'solution'
"""


@pytest.mark.parametrize(("more", "judged"), [(", args=a", False), ("", True)])
def test_defaults_are_not_judged_where_the_configuration_is_elsewhere(more, judged, monkeypatch, capsys):
    _, found = answered(CELL.format(more=more), monkeypatch, capsys)
    assert bool(found["settings"]["findings"]) is judged


def test_equal_highest_and_lowest_rewards_prove_that_all_are_equal(monkeypatch, capsys):
    row = "step:{} - actor/grad_norm:0.0 - critic/score/mean:1.0 - critic/score/max:1.0 - critic/score/min:{}\n"
    for lowest, expected in (("1.0", True), ("0.0", False)):
        _, found = answered(row.format(1, lowest) + row.format(2, lowest), monkeypatch, capsys)
        assert any("every group earn the same" in one["summary"] for one in found["findings"]) is expected


@pytest.mark.parametrize(("times", "expected"), [(3, False), (40, True)])
def test_a_message_that_is_printed_often_is_counted(times, expected, monkeypatch, capsys):
    line = "UserWarning: None of the inputs have requires_grad=True. Gradients will be None\n"
    _, found = answered("step 1 reward 0.1\n" + times * line + "step 2 reward 0.2\n", monkeypatch, capsys)
    assert any(f"in {times} lines" in note for note in found["source"].get("notes", [])) is expected


@pytest.mark.parametrize(("count", "left_out"), [(299, False), (900, True)])
def test_a_text_of_very_many_rows_is_read_at_its_ends(count, left_out, monkeypatch, capsys):
    monkeypatch.setattr(pasted, "MOST_KEPT", 300)
    text = "".join(f"step {number} reward 0.5\n" for number in range(count))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["diagnose", "-", "--json"]) == 0
    printed = capsys.readouterr()
    assert ("left out" in printed.err) is left_out
    assert json.loads(printed.out)["source"]["steps"] == min(count, 300)
