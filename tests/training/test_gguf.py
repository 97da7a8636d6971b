"""A model in one GGUF file: loaded, trained like any other, and saved as a folder."""

import sys

import pytest
import torch
import transformers as hf

from stabilizer.training.config import load_config
from stabilizer.training.memory import needed
from stabilizer.training.model import load_policy

gguf = pytest.importorskip("gguf", reason="pip install '.[gguf]'")
CPU = torch.device("cpu")
WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"0123456789+=abcdefgh", "Ġ", "Ċ", "ab"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"
NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}  # fmt: skip


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    return hf.LlamaForCausalLM(
        hf.LlamaConfig(
            vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True, rope_theta=1e5,
        )
    ).eval()  # fmt: skip


@pytest.fixture(scope="module")
def file(llama, tmp_path_factory):
    """The model as llama.cpp writes it, with matrices in 8 bits."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.Q8_0.gguf"
    writer, config = gguf.GGUFWriter(path, "llama"), llama.config
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(1e5)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, 3, *[1] * (len(WORDS) - 3)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in _tensors(llama):
        values = tensor.detach().numpy()
        if values.ndim == 1:
            writer.add_tensor(name, values)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
    for step in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{step}_to_file")()
    writer.close()
    return path


def _tensors(llama):
    yield "token_embd.weight", llama.model.embed_tokens.weight
    yield "output_norm.weight", llama.model.norm.weight
    for i, block in enumerate(llama.model.layers):
        for name, ours in NAMES.items():
            tensor = block.get_submodule(ours).weight
            heads = {"attn_q": 4, "attn_k": 2}.get(name)
            if heads:  # llama.cpp keeps the two numbers of a rotated pair beside each other
                tensor = tensor.view(heads, 2, -1, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
            yield f"blk.{i}.{name}.weight", tensor


def test_its_weights_are_plain_tensors_that_compute_what_the_model_did(llama, file):
    policy = load_policy(str(file), "data", CPU)
    ids = torch.tensor([[1, 3, 4, 13, 5, 14]])
    assert type(policy.model.model.layers[0].mlp.up_proj) is torch.nn.Linear
    with torch.no_grad():
        assert torch.allclose(policy.model(ids).logits, llama(ids).logits, atol=0.02)  # 8 bits
    assert all(parameter.requires_grad for parameter in policy.model.parameters())
    assert policy.tokenizer.padding_side == "left"
    assert policy.tokenizer.eos_token_id == 2
    text = policy.tokenizer.apply_chat_template([{"role": "user", "content": "1+2="}], tokenize=False)
    assert policy.tokenizer(text)["input_ids"] == [1, 4, 13, 5, 14, 2]


def test_it_is_saved_as_a_folder_that_loads_again(file, tmp_path):
    policy = load_policy(str(file), "data", CPU)
    policy.model.save_pretrained(tmp_path)
    policy.tokenizer.save_pretrained(tmp_path)
    again = load_policy(str(tmp_path), "data", CPU)
    for (name, one), other in zip(policy.model.named_parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other), name
    assert again.tokenizer.chat_template == TEMPLATE


def test_its_memory_is_predicted_without_loading_it(llama, file):
    config = load_config("addition", [f"model={file}"])
    need = needed(config, prompt_tokens=8)
    assert need.weights == 4 * sum(parameter.numel() for parameter in llama.parameters())


@pytest.mark.parametrize("missing", ["file", "package"])
def test_what_is_missing_is_named(file, missing, monkeypatch):
    if missing == "file":
        with pytest.raises(ValueError, match="no such file"):
            load_policy("./absent.gguf", "data", CPU)
        return
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ValueError, match=r"needs gguf and accelerate.*pip install"):
        load_policy(str(file), "data", CPU)
