"""What somebody with a data set, a model and a reward function of their own does, from the command they type."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from stabilizer.cli import main
from stabilizer.runs.reader import RunReader
from stabilizer.trainer.build_task import build_task
from stabilizer.trainer.config import load_config
from stabilizer.trainer.loop import Trainer
from tests.trainer.data.conftest import character_tokenizer

REWARD = """
def close(completion, answer):
    "The share of digits that are right."
    right = sum(given == wanted for given, wanted in zip(completion, answer))
    return right / max(len(completion), len(answer))

def broken(completion): raise OSError("the verifier is down")

def fragile(completion, level):
    if level == 1:
        raise ValueError("no such level")
    return 1.0
"""

CONFIG = """
model: builtin:addition
steps: 3
data: {path: sums.jsonl, prompt_column: question, held_out: 4}
reward:
  functions:
    - exact
    - {use: "reward.py:close", weight: 0.5}
rollout: {prompts: 4, group_size: 4, max_completion: 6}
validation: {every: 2}
optim: {lr: 1e-4}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """A folder with a data set of 20 lines, a reward.py and a config.yaml, which is the working directory."""
    sums = [(11 + 4 * i, 97 - 3 * i) for i in range(20)]
    lines = [{"question": f"{a}+{b}=", "answer": str(a + b)[::-1], "level": i % 4} for i, (a, b) in enumerate(sums)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "reward.py").write_text(REWARD)
    (tmp_path / "config.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_who_asks_what_weights_solve_is_told_of_how_many_problems(folder) -> None:
    trainer = Trainer(load_config("config.yaml"), checkpoints=folder / "checkpoints")
    assert trainer.paid().problems == 4 < trainer.config.validation.problems


def stabilizer(*words: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run([sys.executable, "-m", "stabilizer", *words], capture_output=True, text=True, env=environment)


def test_the_example_runs_as_it_is_typed(tmp_path, monkeypatch):
    shutil.copytree(Path(__file__).parents[2] / "stabilizer/examples/own_data", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    done = stabilizer("train", "config.yaml", "--steps", "3")
    assert done.returncode == 0 and "16 rows to train on, 4 held out" in done.stdout, done.stdout + done.stderr
    assert "step 3)" in done.stdout or "3/3" in done.stdout


def test_train_on_a_data_set_with_a_reward_function(folder, capsys):
    assert main(["train", "config.yaml", "--set", "seed=1", "--json"]) == 0
    done = capsys.readouterr()
    assert [json.loads(line)["step"] for line in done.out.splitlines()] == [1, 2, 3]
    assert "16 rows to train on, 4 held out" in done.err
    (run,) = (folder / "runs").iterdir()
    reader = RunReader(run)
    view = reader.history.view()
    steps = view.series("reward/mean").steps.tolist()
    assert steps == [1, 2, 3] and view.series("accuracy/val").steps.tolist() == [0, 2, 3]
    exact, close, total = (view.latest(f"reward/{name}mean") for name in ("exact/", "close/", ""))
    assert total == pytest.approx(exact + 0.5 * close) and 0 < close < 1
    assert view.latest("reward/failed_frac") == 0
    config = reader.about["config"]
    assert config["task"] == "data" and config["seed"] == 1 and config["data"]["path"] == "sums.jsonl"
    assert config["reward"]["functions"] == ["exact", {"use": "reward.py:close", "weight": 0.5}]


def test_errors_on_the_way_are_one_line_and_say_what_to_do(folder, capsys):
    for words, part in (
        (("--set", "reward.functions=[reward.py:closse]"), "no function 'closse' in it; there are close, broken"),
        (("--set", "data.answer_column=anser"), "nearest is 'answer'"),
        (("--set", "data.path=sum.jsonl"), "nearest there is 'sums.jsonl'"),
        (("--set", "reward.functions=[]"), "at least one with a data set"),
        (("--set", "model=builtin"), "builtin:addition"),
    ):
        assert main(["train", "config.yaml", *words]) == 2
        said = capsys.readouterr().err
        assert part in said and len(said.splitlines()) == 1, said


def trainer(folder: Path, *overrides: str) -> Trainer:
    return Trainer(load_config("config.yaml", ["device=cpu", *overrides]), checkpoints=folder / "checkpoints")


def test_a_step_in_which_every_reward_fails_makes_no_update(folder):
    run = trainer(folder, "reward.functions=[reward.py:broken]")
    before = [p.detach().clone() for p in run.policy.model.parameters()]
    metrics = run.train_step().metrics
    assert metrics["reward/failed_frac"] == 1 and "reward/mean" not in metrics and metrics.get("batch/updates", 0) == 0
    assert all(torch.equal(a, b) for a, b in zip(before, run.policy.model.parameters(), strict=True))
    assert dict(run.task.failures) == {"broken: OSError: the verifier is down (reward.py line 7)": 16}
    assert run.validate() == {}, "an accuracy nobody could measure is not 0"


def test_samples_without_a_reward_are_masked_and_the_rest_learns(folder):
    run = trainer(folder, "reward.functions=[exact, reward.py:fragile]", "rollout.prompts=16")
    metrics = run.train_step().metrics
    # 16 rows to train on are one epoch: those of level 1 fail, all their 4 completions
    levels = [problem.columns["level"] for problem in run.task.training(16, seed=0, salt=0, cursor=0)]
    assert metrics["reward/failed_frac"] == levels.count(1) / 16 == metrics["reward/fragile/failed_frac"]
    assert metrics["reward/exact/failed_frac"] == 0 and metrics["reward/fragile/mean"] == 1
    assert metrics["batch/updates"] > 0 and math.isfinite(metrics["optim/grad_norm"])


def test_an_outage_is_reported_with_its_reason(folder):
    words = ["train", "config.yaml", "--set", "reward.functions=[reward.py:broken]", "--steps", "6", "--json"]
    assert main(words) == 1
    (run,) = (folder / "runs").iterdir()
    reader = RunReader(run)
    assert "reward/outage" in {finding.id for finding in reader.findings if finding.severity == "critical"}
    assert any("OSError: the verifier is down" in event.text for event in reader.history.events)


def test_a_built_in_task_can_be_paid_by_functions(folder):
    config = load_config("addition", ["reward.functions=[reward.py:close]"])
    task = build_task(config, tokenizer=None)
    problem = task.held_out(1)[0]
    answer, wrong = problem.answer, "x" * len(problem.answer)
    assert [score.reward for score in task.score_all([problem] * 2, [answer, wrong])] == [1, 0]
    task.close()


def test_chat_messages_and_a_chat_model_from_a_folder(folder):
    tokenizer = character_tokenizer(chat=True)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=1, **sizes))
    model.save_pretrained(folder / "chat-model")
    tokenizer.save_pretrained(folder / "chat-model")
    rows = [{"messages": [{"role": "user", "content": f"{i} + 1?"}], "answer": i + 1} for i in range(20)]
    (folder / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "chat.yaml").write_text(
        textwrap.dedent("""
        model: ./chat-model
        data: {path: chat.jsonl, prompt_column: messages, system_prompt: Be brief.}
        reward: {functions: [numeric, {use: length, options: {target: 4}}]}
        rollout: {prompts: 2, group_size: 2, max_completion: 5}
        samples: {every: 1}
        """)
    )
    run = Trainer(load_config("chat.yaml", ["device=cpu"]), checkpoints=folder / "checkpoints")
    result = run.train_step()
    assert math.isfinite(result.metrics["reward/length/mean"])
    prompt = result.samples[0].prompt
    assert prompt.startswith("<bos><|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n")
    assert prompt.endswith("<|im_start|>assistant\n")


def test_files_are_found_beside_the_configuration_that_names_them(tmp_path, monkeypatch):
    shutil.copytree(Path(__file__).parents[2] / "stabilizer/examples/own_data", tmp_path / "mine")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    config = load_config(tmp_path / "mine/config.yaml")
    assert Path(config.data.path) == tmp_path / "mine/sums.jsonl"
    assert str(tmp_path / "mine/reward.py:") in str(config.reward.functions)
    monkeypatch.chdir(tmp_path / "mine")
    assert load_config("config.yaml").data.path == "sums.jsonl"  # here comes first
