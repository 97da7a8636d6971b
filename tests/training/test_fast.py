"""The fast forward pass equals the model's own, or refuses: on random tiny models of every architecture it names."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from stabilizer.training.fast.forward import turn
from stabilizer.training.fast.scorer import FastScorer
from stabilizer.training.fast.weights import refusal
from stabilizer.training.model import Policy, build_tokenizer
from stabilizer.training.rollout.engine import Sampling
from stabilizer.training.rollout.logprobs import Scorer
from stabilizer.training.rollout.sampler import Sampler

TOKENIZER = build_tokenizer()
SMALL = {
    "vocab_size": len(TOKENIZER), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 64, "initializer_range": 0.3,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}  # fmt: skip


def qwen2(**more):
    return Qwen2ForCausalLM(Qwen2Config(**{**SMALL, "num_key_value_heads": 2, "tie_word_embeddings": True, **more}))


def llama(**more):
    return LlamaForCausalLM(LlamaConfig(**{**SMALL, "num_key_value_heads": 4, "tie_word_embeddings": False, **more}))


def mistral(**more):
    config = {**SMALL, "num_key_value_heads": 1, "sliding_window": None, "tie_word_embeddings": False, **more}
    return MistralForCausalLM(MistralConfig(**config))


def qwen3(**more):
    return Qwen3ForCausalLM(Qwen3Config(**{**SMALL, "num_key_value_heads": 2, "head_dim": 16, **more}))


MODELS = {
    "qwen2, tied, grouped heads, QKV bias": qwen2,
    "qwen2, untied": lambda: qwen2(tie_word_embeddings=False),
    "qwen3, untied, head norms, wide heads": lambda: qwen3(tie_word_embeddings=False),
    "qwen3, tied": lambda: qwen3(tie_word_embeddings=True),
    "llama": llama,
    "llama, all biases, scaled rotary": lambda: llama(attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3),
    "mistral, one key head": mistral,
}
PROMPTS = {
    "equal lengths": ["abcd:", "wxyz:", "abcd:"],
    "padded": ["1+1=", "37+58=", "9", "abcdefgh:"],
}


@pytest.fixture(params=MODELS, ids=MODELS)
def policy(request, monkeypatch):
    """A model with random weights, its norms' weights and biases included, in eval mode."""
    torch.manual_seed(0)
    model = MODELS[request.param]()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    for module in model.modules():  # transformers' own norm is float32 whatever the model: no law could be tight
        if type(module).__name__.endswith("RMSNorm"):
            monkeypatch.setattr(type(module), "forward", exact_norm)
    return Policy(model.eval(), TOKENIZER)


def exact_norm(self, x):
    return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon))


def generate(policy, prompts, group_size=3, max_completion=7, temperature=0.8):
    ids = [TOKENIZER(prompt)["input_ids"] for prompt in prompts]
    return Sampler(policy).generate(ids, Sampling(group_size, temperature, max_completion, seed=3))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("prompts", PROMPTS.values(), ids=PROMPTS)
def test_the_sampler_reports_what_the_model_itself_says_of_its_completions(policy, prompts, dtype):
    policy.model.to(dtype)
    assert refusal(policy.model) is None
    rollouts = generate(policy, prompts)
    worst = 0.0
    for row in range(len(rollouts)):  # one at a time, without padding, cache or sharing
        prompt = rollouts.prompt_ids_BP[row][rollouts.prompt_mask_BP[row]]
        written = rollouts.completion_ids_BT[row][rollouts.mask_BT[row]]
        logits = policy.model(input_ids=torch.cat([prompt, written])[None]).logits[0, len(prompt) - 1 : -1]
        logp = torch.log_softmax(logits / 0.8, -1).gather(1, written[:, None])[:, 0]
        worst = max(worst, (logp - rollouts.logp_BT[row][rollouts.mask_BT[row]]).abs().max().item())
    # rotary angles are float32 on both sides
    assert worst < (1e-10 if dtype is torch.float64 else 3e-5)


