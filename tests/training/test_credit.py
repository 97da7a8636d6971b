"""From scores to advantages per token, by hand. Two groups of two completions, up to three tokens each."""

import math
from dataclasses import replace

import pytest
import torch

from stabilizer.training.credit import give_credit
from stabilizer.training.knobs import Knobs
from stabilizer.training.rollout.rollouts import Rollouts
from stabilizer.training.settings import PolicyConfig
from stabilizer.training.tasks import Score

KNOBS = Knobs(
    lr_scale=1.0, beta=0.5, kl_kind="k3", epsilon_low=0.2, epsilon_high=0.2, entropy_coef=0.0, entropy_target=0.0,
    inner_epochs=1, minibatches=1, filter_groups="off", mask_truncated=False, overlong_buffer=0.0, mismatch="none",
    max_grad_norm=1.0, prompts=2, group_size=2, temperature=1.0, max_completion=4, head_float32=True,
    validate_every=0, advantage="group_mean", average="token",
)  # fmt: skip
LENGTHS = [1, 3, 2, 4]


def rollouts(lengths=LENGTHS):
    length_B = torch.tensor(lengths)
    mask_BT = torch.arange(4)[None] < length_B[:, None]
    ids_BT = torch.zeros(mask_BT.shape, dtype=torch.long)
    return Rollouts(
        prompt_ids_BP=ids_BT[:, :1], prompt_mask_BP=torch.ones(4, 1, dtype=torch.bool), completion_ids_BT=ids_BT,
        mask_BT=mask_BT, logp_BT=torch.zeros(mask_BT.shape), length_B=length_B, span_B=length_B,
        truncated_B=length_B == 4, texts=[""] * 4, group_size=2,
    )  # fmt: skip


def credit(*rewards, kl_BT=None, value_BT=None, policy=None, **knobs):
    scores = [
        Score(r, False, {}, failed="no answer" if isinstance(r, float) and math.isnan(r) else "") for r in rewards
    ]
    return give_credit(
        policy or PolicyConfig(), KNOBS._replace(**knobs), rollouts(), scores, kl_BT=kl_BT, value_BT=value_BT
    )


def test_every_token_of_a_completion_has_its_advantage():
    given = credit(1, 0, 0.5, 0.5)
    assert given.advantage_BT[:, 0].tolist() == [0.5, -0.5, 0, 0] and given.advantage_BT[1, 2] == -0.5
    assert given.row_advantages(2) == [0.5, -0.5] and given.num_teaching == 2
    assert given.metrics["reward/advantage_center_error"] == 0


def test_the_kl_is_paid_by_the_whole_completion_where_completions_are_compared():
    # 0.1 nats a token: rewards less 0.5 x (0.1, 0.3, 0.2, 0.4), so group 1: 0.95 and -0.15, half their difference 0.55
    kl_BT = torch.full((4, 4), 0.1).masked_fill(~rollouts().mask_BT, 0.0)
    given = credit(1, 0, 0, 0, kl_BT=kl_BT)
    assert given.advantage_BT[:, 0].tolist() == pytest.approx([0.55, -0.55, 0.05, -0.05])
    # leave one out: 0.95 - (-0.15) and the reverse
    given = credit(1, 0, 0, 0, kl_BT=kl_BT, advantage="leave_one_out")
    assert given.advantage_BT[:2, 0].tolist() == pytest.approx([1.1, -1.1])
    assert given.reward_GN[0].tolist() == [1, 0]  # what is reported as paid is the task's reward


def test_the_kl_is_paid_token_by_token_where_tokens_are_judged():
    kl_BT = torch.full((4, 4), 0.1).masked_fill(~rollouts().mask_BT, 0.0)
    given = credit(1, 2, 0, 0, kl_BT=kl_BT, advantage="returns")
    # three tokens, reward 2 on the last, each charged 0.05: 2 - 0.15, 2 - 0.10, 2 - 0.05, then padding
    assert given.advantage_BT[1].tolist() == pytest.approx([1.85, 1.90, 1.95, 0])


def test_a_critic_is_asked_token_by_token():
    value_BT = torch.full((4, 4), 0.5)
    given = credit(1, 1, 0, 0, value_BT=value_BT, advantage="gae", policy=PolicyConfig(advantage="gae", lam=1.0))
    # with lambda 1 the advantage is the return less the value, at every token
    assert given.advantage_BT[1, :3].tolist() == pytest.approx([0.5, 0.5, 0.5])
    assert given.return_BT[1, :3].tolist() == pytest.approx([1, 1, 1])


def test_a_completion_nobody_could_judge_teaches_nothing():
    given = credit(math.nan, 1, 1, 0)
    assert given.teaches_B.tolist() == [False, True, True, True]
    assert given.advantage_BT[:, 0].tolist() == [0, 0, 0.5, -0.5]  # alone in its group, the other has none either


def test_a_nan_that_is_no_failure_stays_visible():
    for kind, options in (("group_std", {}), ("returns", {}), ("gae", {"value_BT": torch.zeros(4, 4)})):
        scores = [Score(math.nan, False, {}), *[Score(1.0, True, {})] * 3]
        given = give_credit(
            PolicyConfig(), KNOBS._replace(advantage=kind), rollouts(), scores, kl_BT=None,
            value_BT=options.get("value_BT"),
        )  # fmt: skip
        assert given.advantage_BT[0, 0].isnan(), kind


def test_silent_groups_are_dropped_and_only_as_many_kept_as_asked_for():
    assert credit(1, 0, 1, 1, filter_groups="drop").teaches_B.tolist() == [True, True, False, False]
    assert credit(1, 0, 1, 0, filter_groups="resample", prompts=1).teaches_B.tolist() == [True, True, False, False]
    assert credit(1, 1, 1, 1, filter_groups="drop").num_teaching == 0


