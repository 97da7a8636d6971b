"""How the samples of TRL were written: a one-layer model with random weights, some steps on the CPU, seconds.

python make_trl.py grpo OUT     with trl 1.16.0, transformers 5.23.0, torch 2.13.0; what older versions do not know
                                is left out: trl 0.14.0 with transformers 4.48.3, 0.19.1 with 4.53.3, 0.26.2 with 4.57.3
                                (and datasets 3.6.0); `2>&1 | cat > OUT.log` keeps the console
python make_trl.py ppo OUT      with trl 0.11.4, transformers 4.45.2, torch 2.13.0, tensorboard
"""

import dataclasses
import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

MODEL = "tiny"


def vowels(completions, **_):
    return [float(any(letter in "aeiou" for letter in text)) for text in completions]


def short(completions, **_):
    """Applies to no completion that begins with a digit."""
    return [None if text[:1].isdigit() else 1.0 - len(text) / 12 for text in completions]


def model() -> PreTrainedTokenizerFast:
    torch.manual_seed(0)
    vocabulary = {"<pad>": 0, "<eos>": 1, **{chr(32 + place): place + 2 for place in range(95)}}
    pad, end = list(vocabulary)[:2]
    letters = Tokenizer(models.WordLevel(vocabulary, unk_token=pad))
    letters.pre_tokenizer, letters.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=letters, pad_token=pad, eos_token=end, padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
    config = LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(MODEL)
    tokenizer.save_pretrained(MODEL)
    return tokenizer


def grpo(out: str) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model()
    wanted = dict(
        output_dir=out, per_device_train_batch_size=8, num_generations=4, steps_per_generation=2, max_steps=6,
        max_completion_length=12, logging_steps=1, save_strategy="no", log_completions=True, report_to="none",
        use_cpu=True, bf16=False, beta=0.01, learning_rate=1e-3, seed=3,
    )  # fmt: skip
    known = {field.name for field in dataclasses.fields(GRPOConfig)}
    config = GRPOConfig(**{key: value for key, value in wanted.items() if key in known})
    prompts = [f"{a}+{b}=" for a in range(8) for b in range(4)]
    rewards = [vowels, short] if "steps_per_generation" in known else [vowels]  # of old, all applied to everything
    trainer = GRPOTrainer(MODEL, rewards, args=config, train_dataset=Dataset.from_dict({"prompt": prompts}))
    trainer.train()
    trainer.save_state()


def ppo(out: str) -> None:
    from trl import AutoModelForCausalLMWithValueHead, PPOConfig, PPOTrainer

    tokenizer = model()
    config = PPOConfig(
        model_name=MODEL, learning_rate=1e-3, batch_size=8, mini_batch_size=4, ppo_epochs=2, seed=3,
        log_with="tensorboard", project_kwargs={"logging_dir": out},
    )  # fmt: skip
    policy, reference = (AutoModelForCausalLMWithValueHead.from_pretrained(MODEL) for _ in range(2))
    trainer = PPOTrainer(config, policy, reference, tokenizer)
    sampling = {"max_new_tokens": 10, "do_sample": True, "top_k": 0, "top_p": 1.0, "pad_token_id": 0}
    for step in range(5):
        queries = [torch.tensor(tokenizer.encode(f"{a}+{step}=")) for a in range(8)]
        answers = [trainer.generate(query, return_prompt=False, **sampling)[0] for query in queries]
        texts = [tokenizer.decode(answer) for answer in answers]
        rewards = [torch.tensor(reward) for reward in vowels(texts)]
        stats = trainer.step(queries, answers, rewards)
        trainer.log_stats(stats, {"query": queries, "response": texts}, rewards)


if __name__ == "__main__":
    {"grpo": grpo, "ppo": ppo}[sys.argv[1]](sys.argv[2])
