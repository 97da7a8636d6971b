"""The training benchmark's arithmetic and rules, without TRL: both sides are fakes that answer at once."""

import numpy as np
import pytest

from bench import train
from bench.train import memory, ours, page, sides
from stabilizer.training import loop
from stabilizer.training.config import load_config

JOB = {"model": "builtin", "task": "sorting", "threads": 1, "seed": 0, "steps": 9, "lr": 1e-4, **train.SHAPE}
RACE = train.Race("110k", blocks=4, steps=2, watched=50)


class FakeSide:
    """Takes `ms` a step and writes `tokens`; notes when it was asked."""

    def __init__(self, name, ms, calls, tokens=1024):
        self.name, self.ms, self.calls, self.tokens = name, ms, calls, tokens

    def start(self, job):
        return {"versions": {"torch": "0"}, "parameters": 110_016}

    def steps(self, count):
        self.calls.append(self.name)
        times = {"step_s": self.ms / 1e3, "cpu_s": self.ms / 2e3, "rollout_s": 0.0, "scoring_s": 0.0, "update_s": 0.0}
        row = {**times, "peak_gb": 1.0, "monitor_s": 0.0, "tokens": self.tokens, "reward": 0.5, "idle": 0.25}
        return [row for _ in range(count)]

    def stop(self):
        pass


def race(ours_ms=10.0, trl_ms=40.0, trl_tokens=1024):
    calls = []
    plain = FakeSide("plain", 2 * ours_ms, calls)
    sides = FakeSide("ours", ours_ms, calls), plain, FakeSide("trl", trl_ms, calls, trl_tokens)
    return train._race(sides, "110k", JOB, RACE), calls


def test_the_ratio_is_that_of_medians_and_one_wild_step_does_not_move_it():
    slow, fast = np.full((5, 4), 30.0), np.full((5, 4), 10.0)
    fast[2, 1] = 1e6
    assert train.ratio_of_medians(slow, fast) == (3.0, 3.0, 3.0)


def test_the_interval_covers_the_ratio_and_widens_with_noise_between_blocks():
    rng = np.random.default_rng(0)
    calm, wild = (30 * np.exp(scale * rng.normal(size=(10, 1))) * np.ones((1, 5)) for scale in (0.01, 0.3))
    narrow, wide = (train.ratio_of_medians(slow, np.full((10, 5), 10.0)) for slow in (calm, wild))
    assert narrow[1] <= 3.0 <= narrow[2] and wide[1] <= wide[0] <= wide[2]
    assert wide[2] - wide[1] > 5 * (narrow[2] - narrow[1])


def test_sides_take_turns_and_each_begins_as_often():
    result, calls = race()
    # a warm-up each, then blocks: ours first, TRL first, ...; then ours alone, to time what watching costs
    turns = ["ours", "plain", "trl"]
    assert calls == turns + [*turns, *turns[::-1]] * 2 + ["ours"]
    assert (
        result["ratio"] == pytest.approx(4.0) and result["plain ratio"] == pytest.approx(2.0) and result["steps"] == 8
    )


def test_every_step_is_measured_once_and_timed_with_its_block(monkeypatch):
    measure, seen = loop._measured, []
    monkeypatch.setattr(loop, "_measured", lambda *args: seen.append(1) or measure(*args))
    blocks, answers = iter([{"steps": 3}, {"steps": 2}, None]), []

    class Line:
        ask = staticmethod(lambda: next(blocks))
        answer = staticmethod(lambda told: answers.append((len(seen), told)))

    ours.run({**JOB, "prompts": 2, "group_size": 2}, Line)
    (_, versions), (three, first), (five, second) = answers
    assert versions["parameters"] > 0 and (three, five, len(seen)) == (3, 5, 5)
    assert [len(first), len(second)] == [3, 2]
    for row in first + second:
        assert 0 < row["monitor_s"] < row["step_s"] and row["tokens"] >= 4 and 0 <= row["idle"] <= 1
        assert row["step_s"] == pytest.approx(row["rollout_s"] + row["scoring_s"] + row["update_s"])


