import pytest
import torch

from stabilizer.training.model import load_policy
from stabilizer.training.tasks import TASKS
from stabilizer.training.warm_start import held_out_accuracy, imitation_loss, warm_start


def test_a_warm_start_is_deterministic():
    first, second = (warm_start(TASKS["sorting"], steps=3)[0].model.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_shipped_weights_imitate_but_leave_most_to_learn(task):
    policy = load_policy("builtin", task.name, torch.device("cpu"))
    assert held_out_accuracy(policy, task) < 0.3
    fresh = warm_start(task, steps=1)[0]
    with torch.no_grad():
        assert imitation_loss(policy, task, seed=0, step=0) < 0.6 * imitation_loss(fresh, task, seed=0, step=0)


def test_addition_starts_at_a_fifth():
    policy = load_policy("builtin", "addition", torch.device("cpu"))
    assert 0.15 < held_out_accuracy(policy, TASKS["addition"]) < 0.25
