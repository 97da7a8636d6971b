"""Sampling with the model that learns: each prompt is read once, its cache is shared out over the group.

Models that `decoder` implements are computed by it; any other by its own forward with a cache of `transformers`.

Shape letters: P prompts, B rows = P x group size, L prompt length, T completion length, V vocabulary.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from stabilizer.trainer import decoder
from stabilizer.trainer.model import Policy
from stabilizer.trainer.rollout.engine import Sampling
from stabilizer.trainer.rollout.rollouts import Rollouts, decode, pad_left, position_ids
from stabilizer.trainer.threads import threads_for

FEWER = 0.8
"""Finished rows leave when the rest is below this share: a row costs as much as any other, moving the rest a step."""


class Sampler:
    """Generates with the present weights of a policy; it holds no weights of its own that could go stale."""

    def __init__(self, policy: Policy):
        self._model, self._tokenizer = policy
        if not _keeps_a_cache(self._model):
            raise ValueError(
                f"a {type(self._model).__name__} can't be sampled from: it reads on from no cache that is handed to it"
                " (`past_key_values`); take another model"
            )
        self._pad = self._tokenizer.pad_token_id
        stops = {self._tokenizer.eos_token_id}
        configured = self._model.generation_config.eos_token_id
        stops |= set(configured if isinstance(configured, list) else [configured] if configured is not None else [])
        self._stops = torch.tensor(sorted(stops), device=self._model.device)
        self._generator = torch.Generator(self._model.device)

    @torch.no_grad()
    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> Rollouts:
        """`group_size` completions per prompt; ValueError for prompts that this model cannot read."""
        lean = decoder.refusal(self._model, training=False) is None
        sampling = self._fitted(prompts, sampling, lean=lean)
        prompt_ids, prompt_mask = pad_left(prompts, self._pad, self._model.device)
        stops = torch.cat([self._stops, self._stops.new_tensor(sampling.stop_ids)])
        # a tenth cheaper; but a model's own code may keep something of what it computes for the updates
        mode = torch.inference_mode() if lean else contextlib.nullcontext()
        with threads_for(self._model, len(prompts) * sampling.group_size), mode:
            writer: Writer = (LeanWriter if lean else ModelWriter)(self._model, prompt_mask, sampling)
            written = self._sample(writer, prompt_ids, sampling, stops)
        ids_BT, logp_BT, entropy_BT, mask_BT = (value_BT.clone() for value_BT in written)  # ordinary tensors again
        length_B = mask_BT.sum(1)
        last_B = ids_BT.gather(1, (length_B - 1)[:, None])[:, 0]
        return Rollouts(
            prompt_ids_BP=prompt_ids.repeat_interleave(sampling.group_size, 0),
            prompt_mask_BP=prompt_mask.repeat_interleave(sampling.group_size, 0),
            completion_ids_BT=ids_BT,
            mask_BT=mask_BT,
            logp_BT=logp_BT,
            length_B=length_B,
            span_B=length_B,
            truncated_B=~torch.isin(last_B, stops),
            texts=decode(self._tokenizer, ids_BT, length_B, torch.isin(last_B, self._stops)),
            group_size=sampling.group_size,
            entropy_BT=entropy_BT,
        )

    def sync(self) -> dict[str, float]:
        """Nothing to do: the weights are the learner's own."""
        return {}

    def close(self) -> None:
        """Nothing to release."""

    def _fitted(self, prompts: Sequence[Sequence[int]], sampling: Sampling, *, lean: bool) -> Sampling:
        """With no more room than the model has positions for, where these are a table and not a formula."""
        vocabulary = self._model.get_input_embeddings().num_embeddings
        for ids in prompts:
            if not ids or max(ids) >= vocabulary:
                what = f"token {max(ids)} of a model with {vocabulary}" if ids else "no token at all"
                raise ValueError(f"a prompt holds {what}: the tokenizer in the model's folder is not this model's")
        positions = getattr(self._model.config, "max_position_embeddings", None)
        if not positions or lean:
            return sampling
        longest = max(map(len, prompts))
        if longest >= positions:
            raise ValueError(
                f"a prompt of {longest} tokens leaves no room in a model with {positions} positions; leave such"
                f" prompts out (data.max_prompt_tokens), or choose another model"
            )
        return sampling._replace(max_completion=min(sampling.max_completion, positions - longest))

    def _sample(
        self, writer: Writer, prompt_ids_PL: Tensor, sampling: Sampling, stops: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(ids_BT, logp_BT, entropy_BT, mask_BT), padding behind the end of each row."""
        generator = self._generator.manual_seed(sampling.seed)
        rows, device = len(prompt_ids_PL) * sampling.group_size, prompt_ids_PL.device
        row_B = torch.arange(rows, device=device)  # where the rows still in the batch belong
        alive_B = torch.ones(rows, dtype=torch.bool, device=device)
        stop_ids = stops.tolist()
        written: list[tuple[Tensor, ...]] = []

        logits_BV = writer.prompts(prompt_ids_PL).repeat_interleave(sampling.group_size, 0)
        while True:
            token_B, logp_B, entropy_B = choose(logits_BV, sampling.temperature, generator)
            written.append((row_B, token_B, logp_B, entropy_B, alive_B))
            if len(written) == sampling.max_completion:
                break
            for stop in stop_ids:
                alive_B = alive_B & (token_B != stop)
            num_alive = int(alive_B.sum())
            if num_alive == 0:
                break
            if num_alive < FEWER * len(row_B):
                keep = alive_B.nonzero()[:, 0]
                row_B, token_B, alive_B = row_B[keep], token_B[keep], alive_B[keep]
                writer.keep(keep)
            logits_BV = writer.token(token_B)

        counts = torch.tensor([len(row_B) for row_B, *_ in written], device=device)
        step_N = torch.arange(len(written), device=device).repeat_interleave(counts)
        row_N, *values, alive_N = (torch.cat(parts) for parts in zip(*written, strict=True))
        place = (row_N[alive_N], step_N[alive_N])  # without what finished rows went on to say

        def spread(value_N: Tensor, filler: float) -> Tensor:
            value_BT = value_N.new_full((rows, len(written)), filler)
            value_BT[place] = value_N[alive_N]
            return value_BT

        return *map(spread, values, (self._pad, 0.0, 0.0)), spread(alive_N, False)


class Writer(Protocol):
    """A model in the middle of writing; it knows what was written so far."""

    def prompts(self, ids_PL: Tensor) -> Tensor:
        """Read the prompts; the logits of what follows each, (P, V)."""

    def token(self, ids_B: Tensor) -> Tensor:
        """One more token on every row; the logits of what follows, (B, V)."""

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone."""


class LeanWriter:
    """By `decoder`, from the weights as they are when it is made."""

    def __init__(self, model: nn.Module, prompt_mask_PL: Tensor, sampling: Sampling):
        self._weights = decoder.read(model, training=False)
        self._cache = decoder.Cache(self._weights, prompt_mask_PL, sampling.group_size, sampling.max_completion)
        size = prompt_mask_PL.shape[1] + sampling.max_completion
        self._rope = decoder.rope(self._weights, torch.arange(size, device=prompt_mask_PL.device))
        self._padded = not bool(prompt_mask_PL.all())
        self._position_PL = position_ids(prompt_mask_PL)
        self._position_B = prompt_mask_PL.sum(1).repeat_interleave(sampling.group_size)

    def prompts(self, ids_PL: Tensor) -> Tensor:
        rope = self._rope[self._position_PL.flatten()]
        states = decoder.hidden_states(self._weights, ids_PL.flatten(), rope, self._cache.read_prompts)
        return self._weights.head(states.unflatten(0, ids_PL.shape)[:, -1])

    def token(self, ids_B: Tensor) -> Tensor:
        at = self._cache.length  # where nothing is padded, also the position of every row
        rope = self._rope[self._position_B] if self._padded else self._rope[at : at + 1]
        states = decoder.hidden_states(self._weights, ids_B, rope, self._cache.read_token)
        self._cache.length += 1
        self._position_B = self._position_B + 1
        return self._weights.head(states)

    def keep(self, rows: Tensor) -> None:
        self._cache.keep(rows)
        self._position_B = self._position_B[rows]


class ModelWriter:
    """By the model's own forward. Its cache may hold keys and values, or the states of a recurrence: what both know is
    how to be put into another order, in which a row may stand several times, or not at all."""

    def __init__(self, model: nn.Module, prompt_mask_PL: Tensor, sampling: Sampling):
        self._model = model
        self._group_size = sampling.group_size
        self._padded = not bool(prompt_mask_PL.all())
        self._mask = prompt_mask_PL
        self._position = position_ids(prompt_mask_PL)
        self._cache = DynamicCache(config=model.config)

    def prompts(self, ids_PL: Tensor) -> Tensor:
        logits_PV = self._forward(ids_PL)
        prompt_of_B = torch.arange(len(ids_PL), device=ids_PL.device).repeat_interleave(self._group_size)
        self._cache.reorder_cache(prompt_of_B)
        self._mask = self._mask.repeat_interleave(self._group_size, 0)
        self._position = self._mask.sum(1)[:, None]
        return logits_PV

    def token(self, ids_B: Tensor) -> Tensor:
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(ids_B), 1)], dim=1)
        logits_BV = self._forward(ids_B[:, None])
        self._position = self._position + 1
        return logits_BV

    def keep(self, rows: Tensor) -> None:
        self._cache.reorder_cache(rows)
        self._mask, self._position = self._mask[rows], self._position[rows]

    def _forward(self, ids: Tensor) -> Tensor:
        out = self._model(
            input_ids=ids,
            position_ids=self._position,
            attention_mask=self._mask if self._padded else None,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return out.logits[:, -1]


def _keeps_a_cache(model: nn.Module) -> bool:
    """Whether the model takes a cache. Others too take the word, and would write on without what stands before."""
    known = type(getattr(model, "get_base_model", lambda: model)())
    return "past_key_values" in inspect.signature(known.forward).parameters


def choose(logits_BV: Tensor, temperature: float, generator: torch.Generator | None) -> tuple[Tensor, Tensor, Tensor]:
    """A token per row, its log-probability, and the entropy of what it was drawn from.

    One random number a row, looked up in the running sum of the probabilities: noise for every token of a real
    vocabulary would cost more than the model. A probability of 0 is never hit. Non-finite logits still give some token,
    with a non-finite log-probability: evidence for the metrics instead of a crash here.
    """
    wide_BV = logits_BV if logits_BV.dtype is torch.float64 else logits_BV.float()
    if temperature not in (0, 1):
        wide_BV = wide_BV / temperature
    logp_BV = torch.log_softmax(wide_BV, dim=-1)
    p_BV = logp_BV.exp()
    entropy_B = -(p_BV * logp_BV.clamp_min(torch.finfo(logp_BV.dtype).min)).sum(-1)  # 0 log 0 = 0
    if temperature == 0:
        token_B = logp_BV.argmax(-1)
    else:
        sum_BV = p_BV.cumsum(-1, dtype=torch.float64)
        draw_B1 = torch.rand((len(sum_BV), 1), dtype=torch.float64, device=sum_BV.device, generator=generator)
        token_B = torch.searchsorted(sum_BV, draw_B1 * sum_BV[:, -1:], right=True)[:, 0]
        token_B = token_B.clamp_max(logp_BV.shape[1] - 1)
    return token_B, logp_BV.gather(1, token_B[:, None])[:, 0], entropy_B
