"""An engine with weights of its own: vLLM's recorded answers drive the loop, and hand-overs that fail are noticed."""

import copy
import math

import pytest
import torch
from torch import nn

from stabilizer.core.metrics import VOCABULARY
from stabilizer.training.config import load_config
from stabilizer.training.model import load_policy
from stabilizer.training.rollout import vllm_engine
from stabilizer.training.rollout.engine import Sampling
from stabilizer.training.rollout.engines import build_engine
from stabilizer.training.rollout.sampler import Sampler
from stabilizer.training.rollout.synced import StaleWeights, SyncedEngine, checkpoint_weights, disagreement
from stabilizer.training.settings import RolloutConfig
from tests.training.servers import RECORDED, CopyServer, RecordedServer

CPU = torch.device("cpu")
SAMPLING = Sampling(group_size=3, temperature=0.8, max_completion=8, seed=1)


@pytest.fixture
def policy():
    return load_policy("builtin", "sorting", CPU)


@pytest.fixture
def engine(policy):
    """A function giving an engine over a copy of the policy; the copy is `engine.server`."""

    def build(tolerance: float = 1e-3, deaf: tuple[int, ...] = (), max_length: int = 64) -> SyncedEngine:
        server = CopyServer(policy, max_length)
        server.deaf |= set(deaf)
        built = SyncedEngine(policy, server, tolerance=tolerance, probe=4)
        built.server = server
        return built

    return build


@pytest.fixture
def replay(trainer, monkeypatch):
    """A function giving a trainer that generates through the recording of vLLM in this precision."""

    def build(dtype: str):
        served = lambda config, architecture, settings: RecordedServer(  # noqa: E731
            load_policy("builtin", "sorting", CPU), settings.dtype
        )
        monkeypatch.setattr(vllm_engine, "InProcessVllm", served)
        return trainer(*RECORDED, f"rollout.vllm.dtype={dtype}", task="sorting")

    return build


def encoded(policy, *prompts):
    return [policy.tokenizer(prompt)["input_ids"] for prompt in prompts]


@torch.no_grad()
def nudge(policy, size):
    """Change every weight a little, as an update does."""
    drawn = torch.Generator().manual_seed(0)
    for parameter in policy.model.parameters():
        parameter.add_(size * torch.randn(parameter.shape, generator=drawn))


# --- what vLLM really wrote -------------------------------------------------------------------------------------------


def test_the_loop_takes_a_step_from_what_vllm_wrote(replay):
    run = replay("float32")
    recording = run.engine._server.recording
    metrics = run.train_step().metrics
    assert set(metrics) <= set(VOCABULARY) and {"rollout/sync_error", "time/sync_s"} <= set(metrics)
    lengths = [len(ids) for ids, _ in recording["completions"]]
    assert metrics["rollout/length_mean"] == sum(lengths) / len(lengths)
    assert metrics["batch/updates"] == 2 and metrics["optim/update_ratio"] > 0


def test_in_float32_vllm_agrees_with_the_learner(replay):
    metrics = replay("float32").train_step().metrics
    # at temperature 0.8: log-probabilities of the undivided logits would be a tenth of a nat away
    assert metrics["policy/mismatch_ratio_max"] < 1 + 1e-4 and abs(metrics["policy/mismatch_kl"]) < 1e-9


def test_in_bfloat16_the_mismatch_is_measured(replay):
    metrics = replay("bfloat16").train_step().metrics
    assert metrics["policy/mismatch_ratio_max"] > 1 + 1e-3 and 1e-6 < metrics["policy/mismatch_kl"] < 1e-2
    assert metrics["policy/ratio_first_error"] < 1e-4  # the update compares the learner with itself


def test_completions_become_rollouts_token_by_token(replay):
    run = replay("float32")
    recording = run.engine._server.recording
    prompts = [prompt for prompt, *_ in recording["requests"]][::4]
    seed = run._random_bits(1, "rollout")
    rollouts = run.engine.generate(prompts, Sampling(4, 0.8, 8, seed))
    eos = run.policy.tokenizer.eos_token_id
    for row, (ids, logps) in enumerate(recording["completions"]):
        assert rollouts.completion_ids_BT[row][rollouts.mask_BT[row]].tolist() == ids
        assert rollouts.logp_BT[row][rollouts.mask_BT[row]].tolist() == pytest.approx(logps)
        assert rollouts.prompt_ids_BP[row].tolist() == recording["requests"][row][0]
        assert bool(rollouts.truncated_B[row]) == (ids[-1] != eos)
        assert rollouts.texts[row] == run.policy.tokenizer.decode([i for i in ids if i != eos])