@pytest.mark.parametrize(
    ("rewards", "filtering", "kept"),
    [
        ((1, 0, 8, 8), {"filter_groups": "drop"}, [0.5, -0.5]),
        ((1, 0, 8, 0), {"filter_groups": "resample", "prompts": 1}, [0.5, -0.5]),
        # not filtered: mean 4.25, squares 10.5625 + 18.0625 + 14.0625 + 14.0625 = 56.75, over 3, root 4.3493
        ((1, 0, 8, 8), {}, [0.5, -0.5, 0, 0]),
    ],
)
def test_the_deviation_of_the_batch_is_that_of_the_groups_that_are_learned_from(rewards, filtering, kept):
    # of (1, 0): the mean 0.5, squares 0.25 + 0.25, over n - 1 = 1 gives 0.5, whose root is 0.7071
    scale = math.sqrt(0.5 if filtering else 56.75 / 3) + 1e-4
    expected = [a / scale for a in kept] + [0] * (4 - len(kept))
    given = credit(*rewards, advantage="batch_std", **filtering)
    assert given.advantage_BT[:, 0].tolist() == pytest.approx(expected)


def test_cut_completions_are_compared_but_do_not_teach_when_masked():
    given = credit(0, 1, 0, 1, mask_truncated=True)
    assert given.teaches_B.tolist() == [True, True, True, False]  # the last has all four tokens
    assert given.advantage_BT[3, 0] == 0.5


def test_length_is_charged_over_the_end_of_the_limit():
    # limit 4, buffer half of it: 3 tokens are 1 too many of 2, hence -0.5; 4 tokens -1
    given = credit(0, 0, 0, 0, overlong_buffer=0.5)
    assert given.reward_GN.flatten().tolist() == [0, -0.5, 0, -1]
    assert given.metrics["reward/overlong/mean"] == -0.375


def test_advantages_can_be_whitened_and_clipped():
    given = credit(1, 0, 1, 0, policy=PolicyConfig(whiten=True))
    chosen = given.advantage_BT[rollouts().mask_BT]
    assert chosen.mean().item() == pytest.approx(0, abs=1e-6) and chosen.std().item() == pytest.approx(1)
    assert credit(9, 0, 0, 0, policy=PolicyConfig(advantage_clip=2.0)).advantage_BT.abs().max() == 2


def test_a_group_that_differs_by_its_length_alone_is_left_out_like_any_that_is_alike():
    # lengths 1 3 | 2 4 of at most 4, buffer 2: a penalty of 0.5 for three tokens, 1 for four
    knobs = {"overlong_buffer": 0.5, "filter_groups": "resample", "prompts": 1}
    given = credit(1, 1, 1, 0, **knobs)
    assert given.reward_GN.tolist() == [[1, 0.5], [1, -1]], "it is paid all the same"
    assert given.teaches_B.tolist() == [False, False, True, True], "and takes the place of no group that was drawn for"


def test_a_greedy_baseline_is_the_reward_of_the_prompts_greedy_completion():
    def measured(*greedy, **knobs):
        scores = [Score(r, False, {}, failed="no answer" if math.isnan(r) else "") for r in greedy]
        return give_credit(
            PolicyConfig(), KNOBS._replace(advantage="greedy", **knobs), rollouts(),
            [Score(r, False, {}) for r in (1.0, 0.0, 0.5, 0.25)], kl_BT=None, value_BT=None,
            greedy=(replace(rollouts(), length_B=torch.tensor([4, 1])), scores),
        )  # fmt: skip

    given = measured(0.25, 1.0)
    assert given.advantage_BT[:, 0].tolist() == [0.75, -0.25, -0.5, -0.75]
    assert given.metrics["reward/greedy/mean"] == 0.625 and given.teaches_B.all()
    # its length is penalised too: 4 of 4 tokens lose 1, half of the limit is the buffer
    longer = measured(0.25, 1.0, overlong_buffer=0.5)
    assert longer.advantage_BT[0, 0] == 1 - (0.25 - 1) and longer.metrics["reward/greedy/mean"] == 0.125
    # without a baseline a prompt teaches nothing
    assert measured(math.nan, 1.0).teaches_B.tolist() == [False, False, True, True]


def test_rewards_are_standardised_one_by_one_with_the_length_penalty_as_one_of_them():
    scores = [Score(3.0, True, {"right": 1.0, "style": 10.0}), Score(2.0, False, {"right": 0.0, "style": 20.0})] * 2
    options = {"kl_BT": None, "value_BT": None, "weights": {"right": 3.0, "style": 0.1}}
    given = give_credit(PolicyConfig(), KNOBS._replace(advantage="per_reward"), rollouts(), scores, **options)
    # each pair is +-1/sqrt(2): 3 x right outweighs 0.1 x style, and the batch is scaled to deviation 1: sqrt(3) / 2
    assert given.advantage_BT[:, 0].tolist() == pytest.approx([0.866, -0.866] * 2, abs=1e-3)
    assert given.metrics["reward/advantage_center_error"] < 1e-12 and given.reward_GN[0].tolist() == [3, 2]
    shorter = KNOBS._replace(advantage="per_reward", overlong_buffer=1.0)
    options["weights"] = {"right": 1e-6, "style": 1e-6}
    even = give_credit(PolicyConfig(), shorter, rollouts(), scores, **options)
    assert even.advantage_BT[2, 0] > 0 > even.advantage_BT[3, 0], "the second group: 2 tokens are better than 4"
