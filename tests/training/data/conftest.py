"""Tokenizers made on the spot: one with a chat template as chat models have, one without."""

from __future__ import annotations

import json
import string
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from stabilizer.training.data.config import DataConfig
from stabilizer.training.data.task import DataTask

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}{{ raise_exception('unknown role') }}{% endif %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def character_tokenizer(chat: bool, *, eos_too: bool = False) -> PreTrainedTokenizerFast:
    """One token per character, `<bos>` before every text; with `eos_too` also `<eos>` after it, as some do."""
    special = ["<pad>", "<bos>", "<eos>", "<unk>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {token: i for i, token in enumerate([*special, *string.printable])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=special[3]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.add_special_tokens(special)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>" if eos_too else "<bos> $A", special_tokens=[("<bos>", 1), ("<eos>", 2)]
    )
    tokenizer.decoder = decoders.Fuse()
    names = {"pad_token": "<pad>", "bos_token": "<bos>", "unk_token": "<unk>"}
    names["eos_token"] = "<|im_end|>" if chat else "<eos>"
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, padding_side="left", clean_up_tokenization_spaces=False, **names
    )
    fast.chat_template = TEMPLATE if chat else None
    return fast


@pytest.fixture(scope="session")
def plain_tokenizer():
    return character_tokenizer(chat=False)


@pytest.fixture(scope="session")
def chat_tokenizer():
    return character_tokenizer(chat=True)


@pytest.fixture
def write(tmp_path: Path):
    """A function writing objects as JSON lines; returns the path as a text."""

    def to_file(*rows: object, name: str = "rows.jsonl") -> str:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return to_file


@pytest.fixture
def task(plain_tokenizer):
    """A function giving the task of a path and other settings."""

    def build(path: str, tokenizer=None, **settings) -> DataTask:
        return DataTask(DataConfig(path=path, **settings), tokenizer or plain_tokenizer)

    return build


def rows(count: int) -> list[dict[str, object]]:
    """Distinct rows."""
    return [{"prompt": f"question {i}", "answer": i, "level": i % 3} for i in range(count)]
