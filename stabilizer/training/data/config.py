"""The settings of a data set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """A data set to train on instead of a built-in task."""

    path: str = ""
    """A .jsonl, .json, .csv, .tsv or .parquet file, a folder saved by `datasets`, or a name on the Hugging Face hub.
    Setting it selects the task `data`."""
    split: str = "train"
    """Split of a Hugging Face data set to train on; plain files have none."""
    subset: str = ""
    """Configuration of a Hugging Face data set, such as `main` of gsm8k."""
    prompt_column: str = "prompt"
    """Column of the prompts: text, or a list of chat messages ({role, content})."""
    answer_column: str = "answer"
    """Column of the right answers, passed to reward functions; empty if they need none."""
    completion_column: str = ""
    """Column of the demonstrations for the stage `sft`: text, or the assistant's message; empty: the answers."""
    template: str = ""
    """Text with columns in braces, as in '{question}\\nAnswer:'; replaces `prompt_column` as the prompt."""
    system_prompt: str = ""
    """System message added to every chat that does not begin with one."""
    chat: bool = False
    """Format text prompts with the tokenizer's chat template, as a user message. Chat messages are always formatted."""
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the chat template, such as {enable_thinking: false}."""
    tools_column: str = ""
    """Column with the tools of a chat, which the chat template gets as `tools`; empty for none."""
    held_out: float = 0.05
    """Problems never trained on: a share below 1, or a count from 1 on. A hash of the prompt selects them, so a problem
    stays on the same side when other rows change, and equal prompts are on the same side."""
    held_out_path: str = ""
    """File or data set to take the held-out problems from; its prompts are removed from training."""
    held_out_split: str = ""
    """Split of `held_out_path`, or else of `path`, to take the held-out problems from."""
    max_prompt_tokens: int = 1024
    """Rows with a longer prompt are dropped, and counted; 0 for no limit."""
