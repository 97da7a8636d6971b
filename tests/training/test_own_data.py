"""What somebody with a data set, a model and a reward function of their own does, from the command they type."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import textwrap
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from stabilizer.cli import main
from stabilizer.live.session import Session
from stabilizer.runs.reader import RunReader
from stabilizer.training.build_task import build_task
from stabilizer.training.config import config_dict, config_from_dict, load_config
from stabilizer.training.inputs import anchored, changes, digests
from stabilizer.training.loop import Trainer
from stabilizer.training.model import load_policy, merged_state
from tests.training.data.conftest import character_tokenizer

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

def judged(completion, api_key=""): return 1.0 * (api_key == "abc")

def low(completion, level): return 0.25 if level < 2 else None

def high(completion, level): return 0.75 if level >= 2 else None

def half(completion): return 0.5

def nothing(completion): return 0.0
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
    assert config["task"] == "data" and config["seed"] == 1 and config["data"]["path"] == str(folder / "sums.jsonl")
    assert config["reward"]["functions"] == ["exact", {"use": f"{folder}/reward.py:close", "weight": 0.5}]


def test_errors_on_the_way_are_one_line_and_say_what_to_do(folder, capsys):
    for words, part in (
        (("--set", "reward.functions=[reward.py:closse]"), "no function 'closse'; it has close, broken"),
        (("--set", "data.answer_column=anser"), "nearest is 'answer'"),
        (("--set", "data.path=sum.jsonl"), "nearest there is 'sums.jsonl'"),
        (("--set", "reward.functions=[]"), "at least one function with a data set"),
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
    assert load_config(tmp_path / "mine/config.yaml").model == "builtin:addition"  # no file
    own = tmp_path / "mine/own.yaml"
    own.write_text((tmp_path / "mine/config.yaml").read_text().replace("builtin:addition ", "model "))
    (tmp_path / "mine/model").mkdir()
    config = load_config(own)
    assert Path(config.model) == tmp_path / "mine/model"
    assert Path(config.data.path) == tmp_path / "mine/sums.jsonl"
    assert str(tmp_path / "mine/reward.py:") in str(config.reward.functions)
    monkeypatch.chdir(tmp_path / "mine")
    assert load_config("config.yaml").data.path == "sums.jsonl"  # here comes first


def start(folder: Path, *overrides: str, name: str = "run") -> Session:
    return Session.start(load_config("config.yaml", ["device=cpu", *overrides]), folder / name)


def test_a_run_goes_on_and_is_exported_from_any_folder(folder, tmp_path_factory, monkeypatch, capsys):
    for part in load_policy("builtin", "addition", torch.device("cpu")):
        part.save_pretrained("start")
    lines = (folder / "sums.jsonl").read_text().splitlines(keepends=True)
    (folder / "asked.jsonl").write_text("".join(lines[:4]))
    (folder / "corpus.jsonl").write_text('{"text": "11+97=801"}\n')
    session = start(
        folder, "model=start", "data.held_out_path=asked.jsonl", "search.corpus=./corpus.jsonl", "search.max_turns=1"
    )
    session.stop_reason = "SIGTERM"
    list(session.run())
    config = RunReader(folder / "run").about["config"]
    assert config["model"] == str(folder / "start") and config["search"]["corpus"] == str(folder / "corpus.jsonl")
    assert config["data"]["held_out_path"] == str(folder / "asked.jsonl")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert main(["train", "--resume", str(folder / "run"), "--json"]) == 0, capsys.readouterr().err
    assert main(["export", str(folder / "run"), "-o", "out"]) == 0
    assert RunReader(folder / "run").status["step"] == 3
    card = Path("out/README.md").read_text()
    assert "base_model: start\n" in card and '"path": "sums.jsonl"' in card and '"reward.py:' in card
    assert str(folder) not in card, "a card is handed on"


def test_what_is_no_file_here_keeps_its_name(folder):
    (folder / "builtin").mkdir()
    (folder / "exact").touch()
    config = load_config("config.yaml", ["data.held_out_path=owner/set", "reward.functions=[exact, {use: length}]"])
    found = anchored(config)
    assert (found.model, found.data.held_out_path) == ("builtin:addition", "owner/set")
    assert found.reward == config.reward and found.search == config.search
    assert found.data.path == str(folder / "sums.jsonl") and config_from_dict(config_dict(found)) == found
    assert anchored(found) == found
    assert anchored(load_config("addition")) == load_config("addition")


def test_a_name_that_looks_like_a_secret_is_hidden_wherever_its_file_is(folder):
    session = start(folder, "reward.functions=[{use: 'reward.py:judged', options: {api_key: abc}}]")
    list(session.run())
    (entry,) = RunReader(folder / "run").about["config"]["reward"]["functions"]
    assert entry == {"use": f"{folder}/reward.py:judged", "options": {"api_key": "***"}}


def test_a_policy_is_exported_when_what_it_was_trained_with_is_gone(folder, capsys):
    session = start(folder, "policy.beta=0.01", "lora.rank=2", "optim.lr=5e-3")
    list(session.run())
    weights = merged_state(session.trainer.policy.model)
    for name in ("sums.jsonl", "reward.py", "config.yaml"):
        (folder / name).unlink()
    assert main(["export", "run", "-o", "out", "--checkpoint", "last"]) == 0, capsys.readouterr().err
    loaded = load_policy("out", "addition", torch.device("cpu")).model.state_dict()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights) and loaded.keys() == weights.keys()


def test_what_was_edited_since_a_run_began_is_told_when_it_goes_on(folder, capsys):
    begun = start(folder)
    begun.stop_reason = "SIGTERM"
    list(begun.run())
    inputs = {
        str(folder / name): sha256((folder / name).read_bytes()).hexdigest() for name in ("reward.py", "sums.jsonl")
    }
    assert RunReader(folder / "run").about["inputs"] == inputs
    shutil.copytree("run", "same")
    assert main(["train", "--resume", "same"]) == 0 and "changed since" not in capsys.readouterr().out
    (folder / "reward.py").write_text(REWARD.replace("right / max", "1 + right / max"))
    assert main(["train", "--resume", "run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "has changed since the run began; the new version is used" in said and "sums.jsonl" not in said
    (note,) = [event for event in RunReader(folder / "run").history.events if "since the run began" in event.text]
    assert note.kind == "note" and note.text.startswith(str(folder / "reward.py")) and note.step == 1


def test_files_and_folders_are_known_again_by_what_they_hold(folder):
    (folder / "rows" / "deep").mkdir(parents=True)
    (folder / "rows" / "deep" / "a").write_text("1")
    config = load_config("config.yaml", ["data.held_out_path=rows"])
    before = digests(config)
    assert set(before) == {str(folder / name) for name in ("reward.py", "sums.jsonl", "rows")} and not changes(before)
    (folder / "rows" / "deep" / "a").rename(folder / "rows" / "deep" / "b")
    (folder / "sums.jsonl").unlink()
    changed, gone = sorted(changes(before))
    assert f"{folder / 'rows'} has changed" in changed and f"{folder / 'sums.jsonl'} is missing" in gone


@pytest.mark.parametrize("words", [(), ("plain.yaml",), ("--variant", "unstable")])
@pytest.mark.parametrize("path", ["", "''"])
def test_an_empty_path_is_no_wish_for_a_built_in_task(folder, capsys, words, path):
    (folder / "plain.yaml").write_text("steps: 1\n")
    assert main(["train", *words, "--set", f"data.path={path}", "--steps", "1"]) == 2
    assert "data.path" in capsys.readouterr().err and not (folder / "runs").exists()
    assert load_config("plain.yaml", [f"data.path={path.strip()}"], task="addition").task == "addition"


def test_two_functions_that_never_judge_the_same_sample_are_both_reported(folder):
    run = trainer(folder, "reward.functions=[reward.py:low, reward.py:high]", "rollout.prompts=16")
    metrics = run.train_step().metrics
    assert metrics["reward/low/mean"] == 0.25 and metrics["reward/high/mean"] == 0.75


def test_a_function_with_a_weight_is_reported_as_it_is_even_where_it_pays_nothing(folder):
    run = trainer(folder, "reward.functions=[{use: 'reward.py:half', weight: 2}]")
    metrics = run.train_step().metrics
    assert (metrics["reward/half/mean"], metrics["reward/mean"]) == (0.5, 1.0)
    run = trainer(folder, "reward.functions=[{use: 'reward.py:nothing', weight: 2}]")
    assert run.train_step().metrics["reward/nothing/mean"] == 0.0
    run = trainer(folder, "reward.functions=[reward.py:half]")
    assert "reward/half/mean" not in run.train_step().metrics, "it is the reward"


def test_the_home_of_nobody_is_said_to_be_none(folder, capsys):
    for override in ("data.path=~nosuchuser/x.jsonl", "reward.functions=['~nosuchuser/r.py:f']", "model=~nosuchuser/m"):
        assert main(["train", "config.yaml", "--set", override]) == 2
        said = capsys.readouterr().err
        assert "no home folder is known for '~nosuchuser'" in said and len(said.splitlines()) == 1, said
