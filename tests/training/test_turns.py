"""Episodes: who wrote which token, and that learning sees exactly what generation saw."""

from dataclasses import replace

import pytest
import torch

from stabilizer.training.environments import Reply
from stabilizer.training.environments.search import SearchConfig
from stabilizer.training.losses import masked_mean, policy_loss
from stabilizer.training.metrics import episode_metrics
from stabilizer.training.model import build_tokenizer, load_policy
from stabilizer.training.rollout.engine import Sampling
from stabilizer.training.rollout.logprobs import Scorer
from stabilizer.training.rollout.rollouts import Rollouts, pad_left
from stabilizer.training.rollout.sampler import Sampler
from stabilizer.training.rollout.turns import Outcome, play
from stabilizer.training.tasks import TASKS

TASK = TASKS["search"]
TOKENIZER = build_tokenizer(TASK.symbols)
EOS = "<eos>"
CPU = torch.device("cpu")


def ids(text):
    return TOKENIZER(text, add_special_tokens=False)["input_ids"]


class Script:
    """An engine that writes given turns, whatever the prompt; its log-probabilities are -1, -2, ... along a turn.

    A turn that ends in neither `<eos>` nor one of the stop tokens asked for counts as cut by the limit.
    """

    def __init__(self, *turns: list[str], max_length: int | None = None):
        self.turns = list(turns)
        self.max_length = max_length
        self.asked: list[tuple[list[list[int]], Sampling]] = []

    def generate(self, prompts, sampling):
        self.asked.append(([list(prompt) for prompt in prompts], sampling))
        texts = self.turns.pop(0)
        rows = [ids(text)[: sampling.max_completion] for text in texts]
        assert len(rows) == len(prompts) * sampling.group_size
        width = max(map(len, rows))
        length_B = torch.tensor([len(row) for row in rows])
        prompt_ids, prompt_mask = pad_left(prompts, TOKENIZER.pad_token_id, CPU)
        stops = {TOKENIZER.eos_token_id, *sampling.stop_ids}
        return Rollouts(
            prompt_ids_BP=prompt_ids.repeat_interleave(sampling.group_size, 0),
            prompt_mask_BP=prompt_mask.repeat_interleave(sampling.group_size, 0),
            completion_ids_BT=torch.tensor([row + [0] * (width - len(row)) for row in rows]),
            mask_BT=torch.arange(width)[None] < length_B[:, None],
            logp_BT=-(torch.arange(width) + 1.0).expand(len(rows), width),
            length_B=length_B,
            span_B=length_B,
            truncated_B=torch.tensor([row[-1] not in stops for row in rows]),
            texts=texts,
            group_size=sampling.group_size,
        )


class Echo:
    """An environment that answers a call `...!` with `[...]`; `!!` is no valid call, and `fail!` breaks it."""

    def __init__(self, call="</search>", end="</answer>"):
        self.calls, self.ends = (call,), (end,)
        self.seen: list[list[str]] = []

    def respond(self, turns):
        self.seen.append(list(turns))
        return [self._reply(turn.removesuffix(self.calls[0])) for turn in turns]

    def _reply(self, said):
        if said == "fail":
            return Reply("", failed="broken")
        return Reply(f"={said[:6]}=", valid=bool(said))


def run(engine, *, prompts=("a?",), environment=None, group_size=1, max_completion=40, max_turns=3, seed=0):
    encoded = [TOKENIZER(prompt)["input_ids"] for prompt in prompts]
    sampling = Sampling(group_size, 1.0, max_completion, seed)
    return play(engine, encoded, environment or Echo(), sampling, TOKENIZER, max_turns=max_turns)


def marked(rollouts: Rollouts, row: int = 0) -> list[tuple[str, bool]]:
    """A row as (token, chosen by the policy), padding left out."""
    span = int(rollouts.span_B[row])
    tokens = TOKENIZER.convert_ids_to_tokens(rollouts.completion_ids_BT[row, :span])
    return list(zip(tokens, rollouts.mask_BT[row, :span].tolist(), strict=True))


# --- who wrote what ---------------------------------------------------------------------------------------------------


def test_replies_are_in_the_row_and_out_of_the_mask():
    rollouts, outcomes = run(Script(["ab</search>"], ["7</answer>"]))
    own, read = [("a", True), ("b", True), ("</search>", True)], [(t, False) for t in "=ab="]
    assert marked(rollouts) == [*own, *read, ("7", True), ("</answer>", True)]
    assert rollouts.logp_BT[0].tolist() == [-1, -2, -3, 0, 0, 0, 0, -1, -2]
    assert (rollouts.length_B.item(), rollouts.span_B.item()) == (5, 9)
    assert rollouts.texts == ["ab</search>=ab=7</answer>"]
    assert outcomes == [Outcome(turns=2, searches=1, invalid=0, failed="")] and not rollouts.truncated_B.any()


