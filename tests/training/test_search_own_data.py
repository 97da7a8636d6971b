"""Questions of one's own with a search tool: a corpus in a file or a retriever behind an address."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from stabilizer.training.build_task import build_task
from stabilizer.training.config import load_config
from stabilizer.training.loop import Trainer
from stabilizer.training.tasks import TASKS

CONFIG = """
model: builtin:search
steps: 2
data: {path: questions.jsonl, prompt_column: question, held_out: 4}
search: {corpus: corpus.jsonl}
reward: {functions: [exact, {use: "reward.py:looked_up", weight: 0.1}]}
rollout: {prompts: 4, group_size: 4, max_completion: 24}
validation: {every: 0}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """Facts as the built-in model knows to look up, but as files: questions, documents, a reward of one's own."""
    known = TASKS["search"]
    problems = [known.problem(index) for index in range(0, 400, 5)]
    questions = [{"question": problem.prompt, "answer": problem.answer} for problem in problems]
    documents = [{"id": i, "contents": contents} for i, contents in enumerate(known.documents[:400])]
    for name, rows in (("questions", questions), ("corpus", documents)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "reward.py").write_text(
        textwrap.dedent(
            """
            def looked_up(completion, episode):
                assert "<" not in completion, "functions get the answer alone"
                return float("<information>" in episode)
            """
        )
    )
    (tmp_path / "config.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_trains_and_what_was_retrieved_is_neither_learned_nor_paid(folder) -> None:
    trainer = Trainer(load_config("config.yaml", ["device=cpu"]), checkpoints=folder / "checkpoints")
    metrics = trainer.train_step().metrics
    assert metrics["rollout/retrieved_frac"] > 0.2 and metrics["policy/ratio_first_error"] < 1e-4
    assert metrics["reward/failed_frac"] == 0
    assert 0 < metrics["reward/exact/mean"] < 1 and 0 < metrics["reward/looked_up/mean"] <= 1


def test_an_answer_that_stands_in_a_document_alone_is_not_paid(folder) -> None:
    config = load_config("config.yaml", ["device=cpu"])
    trainer = Trainer(config, checkpoints=folder / "checkpoints")
    task = build_task(config, trainer.policy.tokenizer)
    problem = task.held_out(1)[0]
    read = f"<search>{problem.prompt}</search><information>{problem.answer}</information>"
    scores = task.score_all([problem] * 2, [read, f"{read}<answer>{problem.answer}</answer>"])
    assert [score.components["exact"] for score in scores] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["search.url=http://127.0.0.1:1/retrieve"], "empty with search.url"),
        (["search.corpus=nothing.jsonl"], "no such file"),
        (["search.corpus=reward.py"], "unknown file type"),
        (["search.corpus=questions.jsonl"], "no column 'contents' or 'text'"),
    ],
)
def test_a_corpus_that_will_not_do_is_refused_before_the_run(folder, overrides, words) -> None:
    with pytest.raises(ValueError, match=words):
        config = load_config("config.yaml", [*overrides, "device=cpu"])
        Trainer(config, checkpoints=folder / "checkpoints")


def test_a_built_in_task_takes_no_corpus() -> None:
    with pytest.raises(ValueError, match="built-in documents"):
        load_config("search", ["search.corpus=corpus.jsonl"])


def test_a_column_called_episode_is_refused(folder) -> None:
    rows = [json.loads(line) | {"episode": 1} for line in (folder / "questions.jsonl").read_text().splitlines()]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match="rename the column"):
        Trainer(load_config("config.yaml", ["device=cpu"]), checkpoints=folder / "checkpoints")
