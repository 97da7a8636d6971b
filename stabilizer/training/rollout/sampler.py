"""Sampling with the model that learns: each prompt is read once, its cache is shared out over the group.

Models that `decoder` implements are computed by it; any other by its own forward with a cache of `transformers`.

Shape letters: P prompts, B rows = P x group size, L prompt length, T completion length, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from stabilizer.training.fast import decoder
from stabilizer.training.fast.scripted import run_scripted
from stabilizer.training.fast.threads import in_threads, parts_for, threads_for
from stabilizer.training.fast.writing import Choice, Stretch, choose, goes_on, read_prompts, write_on
from stabilizer.training.model import Policy
from stabilizer.training.rollout.engine import Sampling
from stabilizer.training.rollout.rollouts import Rollouts, decode, pad_left, position_ids

FEWER = 0.8
"""Finished rows leave when the rest is below this share: a row costs as much as any other, moving the rest a step."""


class Written(NamedTuple):
    """A stretch, and where it belongs."""

    row_B: Tensor
    begin: int
    stretch: Stretch


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

    @property
    def max_length(self) -> int | None:
        """The model's positions, where these may be a table and not a formula."""
        return self._positions(lean=decoder.refusal(self._model, training=False) is None)

    @torch.no_grad()
    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> Rollouts:
        """`group_size` completions per prompt; ValueError for prompts that this model cannot read."""
        lean = decoder.refusal(self._model, training=False) is None
        self._check(prompts, self._positions(lean=lean))
        prompt_ids, prompt_mask = pad_left(prompts, self._pad, self._model.device)
        stops = torch.cat([self._stops, self._stops.new_tensor(sampling.stop_ids)])
        written = (self._by_decoder if lean else self._by_model)(prompt_ids, prompt_mask, sampling, stops)
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

    def sync(self) -> dict[str, float]:
        """Nothing to do: the weights are the learner's own."""
        return {}

    def close(self) -> None:
        """Nothing to release."""

    def _positions(self, *, lean: bool) -> int | None:
        return None if lean else getattr(self._model.config, "max_position_embeddings", None)

    def _check(self, prompts: Sequence[Sequence[int]], positions: int | None) -> None:
        vocabulary = self._model.get_input_embeddings().num_embeddings
        for ids in prompts:
            if not ids or max(ids) >= vocabulary:
                what = f"token {max(ids)} of a model with {vocabulary}" if ids else "no token at all"
                raise ValueError(f"a prompt holds {what}: the tokenizer in the model's folder is not this model's")
        longest = max(map(len, prompts))
        if positions and longest >= positions:
            raise ValueError(
                f"a prompt of {longest} tokens leaves no room in a model with {positions} positions; leave such"
                f" prompts out (data.max_prompt_tokens), or choose another model"
            )

    def _by_model(self, ids_PL: Tensor, mask_PL: Tensor, sampling: Sampling, stops: Tensor) -> list[Written]:
        """All rows together, but for those that the model's positions cut short: prompts of one length have one room,
        and beside a longer one their tokens would lie where a table of positions has ended."""
        size, room_P = sampling.group_size, torch.full([len(ids_PL)], sampling.max_completion)
        if positions := self._positions(lean=False):
            room_P = room_P.minimum(positions - mask_PL.sum(1).cpu())
        written: list[Written] = []
        with threads_for(self._model, len(ids_PL) * size):
            draws = Draws(sampling, len(ids_PL) * size, ids_PL.device)
            for room in room_P.unique().tolist():
                of_P = (room_P == room).nonzero()[:, 0].to(ids_PL.device)
                longest = int(mask_PL[of_P].sum(1).max())
                mask = mask_PL[of_P, -longest:]
                row_B = (of_P[:, None] * size + torch.arange(size, device=of_P.device)).flatten()
                fitted = sampling._replace(max_completion=room)
                writer = ModelWriter(self._model, mask, fitted)
                written += _write(writer, ids_PL[of_P, -longest:], fitted, stops, draws, row_B)
        return written

    def _by_decoder(self, ids_PL: Tensor, mask_PL: Tensor, sampling: Sampling, stops: Tensor) -> list[Written]:
        """Where no operation is worth a second thread, each thread writes what follows some of the prompts."""
        prompts, size = len(ids_PL), sampling.group_size
        draws = Draws(sampling, prompts * size, ids_PL.device)

        def write(of_P: Tensor) -> list[Written]:
            with torch.inference_mode():  # a tenth cheaper
                writer = LeanWriter(weights, mask_PL[of_P], sampling)
                first = int(of_P[0]) * size
                row_B = torch.arange(first, first + len(of_P) * size, device=ids_PL.device)
                return _write(writer, ids_PL[of_P], sampling, stops, draws, row_B)

        with threads_for(self._model, prompts * size), torch.inference_mode():
            parts = torch.arange(prompts).tensor_split(parts_for(prompts, prompts * size))
            weights = decoder.read(self._model)
            return [written for part in in_threads(write, parts) for written in part]


class Draws:
    """A random number for every token of every row, the same whatever rows it is written beside."""

    AHEAD = 256
    """Tokens for which they are drawn at once."""

    def __init__(self, sampling: Sampling, rows: int, device: torch.device):
        self._shape = sampling.max_completion, rows
        self._generator = torch.Generator(device).manual_seed(sampling.seed)
        self._drawn: list[Tensor] = []
        self._lock = Lock()

    def of(self, row_B: Tensor, token: int) -> Tensor:
        """Those of some tokens from this one on, (S, B)."""
        block, place = divmod(token, self.AHEAD)
        most, rows = self._shape
        with self._lock:
            while len(self._drawn) <= block:
                shape = min(self.AHEAD, most - len(self._drawn) * self.AHEAD), rows
                self._drawn.append(
                    torch.rand(shape, dtype=torch.float64, device=row_B.device, generator=self._generator)
                )
        drawn_SB = self._drawn[block][place:]
        return drawn_SB if len(row_B) == rows else drawn_SB[:, row_B]