def test_each_turn_is_generated_from_all_tokens_so_far():
    engine = Script(["a</search>"], ["b</search>"], ["7</answer>"])
    run(engine)
    asked = [TOKENIZER.decode(prompts[0][1:]) for prompts, _ in engine.asked]
    assert asked == ["a?", "a?a</search>=a=", "a?a</search>=a=b</search>=b="]


def test_only_episodes_that_got_a_reply_go_on_and_groups_stay_together():
    engine = Script(
        ["a</search>", "1</answer>", f"2{EOS}", "b</search>"],  # two episodes of each of two prompts
        ["3</answer>", "c</search>"],  # the first and the last
        ["4</answer>"],  # the last
    )
    rollouts, _ = run(engine, prompts=("a?", "bb?"), group_size=2)
    assert rollouts.texts == ["a</search>=a=3</answer>", "1</answer>", "2", "b</search>=b=c</search>=c=4</answer>"]
    assert rollouts.group_size == 2
    prompts = [TOKENIZER.decode(row[mask][1:]) for row, mask in zip(rollouts.prompt_ids_BP, rollouts.prompt_mask_BP)]  # noqa: B905
    assert prompts == ["a?", "a?", "bb?", "bb?"]
    assert [sampling.group_size for _, sampling in engine.asked] == [2, 1, 1]
    # padding behind a row is padding
    assert (rollouts.completion_ids_BT[1, 2:] == TOKENIZER.pad_token_id).all() and not rollouts.mask_BT[1, 2:].any()
    assert marked(rollouts, 2)[-1] == (EOS, True)  # the end token is a choice, and no text


def test_what_stands_behind_the_first_call_is_thrown_away():
    # a tag of several tokens: no engine can stop at it, so the turn goes on, and is cut here
    environment = Echo(call="!?", end=".")
    with_marks = build_tokenizer((*TASK.symbols, "!", "."))
    encoded = [with_marks("a?")["input_ids"]]
    engine = MarksScript(with_marks, [["ab!?cd!?=x="], ["7.8"]])
    rollouts, _ = play(engine, encoded, environment, Sampling(1, 1.0, 40), with_marks, max_turns=3)
    assert rollouts.texts == ["ab!?=ab=7."]
    assert rollouts.logp_BT[0].tolist() == [-1, -2, -3, -4, 0, 0, 0, 0, -1, -2]
    assert not rollouts.truncated_B.any()
    assert engine.asked[0][1].stop_ids == (with_marks.convert_tokens_to_ids("."),)


class MarksScript(Script):
    """A script in another tokenizer, that never stops by itself."""

    def __init__(self, tokenizer, turns):
        super().__init__(*turns)
        self.tokenizer = tokenizer

    def generate(self, prompts, sampling):
        self.asked.append((prompts, sampling))
        row = self.tokenizer(self.turns.pop(0)[0], add_special_tokens=False)["input_ids"]
        one = torch.tensor([row])
        full = torch.ones_like(one, dtype=torch.bool)
        length = torch.tensor([len(row)])
        logp = -(torch.arange(len(row))[None] + 1.0)
        return Rollouts(one, full, one, full, logp, length, length, torch.tensor([True]), [""], 1)


def test_tags_of_one_token_are_asked_of_the_engine():
    engine = Script(["7</answer>"])
    run(engine)
    assert engine.asked[0][1].stop_ids == (ids("</search>")[0], ids("</answer>")[0])


# --- where an episode ends --------------------------------------------------------------------------------------------


def test_a_call_in_the_last_turn_is_not_answered():
    environment = Echo()
    rollouts, outcomes = run(Script(["a</search>"], ["b</search>"]), environment=environment, max_turns=2)
    assert rollouts.texts == ["a</search>=a=b</search>"] and rollouts.truncated_B.tolist() == [True]
    assert environment.seen == [["a</search>"]] and outcomes[0].turns == 2


def test_the_budget_counts_what_the_policy_wrote_over_all_turns():
    engine = Script(["abc</search>"], ["1234567"])
    rollouts, _ = run(engine, max_completion=6)
    assert [sampling.max_completion for _, sampling in engine.asked] == [6, 2]
    assert rollouts.texts == ["abc</search>=abc=12"]
    assert rollouts.length_B.tolist() == [6] and rollouts.truncated_B.tolist() == [True]


def test_each_episode_has_a_budget_of_its_own():
    # 5 and 3 tokens written of 6: the next turn may have 1 and 3, and is asked for 3
    engine = Script(["abcd</search>", "ab</search>"], ["123", "123"])
    rollouts, _ = run(engine, group_size=2, max_completion=6)
    assert engine.asked[1][1].max_completion == 3
    assert rollouts.texts == ["abcd</search>=abcd=1", "ab</search>=ab=123"]
    assert rollouts.length_B.tolist() == [6, 6] and rollouts.truncated_B.all()