# --- hand-overs -------------------------------------------------------------------------------------------------------


def test_every_hand_over_makes_the_copy_equal(engine, policy):
    built = engine()
    for _ in range(3):
        nudge(policy, 1e-2)
        metrics = built.sync()
        assert metrics["rollout/sync_error"] == 0 and metrics["rollout/sync_retries"] == 0
        pairs = zip(built.server.copy.model.parameters(), policy.model.parameters(), strict=True)
        assert all(torch.equal(theirs, ours) for theirs, ours in pairs)


def test_a_hand_over_that_fails_once_is_repeated(engine, policy):
    built = engine(deaf=(2,))
    nudge(policy, 1e-2)
    metrics = built.sync()
    assert metrics["rollout/sync_retries"] == 1 and metrics["rollout/sync_error"] == 0
    assert len(built.generate(encoded(policy, "31524>"), SAMPLING)) == 3


def test_stale_weights_are_measured_and_never_generated_from(engine, policy):
    built = engine(deaf=(2, 3))
    nudge(policy, 1e-2)
    metrics = built.sync()
    assert metrics["rollout/sync_retries"] == 1 and metrics["rollout/sync_error"] > 1e-3
    with pytest.raises(StaleWeights, match=rf"by {metrics['rollout/sync_error']:.3g} on average.*tolerance is 0.001"):
        built.generate(encoded(policy, "31524>"), SAMPLING)


def test_a_later_hand_over_that_arrives_ends_the_refusal(engine, policy):
    built = engine(deaf=(2, 3))
    nudge(policy, 1e-2)
    built.sync()
    assert built.sync()["rollout/sync_error"] == 0
    assert len(built.generate(encoded(policy, "31524>"), SAMPLING)) == 3


def test_after_weights_that_did_not_arrive_those_from_before_are_served_again(engine, policy):
    built = engine(deaf=(2, 3))
    before = [parameter.detach().clone() for parameter in policy.model.parameters()]
    nudge(policy, 1e-2)
    built.sync()
    with torch.no_grad():
        for parameter, value in zip(policy.model.parameters(), before, strict=True):
            parameter.copy_(value)
    assert len(built.generate(encoded(policy, "31524>"), SAMPLING)) == 3


def test_an_engine_that_never_had_the_weights_is_refused_at_set_up(policy):
    server = CopyServer(policy)
    nudge(policy, 1e-2)
    server.deaf |= {1, 2}
    with pytest.raises(ValueError, match="cannot serve this model: .*rollout.engine=builtin"):
        SyncedEngine(policy, server, tolerance=1e-3, probe=4)


def test_a_head_that_keeps_its_old_values_is_noticed(policy):
    class Untied(CopyServer):
        """The trap of tied weights: the head was copied when it was tied, and follows the embedding no longer."""

        def __init__(self, policy):
            super().__init__(policy)
            self.copy.model.lm_head.weight = nn.Parameter(self.copy.model.lm_head.weight.detach().clone())

        def load(self, weights, version):
            head = self.copy.model.lm_head.weight.detach()
            super().load([*weights, ("lm_head.weight", head)], version)

    built = SyncedEngine(policy, Untied(policy), tolerance=1e-3, probe=4)
    assert built.sync()["rollout/sync_error"] == 0
    nudge(policy, 1e-2)
    assert built.sync()["rollout/sync_error"] > 1e-3


def test_in_a_coarse_precision_answers_that_did_not_move_at_all_are_noticed(engine, policy):
    # the step is inside the tolerance of 0.2 that bfloat16 needs
    built = engine(tolerance=0.2, deaf=(2, 3))
    nudge(policy, 2e-3)
    assert 0.02 < built.sync()["rollout/sync_error"] < 0.2
    with pytest.raises(StaleWeights, match="by a single bit"):
        built.generate(encoded(policy, "31524>"), SAMPLING)


def test_quiet_when_the_learner_did_not_move(engine):
    built = engine(tolerance=0.2)
    for _ in range(3):
        assert built.sync()["rollout/sync_retries"] == 0