@pytest.mark.parametrize("prompts", PROMPTS.values(), ids=PROMPTS)
def test_the_learner_gets_the_numbers_and_gradients_of_the_model_itself(policy, prompts):
    policy.model.double()
    rollouts = generate(policy, prompts)
    rollouts = rollouts.rows(torch.randperm(len(rollouts), generator=torch.Generator().manual_seed(0)))
    pull = torch.randn(2, *rollouts.mask_BT.shape, dtype=torch.float64)

    def numbers(scorer):
        policy.model.zero_grad()
        stats = scorer.logps(policy.model, rollouts, 0.8, entropy_grad=True, hidden=True)
        hidden_BTH = stats.hidden_BTH[rollouts.mask_BT]
        (stats.logp_BT * pull[0] + stats.entropy_BT * pull[1]).sum().add(hidden_BTH.square().sum()).backward()
        gradients = [p.grad.clone() for p in policy.model.parameters()]
        return [stats.logp_BT.detach(), stats.entropy_BT.detach(), hidden_BTH.detach(), *gradients]

    assert refusal(policy.model) is None
    for a, b in zip(numbers(FastScorer()), numbers(Scorer()), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("scorer", [FastScorer, Scorer])
def test_what_was_sampled_can_be_learned_from_and_holds_no_graph(scorer):
    policy = Policy(qwen2().eval(), TOKENIZER)
    rollouts = generate(policy, ["abcd:", "9"])
    for value in (rollouts.completion_ids_BT, rollouts.mask_BT, rollouts.logp_BT, rollouts.entropy_BT):
        assert not value.is_inference() and not value.requires_grad
    ratio_BT = (scorer().logps(policy.model, rollouts, 0.8).logp_BT - rollouts.logp_BT).exp()
    ratio_BT.sum().backward()
    assert all(parameter.grad is not None for parameter in policy.model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_in_half_precision_queries_are_turned_as_in_float32_and_rounded(dtype):
    qkv, rope = torch.randn(5, 3 * 8).to(dtype), torch.polar(torch.ones(5, 1, 4), torch.randn(5, 1, 4))
    wide, turned = qkv.float(), qkv.clone()
    turn(wide, rope, 16)
    turn(turned, rope, 16)
    assert torch.equal(turned, wide.to(dtype))
    assert torch.equal(turned[:, 16:], qkv[:, 16:])


def test_a_head_wider_than_the_rest_is_computed_as_it_is():
    torch.manual_seed(0)
    policy = Policy(qwen2().eval(), TOKENIZER)
    rollouts = generate(policy, ["abcd:", "9"])
    wide = FastScorer().logps(policy.model, rollouts, 0.8).logp_BT
    head = nn.Linear(policy.model.lm_head.in_features, policy.model.lm_head.out_features, bias=False)
    head.load_state_dict({"weight": policy.model.lm_head.weight.detach().clone()})
    policy.model.bfloat16().lm_head = head
    mixed = FastScorer().logps(policy.model, rollouts, 0.8).logp_BT
    assert mixed.dtype is torch.float32 and torch.allclose(mixed, wide, atol=0.25)  # 0.08 here, by bfloat16


def test_a_minibatch_is_cut_to_its_longest_row_and_comes_back_in_full_width():
    policy = Policy(qwen2().eval(), TOKENIZER)
    rollouts = generate(policy, ["abcd:", "9"], max_completion=20)
    first_BT = rollouts.mask_BT & (torch.arange(20) < 5)
    length_B = first_BT.sum(1)
    short = replace(rollouts, mask_BT=first_BT, logp_BT=rollouts.logp_BT * first_BT, length_B=length_B, span_B=length_B)
    stats = FastScorer().logps(policy.model, short, 0.8, hidden=True)
    assert stats.logp_BT.shape == short.mask_BT.shape == stats.hidden_BTH.shape[:2] == (6, 20)
    assert (stats.logp_BT[~short.mask_BT] == 0).all() and (stats.entropy_BT[~short.mask_BT] == 0).all()
    assert torch.allclose(stats.logp_BT, short.logp_BT, atol=1e-5)


def test_weights_changed_in_any_way_are_used_by_the_next_call():
    policy = Policy(qwen2().eval(), TOKENIZER)
    rollouts = generate(policy, ["abcd:"])
    before = FastScorer().logps(policy.model, rollouts, 0.8).logp_BT
    policy.model.model.layers[0].self_attn.q_proj.weight.data.mul_(-1.0)  # unseen by version counters
    after = FastScorer().logps(policy.model, rollouts, 0.8).logp_BT
    assert not torch.allclose(before, after)
    assert torch.allclose(after, Scorer().logps(policy.model, rollouts, 0.8).logp_BT, atol=1e-5)


def test_the_fast_path_does_not_call_the_model(monkeypatch):
    policy = Policy(qwen2().eval(), TOKENIZER)
    rollouts = generate(policy, ["abcd:"])

    def refuse(*args, **options):
        raise AssertionError("the model was called")

    monkeypatch.setattr(type(policy.model.model), "forward", refuse)
    FastScorer().logps(policy.model, rollouts, 0.8)
    with pytest.raises(AssertionError, match="the model was called"):
        Scorer().logps(policy.model, rollouts, 0.8)


def test_completions_of_one_token_are_predicted_from_their_prompts():
    policy = Policy(qwen2().eval(), TOKENIZER)
    rollouts = generate(policy, ["abcd:", "9"], max_completion=1)
    torch.testing.assert_close(FastScorer().logps(policy.model, rollouts, 0.8).logp_BT, rollouts.logp_BT)


def test_a_completion_is_the_same_beside_any_other_rows():
    policy = Policy(qwen2().eval().double(), TOKENIZER)
    together = generate(policy, ["abcd:", "9", "37+58="], group_size=8, max_completion=20)
    alone = generate(policy, ["abcd:"], group_size=24, max_completion=20)
    assert together.texts[:8] == alone.texts[:8] and len(set(together.length_B.tolist())) > 1


# --- what is left to transformers -----------------------------------------------------------------------------------


def hooked():
    model = qwen2()
    model.model.layers[0].mlp.register_forward_hook(lambda *args: None)
    return model


def patched():
    model = qwen2()
    model.model.norm.forward = lambda x: x
    return model


def hooked_before():
    model = qwen2()
    model.model.embed_tokens.register_forward_pre_hook(lambda *args: None)
    return model


def other_linear(path):
    model = qwen2()
    model.set_submodule(path, Wrapped(model.get_submodule(path)))
    return model


class Wrapped(nn.Linear):
    def __init__(self, inner):
        super().__init__(inner.in_features, inner.out_features)


def dropping():
    return llama(attention_dropout=0.1).train()


REFUSED = [
    ("architecture", lambda: GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=8))),
    ("sliding window", lambda: mistral(sliding_window=8)),
    ("rotary embedding", lambda: llama(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0})),
    ("activation", lambda: llama(hidden_act="gelu")),
    ("hook or another forward on model.layers.0.mlp", hooked),
    ("hook or another forward on model.embed_tokens", hooked_before),
    ("hook or another forward on model.norm", patched),
    ("linear layer of type Wrapped", lambda: other_linear("model.layers.1.self_attn.q_proj")),
    ("linear layer of type Wrapped", lambda: other_linear("model.layers.0.mlp.down_proj")),
    ("linear layer of type Wrapped", lambda: other_linear("lm_head")),
    ("dropout", dropping),
]


