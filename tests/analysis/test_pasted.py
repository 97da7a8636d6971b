"""Pasted texts without metrics and errors: where the program stands."""

import io
import json
import sys

import pytest

from stabilizer.cli import main


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