def _write(
    writer: Writer, ids_PL: Tensor, sampling: Sampling, stops: Tensor, draws: Draws, row_B: Tensor
) -> list[Written]:
    """Behind each of the prompts `group_size` completions; `row_B` says where the rows still in the batch belong."""
    token_B, alive_B = None, torch.ones(len(row_B), dtype=torch.bool, device=row_B.device)
    how = Choice(float(sampling.temperature), stops.tolist(), FEWER)
    written: list[Written] = []
    length = 0

    writer.read(ids_PL)
    while True:
        stretch = writer.write(how, token_B, alive_B, draws.of(row_B, length))
        written.append(Written(row_B, length, stretch))
        length += len(stretch.token_SB)
        token_B, alive_B = stretch.token_SB[-1], stretch.alive_B
        num_alive = int(alive_B.sum())
        if num_alive == 0 or length == sampling.max_completion:
            return written
        if num_alive < FEWER * len(row_B):
            keep = alive_B.nonzero()[:, 0]
            row_B, token_B, alive_B = row_B[keep], token_B[keep], alive_B[keep]
            writer.keep(keep)


def _together(written: Sequence[Written], rows: int, pad: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(ids_BT, logp_BT, entropy_BT, mask_BT), padding behind the end of each row, where finished rows went on."""
    shape = rows, max(begin + len(stretch.token_SB) for _, begin, stretch in written)
    first = written[0].stretch
    ids_BT, mask_BT = first.token_SB.new_full(shape, pad), first.alive_SB.new_zeros(shape)
    logp_BT, entropy_BT = first.logp_SB.new_zeros(shape), first.entropy_SB.new_zeros(shape)
    for row_B, begin, stretch in written:
        place, ended_BS = (row_B, slice(begin, begin + len(stretch.token_SB))), ~stretch.alive_SB.T
        ids_BT[place] = stretch.token_SB.T.masked_fill(ended_BS, pad)
        logp_BT[place] = stretch.logp_SB.T.masked_fill(ended_BS, 0.0)
        entropy_BT[place] = stretch.entropy_SB.T.masked_fill(ended_BS, 0.0)
        mask_BT[place] = stretch.alive_SB.T
    return ids_BT, logp_BT, entropy_BT, mask_BT


class Writer(Protocol):
    """A model in the middle of writing; it knows what was written so far."""

    def read(self, ids_PL: Tensor) -> None:
        """Read the prompts, which are then continued on `group_size` rows each."""

    def write(self, how: Choice, token_B: Tensor | None, alive_B: Tensor, draw_SB: Tensor) -> Stretch:
        """A token more on every row, or several, each with one of its random numbers. `token_B` is the last of each
        row, None at first; `alive_B` says which have not ended."""

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows alone."""


class LeanWriter:
    """By `decoder`, from weights that it read of a model."""

    def __init__(self, weights: decoder.Weights, prompt_mask_PL: Tensor, sampling: Sampling):
        self._weights = weights
        self._cache = decoder.Cache(weights, prompt_mask_PL, sampling.group_size, sampling.max_completion)
        self._group_size = sampling.group_size
        self._mask_PL = prompt_mask_PL
        self._position_B: Tensor | None = None  # where no prompt is padded it is the cache's length on every row
        if self._cache.mask is not None:
            self._position_B = prompt_mask_PL.sum(1).repeat_interleave(sampling.group_size)

    def read(self, ids_PL: Tensor) -> None:
        self._logits_BV, self._rope = run_scripted(
            read_prompts, self._weights, ids_PL, self._mask_PL, self._group_size, self._cache.written
        )

    def write(self, how: Choice, token_B: Tensor | None, alive_B: Tensor, draw_SB: Tensor) -> Stretch:
        cache, position_B = self._cache, self._position_B
        stretch = run_scripted(
            write_on, self._weights, how, self._logits_BV, token_B, alive_B, draw_SB,
            self._rope, position_B, cache.written, cache.mask, cache.length,
        )  # fmt: skip
        read = len(stretch[0]) - (token_B is None)
        self._logits_BV = self._logits_BV[:0]  # those of the prompts are needed once
        cache.length += read
        self._position_B = None if position_B is None else position_B + read
        return Stretch(*stretch)

    def keep(self, rows: Tensor) -> None:
        self._cache.keep(rows)
        self._position_B = None if self._position_B is None else self._position_B[rows]


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

    def read(self, ids_PL: Tensor) -> None:
        logits_PV = self._forward(ids_PL)
        prompt_of_B = torch.arange(len(ids_PL), device=ids_PL.device).repeat_interleave(self._group_size)
        self._cache.reorder_cache(prompt_of_B)
        self._mask = self._mask.repeat_interleave(self._group_size, 0)
        self._position = self._mask.sum(1)[:, None]
        self._logits_BV = logits_PV[prompt_of_B]

    def write(self, how: Choice, token_B: Tensor | None, alive_B: Tensor, draw_SB: Tensor) -> Stretch:
        logits_BV = self._logits_BV if token_B is None else self._next(token_B)
        token_B, logp_B, entropy_B = choose(logits_BV, how.temperature, draw_SB[0])
        return Stretch(
            token_B[None], logp_B[None], entropy_B[None], alive_B[None], goes_on(alive_B, token_B, how.stops)
        )

    def _next(self, ids_B: Tensor) -> Tensor:
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
