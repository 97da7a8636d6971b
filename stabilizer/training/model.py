"""The policy: the built-in tiny model, or any causal language model that `transformers` can load.

The built-in one is a Qwen2 of 110k parameters (hidden 64, 2 layers, 2 heads of 32, tied embeddings) over characters.
Heads are 32 wide because that is the narrowest vLLM accepts on a CPU.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.utils.logging import disable_progress_bar

from stabilizer.core.paths import expanded

BUILTIN = "builtin"
GGUF = ".gguf"
"""End of the name of a file that holds a model as llama.cpp reads it."""
WARM_STARTS = Path(__file__).parent / "warmstart"
"""One folder of starting weights per task, made by `warm_start.py`."""

TO_SAFETENSORS = (
    "convert them once, where you trust them: `AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW)`, then"
    " use the new folder"
)
"""What to do with a model whose weights are pickled."""

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
CHARACTERS = string.digits + "+=>:" + string.ascii_lowercase


class Policy(NamedTuple):
    """A model with the tokenizer it was trained with."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase


def build_tokenizer(symbols: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """One token per character, the same for every built-in task except for its `symbols`; a prompt begins with `<bos>`.

    A symbol is another character, or a tag of several characters that is one token. White space is spelled as in
    byte-level tokenizers, because `AutoTokenizer` reads the files of any Qwen2 model with Qwen2's byte-level tokenizer.
    """
    names = (symbol.replace(" ", "Ġ").replace("\n", "Ċ") for symbol in symbols)
    vocabulary = {token: i for i, token in enumerate((*SPECIAL, *CHARACTERS, *names))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))  # noqa: S106 (a token of text, no secret)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", vocabulary["<bos>"])]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(symbol, normalized=False) for symbol in symbols if len(symbol) > 1])
    pad, bos, eos, unk = SPECIAL
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        bos_token=bos,
        eos_token=eos,
        unk_token=unk,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def build_model(tokenizer: PreTrainedTokenizerBase) -> Qwen2ForCausalLM:
    """The built-in model with random weights, drawn from torch's global generator."""
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=192,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=256,
            tie_word_embeddings=True,
            initializer_range=0.1,  # with the usual 0.02 so narrow a model does not learn for a thousand steps
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def _only_pickles(folder: Path) -> bool:
    """Whether the only weights of a model folder are pickled."""
    return any(folder.glob("pytorch_model*.bin")) and not any(folder.glob("*.safetensors"))


class Source(NamedTuple):
    """Where the starting policy is."""

    folder: str
    """A folder, or a name on the hub."""
    more: dict[str, Any]
    """Further arguments of `from_pretrained`: the name of a GGUF file in the folder."""


def source_of(model: str, task: str) -> Source:
    """Where the starting policy of this value of `model` is; ValueError if there is nothing."""
    kind, _, start = model.partition(":")
    model = str(expanded(model, f"model = {model!r}")) if model.startswith("~") else model
    source = str(WARM_STARTS / (start or task)) if kind == BUILTIN else model
    if kind == BUILTIN and not Path(source).is_dir():
        there = ", ".join(sorted(folder.name for folder in WARM_STARTS.iterdir()))
        raise ValueError(f"model = {model!r}: no warm start for task {start or task!r}; there are {there}")
    if kind != BUILTIN and model.endswith(GGUF) and Path(model).is_file():
        if not (find_spec("gguf") and find_spec("accelerate")):
            raise ValueError(
                f"model = {model!r}: needs gguf and accelerate; pip install '.[gguf]' in the project's folder"
            )
        return Source(str(Path(model).parent), {"gguf_file": Path(model).name})
    if kind != BUILTIN and _is_path(model) and not Path(model).is_dir():
        what = "file" if model.endswith(GGUF) else "folder"
        raise ValueError(f"model = {model!r}: no such {what} (a name on the hub looks like OWNER/NAME)")
    if kind != BUILTIN and _only_pickles(Path(source)):
        raise ValueError(f"model = {model!r}: its weights are pickled, and a pickle can run any code: {TO_SAFETENSORS}")
    return Source(source, {})


