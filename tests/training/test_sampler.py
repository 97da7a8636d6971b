import json
import math
from functools import partial

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from stabilizer.training.knobs import read as read_knobs
from stabilizer.training.model import Policy, build_model, build_tokenizer, load_policy
from stabilizer.training.rollout.engine import Cut, Sampling
from stabilizer.training.rollout.logprobs import Scorer
from stabilizer.training.rollout.sampler import Sampler, allowed, choose
from stabilizer.training.tasks import TASKS

CPU = torch.device("cpu")
MIXED = ["1+1=", "37+58=", "9", "abcdefgh:"]  # four lengths: all but one are padded


@pytest.fixture(scope="module")
def policy():
    return load_policy("builtin", "length", CPU)


def generate(policy, prompts, temperature=1.0, group_size=16, max_completion=40, seed=0):
    return Sampler(policy).generate(
        [policy.tokenizer(prompt)["input_ids"] for prompt in prompts],
        Sampling(group_size, temperature, max_completion, seed),
    )


@pytest.mark.parametrize("prompts", [["abcd:", "wxyz:"], MIXED], ids=["equal lengths", "padded"])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sampler_and_learner_give_the_same_log_probabilities(prompts, temperature, dtype):
    policy = load_policy("builtin", "length", CPU)
    policy.model.to(dtype)
    rollouts = generate(policy, prompts, temperature)
    assert len(set(rollouts.length_B.tolist())) > 1  # rows ended at different times and left the batch
    logp_BT, entropy_BT = Scorer().logps(policy.model, rollouts, temperature)[:2]
    error_BT = (logp_BT - rollouts.logp_BT).masked_fill(~rollouts.mask_BT, 0.0)
    # float64 shows that both compute the same; float32 adds the rounding of two orders of summation
    assert error_BT.abs().max() < (3e-5 if dtype is torch.float32 else 1e-6)
    assert (entropy_BT >= 0).all()
    torch.testing.assert_close(rollouts.entropy_BT, entropy_BT, rtol=0, atol=1e-4 if dtype is torch.float32 else 1e-6)


def test_padding_changes_no_log_probability(policy):
    together = generate(policy, MIXED, group_size=2)
    rows = together.rows(torch.tensor([0, 1]))  # of the first prompt, which is padded
    logp_BT = Scorer().logps(policy.model, rows, 1.0).logp_BT
    text = MIXED[0] + "".join(policy.tokenizer.convert_ids_to_tokens(rows.completion_ids_BT[0][rows.mask_BT[0]]))
    ids = policy.tokenizer(text, return_tensors="pt")["input_ids"]
    alone = torch.log_softmax(policy.model(input_ids=ids).logits[0], -1)
    start, length = len(MIXED[0]), int(rows.length_B[0])
    expected = alone[start : start + length].gather(1, ids[0, start + 1 :, None])[:, 0]
    assert torch.allclose(logp_BT[0, :length], expected, atol=1e-5)


@pytest.mark.parametrize("prompts", [["abcd:", "wxyz:"], MIXED], ids=["equal lengths", "padded"])
def test_greedy_equals_the_generate_of_transformers(policy, prompts):
    ours = generate(policy, prompts, temperature=0.0, group_size=1)
    encoded = policy.tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
    theirs = policy.model.generate(**encoded, do_sample=False, max_new_tokens=40)[:, encoded["input_ids"].shape[1] :]
    assert ours.completion_ids_BT.tolist() == theirs.tolist()


