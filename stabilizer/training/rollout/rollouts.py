"""The results of generation that learning uses.

Shape letters: B rows (completions, those of one prompt next to each other), P prompt positions, T completion positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase, TokenizersBackend


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Completions of one step. Prompts are padded on the left and completions on the right, so a row reads as one
    text."""

    prompt_ids_BP: Tensor
    prompt_mask_BP: Tensor
    """True at prompt tokens, False at the padding before them."""
    completion_ids_BT: Tensor
    mask_BT: Tensor
    """True at tokens the policy chose, the end token included; False after it, and at text from an environment."""
    logp_BT: Tensor
    """Log-probability of each chosen token at the sampling temperature, under the weights that sampled it."""
    length_B: Tensor
    """Number of tokens the policy chose."""
    span_B: Tensor
    """Positions in use: those tokens, and the environment's text between them."""
    truncated_B: Tensor
    """True if the completion reached the length limit before the end token."""
    texts: list[str]
    """Completions as text, the end token removed; other special tokens stay visible."""
    group_size: int
    entropy_BT: Tensor | None = None
    """Entropy of the distribution of each chosen token, in nats; None if the engine does not report it."""
    staleness: int = 0
    """Updates between the oldest weights that chose a token and those that the engine should have."""

    def __len__(self) -> int:
        return self.completion_ids_BT.shape[0]

    def rows(self, row_R: Tensor | slice) -> Rollouts:
        """Some of the rows, as a minibatch; without texts, which it does not need."""
        return replace(
            self,
            prompt_ids_BP=self.prompt_ids_BP[row_R],
            prompt_mask_BP=self.prompt_mask_BP[row_R],
            completion_ids_BT=self.completion_ids_BT[row_R],
            mask_BT=self.mask_BT[row_R],
            logp_BT=self.logp_BT[row_R],
            length_B=self.length_B[row_R],
            span_B=self.span_B[row_R],
            truncated_B=self.truncated_B[row_R],
            texts=[],
            entropy_BT=None if self.entropy_BT is None else self.entropy_BT[row_R],
        )

    def on(self, device: torch.device) -> Rollouts:
        """The same on a device."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        moved: dict[str, Any] = {name: value.to(device) for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self, **moved)

    def trimmed(self) -> Rollouts:
        """The same without the positions that are padding in every row."""
        prompt, written = int(self.prompt_mask_BP.sum(1).max()), int(self.span_B.max())
        if (prompt, written) == (self.prompt_ids_BP.shape[1], self.completion_ids_BT.shape[1]):
            return self
        return replace(
            self,
            prompt_ids_BP=self.prompt_ids_BP[:, -prompt:],
            prompt_mask_BP=self.prompt_mask_BP[:, -prompt:],
            completion_ids_BT=self.completion_ids_BT[:, :written],
            mask_BT=self.mask_BT[:, :written],
            logp_BT=self.logp_BT[:, :written],
            entropy_BT=None if self.entropy_BT is None else self.entropy_BT[:, :written],
        )

    def passes(self, micro_batch: int, micro_tokens: int) -> list[Tensor]:
        """The rows of each forward pass: at most `micro_batch` of them, with at most `micro_tokens` positions.

        0 means no limit; a single row may exceed the second one. With it, rows of similar length go together, because
        every row of a pass is as wide as the longest.
        """
        length_B = self.prompt_mask_BP.sum(1) + self.span_B
        if not micro_tokens:
            return list(torch.arange(len(self), device=length_B.device).split(micro_batch or len(self)))
        order = length_B.argsort(descending=True, stable=True)
        lengths, starts = length_B[order].tolist(), [0]
        for row in range(1, len(self)):
            rows = row + 1 - starts[-1]
            if rows * lengths[starts[-1]] > micro_tokens or rows > (micro_batch or rows):
                starts.append(row)
        return [order[start:end] for start, end in pairwise([*starts, len(self)])]

    @property
    def num_tokens(self) -> int:
        """Prompt tokens, counted once per completion, and completion tokens, including an environment's."""
        return int(self.prompt_mask_BP.sum() + self.span_B.sum())

    @property
    def padded(self) -> bool:
        """Whether any prompt is shorter than the longest one."""
        return not bool(self.prompt_mask_BP.all())


def position_ids(mask: Tensor) -> Tensor:
    """Positions that count only real tokens, so that padding on the left has no effect."""
    return (mask.long().cumsum(-1) - 1).clamp_min(0)


def pad_left(prompts: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(ids, mask) of prompts of unequal length as one block each."""
    width = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    length = torch.tensor([len(prompt) for prompt in prompts], device=device)
    return ids, torch.arange(width, device=device)[None] >= (width - length)[:, None]


def decode(tokenizer: PreTrainedTokenizerBase, ids_BT: Tensor, length_B: Tensor, ended_B: Tensor) -> list[str]:
    """Completions as text, without their end token; other special tokens stay visible."""
    kept_B = (length_B - ended_B.long()).tolist()
    rows = [row[:kept] for row, kept in zip(ids_BT.tolist(), kept_B, strict=True)]
    if getattr(type(tokenizer), "_decode", None) is TokenizersBackend._decode:  # the same, without its overhead
        texts: list[str] = tokenizer.backend_tokenizer.decode_batch(rows, skip_special_tokens=False)
        return texts
    return tokenizer.batch_decode(rows, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def concat(parts: Sequence[Rollouts], pad: int) -> Rollouts:
    """Several rollouts with the same group size as one, padded to the widest prompt and completion."""
    if len(parts) == 1:
        return parts[0]
    prompt = max(part.prompt_ids_BP.shape[1] for part in parts)
    completion = max(part.completion_ids_BT.shape[1] for part in parts)

    def block(name: str, width: int, fill: float, *, left: bool = False) -> Tensor:
        blocks = [getattr(part, name) for part in parts]
        room = [(width - b.shape[1], 0) if left else (0, width - b.shape[1]) for b in blocks]
        return torch.cat([torch.nn.functional.pad(b, r, value=fill) for b, r in zip(blocks, room, strict=True)])

    return Rollouts(
        prompt_ids_BP=block("prompt_ids_BP", prompt, pad, left=True),
        prompt_mask_BP=block("prompt_mask_BP", prompt, False, left=True),
        completion_ids_BT=block("completion_ids_BT", completion, pad),
        mask_BT=block("mask_BT", completion, False),
        logp_BT=block("logp_BT", completion, 0.0),
        length_B=torch.cat([part.length_B for part in parts]),
        span_B=torch.cat([part.span_B for part in parts]),
        truncated_B=torch.cat([part.truncated_B for part in parts]),
        texts=[text for part in parts for text in part.texts],
        group_size=parts[0].group_size,
        staleness=max(part.staleness for part in parts),
        entropy_BT=block("entropy_BT", completion, 0.0) if all(part.entropy_BT is not None for part in parts) else None,
    )