@pytest.mark.parametrize(("reason", "build"), REFUSED)
def test_what_is_not_implemented_is_refused_by_name(reason, build):
    model = build()
    assert reason in refusal(model)


def test_what_is_hooked_to_the_head_has_its_say():
    torch.manual_seed(0)
    policy = Policy(qwen2().double().eval(), TOKENIZER)
    rollouts = generate(policy, ["abcd:", "9"])
    policy.model.lm_head.register_forward_hook(lambda module, args, out: out / 2)
    warm, cold = (FastScorer().logps(policy.model, rollouts, t, head_dtype=None).logp_BT for t in (0.5, 1.0))
    assert not torch.allclose(warm, cold)
    policy.model.lm_head._forward_hooks.clear()
    assert torch.allclose(FastScorer().logps(policy.model, rollouts, 1.0, head_dtype=None).logp_BT, warm)


def test_a_model_whose_modules_know_their_owner_is_looked_through_once():
    model = qwen2()
    model.model.layers[0].owner = model
    assert refusal(model) is None
    model.model.norm.register_forward_hook(lambda *args: None)
    assert refusal(model) == "a hook or another forward on model.norm"


def test_gradient_checkpointing_is_left_to_transformers():
    model = qwen2()
    model.model.gradient_checkpointing = True
    assert refusal(model) == "gradient checkpointing"


def test_mixed_precision_is_left_to_transformers():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert refusal(qwen2()) == "mixed precision"
    assert refusal(qwen2()) is None


def test_a_refused_model_still_samples_and_learns_by_its_own_code():
    model = mistral(sliding_window=3).eval()  # shorter than the prompt: computed without a window all would differ
    policy = Policy(model.double(), TOKENIZER)
    rollouts = generate(policy, ["abcdefgh:", "9"])
    assert len(set(rollouts.length_B.tolist())) >= 1
    stats = FastScorer().logps(model, rollouts, 0.8)
    assert torch.allclose(stats.logp_BT, rollouts.logp_BT, atol=1e-5)


def test_a_model_with_logits_of_its_own_making_keeps_them():
    model = qwen2().eval()
    rollouts = generate(Policy(model, TOKENIZER), ["abcd:"])

    def forbid(module, args, output):
        output.logits[..., 5] = -math.inf

    model.register_forward_hook(forbid)
    stats = FastScorer().logps(model, rollouts, 0.8)
    allowed = (rollouts.completion_ids_BT != 5) & rollouts.mask_BT
    assert (stats.logp_BT[allowed] > rollouts.logp_BT[allowed]).all()  # what the fifth token had is shared out


def test_adapters_are_left_to_transformers():
    peft = pytest.importorskip("peft")
    model = qwen2(num_key_value_heads=4).eval()
    plain = generate(Policy(model, TOKENIZER), ["abcd:", "9"])
    model.add_adapter(peft.LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"], lora_dropout=0.0))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3, generator=torch.Generator().manual_seed(0))
    assert "Linear" in refusal(model)
    adapted = generate(Policy(model, TOKENIZER), ["abcd:", "9"])
    assert not torch.equal(plain.logp_BT[:, 0], adapted.logp_BT[:, 0])
    learner = FastScorer().logps(model, adapted, 0.8)
    assert learner.logp_BT.requires_grad and torch.allclose(learner.logp_BT, adapted.logp_BT, atol=1e-4)