def test_unequal_token_counts_are_no_comparison():
    with pytest.raises(ValueError, match="1000, 1024"):
        race(trl_tokens=1000)


def test_learning_is_compared_seed_by_seed():
    ours_curves, trl_curves = [[0.0] * 6 + [0.5] * 3, [0.0] * 6 + [0.7] * 3], [[0.0] * 6 + [0.4] * 3, [0.0] * 9]
    found = train.compare(ours_curves, trl_curves)
    # last thirds 0.5, 0.7 against 0.4, 0.0: differences 0.1 and 0.7, mean 0.4, deviation 0.42426
    # t(1) = 12.706: half width 12.706 * 0.42426 / sqrt(2) = 3.8118
    assert found["difference"] == pytest.approx(0.4)
    assert found["difference interval"] == pytest.approx([0.4 - 3.8118, 0.4 + 3.8118], abs=1e-3)


def result():
    curves = {"ours": [[0.1] * 6 + [0.5] * 3] * 2, "trl": [[0.1] * 6 + [0.4] * 3, [0.1] * 6 + [0.6] * 3]}
    head = [{"way": way, "vocabulary": 32_768, "share of naive memory": share, "share of naive time": 1.0}
            for way, share in (("naive", 1.0), ("fused", 0.08))]  # fmt: skip
    cost = [{"tokens": 1024, "step ms": 10.0, "completion length": 16}, {"tokens": 2048, "step ms": 21.0}]
    learning = {"curves": curves, **train.compare(curves["ours"], curves["trl"])}
    return {
        "machine": {"cores": 2, "threads": 1, "load": 0.5}, "speed": [race()[0], race(trl_ms=15.0)[0]],
        "cost": cost, "learning": learning, "head": head,
    }  # fmt: skip


def test_the_statements_give_the_times_of_all_sides():
    said = " ".join(train.statements(result()))
    assert "TRL takes 4.00 times as long" in said and "TRL takes 1.50 times as long" in said
    assert "this trainer without its fast path 2.00 times" in said
    assert "in processor time TRL takes 4.00 times" in said and "load 0.5" in said
    assert "In 25% of the groups here all answers were paid alike" in said
    assert "no difference beyond seed noise" in said and "8% of the naive peak" in said
    assert "2 times the tokens take 2.1 times as long" in said


def test_the_page_holds_everything_and_loads_nothing():
    text = page.html(result())
    assert "<script src" not in text and "<link" not in text
    assert text.count("Plotly.newPlot(") == 2 and "TRL takes 1.50 times" in text
    figure = page.learning_figure(result()["learning"])
    lines = {trace.name: list(trace.y) for trace in figure.data if trace.name}
    assert lines["stabilizer"][0] == pytest.approx(0.1) and lines["TRL"][-1] == pytest.approx((0.1 * 2 + 0.5 * 3) / 5)


def test_our_side_of_the_job_is_a_valid_configuration():
    config = load_config("sorting", ours.overrides(JOB))
    assert (config.rollout.prompts, config.rollout.group_size, config.rollout.max_completion) == (8, 8, 16)
    assert config.policy.beta == 0 and config.policy.minibatches == 1 and config.checkpoint.every == 0
    assert config.fast == "auto" and load_config("sorting", ours.overrides({**JOB, "fast": "off"})).fast == "off"


def test_a_model_that_cannot_write_its_end_token(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = train._make_model(tmp_path / "model", "110k", seed=0)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.vocab_size <= tokenizer.eos_token_id
    assert 100_000 < model.num_parameters() < 120_000


def test_without_a_network_the_message_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(sides.venv, "create", lambda *args, **named: None)
    monkeypatch.setattr(sides, "install", lambda *args: "ERROR: No matching distribution found")
    with pytest.raises(ValueError, match="No matching distribution found; without a network.*--env"):
        sides.trl_python(tmp_path / "env", lambda line: None)


def test_both_heads_of_the_memory_table_compute_the_same():
    naive, fused = (memory.once(way, 64, 128, 16, 1) for way in memory.WAYS)
    assert naive["gradient_norm"] == pytest.approx(fused["gradient_norm"], rel=1e-4)
