import pytest

from stabilizer.training.tasks import HELD_OUT, TASKS, Problem

EACH = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


@EACH
def test_held_out_problems_never_appear_in_training_or_warm_start(task):
    held_out = {problem.prompt for problem in task.held_out(HELD_OUT)}
    assert len(held_out) == HELD_OUT
    for salt in (-1, 0, 1):  # -1 is the warm start's
        trained = {problem.prompt for problem in task.training(20_000, seed=0, salt=salt, cursor=0)}
        assert len(trained) > 7_000 and not trained & held_out


@EACH
def test_the_stream_depends_on_seed_salt_and_position_alone(task):
    whole = task.training(10, seed=3, salt=1, cursor=100)
    assert whole[4:] == task.training(6, seed=3, salt=1, cursor=104)
    assert whole != task.training(10, seed=3, salt=2, cursor=100)
    assert whole != task.training(10, seed=4, salt=1, cursor=100)


@EACH
def test_a_demonstration_is_worth_what_an_answer_can_be(task):
    problem = task.held_out(1)[0]
    draw = 16  # of the length task: 4 + 16 = 20 letters
    assert task.score(problem, task.demonstration(problem, draw)).solved


FIRST = {"addition": "99+30=", "sorting": "47530>", "length": "urrz:", "search": "kux room?"}
HELD = {"addition": "20+67=", "sorting": "37424>", "length": "sscm:", "search": "meb gate?"}


def test_streams_stay_what_they_were_when_released():
    # changing these would make runs and held-out accuracies of two versions incomparable
    first = {name: task.training(1, seed=0, salt=0, cursor=0)[0].prompt for name, task in TASKS.items()}
    held = {name: task.held_out(1)[0].prompt for name, task in TASKS.items()}
    assert (first, held) == (FIRST, HELD)


@pytest.mark.parametrize(
    ("completion", "reward"),
    [("59", 1.0), ("95", 0.0), ("590", 0.0), ("5", 0.0), ("", 0.0), ("<pad>59", 0.0)],
)
def test_addition_is_right_or_wrong(completion, reward):
    task = TASKS["addition"]
    problem = Problem(0, "37+58=", "59")  # 95, reversed
    assert task.score(problem, completion).reward == reward
    assert task.problem(27 * 90 + 48) == Problem(27 * 90 + 48, "37+58=", "59")


@pytest.mark.parametrize(
    ("completion", "reward"),
    # 4 of 5 right; 5 right of 7 written; nothing
    [("12345", 1.0), ("12344", 0.8), ("1234", 0.8), ("1234567", 5 / 7), ("", 0.0)],
)
def test_sorting_pays_per_position(completion, reward):
    task = TASKS["sorting"]
    problem = task.problem(31524)
    assert problem == Problem(31524, "31524>", "12345")
    score = task.score(problem, completion)
    assert score.reward == pytest.approx(reward) and score.solved == (reward == 1.0)


@pytest.mark.parametrize(
    ("letters", "reward", "solved"), [(20, 0, True), (21, -1, True), (18, -2, False), (0, -20, False)]
)
def test_length_pays_minus_the_distance(letters, reward, solved):
    task = TASKS["length"]
    score = task.score(task.problem(0), "x" * letters)
    assert (score.reward, score.solved) == (reward, solved)
