"""What a command does that trains nothing: it serves, generates, evaluates, converts weights or prepares the machine.

A script that starts a training often holds such commands too. They are recognised by the words of the command that
are no flags and no settings.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Purpose(NamedTuple):
    """What a command does, and the words by which it is known."""

    does: str
    program: str


SERVES, GENERATES, EVALUATES = "serves a model", "generates answers", "evaluates a model"
CONVERTS, PREPARES, LOOKS = "converts or merges weights", "prepares the machine", "looks at runs"
_KNOWN: tuple[tuple[str, str], ...] = (
    (r"vllm serve|trl vllm-serve|trl\.scripts\.vllm_serve|vllm\.entrypoints\.[\w.]+", SERVES),
    (r"swift (?:deploy|rollout|app|web-ui)|swift[ .]cli[ .](?:deploy|rollout|app|web_ui)(?:\.py)?", SERVES),
    (r"sglang serve|sglang\.launch_server|sglang_router\.[\w.]+|lmdeploy serve|ollama serve", SERVES),
    (r"(?:llamafactory-cli|lmf) (?:api|chat|webchat|webui)|text-generation-launcher", SERVES),
    (r"openrlhf\.cli\.serve_rm|uv run inference", SERVES),
    (r"swift (?:infer|sample)|swift[ .]cli[ .](?:infer|sample)(?:\.py)?|vllm run-batch", GENERATES),
    (r"verl\.trainer\.main_generation\w*|openrlhf\.cli\.(?:batch_inference|interactive_chat)", GENERATES),
    (r"start_(?:rlvr|agentic)_rollout_pipeline\.py", GENERATES),
    (r"swift eval|swift[ .]cli[ .]eval(?:\.py)?|lm_eval|lm-eval|lighteval \w+|evalscope \w+|opencompass", EVALUATES),
    (r"verl\.trainer\.main_eval|uv run (?:eval|vf-eval)|vf-eval|llamafactory-cli eval", EVALUATES),
    (r"swift (?:export|merge-lora)|swift[ .]cli[ .](?:export|merge_lora)(?:\.py)?", CONVERTS),
    (r"(?:llamafactory-cli|lmf) export|verl\.model_merger|(?:legacy_)?model_merger\.py|mergekit-\w+", CONVERTS),
    (r"zero_to_fp32\.py|accelerate merge-weights|openrlhf\.cli\.lora_combiner", CONVERTS),
    (r"convert_\w*(?:hf|torch|dcp|megatron|checkpoint)\w*\.py", CONVERTS),
    (r"pip3? install|uv (?:sync|pip)|conda \w+|ray (?:start|stop)|(?:huggingface-cli|hf|modelscope) \w+", PREPARES),
    (r"stabilizer (?!(?:train|demo|supervise)(?![\w-]))[a-z]+", LOOKS),
    (r"wandb login|git \w+|docker (?:run|pull|exec)|apt(?:-get)? \w+|nvidia-smi|mkdir|echo|export|cd", PREPARES),
)
_COMMANDS = re.compile(
    "|".join(f"(?P<_{place}>(?:^|(?<=[ /]))(?:{words})(?![\\w-]))" for place, (words, _) in enumerate(_KNOWN))
)
_LONGEST = 400
"""Characters of a command in which the words are looked for."""


def purpose(words: str) -> Purpose | None:
    """What a command does by its words; None for one that may train."""
    match = _COMMANDS.search(words[:_LONGEST].replace("/", " "))
    if match is None or match.lastgroup is None:
        return None
    return Purpose(_KNOWN[int(match.lastgroup[1:])][1], match[0])
