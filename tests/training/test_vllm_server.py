"""Generation by servers of vLLM over HTTP: the same answers as from the model itself, and faults that end in words."""

import pytest
import torch

from stabilizer.cli import main
from stabilizer.core.metrics import VOCABULARY
from stabilizer.runs.reader import RunReader
from stabilizer.training.config import load_config
from stabilizer.training.model import load_policy
from stabilizer.training.rollout import vllm_server
from stabilizer.training.rollout.engine import Sampling
from stabilizer.training.rollout.engines import build_engine
from stabilizer.training.rollout.sampler import Sampler
from stabilizer.training.rollout.synced import StaleWeights
from stabilizer.training.rollout.vllm_server import ServersLost
from tests.training.vllm_stand_in import standing_in

SAMPLING = Sampling(group_size=3, temperature=0.8, max_completion=8, seed=1)
MADE = "/inference/v1/generate"


@pytest.fixture(autouse=True)
def no_pause_between_attempts(monkeypatch):
    monkeypatch.setattr(vllm_server, "PAUSE_S", 0.001)


@pytest.fixture
def policy():
    return load_policy("builtin", "sorting", torch.device("cpu"))


@pytest.fixture
def server(policy):
    with standing_in(policy) as server:
        yield server


@pytest.fixture
def second(policy):
    with standing_in(policy) as server:
        yield server


@pytest.fixture
def engine(policy):
    """A function giving an engine over some servers; closed at the end."""
    built = []

    def build(*servers, **settings):
        given = [f"rollout.server.{key}={value}" for key, value in settings.items()]
        urls = ",".join(server.url for server in servers)
        overrides = ["rollout.engine=vllm-server", f"rollout.server.urls=[{urls}]", *given]
        built.append(build_engine(load_config("sorting", overrides).rollout, policy))
        return built[-1]

    yield build
    for one in built:
        one.close()


def prompts(policy):
    return [policy.tokenizer(text)["input_ids"] for text in ("31524>", "1>", "99817>")]


@torch.no_grad()
def nudge(policy, size=1e-2):
    for parameter in policy.model.parameters():
        parameter.add_(size * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))


def test_greedy_completions_of_two_servers_equal_the_built_in_sampler(engine, policy, server, second):
    greedy = Sampling(2, 0.0, 12)
    ours = Sampler(policy).generate(prompts(policy), greedy)
    theirs = engine(server, second).generate(prompts(policy), greedy)
    assert theirs.texts == ours.texts and torch.allclose(theirs.logp_BT, ours.logp_BT, atol=1e-5)
    assert server.asked.count(MADE) > 2 and second.asked.count(MADE) > 2


def test_completions_do_not_depend_on_the_number_of_servers(engine, policy, server, second):
    alone = engine(server).generate(prompts(policy), SAMPLING)
    shared = engine(server, second).generate(prompts(policy), SAMPLING)
    assert alone.texts == shared.texts and torch.equal(alone.logp_BT, shared.logp_BT)


def test_every_update_reaches_all_servers_with_a_version_that_counts_updates(engine, policy, server, second):
    built = engine(server, second)
    assert (server.version, second.version) == ("1", "1")
    nudge(policy)
    assert built.sync(3)["rollout/sync_error"] == 0
    assert (server.version, second.version) == ("4", "4")
    for copy in (server.copy, second.copy):
        pairs = zip(copy.copy.model.parameters(), policy.model.parameters(), strict=True)
        assert all(torch.equal(theirs, ours) for theirs, ours in pairs)


def test_a_later_engine_continues_the_versions_of_its_servers(engine, server):
    engine(server)
    assert engine(server).version == 2


def test_weights_that_were_handed_over_are_deleted(engine, policy, server, tmp_path):
    built = engine(server, folder=tmp_path)
    nudge(policy)
    built.sync()
    assert [path.name for path in tmp_path.glob("*/*")] == ["version-2"]
    built.close()
    assert not any(tmp_path.iterdir())


# --- faults -----------------------------------------------------------------------------------------------------------


def test_a_server_that_fails_for_a_moment_is_asked_again(engine, policy, server):
    built = engine(server)
    server.fails[MADE] = 3
    assert len(built.generate(prompts(policy), SAMPLING)) == 9
    assert not built.failures


def test_the_other_server_takes_over_and_the_next_transfer_brings_the_lost_one_back(engine, policy, server, second):
    built = engine(server, second, retries=1)
    expected = built.generate(prompts(policy), SAMPLING)
    second.fails[MADE] = 10**6
    assert built.generate(prompts(policy), SAMPLING).texts == expected.texts
    ((reason, times),) = built.failures.items()
    assert times == 1 and second.url in reason and "out of memory" in reason
    second.fails.clear()
    built.sync()
    before = second.asked.count(MADE)
    built.generate(prompts(policy), SAMPLING)
    assert second.asked.count(MADE) > before


