"""Environments of the user's own: what they are asked, what they may answer, and what happens when they break."""

import json
import textwrap

import pytest

from stabilizer.training.config import load_config
from stabilizer.training.environments.config import EnvironmentConfig
from stabilizer.training.environments.own import OwnEnvironment, Step
from stabilizer.training.inputs import digests
from stabilizer.training.loop import Trainer
from stabilizer.training.rollout.collect import ChatReply
from stabilizer.training.rollout.turns import Outcome, Played, play
from tests.training.conftest import SMALL
from tests.training.data.conftest import character_tokenizer
from tests.training.test_turns import EOS, TOKENIZER, Sampling, Script, marked

GAMES = '''
    import asyncio, os, time

    class Countdown:
        """Says how many turns are left, and rewards the last."""
        calls = ("</search>",)

        def __init__(self, turns=2):
            self.left = turns

        def reset(self, start=0):
            self.left += start

        def step(self, text):
            self.left -= 1
            if "boom" in text:
                raise RuntimeError("kaboom")
            if "die" in text:
                os._exit(3)
            if "hang" in text:
                time.sleep(60)
            if "odd" in text:
                return 7
            return (f"={self.left}=", False) if self.left else (None, True, float(len(text)))

    class Slow:
        async def step(self, text):
            await asyncio.sleep(0.2)
            return "", True, 1

    class NoStep:
        pass

    class Pays:
        """Two turns; the answer '1' earns 1 in each."""
        def __init__(self): self.turns = 0
        def reset(self, answer, **columns): self.answer = str(answer)
        def step(self, text):
            self.turns += 1
            return "1", self.turns == 2, float(self.answer in text)
'''


@pytest.fixture
def games(tmp_path):
    made = []

    def build(name, **options):
        file = tmp_path / "games.py"
        file.write_text(textwrap.dedent(GAMES))
        limits = {key: options.pop(key) for key in ("timeout_s",) if key in options}
        made.append(OwnEnvironment(EnvironmentConfig(use=f"{file}:{name}", options=options, **limits)))
        return made[-1]

    yield build
    for each in made:
        each.close()


def played(engine, game, *, columns=({},), prompts=("a?",), group_size=1, max_completion=40, max_turns=4):
    encoded = [TOKENIZER(prompt)["input_ids"] for prompt in prompts]
    environment = Played(game, columns, TOKENIZER, lambda text, ended: text)
    return play(engine, encoded, environment, Sampling(group_size, 1.0, max_completion), TOKENIZER, max_turns=max_turns)


def test_every_turn_is_answered_until_the_environment_is_done(games):
    engine = Script(["ab</search>"], [f"cd{EOS}"])  # a call, then the model's own end
    rollouts, outcomes = played(engine, games("Countdown"))
    own = [("a", True), ("b", True), ("</search>", True)]
    reply = [(t, False) for t in "=1="]
    assert marked(rollouts) == [*own, *reply, ("c", True), ("d", True), (EOS, True)]
    assert outcomes == [Outcome(turns=2, searches=1, invalid=0, failed="", reward=2.0)]
    assert not rollouts.truncated_B.any()


def test_each_episode_has_its_own_object_and_the_row_of_its_data(games):
    # group 0 starts with 1 more turn than group 1
    engine = Script(["a</search>"] * 4, ["b</search>"] * 4, ["c</search>"] * 2)
    _, outcomes = played(
        engine, games("Countdown"), columns=({"start": 1}, {"other": 5}), prompts=("a?", "b?"), group_size=2
    )
    assert [outcome.turns for outcome in outcomes] == [3, 3, 2, 2]
    assert all(outcome.reward for outcome in outcomes)


@pytest.mark.parametrize(
    ("turns", "options"),
    [
        ([["ab</search>"]], {"max_turns": 1}),
        ([["ab</search>"]], {"max_completion": 3}),
    ],
    ids=["turns", "tokens"],
)
def test_an_episode_that_the_environment_would_have_continued_is_truncated(games, turns, options):
    rollouts, (outcome,) = played(Script(*turns), games("Countdown"), **options)
    assert rollouts.truncated_B.all() and outcome.reward is None and not outcome.failed


def test_a_last_turn_cut_by_the_limit_is_seen_and_may_be_rewarded(games):
    rollouts, (outcome,) = played(Script(["abcdef"]), games("Countdown", turns=1), max_completion=4)
    assert outcome.reward == 4.0 and rollouts.length_B.tolist() == [4]


