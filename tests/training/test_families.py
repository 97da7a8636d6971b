"""Models of other families, tiny and with random weights: sampled from, learned with, saved and loaded."""

from functools import partial

import pytest
import torch
import transformers as hf

from stabilizer.training.knobs import read as read_knobs
from stabilizer.training.model import Policy, add_adapters, build_tokenizer, load_policy, merged_state
from stabilizer.training.rollout.engine import Sampling
from stabilizer.training.rollout.logprobs import Scorer, has_plain_head
from stabilizer.training.rollout.sampler import Sampler
from stabilizer.training.rollout.synced import checkpoint_weights

TOKENIZER = build_tokenizer()
IDS = {"bos_token_id": TOKENIZER.bos_token_id, "eos_token_id": TOKENIZER.eos_token_id,
       "pad_token_id": TOKENIZER.pad_token_id, "vocab_size": len(TOKENIZER)}  # fmt: skip
SHAPE = {**IDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
FAMILIES = {
    "GPT-2": lambda: hf.GPT2Config(**IDS, n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "GPT-Neo, a mask of fixed size": lambda: hf.GPTNeoConfig(
        **IDS,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        max_position_embeddings=64,
    ),
    "Gemma 3, sliding window": lambda: hf.Gemma3TextConfig(**SHAPE, sliding_window=4, query_pre_attn_scalar=8),
    "BLOOM, biases for positions": lambda: hf.BloomConfig(**IDS, hidden_size=32, n_layer=2, n_head=4),
    "Mixtral, experts": lambda: hf.MixtralConfig(**SHAPE, num_local_experts=4),
    "LFM2, convolutions": lambda: hf.Lfm2Config(
        **SHAPE, block_ff_dim=64, layer_types=["conv", "full_attention"], conv_L_cache=3
    ),
    "Qwen3-Next, a recurrence and experts": lambda: hf.Qwen3NextConfig(
        **SHAPE | {"num_hidden_layers": 4}, **EXPERTS, **LINEAR, shared_expert_intermediate_size=16
    ),
}


def built(config):
    torch.manual_seed(0)
    return Policy(hf.AutoModelForCausalLM.from_config(config).eval(), TOKENIZER)


def saved(policy, folder):
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_learner_finds_what_was_sampled_as_likely_as_the_sampler_did(family):
    policy = built(FAMILIES[family]())
    prompts = [TOKENIZER(text)["input_ids"] for text in ("12345678+9=", "7+1=", "60+5=")]
    rollouts = Sampler(policy).generate(prompts, Sampling(4, 0.8, 12, seed=3))
    assert rollouts.padded and len(set(rollouts.length_B.tolist())) > 1  # rows were padded, and some left early
    stats = Scorer().logps(policy.model, rollouts, 0.8)
    assert torch.allclose(stats.logp_BT, rollouts.logp_BT, atol=2e-5)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name.startswith("GPT")])
def test_rows_that_use_up_all_positions_beside_longer_prompts_are_learned_from(family):
    policy = built(FAMILIES[family]())
    prompts = [[4 + (row + place) % 30 for place in range(length)] for row, length in enumerate((5, 50, 63, 40))]
    rollouts = Sampler(policy).generate(prompts, Sampling(4, 0.8, 100, seed=3))
    assert [int(length_B.max()) for length_B in rollouts.length_B.split(4)][1:] == [14, 1, 24]  # 64 - the prompt
    assert 24 < int(rollouts.length_B.max()) <= 59  # as one block they would need 63 + this many
    stats = Scorer().logps(policy.model, rollouts, 0.8, hidden=True)
    assert torch.allclose(stats.logp_BT, rollouts.logp_BT, atol=2e-5)
    some = torch.tensor([1, 6, 9])  # a minibatch, whose rows are shorter than the block
    alone = Scorer().logps(policy.model, rollouts.rows(some), 0.8, hidden=True)
    mask_BT = rollouts.mask_BT[some]
    assert torch.allclose(alone.logp_BT, stats.logp_BT[some], atol=2e-5)
    assert torch.allclose(alone.hidden_BTH[mask_BT], stats.hidden_BTH[some][mask_BT], atol=2e-5)