def test_a_server_that_hangs_is_left_out_after_the_time_limit(engine, policy, server, second):
    built = engine(server, second, timeout_s=1)
    second.hangs = True
    assert len(built.generate(prompts(policy), SAMPLING)) == 9
    assert "timed out" in next(iter(built.failures)) or "no complete answer" in next(iter(built.failures))


def test_without_any_server_left_generation_ends_in_words(engine, policy, server):
    built = engine(server, retries=0)
    server.fails[MADE] = 10**6
    with pytest.raises(ServersLost, match="no vLLM server is left: .*out of memory.* resume the run"):
        built.generate(prompts(policy), SAMPLING)


def test_a_restarted_server_gets_the_weights_again(engine, policy, server):
    nudge(policy)
    built = engine(server)
    expected = built.generate(prompts(policy), SAMPLING)
    server.restart()
    again = built.generate(prompts(policy), SAMPLING)
    assert again.texts == expected.texts and again.staleness == 0 and server.version == "1"


def test_old_weights_under_a_new_version_are_found(engine, policy, server):
    built = engine(server)
    server.keeps_old_weights = True
    nudge(policy, 0.1)
    metrics = built.sync()
    assert metrics["rollout/sync_error"] > 1e-3 and metrics["rollout/sync_retries"] == 1
    with pytest.raises(StaleWeights):
        built.generate(prompts(policy), SAMPLING)


def test_a_server_whose_weights_differ_from_those_of_the_others_is_left_out(engine, policy, server, second):
    with standing_in(policy) as third:
        built = engine(server, second, third)
        second.keeps_old_weights = True
        nudge(policy, 0.1)
        assert built.sync()["rollout/sync_error"] < 1e-5
        assert second.url in next(iter(built.failures)) and "weight_checker" in next(iter(built.failures))


@pytest.mark.parametrize(
    ("attribute", "value", "words"),
    [("mode", "raw_logprobs", "before temperature"), ("fails", {"/weight_info": 10**6}, "VLLM_SERVER_DEV_MODE=1")],
)
def test_an_unsuitable_server_is_refused_with_the_command_that_starts_a_good_one(
    engine, server, attribute, value, words
):
    setattr(server, attribute, value)
    with pytest.raises(ValueError, match=f"rollout.server.urls: {server.url}.*{words}"):
        engine(server, retries=0)


def test_nobody_at_the_address_is_refused_before_training(engine, policy):
    with standing_in(policy) as gone:
        pass
    with pytest.raises(ValueError, match="does not answer as a vLLM server"):
        engine(gone, retries=0)


@pytest.mark.parametrize(
    "overrides",
    [
        ["rollout.engine=vllm-server"],
        ["rollout.server.urls=[http://127.0.0.1:1]"],
        ["rollout.engine=vllm-server", "rollout.server.urls=[127.0.0.1]"],
    ],
)
def test_impossible_addresses_are_refused(overrides, policy):
    with pytest.raises(ValueError, match=r"rollout.server.urls = "):
        build_engine(load_config("sorting", overrides).rollout, policy)


# --- whole runs -------------------------------------------------------------------------------------------------------


def test_training_reports_version_and_staleness(trainer, server):
    run = trainer("rollout.engine=vllm-server", f"rollout.server.urls=[{server.url}]", task="sorting")
    steps = [run.train_step().metrics for _ in range(3)]
    assert all(set(metrics) <= set(VOCABULARY) for metrics in steps)
    assert [metrics["rollout/staleness"] for metrics in steps] == [0, 0, 0]
    assert [metrics["rollout/weight_version"] for metrics in steps] == [1, 3, 5]  # two updates a step
    run.engine.close()


def test_a_run_whose_server_is_lost_fails_in_words_and_can_be_resumed(server, tmp_path, capsys):
    words = (
        "train", "sorting", "--steps", "4", "--runs", str(tmp_path), "--set", "rollout.engine=vllm-server", "--set",
        f"rollout.server.urls=[{server.url}]", "--set", "rollout.server.retries=0", "--set", "checkpoint.every=1",
        "--set", "rollout.prompts=2", "--set", "validation.every=0", "--set", "validation.problems=4", "--set",
        "device=cpu",
    )  # fmt: skip
    made = server.answer

    def lost_in_the_third_step(route, body):
        if server.version == "5" and route == MADE and "prompt_logprobs" not in body["sampling_params"]:
            raise RuntimeError("out of memory")
        return made(route, body)

    server.answer = lost_in_the_third_step
    assert main(words) == 2
    assert "no vLLM server is left" in capsys.readouterr().err
    (path,) = tmp_path.iterdir()
    reader = RunReader(path)
    assert reader.status["state"] == "failed" and reader.status["step"] == 2
    assert "system/crashed" in [finding.id for finding in reader.findings]
    server.answer = made
    assert main(["train", "--resume", str(path)]) in (0, 1)
    assert RunReader(path).status["state"] == "finished"
