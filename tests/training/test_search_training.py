"""Training with a search tool: a few steps by default, learning itself where time is no matter."""

import json
import math
from dataclasses import replace

import pytest
import torch

from stabilizer.core.metrics import VOCABULARY
from stabilizer.live.session import Session
from stabilizer.training.config import load_config
from stabilizer.training.environments import Reply, search
from stabilizer.training.environments.http_retriever import RetrieverError
from stabilizer.training.loop import Trainer
from stabilizer.training.model import CHARACTERS
from stabilizer.training.rollout import turns

SMALL = ["rollout.prompts=4", "rollout.group_size=4", "validation.every=0", "validation.problems=32", "device=cpu"]


@pytest.fixture
def trainer(tmp_path):
    def build(*overrides: str) -> Trainer:
        return Trainer(load_config("search", [*SMALL, *overrides]), checkpoints=tmp_path / "checkpoints")

    return build


def weights(trainer: Trainer) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(trainer.policy.model.parameters()).detach().clone()


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_on_policy_the_first_ratio_is_1_over_all_turns(trainer, algorithm):
    run = trainer(f"algorithm={algorithm}")
    for _ in range(2):
        metrics = run.train_step().metrics
        assert metrics["rollout/retrieved_frac"] > 0.2  # there was something to be masked
        assert metrics["policy/ratio_first_error"] < 1e-4
        assert abs(metrics["policy/mismatch_kl"]) < 1e-6


def test_retrieved_tokens_that_are_not_masked_show_in_the_first_ratio(trainer, monkeypatch):
    assemble = turns._assemble

    def unmasked(*args):
        rollouts = assemble(*args)
        inside_BT = torch.arange(rollouts.mask_BT.shape[1]) < rollouts.span_B[:, None]
        return replace(rollouts, mask_BT=inside_BT, length_B=rollouts.span_B)

    monkeypatch.setattr(turns, "_assemble", unmasked)
    assert trainer().train_step().metrics["policy/ratio_first_error"] > 0.5


def test_episodes_that_outgrow_the_context_are_cut_and_the_run_goes_on(trainer, monkeypatch):
    run = trainer("search.topk=40", "rollout.prompts=2")
    positions = run.policy.model.config.max_position_embeddings
    monkeypatch.setattr(type(run.engine), "max_length", property(lambda engine: positions))  # as a table has
    for _ in range(2):
        metrics = run.train_step().metrics
        assert metrics["rollout/truncated_frac"] > 0.2 and math.isfinite(metrics["policy/loss"])


def test_a_step_reports_what_episodes_are_made_of(trainer):
    metrics = trainer("rollout.prompts=16").train_step().metrics
    assert set(metrics) <= set(VOCABULARY)
    assert 1 < metrics["rollout/turns_mean"] <= 3 and 0 < metrics["rollout/searches_mean"] < 2
    assert 0 < metrics["rollout/retrieved_frac"] < 1 and 0 <= metrics["rollout/invalid_calls_frac"] < 1


def test_resampled_batches_count_in_full(trainer):
    run = trainer("algorithm=dapo", "policy.resample_batches=3", "rollout.max_completion=24")
    metrics = run.train_step().metrics
    assert metrics["batch/prompts_drawn"] > 4 and 1 < metrics["rollout/turns_mean"] <= 3


def test_validation_searches_too(trainer):
    run = trainer("validation.problems=64")
    with_search = run.validate()["accuracy/val"]
    assert with_search > 0.1
    alone = trainer("validation.problems=64", "search.max_turns=1").validate()["accuracy/val"]
    assert alone < 0.1  # nobody knows the numbers by heart


def test_a_failing_retriever_neither_stops_training_nor_becomes_a_reward(trainer):
    run = trainer("validation.every=1")

    class Broken:
        def retrieve(self, queries, topk):
            raise RetrieverError("http://nowhere: timed out")

    run.collector._environment._retriever = Broken()
    metrics = run.train_step().metrics
    assert metrics["reward/failed_frac"] > 0.4  # all who asked
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["rollout/searches_mean"] == 0 and torch.isfinite(weights(run)).all()


class Outage:
    """Whatever is written calls it, and it never answers."""

    calls, ends = (*CHARACTERS, " ", *search.TAGS), ()

    def respond(self, turns):
        return [Reply("", failed="no answer") for _ in turns]


def test_when_every_episode_fails_nothing_is_learned(trainer):
    run = trainer()
    before, run.collector._environment = weights(run), Outage()
    metrics = run.train_step().metrics
    assert metrics["reward/failed_frac"] == 1 and "reward/mean" not in metrics
    assert run.collector.outages == {"no answer": 16}
    assert torch.equal(before, weights(run)) and run.step == 1


def test_the_same_seed_gives_the_same_run(tmp_path):
    def run(folder):
        trainer = Trainer(load_config("search", SMALL, seed=1), checkpoints=tmp_path / folder)
        trainer.train_step()
        trainer.train_step()
        return weights(trainer)

    assert torch.equal(run("a"), run("b"))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("search.topk=0", "search.topk = 0: must be at least 1"),
        ("search.max_turns=0", "search.max_turns = 0: must be at least 1"),
        ("search.timeout_s=0", "search.timeout_s = 0.0: must be above 0"),
        ("search.url=127.0.0.1", "must look like http://"),
    ],
)
def test_impossible_settings_are_refused(trainer, override, words):
    with pytest.raises(ValueError, match=words):
        trainer(override)


def test_a_retriever_that_no_task_would_ask_is_refused():
    with pytest.raises(ValueError, match="empty with task: addition"):
        load_config("addition", ["search.url=http://127.0.0.1:8000/retrieve"])


def test_an_outage_is_told_once_and_no_sample_shows_a_reward(tmp_path):
    config = load_config("search", [*SMALL, "search.url=http://127.0.0.1:1/retrieve", "samples.every=1"], steps=2)
    session = Session.start(config, tmp_path / "run", "off")
    for _ in session.run():
        pass
    notes = [json.loads(line)["text"] for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    told = [note for note in notes if "environment failed: retriever: http://127.0.0.1:1/retrieve" in note]
    assert len(told) == 1 and "refused" in told[0]
    samples = (tmp_path / "run/samples/000001-r0.jsonl").read_text().splitlines()
    asked = [json.loads(line) for line in samples if "<search>" in line and line.count("</search>") == 1]
    assert asked and all(sample["reward"] == sample["rewards"]["exact"] == {"nf": "nan"} for sample in asked)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_the_task_is_learned(tmp_path, algorithm):
    overrides = ["device=cpu", f"algorithm={algorithm}", "validation.every=0", "steps=80"]
    trainer = Trainer(load_config("search", overrides, seed=0), checkpoints=tmp_path)
    before = trainer.validate()["accuracy/val"]
    first = trainer.train_step().metrics
    for _ in range(79):
        last = trainer.train_step().metrics
    assert before < 0.3 and trainer.validate()["accuracy/val"] > 0.8
    assert last["accuracy/train"] > first["accuracy/train"] + 0.3
    assert last["rollout/searches_mean"] > first["rollout/searches_mean"] + 0.1
