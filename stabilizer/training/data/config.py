"""What can be set about a data set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """A data set to train on instead of a built-in task."""

    path: str = ""
    """A .jsonl, .json, .csv, .tsv or .parquet file, a folder saved by `datasets`, or a name on the Hugging Face hub.
    Setting it makes the task `data`."""
    split: str = "train"
    """Which split of a Hugging Face data set to train on; plain files have none."""
    subset: str = ""
    """Configuration of a Hugging Face data set, such as `main` of gsm8k."""
    prompt_column: str = "prompt"
    """Column of the prompts: text, or a list of chat messages ({role, content})."""
    answer_column: str = "answer"
    """Column of the right answers, handed to reward functions; empty when they need none."""
    template: str = ""
    """Text with columns in braces, as in '{question}\\nAnswer:'; used as the prompt instead of `prompt_column`."""
    system_prompt: str = ""
    """System message of every chat that does not begin with one of its own."""
    chat: bool = False
    """Send text prompts through the tokenizer's chat template, as the user's message. Chat messages always are."""
    held_out: float = 0.05
    """Problems never trained on: a share below 1, or a count from 1 on. Chosen by a hash of the prompt, so that a
    problem stays on its side whatever else changes, and equal prompts are on the same one."""
    held_out_path: str = ""
    """File or data set that holds them instead; its prompts are taken out of training."""
    held_out_split: str = ""
    """Split of `held_out_path`, or else of `path`, that holds them instead."""
    max_prompt_tokens: int = 1024
    """Rows whose prompt is longer are dropped, and counted; 0 for no limit."""