@pytest.mark.parametrize(
    ("said", "why"),
    [("boom", "RuntimeError: kaboom (games.py line"), ("odd", "step returned int, not (reply, done)")],
)
def test_a_broken_step_loses_its_own_episode(games, said, why):
    engine = Script([f"{said}</search>", "b</search>"], [f"c{EOS}"])
    _, (lost, kept) = played(engine, games("Countdown"), group_size=2)
    assert why in lost.failed and lost.reward is None
    assert not kept.failed and kept.reward == 1.0


@pytest.mark.parametrize(("said", "why"), [("die", "exit code 3"), ("hang", "no answer within 1 s")])
def test_a_lost_process_loses_the_turn_and_serves_the_next_step(games, said, why):
    game = games("Countdown", timeout_s=1.0)
    _, outcomes = played(Script([f"{said}</search>", "b</search>"]), game, group_size=2)
    assert all(why in outcome.failed for outcome in outcomes)
    _, (outcome,) = played(Script(["a</search>"], [f"b{EOS}"]), game)
    assert outcome.reward == 1.0


def test_asynchronous_steps_run_at_the_same_time(games):
    game = games("Slow", timeout_s=1.5)
    game.begin([{}] * 20)  # one after the other they would take 4 s
    assert game.step(range(20), ["x"] * 20) == [Step("", True, 1.0, "")] * 20


def test_what_cannot_be_an_environment_is_refused_at_the_start(games, tmp_path):
    with pytest.raises(ValueError, match="NoStep' can't be used: .*needs a method `step"):
        games("NoStep")
    with pytest.raises(ValueError, match="has no class 'Gone'; it has Countdown, Slow, NoStep, Pays"):
        games("Gone")
    with pytest.raises(ValueError, match="unexpected keyword argument 'speed'"):
        games("Countdown", speed=2)
    with pytest.raises(ValueError, match="environment.use: gone.py:X: no such file"):
        OwnEnvironment(EnvironmentConfig(use="gone.py:X"))
    with pytest.raises(ValueError, match="no environment class 'gone'; write your own as FILE.py:CLASS"):
        OwnEnvironment(EnvironmentConfig(use="gone"))


def test_a_reply_in_a_chat_is_a_message_of_its_template():
    tokenizer = character_tokenizer(chat=True)
    reply = ChatReply(tokenizer, "user", {})
    wanted = "\n<|im_start|>user\nhot<|im_end|>\n<|im_start|>assistant\n"
    assert reply("hot", True) == wanted and reply("hot", False) == f"<|im_end|>{wanted}"
    history = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "y"},
        {"role": "user", "content": "hot"},
    ]
    whole = tokenizer.apply_chat_template(history, tokenize=False, add_generation_prompt=True)
    assert whole.endswith(f"y<|im_end|>{wanted}"), "the policy reads what the template would have written"


def test_a_run_learns_from_the_rewards_of_an_environment_alone(games, tmp_path, monkeypatch):
    games("Pays")
    rows = [{"prompt": f"{i}+{i}=", "answer": i % 3} for i in range(30)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "run.yaml").write_text(
        "data: {path: data.jsonl, held_out: 4}\nmodel: builtin:addition\n"
        "environment: {use: games.py:Pays, max_turns: 3}\nrollout: {max_completion: 8}\n"
    )
    monkeypatch.chdir("/")
    config = load_config(tmp_path / "run.yaml", [*SMALL, "validation.every=1"])
    run = Trainer(config, checkpoints=tmp_path / "c")
    metrics = run.train_step().metrics
    assert metrics["rollout/turns_mean"] == 2 and metrics["rollout/searches_mean"] == 1
    assert 0 < metrics["reward/mean"] < 2 and metrics["reward/failed_frac"] == 0
    assert metrics["policy/ratio_first_error"] < 1e-4 and metrics["optim/grad_norm"] > 0
    assert 0 <= metrics["accuracy/val"] <= 1
    assert any(path.endswith("games.py") for path in digests(config))


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        (
            ["environment.use=x.py:X", "search.url=http://localhost:1"],
            "environment.use = 'x.py:X': must be empty where",
        ),
        (["environment.use=x.py:X", "rollout.stop=['.']"], "must be empty with an environment"),
        (["environment.use=x.py:X", "environment.max_turns=0"], "environment.max_turns = 0: must be at least 1"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(tmp_path, overrides, why):
    with pytest.raises(ValueError, match=why):
        load_config(None, [f"data.path={tmp_path}/d.jsonl", "model=builtin:addition", *overrides])