HEADS = {
    "GPT-2, as it is": (FAMILIES["GPT-2"], lambda logits: logits),
    "Gemma 2, held within 30": (
        lambda: hf.Gemma2Config(**SHAPE, query_pre_attn_scalar=8), lambda logits: 30 * torch.tanh(logits / 30),
    ),
    "Cohere, scaled": (lambda: hf.CohereConfig(**SHAPE, logit_scale=0.25), lambda logits: 0.25 * logits),
    "Phi, with a bias": (lambda: hf.PhiConfig(**SHAPE), lambda logits: logits),
}  # fmt: skip


@pytest.mark.parametrize("precision", ["bfloat16", "mixed"])
@pytest.mark.parametrize(("config", "after"), HEADS.values(), ids=HEADS)
def test_the_last_product_of_any_family_can_be_in_float32_and_what_comes_after_it_stays(config, after, precision):
    policy = built(config())
    model, head = policy.model, policy.model.get_output_embeddings()
    with torch.no_grad():
        head.weight.mul_(10)  # logits that rounding is seen in
        if head.bias is not None:
            head.bias.normal_()
    model.to(torch.bfloat16 if precision == "bfloat16" else torch.float32)
    arithmetic = torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "mixed")
    with arithmetic:
        rollouts = Sampler(policy).generate([TOKENIZER("7+1=")["input_ids"]], Sampling(4, 1.0, 8, seed=3))
        wide, short = (Scorer().logps(model, rollouts, 1.0, head_dtype=dtype) for dtype in (torch.float32, None))
        ids = torch.cat([rollouts.prompt_ids_BP, rollouts.completion_ids_BT], dim=1)
        hidden = model.base_model(ids[:, :-1], use_cache=False).last_hidden_state[:, -rollouts.mask_BT.shape[1] :]
    bias = None if head.bias is None else head.bias.float()
    logits = after(torch.nn.functional.linear(hidden.float(), head.weight.float(), bias))
    expected = torch.log_softmax(logits, -1).gather(2, rollouts.completion_ids_BT[..., None])[..., 0]
    mask_BT = rollouts.mask_BT
    assert torch.allclose(wide.logp_BT[mask_BT], expected[mask_BT], atol=1e-5)
    assert (short.logp_BT - expected)[mask_BT].abs().max() > 1e-3
    wide.logp_BT.sum().backward()
    assert head.weight.grad.dtype is head.weight.dtype and head.weight.grad.any()
    assert "forward" not in vars(head)


def test_a_head_with_adapters_or_a_hook_is_left_alone():
    pytest.importorskip("peft")
    prompts = [TOKENIZER("7+1=")["input_ids"]]
    for family in ("GPT-2", "Gemma 3, sliding window"):
        policy = built(FAMILIES[family]())
        policy.model.to(torch.bfloat16)
        assert has_plain_head(policy.model)
        policy.model.lm_head.register_forward_hook(lambda module, given, logits: -logits)
        assert not has_plain_head(policy.model)
        rollouts = Sampler(policy).generate(prompts, Sampling(2, 1.0, 8, seed=3))
        wide, short = (
            Scorer().logps(policy.model, rollouts, 1.0, head_dtype=dtype).logp_BT for dtype in (torch.float32, None)
        )
        assert torch.equal(wide, short)
    adapted = built(FAMILIES["Gemma 3, sliding window"]())
    add_adapters(adapted.model, rank=2, alpha=8.0, targets="lm_head", seed=0)
    assert not has_plain_head(adapted.model)


@pytest.mark.parametrize(
    "config",
    [
        lambda: hf.MambaConfig(**IDS, hidden_size=32, num_hidden_layers=2, state_size=4),
        lambda: hf.RwkvConfig(**IDS, hidden_size=32, num_hidden_layers=2, context_length=64),
    ],
)
def test_a_model_that_takes_no_cache_is_refused_and_not_sampled_from_blindly(config):
    policy = built(config())
    with pytest.raises(ValueError, match=f"a {type(policy.model).__name__} can't be sampled from"):
        Sampler(policy)


