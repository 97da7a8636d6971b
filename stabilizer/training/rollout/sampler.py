"""Sampling with the learner's model: each prompt is read once and its cache is shared by the group.

Shape letters: P prompts, B rows = P x group size, L prompt length, T completion length, V vocabulary.
"""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from stabilizer.training.model import Policy
from stabilizer.training.rollout.engine import Cut, Sampling
from stabilizer.training.rollout.logprobs import PLAIN_MODELS
from stabilizer.training.rollout.rollouts import Rollouts, decode, pad_left, position_ids
from stabilizer.training.sharding import family

EVERY = Cut()
FEWER = 0.8
"""Finished rows are removed when the share of unfinished ones falls below this. A finished row costs as much as any
other until then, and removing rows costs about one step."""


class Written(NamedTuple):
    """One token of some rows of the batch."""

    row_B: Tensor
    place: int
    token_B: Tensor
    logp_B: Tensor
    entropy_B: Tensor
    alive_B: Tensor
    """Whether the row had not ended before this token."""


class Sampler:
    """Generates with the current weights of a policy; it holds no copy of weights that could become stale."""

    def __init__(self, policy: Policy):
        self._model, self._tokenizer = policy
        if not _keeps_a_cache(self._model):
            raise ValueError(
                f"a {type(self._model).__name__} can't be sampled from: it does not continue from a given cache"
                " (`past_key_values`); use another model"
            )
        self.failures: Counter[str] = Counter()
        self.version = 0
        self._pad = self._tokenizer.pad_token_id
        stops = {self._tokenizer.eos_token_id}
        configured = self._model.generation_config.eos_token_id
        stops |= set(configured if isinstance(configured, list) else [configured] if configured is not None else [])
        self._stops = torch.tensor(sorted(stops), device=self._model.device)

    @property
    def max_length(self) -> int | None:
        """The number of positions if they may be a table; None for rotary embeddings, which are a formula."""
        if family(self._model) in PLAIN_MODELS:
            return None
        positions: int | None = getattr(self._model.config, "max_position_embeddings", None)
        return positions

    @torch.no_grad()
    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> Rollouts:
        """`group_size` completions per prompt; ValueError for prompts that this model cannot read."""
        self._check(prompts)
        prompt_ids, prompt_mask = pad_left(prompts, self._pad, self._model.device)
        stops = torch.cat([self._stops, self._stops.new_tensor(sampling.stop_ids)])
        with torch.inference_mode():  # a tenth faster than no_grad for small models
            written = self._write(prompt_ids, prompt_mask, sampling, stops)
        ids_BT, logp_BT, entropy_BT, mask_BT = _together(written, len(prompts) * sampling.group_size, self._pad)
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

    def sync(self, updates: int = 1) -> dict[str, float]:
        """Nothing to do: the weights are the learner's own."""
        return {}

    def close(self) -> None:
        """Nothing to release."""

    def _check(self, prompts: Sequence[Sequence[int]]) -> None:
        embedding: Any = self._model.get_input_embeddings()
        vocabulary = embedding.num_embeddings
        for ids in prompts:
            if not ids or max(ids) >= vocabulary:
                what = f"token {max(ids)} of a model with {vocabulary}" if ids else "no token at all"
                raise ValueError(f"a prompt holds {what}: the tokenizer in the model's folder belongs to another model")
        longest, positions = max(map(len, prompts)), self.max_length
        if positions and longest >= positions:
            raise ValueError(
                f"a prompt of {longest} tokens leaves no room in a model with {positions} positions; drop such"
                f" prompts out (data.max_prompt_tokens), or choose another model"
            )

    def _write(self, ids_PL: Tensor, mask_PL: Tensor, sampling: Sampling, stops: Tensor) -> list[Written]:
        """All rows together, except those that the model's positions truncate. Prompts of one length have the same
        room. Next to a longer prompt, their last tokens would exceed the table of positions."""
        size, room_P = sampling.group_size, torch.full([len(ids_PL)], sampling.max_completion)
        if positions := self.max_length:
            room_P = room_P.minimum(positions - mask_PL.sum(1).cpu())
        draws = Draws(sampling.seed, (sampling.whole or len(ids_PL)) * size, ids_PL.device, sampling.first * size)
        written: list[Written] = []
        for room in room_P.unique().tolist():
            of_P = (room_P == room).nonzero()[:, 0].to(ids_PL.device)
            longest = int(mask_PL[of_P].sum(1).max())
            mask = mask_PL[of_P, -longest:]
            row_B = (of_P[:, None] * size + torch.arange(size, device=of_P.device)).flatten()
            fitted = sampling._replace(max_completion=room)
            ends = TextEnds(self._tokenizer, sampling.stop_texts) if sampling.stop_texts else None
            written += _write(
                ModelWriter(self._model, mask, size), ids_PL[of_P, -longest:], fitted, stops, draws, row_B, ends
            )
        return written