def test_quiet_when_the_learner_moved_less_than_a_coarse_precision_can_show(engine, policy):
    built = engine(tolerance=0.2, deaf=(2, 3, 4))  # as if rounding had swallowed the update
    nudge(policy, 1e-4)
    metrics = built.sync()
    assert metrics["rollout/sync_retries"] == 0 and 0 < metrics["rollout/sync_error"] < 0.02


def test_quiet_when_the_weights_have_gone_bad_on_both_sides(engine, policy):
    built = engine()
    nudge(policy, math.nan)
    metrics = built.sync()
    assert metrics["rollout/sync_error"] == 0 and metrics["rollout/sync_retries"] == 0


def test_weights_that_changed_unannounced_are_handed_over_before_generating(engine, policy):
    built = engine()
    nudge(policy, 1e-2)
    greedy = Sampling(1, 0.0, 8)
    assert (
        built.generate(encoded(policy, "31524>"), greedy).texts
        == Sampler(policy).generate(encoded(policy, "31524>"), greedy).texts
    )
    assert built.server.loads == 2
    built.generate(encoded(policy, "31524>"), greedy)
    assert built.server.loads == 2  # nothing has changed since


def test_going_back_to_a_checkpoint_hands_its_weights_over(trainer, policy, monkeypatch):
    server = CopyServer(policy)
    monkeypatch.setattr(vllm_engine, "InProcessVllm", lambda *_: server)
    run = trainer("rollout.engine=vllm", task="sorting")
    saved = run.save_checkpoint()
    run.train_step()
    run.load_checkpoint(saved, vary_data=False)
    pairs = zip(server.copy.model.parameters(), policy.model.parameters(), strict=True)
    assert all(torch.equal(theirs, start) for theirs, start in pairs)


def test_disagreement_is_the_mean_difference_and_knows_nan():
    a = torch.tensor([1.0, 2.0, math.nan, -math.inf])
    # (|1 - 1.5| + |2 - 2.25| + both NaN 0 + both -inf 0) / 4 = 0.1875
    assert disagreement(a, torch.tensor([1.5, 2.25, math.nan, -math.inf])) == 0.1875
    assert disagreement(a, torch.tensor([1.0, math.nan, math.nan, -math.inf])) > 1e300


def test_adapters_are_added_in_without_touching_the_model():
    class Adapted(nn.Module):
        """What an adapted linear layer of `peft` looks like: y = (W + 2 * B A) x."""

        merged = False
        active_adapters = ("default",)

        def __init__(self):
            super().__init__()
            self.base_layer = nn.Linear(2, 2)
            self.lora_A = nn.Parameter(torch.tensor([[1.0, 2.0]]))
            self.lora_B = nn.Parameter(torch.tensor([[3.0], [0.0]]))

        def get_delta_weight(self, adapter):
            return 2 * self.lora_B @ self.lora_A

    model = nn.Module()
    model.proj, model.norm = Adapted(), nn.LayerNorm(2)
    before = copy.deepcopy(model.state_dict())
    weights = dict(checkpoint_weights(model))
    assert set(weights) == {"proj.weight", "proj.bias", "norm.weight", "norm.bias"}
    # 2 * [3, 0]^T [1, 2] = [[6, 12], [0, 0]]
    delta = torch.tensor([[6.0, 12.0], [0.0, 0.0]])
    assert torch.equal(weights["proj.weight"], before["proj.base_layer.weight"] + delta)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


# --- generating -------------------------------------------------------------------------------------------------------


def test_greedy_equals_the_built_in_sampler(engine, policy):
    prompts = encoded(policy, "31524>", "1>", "99817>", "46>")  # three lengths
    greedy = Sampling(1, 0.0, 12)
    ours, theirs = Sampler(policy).generate(prompts, greedy), engine().generate(prompts, greedy)
    assert theirs.texts == ours.texts
    for name in (
        "prompt_ids_BP",
        "prompt_mask_BP",
        "completion_ids_BT",
        "mask_BT",
        "length_B",
        "span_B",
        "truncated_B",
    ):
        assert torch.equal(getattr(theirs, name), getattr(ours, name)), name
    assert torch.allclose(theirs.logp_BT, ours.logp_BT, atol=1e-5)


