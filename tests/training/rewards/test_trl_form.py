"""Reward functions written for TRL, unchanged, over chats and over text."""

from __future__ import annotations

import json
import textwrap

import pytest
import torch

from stabilizer.training.config import load_config
from stabilizer.training.loop import Trainer
from stabilizer.training.metrics import judged, reward_metrics
from stabilizer.training.model import build_model
from stabilizer.training.rewards.config import RewardConfig
from stabilizer.training.rewards.runner import RewardRunner
from stabilizer.training.tasks import Problem
from tests.training.conftest import SMALL
from tests.training.data.conftest import character_tokenizer

FUNCTIONS = '''
    import re

    def format_reward(completions, **kwargs):
        """As in TRL's documentation: chat completions are lists of messages."""
        contents = [completion[0]["content"] for completion in completions]
        return [1.0 if re.match(r"^<think>.*?</think>", content) else 0.0 for content in contents]

    def accuracy_reward(completions, solution, **kwargs):
        return [None if wanted is None else float(c[0]["content"].endswith(wanted))
                for c, wanted in zip(completions, solution)]

    def text_reward(completions, **kwargs):
        return [float(len(completion)) if isinstance(completion, str) else 1 / 0 for completion in completions]

    def own_form(completions, answers, **columns):
        return [float(completion == answer) for completion, answer in zip(completions, answers)]

    def asked_for(prompts, completions, completion_ids, finish_reason, **kwargs):
        assert [prompt[-1]["role"] for prompt in prompts] == ["user"] * len(prompts)
        kwargs["log_metric"]("tokens", sum(map(len, completion_ids)))
        kwargs["log_extra"]("cut off?", [reason == "length" for reason in finish_reason])
        kwargs["log_extra"]("words", ["not a number"] * len(prompts))
        return [0.0] * len(prompts)

    def mapping(completion):
        return {"reward": 2.0, "length": len(completion), "note": "text", "bad": float("nan")}

    def fails_at_x(completions, **kwargs):
        return [1.0 if c[0]["content"] != "x" else c["x"] for c in completions]
'''


@pytest.fixture
def runner(tmp_path):
    made = []

    def build(*names, columns=()):
        file = tmp_path / "reward.py"
        file.write_text(textwrap.dedent(FUNCTIONS))
        made.append(RewardRunner(RewardConfig(functions=[f"{file}:{name}" for name in names]), columns))
        return made[-1]

    yield build
    for each in made:
        each.close()


@pytest.fixture
def chat_model(tmp_path):
    """A folder with a tiny model whose tokenizer has a chat template."""
    tokenizer = character_tokenizer(chat=True)
    build_model(tokenizer).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def chats(texts, **columns):
    """Problems that are chats, with facts about their completions."""
    return [
        Problem(
            i, f"user: {i}", str(i), {name: values[i] for name, values in columns.items()},
            [{"role": "user", "content": str(i)}],
            {"completion_ids": list(range(len(text))), "finish_reason": "length" if i else "stop"},
        )
        for i, text in enumerate(texts)
    ]  # fmt: skip


def components(scores):
    return [dict(score.components) for score in scores]


def test_functions_of_messages_and_of_text_score_the_same_chat(runner):
    texts = ["<think>a</think>7", "8"]
    run = runner("format_reward", "accuracy_reward", "text_reward", "own_form", columns=("solution",))
    for _ in range(2):  # the form found by the first call is kept
        scores = run(chats(texts, solution=["7", None]), texts)
        assert components(scores) == [
            {"format_reward": 1, "accuracy_reward": 1, "text_reward": 17, "own_form": 0},
            {"format_reward": 0, "text_reward": 1, "own_form": 0},
        ]
    assert not run.failures


def test_over_plain_text_they_get_text(runner):
    run = runner("text_reward")
    assert components(run([Problem(0, "p", "")], ["four"])) == [{"text_reward": 4}]


def test_tokens_the_reason_of_the_end_and_logged_numbers(runner):
    texts = ["ab", "abc"]
    first, second = runner("asked_for")(chats(texts), texts)
    assert first.extra == {"tokens": 5, "cut_off_": 0} and second.extra == {"tokens": 5, "cut_off_": 1}
    metrics = reward_metrics([first, second], judged([first, second]), _table(first, second))
    assert metrics["reward/cut_off_/mean"] == 0.5 and metrics["reward/tokens/mean"] == 5


def test_a_sample_may_return_further_numbers_beside_its_reward(runner):
    (score,) = runner("mapping")([Problem(0, "p", "")], ["abc"])
    assert (score.reward, score.extra) == (2.0, {"length": 3})


def test_a_sample_that_breaks_a_function_of_messages_is_lost_alone(runner):
    texts = ["a", "x", "b", "c"]
    run = runner("fails_at_x")
    assert [score.failed == "" for score in run(chats(texts), texts)] == [True, False, True, True]
    assert [score.reward for score in run(chats(["a", "b"]), ["a", "b"])] == [1, 1]
    assert [score.failed == "" for score in run(chats(texts), texts)] == [True, False, True, True]


def test_a_run_trains_with_functions_of_trl_on_a_chat(tmp_path, chat_model):
    file, data = tmp_path / "reward.py", tmp_path / "data.jsonl"
    file.write_text(textwrap.dedent(FUNCTIONS))
    asked = [[{"role": "user", "content": f"{i}+{i}"}] for i in range(9)]
    rows = [{"prompt": messages, "answer": "x", "solution": "1"} for messages in asked]
    data.write_text("\n".join(map(json.dumps, rows)))
    config = load_config(
        None,
        [*SMALL, f"data.path={data}", f"model={chat_model}", "rollout.max_completion=6", "samples.every=1",
         f"reward.functions=['{file}:asked_for','{file}:accuracy_reward']"],
    )  # fmt: skip
    run = Trainer(config, checkpoints=tmp_path / "c")
    result = run.train_step()
    assert result.metrics["reward/tokens/mean"] == 16 * result.metrics["rollout/length_mean"]
    assert result.metrics["reward/failed_frac"] == 0 and "cut_off_" in result.samples[0].rewards
    run.task.close()


def _table(*scores):
    return torch.tensor([[score.reward for score in scores]])