@pytest.mark.parametrize(
    "config",
    [
        lambda: hf.OPTConfig(
            **IDS, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
            word_embed_proj_dim=32, dropout=0.5, attention_dropout=0.5, layerdrop=0.5,
        ),
        lambda: hf.LlamaConfig(**SHAPE, attention_dropout=0.5),
        lambda: hf.MixtralConfig(**SHAPE, num_local_experts=4, router_jitter_noise=0.5),
        lambda: hf.GPT2Config(**IDS, n_embd=32, n_layer=2, n_head=4, n_positions=64),  # a tenth, unless told otherwise
    ],
)  # fmt: skip
def test_nothing_is_random_in_training_mode_wherever_a_model_keeps_its_rates(config, tmp_path):
    model = load_policy(saved(built(config()), tmp_path), "addition", torch.device("cpu")).model
    ids = torch.tensor([TOKENIZER("12+34=")["input_ids"]])
    calm = model(ids).logits
    model.train()
    assert torch.allclose(model(ids).logits, calm, atol=1e-5)


def test_adapters_of_the_experts_of_a_mixture_are_merged_and_handed_over():
    pytest.importorskip("peft")
    policy, plain = (built(FAMILIES["Mixtral, experts"]()) for _ in range(2))
    add_adapters(policy.model, rank=2, alpha=8.0, targets="all-linear", seed=0)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    ids = torch.tensor([TOKENIZER("12+34=")["input_ids"]])
    said = policy.model(ids).logits
    assert not torch.allclose(plain.model(ids).logits, said, atol=1e-3)
    plain.model.load_state_dict(merged_state(policy.model))
    assert torch.allclose(plain.model(ids).logits, said, atol=1e-5)
    handed = dict(checkpoint_weights(policy.model))
    assert handed.keys() == dict(plain.model.named_parameters()).keys()
    assert all(torch.allclose(handed[name], weight, atol=1e-6) for name, weight in plain.model.named_parameters())


def test_a_mixture_of_experts_learns_to_spread_its_tokens(trainer, tmp_path):
    folder = saved(built(FAMILIES["Mixtral, experts"]()), tmp_path / "mixtral")
    runs = {
        coef: trainer(f"model={folder}", f"policy.router_aux_coef={coef}", "optim.micro_batch=8", folder=str(coef))
        for coef in ("null", "0", "3")
    }
    twin = trainer(f"model={folder}", folder="twin")
    knobs = read_knobs(twin.controls, twin.config.policy)
    episodes = twin.collector.episodes(knobs, partial(twin._place(knobs, 1).problems, twin.task), lambda _: 5)
    rollouts = episodes.rollouts
    with torch.no_grad():
        scored = Scorer().logps(twin.policy.model, rollouts, 1.0, balance=True)
        plain = twin.policy.model(
            input_ids=torch.cat([rollouts.prompt_ids_BP, rollouts.completion_ids_BT], 1)[:, :-1],
            output_router_logits=True,
        )
    assert not rollouts.padded and scored.balance_BT.sum().item() / 16 == pytest.approx(plain.aux_loss.item(), rel=1e-5)
    first = {coef: run.train_step().metrics for coef, run in runs.items()}
    assert "policy/router_aux" not in first["0"], "nothing is computed for a weight of 0"
    assert first["null"]["policy/router_aux"] == pytest.approx(first["3"]["policy/router_aux"], rel=0.1)
    assert first["null"]["policy/loss"] == pytest.approx(first["0"]["policy/loss"], abs=1e-5)
    for _ in range(12):
        last = {coef: run.train_step().metrics for coef, run in runs.items()}
    assert last["3"]["policy/router_aux"] < last["null"]["policy/router_aux"]


def test_a_weight_for_the_routers_of_a_model_without_any_is_refused(trainer):
    with pytest.raises(ValueError, match="policy.router_aux_coef = 0.1: a Qwen2ForCausalLM reports no router logits"):
        trainer("policy.router_aux_coef=0.1")
    assert "policy/router_aux" not in trainer().train_step().metrics