class CopySampler(Sampler):
    """Generates with a copy of the policy, which changes only by `sync`: the learner may update meanwhile."""

    def __init__(self, policy: Policy):
        super().__init__(Policy(copy.deepcopy(policy.model).requires_grad_(False), policy.tokenizer))
        self._learner = policy.model
        self.version = 1

    @torch.no_grad()
    def sync(self, updates: int = 1) -> dict[str, float]:
        """Copy the learner's weights."""
        for kind in (nn.Module.parameters, nn.Module.buffers):
            for ours, theirs in zip(kind(self._learner), kind(self._model), strict=True):
                theirs.copy_(ours)
        self.version += updates
        return {}


class Draws:
    """A random number for every token of every row, independent of the other rows.

    `rows` are those of the whole batch. The ones asked for are counted from number `first`.
    """

    def __init__(self, seed: int, rows: int, device: torch.device, first: int = 0):
        self._rows, self._first = rows, first
        self._generator = torch.Generator(device).manual_seed(seed)
        self._drawn: list[Tensor] = []

    def of(self, row_B: Tensor, token: int) -> Tensor:
        """The numbers of some rows at one token, in [0, 1)."""
        while len(self._drawn) <= token:
            device = self._generator.device
            self._drawn.append(torch.rand(self._rows, dtype=torch.float64, device=device, generator=self._generator))
        return self._drawn[token][row_B + self._first]


class TextEnds:
    """Finds completions that have just written one of some texts."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]):
        self._tokenizer, self._texts = tokenizer, texts
        self._longest = max(len(text.encode()) for text in texts)  # a token is at least a byte
        self._tails: dict[int, list[int]] = {}

    def reached(self, row_B: Tensor, token_B: Tensor) -> Tensor:
        """Add one token to each of these rows; whether a text is complete with it."""
        tails = []
        for row, token in zip(row_B.tolist(), token_B.tolist(), strict=True):
            tail = [*self._tails.get(row, []), token][-self._longest :]
            self._tails[row] = tail
            tails.append(tail)
        decoded = self._tokenizer.batch_decode(tails, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        found = [any(text in tail for text in self._texts) for tail in decoded]
        return torch.tensor(found, device=row_B.device)


def _write(
    writer: ModelWriter,
    ids_PL: Tensor,
    sampling: Sampling,
    stops: Tensor,
    draws: Draws,
    row_B: Tensor,
    ends: TextEnds | None = None,
) -> list[Written]:
    """`group_size` completions of each prompt; `row_B` is the row of each completion in the whole batch."""
    alive_B = torch.ones(len(row_B), dtype=torch.bool, device=row_B.device)
    written: list[Written] = []
    logits_BV = writer.read(ids_PL)
    for place in range(sampling.max_completion):
        token_B, logp_B, entropy_B = choose(logits_BV, sampling.temperature, draws.of(row_B, place), sampling.cut)
        written.append(Written(row_B, place, token_B, logp_B, entropy_B, alive_B))
        alive_B = alive_B & ~torch.isin(token_B, stops)
        if ends is not None:
            alive_B = alive_B & ~ends.reached(row_B, token_B)
        num_alive = int(alive_B.sum())
        if num_alive == 0 or place + 1 == sampling.max_completion:
            break
        if num_alive < FEWER * len(row_B):
            keep = alive_B.nonzero()[:, 0]
            row_B, token_B, alive_B = row_B[keep], token_B[keep], alive_B[keep]
            writer.keep(keep)
        logits_BV = writer.write(token_B)
    return written


def choose(logits_BV: Tensor, temperature: float, draw_B: Tensor, cut: Cut = EVERY) -> tuple[Tensor, Tensor, Tensor]:
    """A token per row, its log-probability, and the entropy, both of the full distribution at this temperature.

    At temperature 0 it is the most likely token, and log-probabilities are those at temperature 1. Otherwise one random
    number per row, in [0, 1), is looked up in the running sum of the probabilities: random numbers for every token of a
    real vocabulary would cost more than the model. A probability of 0 is never selected. Non-finite logits still give
    some token, with a non-finite log-probability: evidence for the metrics instead of a crash here.
    """
    wide_BV = logits_BV.to(torch.promote_types(logits_BV.dtype, torch.float32))
    if temperature not in (0, 1):
        wide_BV = wide_BV / temperature
    if temperature == 0:
        token_B = wide_BV.argmax(-1)
    else:
        chance_BV = torch.softmax(wide_BV, dim=-1)
        if cut != EVERY:
            chance_BV = chance_BV.masked_fill(~allowed(chance_BV, cut), 0.0)
        sum_BV = chance_BV.cumsum(-1, dtype=torch.float64)
        sought_B1 = draw_B[:, None] * sum_BV[:, -1:]
        token_B = torch.searchsorted(sum_BV, sought_B1, right=True)[:, 0].clamp_max(sum_BV.shape[1] - 1)
    logp_BV = torch.log_softmax(wide_BV, dim=-1)
    entropy_B = -(logp_BV.exp() * logp_BV.clamp_min(-3e38)).sum(-1)  # 0 x log 0 = 0
    return token_B, logp_BV.gather(1, token_B[:, None])[:, 0], entropy_B


def allowed(chance_BV: Tensor, cut: Cut) -> Tensor:
    """The tokens that may be drawn. `top_p` counts probabilities relative to what `top_k` leaves. The likeliest token
    always may."""
    sorted_BV, order_BV = chance_BV.sort(dim=-1, descending=True, stable=True)
    left_BV = sorted_BV.clone()
    if cut.top_k:
        left_BV[:, cut.top_k :] = 0.0
    before_BV = left_BV.cumsum(-1) - left_BV
    kept_BV = (left_BV > 0) & (before_BV < cut.top_p * left_BV.sum(-1, keepdim=True))
    kept_BV &= sorted_BV >= cut.min_p * sorted_BV[:, :1]
    kept_BV[:, 0] = True
    return torch.zeros_like(kept_BV).scatter(1, order_BV, kept_BV)


def _together(written: Sequence[Written], rows: int, pad: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(ids_BT, logp_BT, entropy_BT, mask_BT), with padding after the end of each row."""
    shape = rows, max(part.place for part in written) + 1
    first = written[0]
    ids_BT, mask_BT = first.token_B.new_full(shape, pad), first.alive_B.new_zeros(shape)
    logp_BT, entropy_BT = first.logp_B.new_zeros(shape), first.entropy_B.new_zeros(shape)
    for part in written:
        at, ended_B = (part.row_B, part.place), ~part.alive_B
        ids_BT[at] = part.token_B.masked_fill(ended_B, pad)
        logp_BT[at] = part.logp_B.masked_fill(ended_B, 0.0)
        entropy_BT[at] = part.entropy_B.masked_fill(ended_B, 0.0)
        mask_BT[at] = part.alive_B
    return ids_BT, logp_BT, entropy_BT, mask_BT