def test_an_end_token_beyond_the_budget_is_not_there():
    rollouts, _ = run(Script(["abcd</search>", "ab</search>"], [f"1{EOS}", f"1{EOS}"]), group_size=2, max_completion=6)
    assert rollouts.texts == ["abcd</search>=abcd=1", "ab</search>=ab=1"]
    assert rollouts.truncated_B.tolist() == [True, False]


def test_a_call_that_used_up_the_budget_is_not_answered():
    environment = Echo()
    rollouts, _ = run(Script(["abc</search>"]), environment=environment, max_completion=4)
    assert environment.seen == [] and rollouts.truncated_B.tolist() == [True]


def test_an_episode_without_room_for_its_reply_is_over_and_others_go_on():
    # <bos>a? is 3 tokens; behind a call of 5 and the reply '=abcd=' of 6 stand 14, and one more must find room
    for room, goes_on in ((14, False), (15, True)):
        engine = Script(["abcd</search>", "a</search>"], ["7</answer>"] * (1 + goes_on), max_length=room)
        rollouts, outcomes = run(engine, group_size=2)
        long = "abcd</search>=abcd=7</answer>" if goes_on else "abcd</search>"
        assert rollouts.texts == [long, "a</search>=a=7</answer>"]
        assert rollouts.truncated_B.tolist() == [not goes_on, False]
        assert outcomes == [Outcome(1 + goes_on, int(goes_on), 0, ""), Outcome(2, 1, 0, "")]


def test_no_episode_going_on_ends_the_step_and_not_the_run():
    rollouts, _ = run(Script(["abcd</search>"], max_length=14))
    assert rollouts.texts == ["abcd</search>"] and rollouts.truncated_B.tolist() == [True]
    # an environment that failed has failed, however little room there is
    _, outcomes = run(Script(["fail</search>"], max_length=9))
    assert outcomes == [Outcome(1, 0, 0, "broken")]


def test_one_turn_without_any_call_is_what_the_engine_wrote():
    rollouts, outcomes = run(Script([f"12{EOS}", "34"]), group_size=2, max_completion=2)
    assert rollouts.texts == ["12", "34"] and rollouts.truncated_B.tolist() == [True, True]
    assert rollouts.mask_BT.all() and outcomes == [Outcome(1, 0, 0, "")] * 2
    metrics = episode_metrics(rollouts, outcomes)
    assert metrics == {"rollout/turns_mean": 1, "rollout/searches_mean": 0, "rollout/retrieved_frac": 0}


def test_a_failing_environment_ends_its_episodes_and_says_why():
    engine = Script(["fail</search>", "a</search>"], ["7</answer>"])
    rollouts, outcomes = run(engine, group_size=2)
    assert outcomes == [Outcome(1, 0, 0, "broken"), Outcome(2, 1, 0, "")]
    assert rollouts.texts == ["fail</search>", "a</search>=a=7</answer>"]
    assert not rollouts.truncated_B.any()


def test_metrics_by_worked_numbers():
    engine = Script(["a</search>", "</search>", "1</answer>", "2</answer>"], ["3</answer>", "4</answer>"])
    rollouts, outcomes = run(engine, group_size=4)
    assert outcomes == [Outcome(2, 1, 0, ""), Outcome(2, 0, 1, ""), Outcome(1, 0, 0, ""), Outcome(1, 0, 0, "")]
    assert episode_metrics(rollouts, outcomes) == {
        "rollout/turns_mean": 6 / 4,
        "rollout/searches_mean": 1 / 4,
        # retrieved: '=a=' and '=='; written: 2 + 1 + 2 + 2 and 2 + 2
        "rollout/retrieved_frac": pytest.approx(5 / 16),
        "rollout/invalid_calls_frac": 1 / 2,
    }


# --- what learning sees -----------------------------------------------------------------------------------------------


class Chatty(Echo):
    """Calls are single letters of some frequency, so that an untrained policy makes many of them."""

    def __init__(self):
        super().__init__()
        self.calls, self.ends = ("a", "e", "o", "</search>"), ("7",)

    def respond(self, turns):
        return [Reply("nothing"[: len(turn) % 8]) for turn in turns]


@pytest.fixture(scope="module")
def policy():
    return load_policy("builtin", "search", CPU)


def searching(policy, environment, *, temperature=1.0, max_turns=3, seed=0):
    prompts = ["bak room?", "a?", "zov desk?"]  # of two lengths: one is padded
    encoded = [policy.tokenizer(prompt)["input_ids"] for prompt in prompts]
    return play(
        Sampler(policy),
        encoded,
        environment,
        Sampling(8, temperature, 40, seed),
        policy.tokenizer,
        max_turns=max_turns,
    )


