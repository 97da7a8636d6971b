"""Rows shared out over threads: the same numbers and gradients as in one piece, whoever computes them."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch

from stabilizer.training.fast import threads
from stabilizer.training.fast.parts import in_parts
from stabilizer.training.fast.threads import in_threads, parts_for, threads_for
from stabilizer.training.model import Policy, build_model, build_tokenizer
from stabilizer.training.rollout.engine import Sampling
from stabilizer.training.rollout.logprobs import completion_hidden, completion_logps
from stabilizer.training.rollout.sampler import Draws, Sampler
from tests.training.test_decoder import TOKENIZER, qwen2
from tests.training.test_loop import without_time

CPU = torch.device("cpu")


@pytest.fixture
def three_threads(monkeypatch):
    """Torch may use three, and who computed a part is noted."""
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(3)
    pool = threads._pool

    class Noting:
        def submit(self, function, job):
            return pool().submit(lambda: (seen.append(threading.current_thread().name), function(job))[1])

    monkeypatch.setattr(threads, "_pool", Noting)
    yield seen
    torch.set_num_threads(before)


@pytest.fixture
def policy():
    torch.manual_seed(0)
    return Policy(qwen2().eval().double(), TOKENIZER)


def generate(policy, prompts=("abcd:", "9", "37+58=", "wxyz:", "1+1="), size=8):
    return Sampler(policy).generate([TOKENIZER(p)["input_ids"] for p in prompts], Sampling(size, 0.8, 9, seed=3))


def test_a_completion_is_the_same_whatever_rows_it_is_written_beside(policy, three_threads):
    shared = generate(policy)
    assert len(three_threads) == 2
    torch.set_num_threads(1)
    alone = generate(policy)
    assert len(three_threads) == 2
    assert len(set(shared.length_B.tolist())) > 1
    assert shared.texts == alone.texts and torch.equal(shared.completion_ids_BT, alone.completion_ids_BT)
    for name in ("mask_BT", "logp_BT", "entropy_BT", "prompt_ids_BP", "truncated_B"):
        torch.testing.assert_close(getattr(shared, name), getattr(alone, name), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("entropy_grad", [False, True])
def test_a_pass_in_parts_has_the_numbers_and_gradients_of_one_in_one_piece(policy, three_threads, hidden, entropy_grad):
    rollouts = generate(policy)
    rollouts = rollouts.rows(torch.arange(3, len(rollouts)))  # a group is cut in two
    three_threads.clear()

    def numbers():
        policy.model.zero_grad()
        stats = completion_logps(policy.model, rollouts, 0.8, entropy_grad=entropy_grad, hidden=hidden)
        loss = stats.logp_BT.sum()
        assert stats.entropy_BT.requires_grad is entropy_grad
        if entropy_grad:
            loss = loss + stats.entropy_BT.square().sum()
        if hidden:
            loss = loss + stats.hidden_BTH[rollouts.mask_BT].square().sum()
        loss.backward()
        values = [value.detach() for value in (stats.logp_BT, stats.entropy_BT)]
        return [*values, *(p.grad.clone() for p in policy.model.parameters())]

    with threads_for(policy.model, 500):
        shared = numbers()
    assert len(three_threads) == 4  # two forth, two back
    for a, b in zip(shared, numbers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)
    with torch.no_grad(), threads_for(policy.model, 500):
        shared = completion_hidden(policy.model, rollouts)
    assert not shared.requires_grad and len(three_threads) == 6
    mask = rollouts.mask_BT
    torch.testing.assert_close(shared[mask], completion_hidden(policy.model, rollouts)[mask].detach())


def test_parameters_may_be_of_any_shape_and_need_no_gradient():
    a, b = torch.ones(2, requires_grad=True), torch.full((2,), 3.0)
    jobs = [torch.ones(1, 2), 2 * torch.ones(2, 2)]
    product, plain = in_parts(lambda p, job: (job * p[0] * p[1]["b"] + p[2], job.sum(1)), (a, {"b": b}, 1), jobs)
    assert product.tolist() == [[4, 4], [7, 7], [7, 7]] and plain.tolist() == [2, 4, 4]
    assert product.requires_grad and not plain.requires_grad
    product.sum().backward()
    assert a.grad.tolist() == [15, 15] and b.grad is None  # 3 x (1 + 2 + 2)


def test_every_job_is_done_before_a_failure_is_told():
    done = []

    def work(job):
        if job == 0:
            raise RuntimeError("of the first")
        done.append(job)

    with pytest.raises(RuntimeError, match="of the first"):
        in_threads(work, range(4))
    assert sorted(done) == [1, 2, 3]
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda job: 1 // job, [1, 0])


def test_rows_are_shared_out_only_while_torch_is_held_to_one_thread_and_there_are_enough():
    model, before = build_model(build_tokenizer()), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert parts_for(8, 64) == 1
        with threads_for(model, 64):
            assert [parts_for(8, 64), parts_for(1, 64), parts_for(8, 15)] == [2, 1, 1]
            with threads_for(model, 64):
                assert parts_for(8, 64) == 2
        with threads_for(model, 100_000_000):
            assert parts_for(8, 64) == 1
        assert parts_for(8, 64) == 1
    finally:
        torch.set_num_threads(before)


def test_random_numbers_belong_to_rows_and_tokens():
    sampling = Sampling(1, 1.0, Draws.AHEAD + 10, seed=4)
    row_B = torch.arange(6)

    def numbers(row_B, tokens):
        draws = Draws(sampling, 6, CPU)
        return torch.cat([draws.of(row_B, token)[:1] for token in tokens])

    whole = numbers(row_B, range(sampling.max_completion))
    assert len(whole.unique()) == whole.numel()
    assert torch.equal(numbers(torch.tensor([4, 1]), range(0, 266, 7)), whole[::7][:, [4, 1]])
    draws = Draws(sampling, 6, CPU)
    assert [len(draws.of(row_B, token)) for token in (0, 255, 256, 265)] == [256, 1, 10, 1]


def test_a_forked_process_has_threads_of_its_own():
    code = """if True:
        import os, signal, sys
        from stabilizer.training.fast.threads import in_threads
        assert in_threads(lambda job: job + 1, [0, 1, 2]) == [1, 2, 3]
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            os._exit(in_threads(lambda job: job + 1, [0, 1, 2]) != [1, 2, 3])
        sys.exit(os.waitpid(child, 0)[1])
    """
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=120).returncode == 0


def test_what_one_thread_was_held_to_is_no_other_threads_business(policy, three_threads):
    begun, go_on = threading.Event(), threading.Event()

    def first():
        with threads_for(policy.model, 10):
            begun.set()
            go_on.wait(30)

    other = threading.Thread(target=first)
    other.start()
    begun.wait(30)
    with threads_for(policy.model, 10):
        go_on.set()
        other.join()
    torch.set_num_threads(3)
    assert parts_for(8, 64) == 1


def test_parts_may_differ_in_whether_they_need_gradients():
    weight = torch.ones(2, requires_grad=True)

    def scaled(weight, job):
        return (job * (weight if job[0, 0] > 0 else weight.detach()),)

    (result,) = in_parts(scaled, weight, [-torch.ones(1, 2), torch.ones(1, 2)])
    result.sum().backward()
    assert result.tolist() == [[-1, -1], [1, 1]] and weight.grad.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="second time"):
        (result,) = in_parts(lambda weight, job: ((job * weight).square(),), weight, [torch.ones(1, 2)] * 2)
        result.sum().backward(retain_graph=True)
        result.sum().backward()


def test_another_trainer_in_the_process_changes_no_number(trainer):
    alone = trainer("threads=2", folder="alone")
    expected = [without_time(alone.train_step().metrics) for _ in range(2)]
    beside = trainer("threads=2", folder="beside")
    trainer("threads=1", folder="other")
    assert [without_time(beside.train_step().metrics) for _ in range(2)] == expected
    torch.set_num_threads(1)
    assert beside.validate() == alone.validate()
