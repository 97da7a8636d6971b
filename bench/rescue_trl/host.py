"""The run that something happens to: TRL's own GRPOTrainer teaches a tiny model a chain of three tokens.

A prompt is one of ten letters; the right answer is its digit, the digit's capital and the end. The reward of a
completion is the share of these three tokens that it gets right. The policy begins with demonstrations at about half of
the greatest reward, as in the other half of RescueBench, and has learned most of what it will by the end. What counts
is the mean reward of sampled answers at temperature 1 to every prompt, by the policy as it is: a setting may spoil the
training, not the yardstick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

PAD, EOS = "<pad>", "<eos>"
LETTERS = "abcdefghij"
WORDS = [PAD, EOS, *LETTERS, *"0123456789", *"ABCDEFGHIJ"]
STEP = len(LETTERS)
"""A letter's digit is so many tokens further on, and so is a digit's capital."""
LENGTH, LONGEST = 3, 6
"""Tokens of the right answer, and those that an answer may have."""
STEPS = 180
GROUP, PROMPTS = 8, 6
"""Answers of a prompt, and prompts of a step."""
SETTINGS: dict[str, Any] = {
    "max_steps": STEPS, "per_device_train_batch_size": GROUP * PROMPTS, "gradient_accumulation_steps": 1,
    "num_generations": GROUP, "max_completion_length": LONGEST, "learning_rate": 2.5e-3, "num_iterations": 2,
    "lr_scheduler_type": "linear", "beta": 0.02, "epsilon": 0.2, "temperature": 1.0, "loss_type": "grpo",
    "use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no", "disable_tqdm": True,
    "logging_steps": STEPS, "max_grad_norm": 1.0, "gradient_checkpointing": False,
}  # fmt: skip
DEMONSTRATIONS = 60
"""Steps of imitation before the training."""
MEASURED = 32
"""Answers to each letter by which a policy is measured."""


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a character."""
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=PAD))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token=PAD, eos_token=EOS, padding_side="left")


def start(seed: int, folder: Path) -> Path:
    """The folder of the starting policy of a seed; made if it is not there."""
    place = folder / f"start-{seed}"
    if (place / "model.safetensors").exists():
        return place
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=64, eos_token_id=1, pad_token_id=0, bos_token_id=None,
        )
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    noise = torch.Generator().manual_seed(seed)
    for _ in range(DEMONSTRATIONS):
        letter = torch.randint(2, 2 + STEP, (64, 1), generator=noise)
        rows = torch.cat([letter, letter + STEP, letter + 2 * STEP, torch.ones_like(letter)], 1)
        wrong = torch.rand(rows.shape, generator=noise) < 0.4
        wrong[:, 0] = False
        rows = torch.where(wrong, torch.randint(2, len(WORDS), rows.shape, generator=noise), rows)
        model(input_ids=rows, labels=rows).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(place)
    return place


def reward(completion_ids: list[list[int]], prompts: list[str], **others: Any) -> list[float]:
    """The share of the right answer's tokens that are in their places."""
    return [right(ids, 2 + LETTERS.index(prompt)) for ids, prompt in zip(completion_ids, prompts, strict=True)]


def right(ids: list[int], letter: int) -> float:
    """The same for one answer."""
    wanted = [letter + STEP, letter + 2 * STEP, 1]
    return sum(a == b for a, b in zip(ids, wanted, strict=False)) / LENGTH


def trainer(seed: int, folder: Path, out: Path, **settings: Any) -> GRPOTrainer:
    """The training of a seed."""
    torch.manual_seed(seed)
    return GRPOTrainer(
        model=str(start(seed, folder)), processing_class=tokenizer(), reward_funcs=reward,
        train_dataset=Dataset.from_dict({"prompt": [*LETTERS] * 24}),
        args=GRPOConfig(output_dir=str(out), seed=seed, **(SETTINGS | settings)),
    )  # fmt: skip


@torch.no_grad()
def earned(model: Any) -> float:
    """Mean reward of a policy's answers to every letter."""
    state = torch.get_rng_state()
    torch.manual_seed(7)
    try:
        ids = torch.arange(2, 2 + STEP).repeat_interleave(MEASURED).unsqueeze(1)
        out = ids
        done = torch.zeros(len(ids), dtype=torch.bool)
        for _ in range(LENGTH):
            logits = model(input_ids=out).logits[:, -1].float()
            if not torch.isfinite(logits).all():
                return 0.0
            token = torch.multinomial(logits.softmax(-1), 1)
            token[done] = 0
            done |= token[:, 0] == 1
            out = torch.cat([out, token], 1)
        wanted = torch.cat([ids + STEP, ids + 2 * STEP, torch.ones_like(ids)], 1)
        return float((out[:, 1:] == wanted).float().mean())
    finally:
        torch.set_rng_state(state)
