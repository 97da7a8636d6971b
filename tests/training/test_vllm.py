"""Training through the real vLLM, on a CPU: `make test-vllm`."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from stabilizer.training.model import Policy, build_tokenizer, load_policy
from stabilizer.training.rollout import vllm_engine
from stabilizer.training.rollout.engine import Sampling
from stabilizer.training.rollout.engines import build_engine
from stabilizer.training.rollout.logprobs import Scorer
from stabilizer.training.rollout.sampler import Sampler
from stabilizer.training.rollout.synced import StaleWeights, learner_scores
from stabilizer.training.settings import RolloutConfig, VllmConfig
from stabilizer.training.tasks import TASKS

pytestmark = pytest.mark.vllm

CPU = torch.device("cpu")
VLLM = ("rollout.engine=vllm", "rollout.vllm.kv_cache_gb=0.1")
TASK = TASKS["sorting"]


@pytest.fixture
def policy():
    return load_policy("builtin", "sorting", CPU)


@pytest.fixture
def engine():
    """A function giving an engine over a policy; closed at the end."""
    with contextlib.ExitStack() as stack:

        def build(policy: Policy, **settings):
            built = build_engine(RolloutConfig(engine="vllm", vllm=VllmConfig(kv_cache_gb=0.1, **settings)), policy)
            stack.callback(built.close)
            return built

        yield build


@pytest.fixture
def through_vllm(trainer):
    """A function giving a trainer that generates through vLLM; closed at the end."""
    with contextlib.ExitStack() as stack:

        def build(*overrides: str):
            run = trainer(*VLLM, *overrides, task="sorting")
            stack.callback(run.engine.close)
            return run

        yield build


@torch.no_grad()
def nudge(policy, size=1e-2):
    drawn = torch.Generator().manual_seed(0)
    for parameter in policy.model.parameters():
        parameter.add_(size * torch.randn(parameter.shape, generator=drawn))


def prompts(policy, count):
    return TASK.encode(TASK.held_out(count), policy.tokenizer)


def mixed(policy):
    """Prompts of three lengths."""
    return [policy.tokenizer(text)["input_ids"] for text in ("31524>", "1>", "99817>", "46>")]


# --- training ---------------------------------------------------------------------------------------------------------


def test_training_learns_and_engine_and_learner_stay_one_policy(through_vllm):
    run = through_vllm("rollout.prompts=8", "rollout.group_size=8", "optim.lr=8e-4")
    steps = [run.train_step().metrics for _ in range(30)]
    rewards = [metrics["reward/mean"] for metrics in steps]
    assert np.mean(rewards[-5:]) > np.mean(rewards[:5]) + 0.05
    assert max(metrics["policy/mismatch_ratio_max"] for metrics in steps) < 1 + 1e-4
    assert max(abs(metrics["policy/mismatch_kl"]) for metrics in steps) < 1e-9
    assert max(metrics["rollout/sync_error"] for metrics in steps) < 1e-4
    assert sum(metrics["rollout/sync_retries"] for metrics in steps) == 0


def test_bfloat16_trains_with_a_mismatch_that_is_measured(through_vllm):
    run = through_vllm("rollout.vllm.dtype=bfloat16")
    steps = [run.train_step().metrics for _ in range(3)]
    assert all(1e-6 < metrics["policy/mismatch_kl"] < 1e-2 for metrics in steps)
    assert all(metrics["policy/mismatch_ratio_max"] > 1 + 1e-3 for metrics in steps)
    assert all(1e-3 < metrics["rollout/sync_error"] < 0.1 for metrics in steps)


def test_resuming_is_bit_identical(trainer):
    settings = (*VLLM, "validation.every=2", "policy.inner_epochs=2")

    def steps(run, count):
        rows = [run.train_step().metrics for _ in range(count)]
        return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]

    whole = trainer(*settings, folder="whole", task="sorting")
    expected = steps(whole, 4)
    whole.engine.close()
    first = trainer(*settings, task="sorting")
    assert steps(first, 2) == expected[:2]
    first.save_checkpoint()
    first.engine.close()
    second = trainer(*settings, task="sorting")
    assert second.resume().step == 2
    assert steps(second, 2) == expected[2:]
    second.engine.close()


def test_length_and_temperature_turn_while_it_runs(through_vllm):
    run = through_vllm()
    run.train_step()
    run.controls.set("control/max_completion", 2)
    run.controls.set("control/temperature", 0.5)
    run.controls.set("control/group_size", 6)
    metrics = run.train_step().metrics
    assert metrics["rollout/length_max"] <= 2 and metrics["batch/group_size"] == 6
    assert metrics["policy/mismatch_ratio_max"] < 1 + 1e-4


def test_the_command_trains_through_vllm(tmp_path):
    settings = [word for key in (*VLLM, "rollout.prompts=4", "validation.problems=8") for word in ("--set", key)]
    command = [
        sys.executable,
        "-m",
        "stabilizer",
        "train",
        "sorting",
        "--steps",
        "2",
        "--runs",
        str(tmp_path),
        "--json",
    ]
    done = subprocess.run([*command, *settings], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert "Traceback" not in done.stderr and last


# --- the same policy --------------------------------------------------------------------------------------------------


def test_greedy_texts_are_those_of_the_built_in_sampler(engine, policy):
    asked, greedy = prompts(policy, 64), Sampling(1, 0.0, 8)
    ours, theirs = Sampler(policy).generate(asked, greedy), engine(policy).generate(asked, greedy)
    assert theirs.texts == ours.texts
    assert torch.equal(theirs.truncated_B, ours.truncated_B) and torch.equal(theirs.mask_BT, ours.mask_BT)
    assert torch.allclose(theirs.logp_BT, ours.logp_BT, atol=1e-4)


@pytest.mark.parametrize("temperature", [0.5, 1.7])
def test_log_probabilities_are_those_at_the_sampling_temperature(engine, policy, temperature):
    rollouts = engine(policy).generate(mixed(policy), Sampling(16, temperature, 12, seed=3))
    logp_BT = Scorer().logps(policy.model, rollouts, temperature).logp_BT
    error_BT = (logp_BT - rollouts.logp_BT).masked_fill(~rollouts.mask_BT, 0.0)
    assert error_BT.abs().max() < 1e-4
    last_B = rollouts.completion_ids_BT.gather(1, rollouts.length_B[:, None] - 1)[:, 0]
    assert ((last_B == policy.tokenizer.eos_token_id) == ~rollouts.truncated_B).all()
    assert rollouts.truncated_B.any() and not rollouts.truncated_B.all()


def test_samples_repeat_with_their_seed_and_follow_the_policy(engine, policy):
    built, asked = engine(policy), mixed(policy)[:1]
    many = Sampling(512, 1.0, 1, seed=3)
    first, again = built.generate(asked, many), built.generate(asked, many)
    assert torch.equal(first.completion_ids_BT, again.completion_ids_BT) and torch.equal(first.logp_BT, again.logp_BT)
    other = built.generate(asked, many._replace(seed=4))
    assert not torch.equal(first.completion_ids_BT, other.completion_ids_BT)
    with torch.no_grad():
        expected = torch.softmax(policy.model(input_ids=torch.tensor(asked)).logits[0, -1], -1)
    drawn = torch.cat([first.completion_ids_BT, other.completion_ids_BT]).flatten()
    share = torch.bincount(drawn, minlength=len(expected)) / 1024
    assert (share - expected).abs().max() < 0.08  # five standard deviations of a share of 1024 are 0.078


def test_extra_stop_tokens_end_a_completion(engine, policy):
    (two,) = policy.tokenizer("2", add_special_tokens=False)["input_ids"]
    rollouts = engine(policy).generate(mixed(policy)[:1], Sampling(1, 0.0, 8, stop_ids=(two,)))
    assert rollouts.texts == ["12"] and not rollouts.truncated_B.any()


def test_weights_that_have_gone_bad_give_evidence_and_no_crash(engine, policy):
    built = engine(policy)
    nudge(policy, float("nan"))
    assert built.sync()["rollout/sync_error"] == 0
    assert built.generate(mixed(policy), Sampling(2, 1.0, 4)).logp_BT.isnan().any()


# --- stale weights ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_hand_over_that_never_happens_is_noticed(engine, policy, monkeypatch, dtype):
    built = engine(policy, dtype=dtype)
    monkeypatch.setattr(vllm_engine.InProcessVllm, "load", lambda self, weights, version: list(weights))
    nudge(policy, 4e-3)
    metrics = built.sync()
    assert metrics["rollout/sync_retries"] == 1 and metrics["rollout/sync_error"] > 0.01
    with pytest.raises(StaleWeights):
        built.generate(mixed(policy), Sampling(2, 1.0, 4))
    monkeypatch.undo()
    assert built.sync()["rollout/sync_error"] < (1e-4 if dtype == "float32" else 0.1)
    assert len(built.generate(mixed(policy), Sampling(2, 1.0, 4))) == 8


def test_the_head_that_reloading_leaves_behind_is_noticed(engine, policy, monkeypatch):
    """vLLM left to itself repacks the layers, and its own `reload_weights` forgets the head tied to the embedding."""

    def reload(self, weights, version):
        assert policy.model.config.tie_word_embeddings
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(list(weights))})

    monkeypatch.setattr(vllm_engine, "_weights_kept_in_place", contextlib.nullcontext)
    monkeypatch.setattr(vllm_engine.InProcessVllm, "load", reload)
    with pytest.raises(ValueError, match="cannot serve this model: .* differ from the learner's by"):
        engine(policy)


def test_a_tied_head_follows_its_embedding(engine, policy):
    built = engine(policy)
    with torch.no_grad():
        policy.model.lm_head.weight.mul_(1.5)  # the embedding's memory too
    assert policy.model.lm_head.weight is policy.model.model.embed_tokens.weight
    assert built.sync()["rollout/sync_error"] < 1e-4
    with torch.no_grad():
        scored = torch.log_softmax(policy.model(input_ids=torch.tensor(mixed(policy)[:1])).logits[0, -1], -1)
    greedy = built.generate(mixed(policy)[:1], Sampling(1, 0.0, 1))
    assert greedy.completion_ids_BT.item() == scored.argmax()


def test_what_was_cached_of_a_prompt_does_not_outlive_its_weights(engine, policy):
    built, long = engine(policy), [policy.tokenizer("abcdefgh" * 25)["input_ids"]]
    built.generate(long, Sampling(2, 1.0, 4))
    nudge(policy)
    built.sync()
    rollouts = built.generate(long, Sampling(2, 1.0, 4))
    logp_BT = Scorer().logps(policy.model, rollouts, 1.0).logp_BT
    assert (logp_BT - rollouts.logp_BT).masked_fill(~rollouts.mask_BT, 0.0).abs().max() < 1e-4


def test_a_precision_beyond_the_tolerance_is_refused_at_set_up(engine, policy):
    with pytest.raises(ValueError, match="rollout.vllm.tolerance is 0.001. Try rollout.vllm.dtype=float32"):
        engine(policy, dtype="bfloat16", tolerance=1e-3)


def test_adapters_are_served(engine, policy):
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(policy.model, LoraConfig(r=4, target_modules=["q_proj", "down_proj"]))
    built = engine(Policy(adapted, policy.tokenizer))
    before = built.generate(prompts(policy, 32), Sampling(1, 0.0, 8)).texts
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.5)
    assert built.sync()["rollout/sync_error"] < 1e-4
    assert built.generate(prompts(policy, 32), Sampling(1, 0.0, 8)).texts != before


# --- manners ----------------------------------------------------------------------------------------------------------


def test_threads_and_random_numbers_are_left_alone(engine, policy):
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    expected = torch.rand(3), random.random(), np.random.rand()
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    threads, hook = torch.get_num_threads(), sys.excepthook
    engine(policy)
    assert torch.get_num_threads() == threads and sys.excepthook is hook
    drawn = torch.rand(3), random.random(), np.random.rand()
    assert torch.equal(drawn[0], expected[0]) and drawn[1:] == expected[1:]
    torch.set_num_threads(2)  # vLLM leaves a function here that does nothing
    assert torch.get_num_threads() == 2


def test_heads_that_the_cpu_kernel_does_not_know_are_refused(engine):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = build_tokenizer()
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4}  # heads of 64 / 4 = 16
    narrow = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), num_hidden_layers=1, eos_token_id=2, **sizes))
    with pytest.raises(ValueError, match="cannot serve this Qwen2ForCausalLM: .*head_dim=16.*rollout.engine=builtin"):
        engine(Policy(narrow, tokenizer))


def test_a_context_beyond_the_models_own_is_refused(engine, policy):
    with pytest.raises(ValueError, match="cannot serve this Qwen2ForCausalLM: .*max_model_len"):
        engine(policy, max_model_len=100_000)


# --- what is exported -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adapters", [(), ("lora.rank=4",)], ids=["whole", "adapters"])
def test_an_exported_policy_is_the_one_that_learned(trainer, tmp_path, adapters):
    if adapters:
        pytest.importorskip("peft")
    run = trainer("optim.lr=5e-3", *adapters)
    start = load_policy("builtin", "addition", CPU)
    for _ in range(3):
        run.train_step()
    run.save_pretrained(tmp_path / "model")
    texts = ["12+34=46", "7+8=15", "90+9=99", "3+33=36"]
    with exported(tmp_path / "model") as scores:
        theirs = scores(texts)
    moved = 0.0
    for text, (ids, found) in zip(texts, theirs, strict=True):
        assert ids == run.policy.tokenizer(text)["input_ids"]
        ours, before = (learner_scores(model, [ids])[0] for model in (run.policy.model, start.model))
        assert torch.tensor(found, dtype=torch.float64) == pytest.approx(ours, abs=1e-4)
        moved = max(moved, (ours - before).abs().max().item())
    assert moved > 0.05  # the weights are those after training, and vLLM read them from the folder


@contextlib.contextmanager
def exported(folder):
    """A function giving tokens of texts and log-probabilities of all but the first, by a vLLM started as usual."""
    with vllm_engine._process_left_alone():
        vllm = vllm_engine._import_vllm()
        llm = vllm.LLM(
            model=str(folder), dtype="float32", max_model_len=64, max_num_seqs=8, logprobs_mode="processed_logprobs",
            **vllm_engine._memory(VllmConfig(kv_cache_gb=0.1)),
        )  # fmt: skip
    params = vllm.SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)

    def scores(texts):
        found = [(out.prompt_token_ids, out.prompt_logprobs) for out in llm.generate(texts, params, use_tqdm=False)]
        return [(ids, [place[i].logprob for place, i in zip(told[1:], ids[1:], strict=True)]) for ids, told in found]

    try:
        yield scores
    finally:
        llm.llm_engine.engine_core.shutdown()
        from vllm.distributed import cleanup_dist_env_and_memory

        cleanup_dist_env_and_memory()