def test_the_same_seed_gives_the_same_completions_and_members_of_a_group_differ(engine, policy):
    built, prompts = engine(), encoded(policy, "31524>", "99817>")
    sampling = SAMPLING._replace(group_size=8, temperature=1.5)
    first, again = built.generate(prompts, sampling), built.generate(prompts, sampling)
    assert first.texts == again.texts and torch.equal(first.logp_BT, again.logp_BT)
    assert built.generate(prompts, sampling._replace(seed=2)).texts != first.texts
    assert len(set(first.texts[:8])) > 1


def test_a_completion_does_not_depend_on_what_is_written_beside_it(engine, policy):
    built = engine()
    alone = built.generate(encoded(policy, "31524>"), SAMPLING)
    beside = built.generate(encoded(policy, "31524>", "1>", "99817>"), SAMPLING)
    assert beside.texts[:3] == alone.texts


def test_an_extra_stop_token_ends_a_completion_and_stays_in_its_text(engine, policy):
    (two,) = policy.tokenizer("2", add_special_tokens=False)["input_ids"]
    rollouts = engine().generate(encoded(policy, "31524>"), Sampling(1, 0.0, 8, stop_ids=(two,)))
    assert rollouts.texts == ["12"] and not rollouts.truncated_B.any()


def test_a_completion_ends_where_the_engine_has_no_more_room(engine, policy):
    (prompt,) = encoded(policy, "99817>")  # 7 tokens, of 12
    built = engine(max_length=12)
    rollouts = built.generate([prompt], Sampling(1, 0.0, 30))
    assert built.max_length == 12
    assert rollouts.length_B.tolist() == [5] and rollouts.truncated_B.all()
    with pytest.raises(ValueError, match="12 tokens leaves no room .* rollout.vllm.max_model_len"):
        engine(max_length=12).generate([[4] * 12], SAMPLING)


def test_closing_the_engine_closes_the_server(engine):
    built = engine()
    built.close()
    assert built.server.closed


# --- choosing ---------------------------------------------------------------------------------------------------------


def test_the_built_in_sampler_is_the_default(policy):
    assert isinstance(build_engine(RolloutConfig(), policy), Sampler)


def test_without_vllm_the_error_says_how_to_get_it(policy, monkeypatch):
    monkeypatch.setattr(vllm_engine, "find_vllm", lambda: None)
    with pytest.raises(ValueError, match="needs vLLM, which is not installed: pip install"):
        build_engine(RolloutConfig(engine="vllm"), policy)


def test_completions_must_fit_into_the_engine(policy, monkeypatch):
    monkeypatch.setattr(vllm_engine, "InProcessVllm", lambda *_: CopyServer(policy, max_length=32))
    with pytest.raises(ValueError, match="rollout.max_completion = 32: must be below rollout.vllm.max_model_len = 32"):
        build_engine(RolloutConfig(engine="vllm", max_completion=32), policy)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_tolerance_follows_the_precision_unless_it_is_given(policy, monkeypatch, dtype):
    server = CopyServer(policy)
    server.exact = dtype == "float32"
    monkeypatch.setattr(vllm_engine, "InProcessVllm", lambda *_: server)
    config = load_config("sorting", ["rollout.engine=vllm", f"rollout.vllm.dtype={dtype}"])
    assert build_engine(config.rollout, policy)._tolerance == (1e-3 if dtype == "float32" else 0.2)
    given = load_config("sorting", ["rollout.engine=vllm", "rollout.vllm.tolerance=0.02"])
    assert build_engine(given.rollout, policy)._tolerance == 0.02


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("rollout.engine=sglang", "one of builtin, vllm, vllm-server"),
        ("rollout.vllm.probe=0", "at least 1"),
        ("rollout.vllm.max_model_len=1", "at least 2"),
        ("rollout.vllm.gpu_memory=1.5", "between 0 and 1"),
        ("rollout.vllm.tolerance=-1", "0 or more"),
    ],
)
def test_impossible_settings_are_refused(override, complaint):
    with pytest.raises(ValueError, match=f"{override.split('=')[0]} = .*{complaint}"):
        load_config("sorting", [override])


def test_the_policy_may_be_wrapped():
    policy = load_policy("builtin", "sorting", CPU)

    class Wrapped(nn.Module):
        """As `peft` wraps a model."""

        def __init__(self):
            super().__init__()
            self.base_model = policy.model

        def get_base_model(self):
            return self.base_model

    names = dict(checkpoint_weights(Wrapped()))
    assert names.keys() == dict(policy.model.named_parameters()).keys()