class ModelWriter:
    """The state of a generation, with the cache of the tokens so far.

    The cache may hold keys and values, or the states of a recurrence. Both can be reordered; a row may then appear
    several times or not at all.
    """

    def __init__(self, model: PreTrainedModel, prompt_mask_PL: Tensor, group_size: int):
        self._model = model
        self._group_size = group_size
        self._padded = not bool(prompt_mask_PL.all())
        self._mask = prompt_mask_PL
        self._position = position_ids(prompt_mask_PL)
        self._cache: Any = DynamicCache(config=model.config)

    def read(self, ids_PL: Tensor) -> Tensor:
        """Read the prompts; returns the logits of the next token for each of their `group_size` rows, (B, V)."""
        logits_PV = self._forward(ids_PL)
        prompt_of_B = torch.arange(len(ids_PL), device=ids_PL.device).repeat_interleave(self._group_size)
        self._cache.reorder_cache(prompt_of_B)
        self._mask = self._mask.repeat_interleave(self._group_size, 0)
        self._position = self._mask.sum(1)[:, None]
        return logits_PV[prompt_of_B]

    def write(self, token_B: Tensor) -> Tensor:
        """Append one token to every row; returns the logits of the next token, (B, V)."""
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(token_B), 1)], dim=1)
        logits_BV = self._forward(token_B[:, None])
        self._position = self._position + 1
        return logits_BV

    def keep(self, rows: Tensor) -> None:
        """Continue with these rows only."""
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
        logits: Tensor = out.logits
        return logits[:, -1]


def _keeps_a_cache(model: nn.Module) -> bool:
    """Whether the model uses a cache. Others accept and ignore the argument, and would generate without their
    context."""
    known = type(getattr(model, "get_base_model", lambda: model)())
    return "past_key_values" in inspect.signature(known.forward).parameters
