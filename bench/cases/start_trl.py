"""Starts an Open-R1 command in the TRL of an environment: its own flags, a tiny random model, and no vLLM.

    python -m torch.distributed.run --nproc_per_node 7 bench/cases/start_trl.py COMMAND.sh [--flag value ...]

Flags behind the file replace those in it. What is replaced besides: the model, the data, the rewards and the engine;
none of them takes part in the rule that refused the command. It trains two steps and prints one line, or fails as TRL
does.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

LOCAL = ("--output_dir", "--max_steps", "2", "--report_to", "none", "--save_strategy", "no", "--use_cpu", "true")
"""Flags of this machine: a processor, two steps, nothing kept."""
DROPPED = ("--bf16", "--use_vllm", "--vllm_device", "--vllm_gpu_memory_utilization", "--max_completion_length")
"""Flags of the case that need its GPUs or its model."""
ANSWER = "8"
"""Longest answer of the tiny model, in tokens."""


def flags(command: str) -> list[str]:
    """The training flags of a launch command: what follows its script."""
    lines = " ".join(line for line in command.splitlines() if not line.lstrip().startswith("#"))
    words = shlex.split(lines.replace("\\", " "))
    return words[next(place for place, word in enumerate(words) if word.endswith(".py")) + 1 :]


def without(words: list[str], names: tuple[str, ...]) -> list[str]:
    """Flags less those names with their values."""
    kept: list[str] = []
    dropping = False
    for word in words:
        if word.startswith("--"):
            dropping = word in names
        if not dropping:
            kept.append(word)
    return kept


def tiny() -> tuple[Any, Any]:
    """A random model that writes digits, and its tokenizer."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    pad, end = "<pad>", "<eos>"
    words = [pad, end, *"0123456789+="]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=pad))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    reads = PreTrainedTokenizerFast(tokenizer_object=made, pad_token=pad, eos_token=end, padding_side="left")
    torch.manual_seed(0)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=64, eos_token_id=1, pad_token_id=0, bos_token_id=None,
        )
    ), reads  # fmt: skip


def main(path: str, *changed: str) -> None:
    """Train two steps with the flags of the file."""
    import torch
    import trl
    from datasets import Dataset
    from transformers import HfArgumentParser, set_seed
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)
    replaced = tuple(word for word in changed if word.startswith("--"))
    words = without(flags(Path(path).read_text()), (*DROPPED, *LOCAL, *replaced))
    with tempfile.TemporaryDirectory() as folder:
        words += [*LOCAL[:1], folder, *LOCAL[1:], "--max_completion_length", ANSWER, *changed]
        args, _ = HfArgumentParser(GRPOConfig).parse_args_into_dataclasses(words, return_remaining_strings=True)
        model, reads = tiny()
        set_seed(args.seed)
        data = Dataset.from_dict({"prompt": [f"{a}+{b}=" for a in range(10) for b in range(10)]})
        with contextlib.redirect_stdout(io.StringIO()) if int(os.environ.get("RANK", 0)) else contextlib.nullcontext():
            trainer = GRPOTrainer(
                model=model, processing_class=reads, args=args, train_dataset=data,
                reward_funcs=lambda completions, **others: [float(text.count("1")) for text in completions],
            )  # fmt: skip
            trainer.train()
            print(
                f"trl {trl.__version__}: {trainer.state.global_step} steps done, {args.world_size} processes x"
                f" {args.per_device_train_batch_size} per device x {args.gradient_accumulation_steps} accumulated,"
                f" {args.num_generations} answers a prompt"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