def load_policy(
    model: str, task: str, device: torch.device, dtype: torch.dtype = torch.float32, *, attention: str = "auto"
) -> Policy:
    """The starting policy: the warm start of `task` for 'builtin', of another task for 'builtin:TASK', otherwise a
    folder, a GGUF file or a name on the hub.

    Code that comes with a model is never run. Dropout is disabled whatever the model configures; with dropout the
    sampler and the learner would be two different policies.
    """
    disable_progress_bar()  # two progress bars for a load of milliseconds would disturb the display of the run
    folder, more = source_of(model, task)
    try:
        chosen = more | _unpacked(more) | ({} if attention == "auto" else {"attn_implementation": attention})
        network: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, trust_remote_code=False, use_safetensors=True, **chosen
        )
        if quantizer := getattr(network, "hf_quantizer", None) if more else None:
            quantizer.remove_quantization_config(network)  # its weights are plain now, and can be saved
        tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left", trust_remote_code=False, **more)
    except Exception as error:  # many kinds: no such folder, another architecture, truncated weights, other shapes
        hint = f"; if its weights are pickled: {TO_SAFETENSORS}" if "safetensors" in str(error) else ""
        raise ValueError(f"model = {model!r}: cannot be loaded as a causal language model: {error}{hint}") from error
    if tokenizer.eos_token_id is None:
        raise ValueError(f"model = {model!r}: its tokenizer has no end token, so no completion could ever end")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    for parameter in network.parameters():  # copy the weights: the file may be mapped, and change during the run
        parameter.data = parameter.data.clone()
    _silence(network)
    return Policy(network.to(device).eval(), tokenizer)


def _unpacked(more: dict[str, Any]) -> dict[str, Any]:
    """Arguments that turn the quantized weights of a GGUF file into plain tensors, which can be trained. Older releases
    of `transformers` always do."""
    kind: Any = getattr(transformers, "GgufConfig", None)
    return {"quantization_config": kind(dequantize=True)} if more and kind else {}


def _is_path(model: str) -> bool:
    """Whether this can only be a folder or a file: no name on the hub begins like that or has more than two parts."""
    return model.startswith(("/", ".")) or model.endswith(("/", GGUF)) or model.count("/") > 1


def _silence(model: PreTrainedModel) -> None:
    """Remove all randomness from the forward pass in every mode, because activations are recomputed in training mode.
    That covers dropout and router noise, set in a module, stored as a rate, or read from the configuration."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for holder in (module, getattr(module, "config", None)):
            rates = vars(holder).items() if holder is not None else ()
            for name in [name for name, rate in rates if isinstance(rate, float) and _RANDOM.search(name)]:
                setattr(holder, name, 0.0)


_RANDOM = re.compile("drop|jitter")


def add_adapters(model: PreTrainedModel, *, rank: int, alpha: float, targets: str, seed: int) -> None:
    """Freeze the model and give its linear layers low-rank adapters that start at 0 (LoRA, Hu et al. 2021)."""
    try:
        from peft import LoraConfig
    except ImportError:
        raise ValueError(
            f"lora.rank = {rank}: adapters need peft; pip install '.[lora]' in the project's folder"
        ) from None
    names = targets if targets == "all-linear" else [name.strip() for name in targets.split(",")]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            config: Any = LoraConfig  # its annotation of lora_alpha allows no fraction, but its arithmetic does
            model.add_adapter(config(r=rank, lora_alpha=alpha, target_modules=names, lora_dropout=0.0))
        except ValueError as error:
            raise ValueError(f"lora.targets = {targets!r}: {error}") from None
    for parameter in model.parameters():
        if parameter.requires_grad:  # adapters in bfloat16 would lose most of a small update
            parameter.data = parameter.data.float()


@torch.no_grad()
def merged_state(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The model's weights with its adapters added, under the names of the model without adapters."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    state = {n.replace(".base_layer", ""): t.clone() for n, t in model.state_dict().items() if ".lora_" not in n}
    layers: Iterable[tuple[str, Any]] = model.named_modules()
    adapted: Any = BaseTunerLayer
    for name, layer in layers:
        if isinstance(layer, adapted):
            for adapter in layer.active_adapters:
                state[adapted_name(name, layer)] += layer.get_delta_weight(adapter)
    return state


def adapted_name(name: str, layer: Any) -> str:
    """The name of the parameter that an adapted layer changes, in the model without adapters. Experts of a mixture are
    not separate layers but slices of one parameter; if several parameters of a module are adapted, the layers are
    nested."""
    return f"{name.replace('.base_layer', '')}.{getattr(layer, 'parameter_name', 'weight')}"