def test_each_prompt_is_read_once_and_shared_over_its_group(policy):
    shapes = []
    hook = policy.model.register_forward_pre_hook(
        lambda model, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    generate(policy, ["abcd:", "wxyz:"], group_size=8, max_completion=3)
    hook.remove()
    assert shapes[0] == (2, 6)  # <bos> and five characters
    assert all(shape[1] == 1 for shape in shapes[1:])


def test_lengths_masks_and_texts_agree(policy):
    rollouts = generate(policy, ["abcd:"], group_size=32, max_completion=12)
    eos = policy.tokenizer.eos_token_id
    assert rollouts.truncated_B.any() and not rollouts.truncated_B.all()
    for ids, mask, length, truncated, text in zip(
        rollouts.completion_ids_BT,
        rollouts.mask_BT,
        rollouts.length_B,
        rollouts.truncated_B,
        rollouts.texts,
        strict=True,
    ):
        assert mask.tolist() == [True] * int(length) + [False] * (len(mask) - int(length))
        assert (ids[mask][-1] != eos) == truncated and eos not in ids[mask][:-1]
        assert len(text) == length - (0 if truncated else 1)
        assert (rollouts.completion_ids_BT[~rollouts.mask_BT] == policy.tokenizer.pad_token_id).all()
    assert rollouts.num_tokens == 32 * 6 + int(rollouts.length_B.sum())


def draws(count):
    return torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_sampling_follows_the_softmax():
    logits = torch.tensor([2.0, 1.0, 0.0])
    token_B, logp_B, entropy_B = choose(logits.expand(60_000, 3), 2.0, draws(60_000))
    expected = torch.softmax(logits / 2.0, 0)
    share = torch.bincount(token_B, minlength=3) / 60_000
    assert torch.allclose(share, expected, atol=0.01)  # five standard deviations of a share are 0.01
    assert torch.allclose(logp_B, expected.log()[token_B])
    assert torch.allclose(entropy_B, -(expected * expected.log()).sum())


def test_the_same_seed_gives_the_same_completions(policy):
    assert generate(policy, MIXED, seed=1).texts == generate(policy, MIXED, seed=1).texts
    assert generate(policy, MIXED, seed=1).texts != generate(policy, MIXED, seed=2).texts


def test_non_finite_logits_give_a_token_and_show_in_its_log_probability():
    token_B, logp_B, entropy_B = choose(torch.full((2, 5), math.nan), 1.0, draws(2))
    assert token_B.shape == (2,) and logp_B.isnan().all() and entropy_B.isnan().all()


def test_a_forbidden_token_adds_nothing_to_the_entropy():
    _, _, entropy_B = choose(torch.tensor([[0.0, 0.0, -math.inf]]), 1.0, draws(1))
    assert entropy_B.tolist() == pytest.approx([math.log(2)])


def test_entropy_of_a_forbidden_token_is_0_and_not_nan():
    policy = load_policy("builtin", "addition", CPU)
    rollouts = generate(policy, ["37+58="], max_completion=4)

    def forbid(model, args, output):
        output.logits[..., -1] = -math.inf

    policy.model.register_forward_hook(forbid)
    assert Scorer().logps(policy.model, rollouts, 1.0)[1].isfinite().all()


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_tokenizer_round_trip(task):
    tokenizer = build_tokenizer(task.symbols)
    tags = [symbol for symbol in task.symbols if len(symbol) > 1]
    for problem in task.held_out(20):
        text = problem.prompt + task.demonstration(problem, 5)
        ids = tokenizer(text)["input_ids"]
        num_tokens = len(text) - sum(text.count(tag) * (len(tag) - 1) for tag in tags)
        assert ids[0] == tokenizer.bos_token_id and len(ids) == 1 + num_tokens
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids[1:]) == text


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_shipped_tokenizer_is_the_one_in_the_code(task):
    shipped, built = load_policy("builtin", task.name, CPU).tokenizer, build_tokenizer(task.symbols)
    assert shipped.get_vocab() == built.get_vocab() and shipped.padding_side == "left"
    problem = task.held_out(1)[0]
    text = problem.prompt + task.demonstration(problem, 0)
    ids = shipped(text)["input_ids"]
    assert ids == built(text)["input_ids"] and shipped.decode(ids[1:]) == text


def test_the_built_in_model_is_tiny():
    model = build_model(build_tokenizer())
    assert 100_000 < sum(p.numel() for p in model.parameters()) < 120_000


def test_a_completion_ends_where_a_table_of_positions_does():
    tokenizer = build_tokenizer()
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_positions=12, n_embd=16, n_layer=1, n_head=2))
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    policy = Policy(model.eval(), tokenizer)
    rollouts = generate(policy, ["1+1=", "37+58="], group_size=8, max_completion=65536)
    # with their <bos> the prompts have 5 and 7 tokens: each row may use up its own rest, a long one cuts no other short
    assert [int(length_B.max()) for length_B in rollouts.length_B.split(8)] == [7, 5]
    assert torch.equal(
        rollouts.truncated_B,
        rollouts.completion_ids_BT.gather(1, rollouts.length_B[:, None] - 1)[:, 0] != tokenizer.eos_token_id,
    )
    assert rollouts.truncated_B[:8].any() and rollouts.truncated_B[8:].any()
    with pytest.raises(ValueError, match="prompt of 12 tokens leaves no room in a model with 12 positions"):
        generate(policy, ["1+1=", "1234567890="])


def test_a_tokenizer_of_another_model_is_named_as_such(policy):
    for ids, what in (([], "no token at all"), ([1, 999], "token 999 of a model with 44")):
        with pytest.raises(ValueError, match=f"{what}.*belongs to another model"):
            Sampler(policy).generate([[1, 5], ids], Sampling(1, 1.0, 2, 0))


@pytest.mark.parametrize("damage", ["weights cut short", "other shapes", "no configuration"])
def test_a_damaged_model_folder_is_refused_in_words(policy, tmp_path, damage):
    policy.model.save_pretrained(tmp_path)
    policy.tokenizer.save_pretrained(tmp_path)
    config, weights = tmp_path / "config.json", tmp_path / "model.safetensors"
    match damage:
        case "weights cut short":
            weights.write_bytes(weights.read_bytes()[:1000])
        case "other shapes":
            config.write_text(json.dumps(json.loads(config.read_text()) | {"hidden_size": 32}))
        case "no configuration":
            config.unlink()
    with pytest.raises(ValueError, match="cannot be loaded as a causal language model"):
        load_policy(str(tmp_path), "length", CPU)