STRUCTURES = {
    "search": (TASK.environment(SearchConfig()), 3),
    "two documents": (TASK.environment(SearchConfig(topk=2)), 3),
    "one turn": (TASK.environment(SearchConfig()), 1),
    "many turns": (Chatty(), 8),
}


@pytest.mark.parametrize("temperature", [0.6, 1.0])
@pytest.mark.parametrize(("environment", "max_turns"), STRUCTURES.values(), ids=STRUCTURES)
def test_the_learner_gives_every_chosen_token_the_log_probability_it_was_sampled_with(
    policy, environment, max_turns, temperature
):
    rollouts, outcomes = searching(policy, environment, temperature=temperature, max_turns=max_turns)
    logp_BT = Scorer().logps(policy.model, rollouts, temperature).logp_BT
    assert (logp_BT - rollouts.logp_BT)[rollouts.mask_BT].abs().max() < 3e-5  # rounding of float32
    assert (rollouts.logp_BT[~rollouts.mask_BT] == 0).all()
    if max_turns > 1:
        assert sum(outcome.turns for outcome in outcomes) > 1.5 * len(outcomes)
        inside_BT = torch.arange(rollouts.mask_BT.shape[1]) < rollouts.span_B[:, None]
        assert (inside_BT & ~rollouts.mask_BT).any()


def test_the_law_above_notices_a_row_that_was_decoded_and_encoded_again(policy):
    rollouts, _ = searching(policy, STRUCTURES["search"][0])
    moved = replace(rollouts, completion_ids_BT=rollouts.completion_ids_BT.roll(1, dims=1))
    logp_BT = Scorer().logps(policy.model, moved, 1.0).logp_BT
    assert (logp_BT - rollouts.logp_BT)[rollouts.mask_BT].abs().max() > 1


def loss_and_gradient(policy, rollouts, ratio="token"):
    logp_BT, entropy_BT = Scorer().logps(policy.model, rollouts, 1.0, entropy_grad=True)[:2]
    logp_BT.retain_grad()
    advantage_BT = torch.linspace(-1, 1, len(rollouts))[:, None].expand_as(logp_BT)
    loss, metrics = policy_loss(
        logp_BT, rollouts.logp_BT, advantage_BT, rollouts.mask_BT,
        surrogate="clip", ratio=ratio, average="token", epsilon_low=0.2, epsilon_high=0.28,
    )  # fmt: skip
    policy.model.zero_grad()
    (loss - 0.01 * masked_mean(entropy_BT, rollouts.mask_BT)).backward()
    gradient = torch.cat([p.grad.flatten() for p in policy.model.parameters()])
    policy.model.zero_grad()
    return logp_BT.grad, gradient, metrics


@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_no_gradient_flows_through_the_probability_of_a_retrieved_token(policy, ratio):
    rollouts, _ = searching(policy, STRUCTURES["search"][0])
    by_logp_BT, gradient, metrics = loss_and_gradient(policy, rollouts, ratio)
    assert (by_logp_BT[~rollouts.mask_BT] == 0).all()
    assert (by_logp_BT[rollouts.mask_BT] != 0).float().mean() > 0.9
    assert metrics["ratio_error"] < 1e-4

    noise_BT = torch.randn(rollouts.logp_BT.shape, generator=torch.Generator().manual_seed(0))
    disturbed = replace(rollouts, logp_BT=torch.where(rollouts.mask_BT, rollouts.logp_BT, noise_BT))
    assert torch.equal(loss_and_gradient(policy, disturbed, ratio)[1], gradient)


def test_a_mask_that_lets_retrieved_tokens_in_is_told_by_the_ratio_and_changes_the_gradient(policy):
    rollouts, _ = searching(policy, STRUCTURES["search"][0])
    _, gradient, _ = loss_and_gradient(policy, rollouts)
    inside_BT = torch.arange(rollouts.mask_BT.shape[1]) < rollouts.span_B[:, None]
    by_logp_BT, wrong, metrics = loss_and_gradient(policy, replace(rollouts, mask_BT=inside_BT))
    assert (by_logp_BT[inside_BT & ~rollouts.mask_BT] != 0).any()
    assert metrics["ratio_error"] > 0.5 and (wrong - gradient).norm() > 0.1 * gradient.norm()


def test_the_seed_gives_the_same_episodes_and_every_turn_its_own_random_numbers(policy):
    first, again, other = (searching(policy, STRUCTURES["search"][0], seed=seed)[0] for seed in (1, 1, 2))
    assert first.texts == again.texts != other.texts
    assert torch.equal(first.logp_BT, again.logp_BT)
    engine = Script(["a</search>"], ["b</search>"], ["7</answer>"])
    run(engine, seed=1)
    assert len({sampling.seed for _, sampling in engine.asked}) == 3
