from __future__ import annotations

import pytest
import torch

from stabilizer.training.fast.threads import threads_for
from stabilizer.training.model import build_model, build_tokenizer


@pytest.fixture(scope="module")
def model():
    return build_model(build_tokenizer())


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_small_passes_run_on_one_thread_and_leave_the_number_as_it_was(model, two_threads):
    with threads_for(model, 64):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_large_passes_keep_every_thread(model, two_threads):
    with threads_for(model, 1_000_000):
        assert torch.get_num_threads() == 2


def test_one_thread_stays_one(model):
    torch.set_num_threads(1)
    with threads_for(model, 1_000_000):
        assert torch.get_num_threads() == 1


def test_threads_are_given_back_when_the_pass_fails(model, two_threads):
    with pytest.raises(RuntimeError), threads_for(model, 1):
        raise RuntimeError
    assert torch.get_num_threads() == 2