def test_pickled_weights_are_refused_with_the_way_to_convert_them(policy, tmp_path):
    policy.model.save_pretrained(tmp_path)
    policy.tokenizer.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(policy.model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pickled.*save_pretrained"):
        load_policy(str(tmp_path), "length", CPU)


# --- which tokens may be drawn ----------------------------------------------------------------------------------------


def slow_allowed(chances, cut):
    """Expected tokens: the k likeliest, of those the likeliest until their share is p, of those the large ones."""
    order = sorted(range(len(chances)), key=lambda token: (-chances[token], token))
    left = order[: cut.top_k] if cut.top_k else order
    total, reached, kept = sum(chances[token] for token in left), 0.0, []
    for token in left:
        if kept and reached >= cut.top_p * total:
            break
        reached += chances[token]
        if not kept or chances[token] >= cut.min_p * chances[order[0]]:
            kept.append(token)
    return {token for token in kept if chances[token] > 0}


@pytest.mark.parametrize(
    "cut", [Cut(), Cut(top_k=3), Cut(top_p=0.7), Cut(min_p=0.3), Cut(4, 0.8, 0.1), Cut(top_k=1), Cut(top_p=1e-6)]
)
def test_allowed_tokens_equal_the_slow_version(cut):
    chances = torch.softmax(2 * torch.randn(50, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), -1)
    for row, fast in zip(chances.tolist(), allowed(chances, cut).tolist(), strict=True):
        assert {token for token, may in enumerate(fast) if may} == slow_allowed(row, cut)


def test_only_allowed_tokens_are_drawn_and_their_log_probability_is_of_the_full_distribution():
    logits = torch.tensor([[0.5, 0.2, 0.15, 0.1, 0.05]]).log().expand(1000, 5)
    draws = torch.arange(1000, dtype=torch.float64) / 1000
    token, logp, entropy = choose(logits, 1.0, draws, Cut(top_k=3, top_p=0.8))
    # 0.5 / 0.85 = 0.588, 0.7 / 0.85 = 0.824 reaches 0.8: two tokens, 5 to 2
    assert token.bincount().tolist() == [715, 285] or token.bincount().tolist() == [714, 286]
    assert logp.unique().tolist() == pytest.approx([math.log(0.2), math.log(0.5)])
    everything = choose(logits, 1.0, draws)
    assert torch.equal(entropy, everything[2]) and everything[0].max() == 4
    assert choose(logits, 0.0, draws, Cut(top_k=2))[0].unique().tolist() == [0]


def test_a_step_with_a_cut_is_on_policy_by_the_full_distribution(trainer):
    run = trainer("rollout.top_p=0.9", "rollout.top_k=20", "rollout.min_p=0.02")
    metrics = run.train_step().metrics
    assert metrics["policy/ratio_first_error"] < 1e-4 and run.train_step().metrics["policy/ratio_first_error"] < 1e-4


# --- texts that end a completion --------------------------------------------------------------------------------------


def test_a_completion_ends_with_a_stop_text_and_the_reward_reads_what_is_before_it(trainer):
    free = trainer("rollout.temperature=1.5", task="length", folder="free")
    plain = free.collector.episodes(knobs_of(free), prompts_of(free), lambda purpose: 7).rollouts
    pair = next(text[3:5] for text in plain.texts if len(text) > 8)  # two tokens, in the middle of a completion
    run = trainer("rollout.temperature=1.5", f"rollout.stop=['{pair}']", task="length")
    cut = run.collector.episodes(knobs_of(run), prompts_of(run), lambda purpose: 7).rollouts
    ended = 0
    for row, text in enumerate(plain.texts):
        before, found, _ = text.partition(pair)
        assert cut.texts[row] == before
        ended += bool(found)
        own = len(before) + 2 if found else int(plain.length_B[row])
        assert int(cut.length_B[row]) == own == int(cut.mask_BT[row].sum()) == int(cut.span_B[row])
        same = (cut.completion_ids_BT[row, :own] == plain.completion_ids_BT[row, :own]).all()
        assert same and not (found and cut.truncated_B[row])
        torch.testing.assert_close(cut.logp_BT[row, :own], plain.logp_BT[row, :own], atol=1e-4, rtol=0)
    assert 0 < ended
    assert run.train_step().metrics["policy/ratio_first_error"] < 1e-4


def test_generation_itself_ends_at_a_stop_text(policy):
    prompts = [policy.tokenizer("abcd:")["input_ids"]]
    free = Sampler(policy).generate(prompts, Sampling(8, 1.5, 30, 3))
    stop = free.texts[0][2:4]
    early = Sampler(policy).generate(prompts, Sampling(8, 1.5, 30, 3, stop_texts=(stop,)))
    assert int(early.length_B[0]) == free.texts[0].index(stop) + 2 < int(free.length_B[0])


def knobs_of(run):
    return read_knobs(run.controls, run.config.policy)


def prompts_of(run):
    return partial(run._place(knobs_of(run), 1).problems, run.task)
