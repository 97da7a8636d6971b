"""Supervised fine-tuning in the loop of reinforcement learning: demonstrations instead of completions.

With advantage 1, no ratio and the average over tokens, the policy-gradient loss is the cross-entropy of the
demonstrations. So the optimizer, passes, ranks, checkpoints and knobs are those of any other run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from transformers import PreTrainedTokenizerBase

from stabilizer.training.rollout.rollouts import Rollouts, pad_left
from stabilizer.training.tasks import Problem, Task, random_bits

REPORTED = ("policy/loss", "policy/entropy", "optim/", "batch/", "tokens/", "time/", "control/", "accuracy/val")
"""Metrics that describe supervised training; the others compare completions, which there are none of."""


def demonstrated(
    problems: Sequence[Problem],
    prompts: Sequence[Sequence[int]],
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    device: torch.device,
    *,
    longest: int,
    seed: int,
) -> Rollouts:
    """The demonstration of each problem as if the policy had written it; tokens beyond `longest` are cut.

    Log-probabilities are 0: nothing that is learned here needs them.
    """
    rows: list[list[int]] = []
    chosen: list[list[bool]] = []
    texts = [task.demonstration(problem, random_bits(seed, row)) for row, problem in enumerate(problems)]
    for text in texts:
        ids, own = [], []
        for part, written in task.own_parts(text):
            tokens = tokenizer(part, add_special_tokens=False)["input_ids"]
            ids += tokens
            own += [written] * len(tokens)
        if not ids or ids[-1] != tokenizer.eos_token_id:
            ids, own = [*ids, tokenizer.eos_token_id], [*own, True]
        rows.append(ids[:longest])
        chosen.append(own[:longest])
    width, pad = max(map(len, rows)), tokenizer.pad_token_id
    ids_BT = torch.tensor([ids + [pad] * (width - len(ids)) for ids in rows], device=device)
    mask_BT = torch.tensor([own + [False] * (width - len(own)) for own in chosen], device=device)
    prompt_ids, prompt_mask = pad_left(prompts, pad, device)
    return Rollouts(
        prompt_ids_BP=prompt_ids,
        prompt_mask_BP=prompt_mask,
        completion_ids_BT=ids_BT,
        mask_BT=mask_BT,
        logp_BT=torch.zeros(ids_BT.shape, device=device),
        length_B=mask_BT.sum(1),
        span_B=torch.tensor([len(ids) for ids in rows], device=device),
        truncated_B=torch.tensor([ids[-1] != tokenizer.eos_token_id for ids in rows], device=device),
        texts=texts,
        group_size=1,
    )


def reported(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics of a supervised step."""
    return {name: value for name, value in metrics.items() if name.startswith(REPORTED)}
