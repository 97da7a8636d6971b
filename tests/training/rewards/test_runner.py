"""Functions that misbehave in every way there is: only the samples that bring them down may be lost."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from stabilizer.training.rewards import worker
from stabilizer.training.rewards.config import RewardConfig
from stabilizer.training.rewards.runner import MAX_LOST, RewardRunner
from stabilizer.training.tasks import Problem


@pytest.fixture
def runner(tmp_path):
    """A function giving a runner of the functions in `code` (of which `specs` names some) over these columns."""
    made = []

    def build(code: str, *specs, columns=(), **options) -> RewardRunner:
        file = tmp_path / "reward.py"
        file.write_text(textwrap.dedent(code))

        def full(spec):
            if isinstance(spec, dict):
                return spec | {"use": f"{file}:{spec['use']}"}
            return f"{file}:{spec}"

        made.append(RewardRunner(RewardConfig(functions=[full(spec) for spec in specs], **options), columns))
        return made[-1]

    yield build
    for each in made:
        each.close()


def problems(count: int, **columns) -> list[Problem]:
    """Problems whose answer is their number."""
    rows = [{name: values[i] for name, values in columns.items()} for i in range(count)]
    return [Problem(i, f"prompt {i}", str(i), row) for i, row in enumerate(rows)]


def rewards(runner: RewardRunner, completions, **columns) -> list[float]:
    return [score.reward for score in runner(problems(len(completions), **columns), completions)]


def failed(runner: RewardRunner, completions, **columns) -> list[str]:
    return [score.failed for score in runner(problems(len(completions), **columns), completions)]


# --- the convention -------------------------------------------------------------------------------------------------


def test_one_sample_at_a_time_or_all_at_once(runner):
    both = runner(
        """
        def single(completion, answer):
            return completion == answer

        def batch(completions, answers, **columns):
            assert sorted(columns) == ["level", "prompts"]
            return [len(c) * level for c, level in zip(completions, columns["level"])]
        """,
        "single",
        {"use": "batch", "weight": 0.5},
        columns=("level",),
    )
    scores = both(problems(3, level=[1, 2, 3]), ["0", "x", "2"])
    assert [dict(score.components) for score in scores] == [
        {"single": 1, "batch": 1},
        {"single": 0, "batch": 2},
        {"single": 1, "batch": 3},
    ]
    assert [score.reward for score in scores] == [1.5, 1.0, 2.5]  # single + batch / 2
    assert [score.solved for score in scores] == [True, False, True]  # as the first function says


def test_a_function_written_for_columns_by_name_gets_them(runner):
    named = runner(
        "def f(completions, solution, answer, **kwargs): return [s + a for s, a in zip(solution, answer)]",
        "f",
        columns=("solution", "answer", "prompt"),
    )
    assert rewards(named, ["", ""], solution=[1, 2], answer=[10, 20], prompt=["a", "b"]) == [11, 22]


def test_options_reach_the_function(runner):
    scaled = runner("def f(completion, by=1): return by", {"use": "f", "options": {"by": 3}})
    assert rewards(scaled, ["", ""]) == [3, 3]


def test_asynchronous_functions_run_at_the_same_time(runner):
    # Nobody gets through the barrier before all four are there: one after the other they would wait for ever.
    waiting = runner(
        """
        import asyncio
        barrier = asyncio.Barrier(4)

        async def single(completion):
            await barrier.wait()
            if completion == "bad":
                raise ValueError("no")
            return len(completion)

        async def batch(completions):
            await asyncio.sleep(0)
            return [1] * len(completions)
        """,
        "single",
        "batch",
    )
    scores = waiting(problems(4), ["a", "bb", "bad", ""])
    assert [score.reward for score in scores if not score.failed] == [2, 3, 1]
    assert scores[2].failed == "single: ValueError: no (reward.py line 8)"


def test_none_leaves_the_sum_out_and_only_none_is_a_failure(runner):
    partial = runner(
        """
        def maths(completion): return 1.0 if completion == "m" else None
        def prose(completion): return 0.25 if completion == "p" else None
        """,
        "maths",
        "prose",
    )
    m, p, neither = partial(problems(3), ["m", "p", "?"])
    assert (m.reward, m.solved, dict(m.components)) == (1.0, True, {"maths": 1.0})
    assert (p.reward, p.solved, dict(p.components)) == (0.25, False, {"prose": 0.25})
    assert math.isnan(neither.reward) and neither.failed == "no reward function applies to this sample"


def test_solved_is_what_the_named_function_says(runner):
    code = "def a(completion): return 0.0\ndef b(completion): return 0.5"
    assert not runner(code, "a", "b", solved_by="b")(problems(1), [""])[0].solved
    assert runner(code, "a", "b", solved_by="b", solved_at=0.5)(problems(1), [""])[0].solved


# --- misbehaviour ---------------------------------------------------------------------------------------------------


GOOD = ["a", "b", "bad", "c"]


def only_the_third_fails(scores, reason: str) -> None:
    assert [score.reward for score in scores[:2] + scores[3:]] == [1, 1, 1]
    assert math.isnan(scores[2].reward) and reason in scores[2].failed and not scores[2].solved
    assert math.isnan(scores[2].components["f"])


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("raise KeyError('solution')", "KeyError: 'solution' (reward.py line 4)"),
        ("return float('nan')", "it returned nan"),
        ("return float('inf')", "it returned inf"),
        ("return '1.0'", "it returned str, not a number"),
        ("return [1.0]", "it returned list, not a number"),
        ("return 1j", "it returned complex, not a number"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("import os; os._exit(3)", "the process ended (exit code 3)"),
        ("import os; os.kill(os.getpid(), 11)", "the process ended (SIGSEGV)"),
        ("print('out of cheese', flush=True); import os; os._exit(1)", "(exit code 1): out of cheese"),
        ("return f(completion)", "RecursionError"),
        ("import threading; threading.Event().wait()", "no answer within"),
        ("import re; re.match(r'(a+)+$', 'a' * 40 + 'b')", "no answer within"),
    ],
)
def test_only_the_guilty_sample_is_lost(runner, wrong, reason):
    code = f"def f(completion):\n    if completion != 'bad':\n        return 1\n    {wrong}\n"
    one = runner(code, "f", timeout_s=2.4 if "no answer" in reason else 30.0)
    only_the_third_fails(one(problems(4), GOOD), reason)
    assert rewards(one, ["x"]) == [1], "and the function is there again"
    assert sum(one.failures.values()) == 1


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("raise RuntimeError('down')", "RuntimeError: down"),
        ("return [1] * 7", "it returned 7 values for "),
        ("return 'abcd'[:len(completions)]", "it returned str, not a list"),
        ("return None", "it returned NoneType, not a list"),
        ("return [1 if c != 'bad' else float('nan') for c in completions]", "it returned nan"),
    ],
)
def test_a_batched_function_is_asked_again_sample_by_sample(runner, wrong, reason):
    code = (
        f"def f(completions):\n    if 'bad' not in completions:\n        return [1] * len(completions)\n    {wrong}\n"
    )
    only_the_third_fails(runner(code, "f")(problems(4), GOOD), reason)


def test_a_list_that_never_has_a_value_for_each_sample_is_a_failure_of_all(runner):
    """One by one it would seem right: it has one value for one sample."""
    one = runner("def f(completions): return [1.0]", "f")
    assert set(failed(one, GOOD)) == {"f: it returned 1 values for 4 completions"}


def test_that_no_sample_shows_why_all_together_failed_is_told(runner):
    code = "def f(completions):\n    if len(completions) > 1: raise RuntimeError('x')\n    return [1.0]"
    one = runner(code, "f")
    assert rewards(one, GOOD) == [1.0] * 4
    assert list(one.failures) == ["f: RuntimeError: x (reward.py line 2), so it was asked for one sample at a time"]


@pytest.mark.parametrize(
    "copied",
    ["return [100.0] * len(completions)", "raise ValueError", "raise SystemExit(1)", "os._exit(0)"],
)
def test_a_copy_that_a_function_makes_of_its_process_answers_nobody(runner, copied):
    code = f"""
        import os
        calls = 0
        def f(completions):
            global calls
            calls += 1
            if (child := os.fork()) == 0:
                {copied}
            if calls % 2:
                os.waitpid(child, 0)
            return [float(calls)] * len(completions)
    """
    one = runner(code, "f")
    assert [rewards(one, GOOD) for _ in range(4)] == [[float(call)] * 4 for call in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("code", "left"),
    [("", 0), ("None", 0), ("0", 0), ("7", 7), ("-1", 255), ("True", 1), ("1.5", 1), ("'oh'", 1)],
)
def test_a_copy_ends_with_the_code_that_python_would_give_it(runner, code, left):
    one = runner(
        f"""
        import os, sys
        def f(completion):
            if (child := os.fork()) == 0:
                sys.exit({code})
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        """,
        "f",
    )
    assert rewards(one, ["x"]) == [left]


@pytest.mark.parametrize(
    "wrong", ["sys.stdout.close()", "sys.stdout = None", "sys.stdout = object()", "del sys.stdout"]
)
def test_a_function_may_do_to_its_output_what_it_likes(runner, wrong):
    one = runner(f"import sys\ndef f(completion):\n    if hasattr(sys, 'stdout'): {wrong}\n    return 1", "f")
    assert [rewards(one, GOOD) for _ in range(2)] == [[1] * 4] * 2 and not one.failures


def test_what_is_written_among_the_answers_costs_the_process_and_nothing_else(runner):
    code = """
        import os
        def f(completions):
            for file in range(3, 20) if "bad" in completions else ():
                try:
                    os.write(file, b"x" * 100)
                except OSError:
                    pass
            return [1.0] * len(completions)
    """
    one = runner(code, "f")
    only_the_third_fails(one(problems(4), GOOD), "the process sent something other than its answer")
    assert rewards(one, ["x"]) == [1.0]


@pytest.mark.parametrize("weight", [1.0, 1e200])
def test_a_reward_that_no_arithmetic_could_square_is_a_failure(runner, weight):
    value = 1e16 if weight == 1.0 else 1.0
    one = runner(f"def f(completion): return {value}", {"use": "f", "weight": weight})
    assert all("1e+16" in why or "1e+200" in why for why in failed(one, GOOD))


def test_a_column_too_deep_to_be_handed_over_costs_its_sample(runner):
    deep: list = []
    for _ in range(5000):
        deep = [deep]
    one = runner("def f(completion, tree): return 1.0", "f", columns=("tree",))
    only_the_third_fails(one(problems(4, tree=[0, 0, deep, 0]), GOOD), "nested too deeply")


def test_memory_is_limited_where_asked(runner):
    code = "def f(completion):\n    return len(bytearray(2**40 if completion == 'bad' else 1))"
    only_the_third_fails(runner(code, "f", memory_gb=1)(problems(4), GOOD), "MemoryError")


def test_when_everything_hangs_the_step_still_ends(runner):
    hanging = runner("import threading\ndef f(completion): threading.Event().wait()", "f", timeout_s=0.4)
    reasons = failed(hanging, ["x"] * 40)
    assert sum("no answer within" in reason for reason in reasons) <= MAX_LOST
    assert sum("not tried" in reason for reason in reasons) >= 40 - MAX_LOST
    assert all(reasons)


def test_when_everything_crashes_the_search_is_given_up(runner):
    crashing = runner("import os\ndef f(completion): os._exit(3)", "f")
    reasons = failed(crashing, ["x"] * 12)
    assert sum("exit code 3" in reason for reason in reasons) == MAX_LOST
    assert sum("not tried: 8 others crashed it" in reason for reason in reasons) == 12 - MAX_LOST


def test_one_broken_function_fails_the_sample_and_the_other_is_still_reported(runner):
    code = "def f(completion): return 1 / len(completion)\ndef g(completion): return 2"
    good, bad = runner(code, "f", "g")(problems(2), ["x", ""])
    assert good.reward == 3 and not good.failed
    assert bad.failed.startswith("f: ZeroDivisionError") and bad.components["g"] == 2 and math.isnan(bad.reward)


def test_printing_and_reading_disturb_nothing(runner):
    chatty = runner(
        """
        import os, sys
        print("hello from the import")

        def f(completion):
            print(completion * 1000)
            sys.stderr.write("x" * 2**21)
            os.write(1, b"raw bytes")
            return len(sys.stdin.read())
        """,
        "f",
    )
    assert rewards(chatty, ["a" * 100] * 3) == [0, 0, 0]
    assert rewards(chatty, ["b"]) == [0]


def test_large_and_odd_texts_arrive(runner):
    echo = runner("def f(completion): return len(completion)", "f")
    assert rewards(echo, ["x" * 10**6, "\0\udc80", "", "\N{SNOWMAN}"]) == [10**6, 2, 0, 1]


def test_torch_is_not_imported_and_the_state_lives_from_call_to_call(runner):
    counting = runner(
        """
        import sys
        calls = []

        def f(completions):
            calls.append(1)
            return [len(calls) + 100 * ("torch" in sys.modules)] * len(completions)
        """,
        "f",
    )
    assert [rewards(counting, ["x"]) for _ in range(3)] == [[1], [2], [3]]


def test_a_file_edited_later_does_not_reach_the_run(runner, tmp_path):
    stable = runner("import os\ndef f(completion): return 1 if completion else os._exit(1)", "f")
    (tmp_path / "reward.py").write_text("def f(completion): return 2")
    assert "exit code 1" in failed(stable, [""])[0]
    assert rewards(stable, ["x"]) == [1]


def test_modules_beside_the_file_can_be_imported(runner, tmp_path):
    (tmp_path / "beside_reward.py").write_text("VALUE = 7")
    assert rewards(runner("from beside_reward import VALUE\ndef f(completion): return VALUE", "f"), ["x"]) == [7]


def test_a_catastrophic_pattern_costs_its_sample_only():
    spec = {"use": "regex", "options": {"pattern": r"^(a+)+$"}}
    runner = RewardRunner(RewardConfig(functions=[spec], timeout_s=2.4), ())
    scores = runner(problems(3), ["aaa", "a" * 40 + "b", "bbb"])
    runner.close()
    assert [score.reward for score in scores[::2]] == [1, 0]
    assert "no answer within" in scores[1].failed


def test_the_process_ends_when_the_trainer_is_killed(tmp_path):
    (tmp_path / "reward.py").write_text("import os\ndef f(completion): return os.getpid()")
    code = textwrap.dedent("""
        import sys, signal
        from stabilizer.training.rewards.config import RewardConfig
        from stabilizer.training.rewards.runner import RewardRunner
        from stabilizer.training.tasks import Problem
        runner = RewardRunner(RewardConfig(functions=["reward.py:f"]), ())
        print(int(runner([Problem(0, "", "")], ["x"])[0].reward), flush=True)
        signal.pause()
    """)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    trainer = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, env=environment)
    pid = int(trainer.stdout.readline())
    assert os.getsid(pid) != os.getsid(trainer.pid), "Ctrl-C at the terminal is not meant for it"
    watch = os.pidfd_open(pid)
    trainer.send_signal(signal.SIGKILL)
    trainer.wait()
    import select

    ended, _, _ = select.select([watch], [], [], 20)
    os.close(watch)
    trainer.stdout.close()
    assert ended


# --- set-up ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        ("def g(completion): return 1\ndef _h(): pass", ["no function 'f'", "it has g"]),
        ("def f(completion) return 1", ["SyntaxError"]),
        ("import no_such_module_at_all", ["ModuleNotFoundError", "no_such_module_at_all", "reward.py line 1"]),
        ("def f(text): return 1", ["parameter `completion`", "it has text"]),
        ("def f(completion, completions): return 1", ["not both"]),
        ("def f(completion, solutoin): return 1", ["needs 'solutoin'", "nearest is 'solution'"]),
        ("import os; os._exit(9)", ["exit code 9"]),
        ("f = 3", ["no function 'f'"]),
    ],
)
def test_what_is_configured_must_work_or_say_why(runner, code, parts):
    with pytest.raises(ValueError) as error:
        runner(code, "f", columns=("solution", "question"))
    for part in ("reward.py", *parts):
        assert part in str(error.value)


def test_an_unknown_option_is_refused(runner):
    with pytest.raises(ValueError, match="no option 'tolerence'; it takes completion, tolerance"):
        runner("def f(completion, tolerance=1): return 1", {"use": "f", "options": {"tolerence": 2}})


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        (["numerc"], "no reward function 'numerc'; nearest is 'numeric'"),
        (["nowhere.py:f"], "no such file"),
        (["nowhere.py"], "no function is named"),
        ([{"weight": 2}], "`use` must name a function"),
        ([{"use": "exact", "wieght": 2}], "nearest is 'weight'"),
        ([{"use": "exact", "tolerance": 2}], "no key 'tolerance'"),
        ([{"use": "exact", "weight": "much"}], "weight = 'much': must be a number"),
        ([{"use": "exact", "options": [1]}], "must be a mapping"),
        ([{"use": "exact", "name": "a/b"}], "letters, digits"),
        (["exact", "exact"], "two are named 'exact'"),
    ],
)
def test_a_spec_that_cannot_be_meant_is_refused(functions, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        RewardRunner(RewardConfig(functions=functions), ())


def test_solved_by_must_name_a_function():
    with pytest.raises(ValueError, match="solved_by = 'b': must be one of exact"):
        RewardRunner(RewardConfig(functions=["exact"], solved_by="b"), ())


def test_an_installed_package_offers_functions_by_entry_point(tmp_path, monkeypatch):
    (tmp_path / "outside.py").write_text("def f(completion): return 4")
    about = tmp_path / "outside-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[stabilizer.rewards]\nfour = outside:f\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    runner = RewardRunner(RewardConfig(functions=["four"]), ())
    assert rewards(runner, ["x"]) == [4]
    runner.close()


def test_the_worker_needs_the_standard_library_alone():
    code = "import sys, json; import worker; print(json.dumps(sorted(sys.modules)))"
    folder = Path(worker.__file__).parent
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    roots = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert roots - {"worker", "__main__"} <= set(sys.stdlib_module_names)


# --- slow imports ---------------------------------------------------------------------------------------------------

HANGS_AT_IMPORT = "import threading\nthreading.Event().wait()\ndef f(completion): return 1\n"


def train_on(file: Path, limit_s: float) -> subprocess.Popen[str]:
    rewards = [f"reward.functions=[{file}:f]", f"reward.import_timeout_s={limit_s}"]
    words = ["train", "addition", "--steps", "1", "--runs", str(file.parent / "runs")]
    command = [sys.executable, "-m", "stabilizer", *words, *(word for key in rewards for word in ("--set", key))]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def test_an_import_that_hangs_is_named_while_it_is_waited_for_and_ended_at_the_limit(tmp_path):
    file = tmp_path / "slow.py"
    file.write_text(HANGS_AT_IMPORT)
    training = train_on(file, 7)
    _, said = training.communicate(timeout=100)
    waiting, failed = said.splitlines()
    assert waiting == f"waiting for the import of {file}, at most 7 s (reward.import_timeout_s)"
    assert f"the import of {file} did not end within 7 s" in failed and "raise reward.import_timeout_s" in failed
    assert training.returncode == 2


def test_ctrl_c_ends_the_wait_for_an_import_at_once(tmp_path):
    file = tmp_path / "slow.py"
    file.write_text(HANGS_AT_IMPORT)
    training = train_on(file, 600)
    try:
        assert training.stderr.readline().startswith("waiting for the import")
        training.send_signal(signal.SIGINT)
        assert training.wait(60) == 130
    finally:
        training.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found through /proc")
@pytest.mark.parametrize("end", ["closed", "timeout", "trainer killed"])
def test_what_a_function_starts_in_sessions_of_its_own_ends_with_the_run(tmp_path, end: str) -> None:
    code = """
        import pathlib, subprocess, sys, time
        def reward(completion):
            if not (pids := pathlib.Path(PIDS)).exists():
                own = subprocess.Popen(["sleep", "300"], start_new_session=True)
                twice = ["sh", "-c", "setsid sleep 300 >&2 & echo $!"]
                orphan = subprocess.run(twice, stdout=subprocess.PIPE, text=True).stdout
                pids.write_text(f"{own.pid} {orphan}")
            if completion == "hang":
                time.sleep(300)
            return 1.0
    """
    file = tmp_path / "reward.py"
    file.write_text(textwrap.dedent(code).replace("PIDS", repr(str(tmp_path / "pids"))))
    use = f"""
        import sys
        from stabilizer.training.rewards.config import RewardConfig
        from stabilizer.training.rewards.runner import RewardRunner
        from stabilizer.training.tasks import Problem
        runner = RewardRunner(RewardConfig(functions=[{str(file) + ":reward"!r}], timeout_s=2), ())
        runner([Problem(0, "p", "a", {{}})], ["hang" if {end!r} == "timeout" else "x"])
        if {end!r} == "trainer killed":
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)
        runner.close()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(use)], check=False, timeout=60)
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    deadline = time.monotonic() + 5
    while (alive := [pid for pid in pids if not worker._dead(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    assert len(pids) == 2 and not alive
