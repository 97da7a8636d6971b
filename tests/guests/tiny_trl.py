"""A GRPOTrainer of a tiny random model: a second or two of training on one CPU core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

PAD, EOS = "<pad>", "<eos>"
WORDS = [PAD, EOS, *"0123456789+= "]


def tokenizer() -> PreTrainedTokenizerFast:
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=PAD))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token=PAD, eos_token=EOS, padding_side="left")


def model(seed: int = 0) -> Qwen2ForCausalLM:
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=64, eos_token_id=1, pad_token_id=0, bos_token_id=None,
        )
    )  # fmt: skip


def reward(completions: list[str], **others: Any) -> list[float]:
    return [float(text.count("1")) for text in completions]


def trainer(
    folder: Any,
    *,
    steps: int = 4,
    adapters: Any = None,
    reward: Any = reward,
    rloo: bool = False,
    policy: Any = None,
    **settings: Any,
) -> Any:
    arguments = {
        "output_dir": str(folder), "max_steps": steps, "use_cpu": True, "bf16": False, "report_to": "none",
        "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 8, "learning_rate": 1e-3,
        "save_strategy": "no", "disable_tqdm": True, "logging_steps": 1, "seed": 0, "lr_scheduler_type": "constant",
    }  # fmt: skip
    arguments |= {} if rloo else {"beta": 0.0}  # 0.04 before TRL 0.19
    start = Path(folder).with_name("start")  # a reference is loaded by the name of the model
    model().save_pretrained(start)
    torch.manual_seed(0)
    evaluated = settings.get("eval_strategy", "no") != "no"
    data = Dataset.from_dict({"prompt": [f"{a}+{b}=" for a in range(8) for b in range(8)]})
    made, config = (RLOOTrainer, RLOOConfig) if rloo else (GRPOTrainer, GRPOConfig)
    return made(
        model=policy or str(start), processing_class=tokenizer(), reward_funcs=reward, train_dataset=data,
        eval_dataset=data.select(range(8)) if evaluated else None, peft_config=adapters,
        args=config(**arguments | settings),
    )  # fmt: skip
