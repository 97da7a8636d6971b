"""Writing many tokens on many rows: what sampling spends its time in, in one call that needs no Python (`scripted`).

Shape letters: B rows, S tokens of a stretch, V vocabulary.
"""

# Annotations are not postponed here: TorchScript could not read those of the tuples.
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from stabilizer.training.fast.decoder import Weights, layout, rope
from stabilizer.training.fast.forward import hidden_states, next_logits
from stabilizer.training.rollout.rollouts import position_ids


class Stretch(NamedTuple):
    """Some tokens more on every row."""

    token_SB: Tensor
    logp_SB: Tensor
    entropy_SB: Tensor
    alive_SB: Tensor
    """Whether the row had not ended before the token."""
    alive_B: Tensor
    """Whether it has not ended with the last one either."""


class Choice(NamedTuple):
    """By what tokens are chosen."""

    temperature: float
    stops: list[int]
    """Tokens that end a row."""
    fewer: float
    """A stretch ends when the share of rows that have not ended is below this, so that the others can leave."""


def read_prompts(w: Weights, ids_PL: Tensor, mask_PL: Tensor, group_size: int, cache: Tensor) -> tuple[Tensor, Tensor]:
    """The logits of what follows each prompt, on each row of its group, (B, V), and the `rope` of all positions in the
    `cache`, to which keys and values go."""
    prompts, length = ids_PL.shape
    turns = rope(w, torch.arange(cache.shape[3], device=ids_PL.device))
    states_NH = hidden_states(w, ids_PL.flatten(), turns[position_ids(mask_PL).flatten()], layout(mask_PL), cache)
    last_PH = states_NH.view([prompts, length, -1]).select(1, length - 1)
    return linear(last_PH, w.head.weight, w.head.bias).repeat_interleave(group_size, 0), turns


def write_on(
    w: Weights,
    how: Choice,
    logits_BV: Tensor,
    token_B: Tensor | None,
    alive_B: Tensor,
    draw_SB: Tensor,
    turns: Tensor,
    position_B: Tensor | None,
    cache: Tensor,
    mask: Tensor | None,
    at: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """As many tokens as there are random numbers, or fewer, behind `token_B`; without it behind `logits_BV`.

    `cache` and `mask` are those of a `decoder.Cache` with `at` places filled, `turns` is the `rope` of every position.
    `position_B` says where each row is, if these differ. The result is what makes up a `Stretch`, which would come back
    as a type of its own at every call.
    """
    tokens: list[Tensor] = []
    alive: list[Tensor] = []
    logps: list[Tensor] = []
    entropies: list[Tensor] = []
    untold: list[Tensor] = []
    at_once = 2**20  # logits that are kept, so that what is told of them is computed for many tokens together
    for step in range(len(draw_SB)):
        if token_B is not None:
            now = turns.narrow(0, at, 1) if position_B is None else turns[position_B]
            logits_BV = next_logits(w, token_B, now, cache, mask, at)
            at += 1
            position_B = None if position_B is None else position_B + 1
        logits_BV = tempered(logits_BV, how.temperature)
        token_B = chosen(logits_BV, how.temperature, draw_SB[step])
        tokens.append(token_B)
        alive.append(alive_B)
        untold.append(logits_BV)
        alive_B = goes_on(alive_B, token_B, how.stops)
        last = step == len(draw_SB) - 1 or int(alive_B.sum()) < max(1.0, how.fewer * len(alive_B))
        if last or len(untold) * logits_BV.numel() >= at_once:
            logp_N, entropy_N = told(torch.cat(untold), torch.cat(tokens[-len(untold) :]))
            logps.append(logp_N)
            entropies.append(entropy_N)
            untold.clear()
        if last:
            break
    shape = [len(tokens), len(alive_B)]
    logp_SB, entropy_SB = torch.cat(logps).view(shape), torch.cat(entropies).view(shape)
    return torch.stack(tokens), logp_SB, entropy_SB, torch.stack(alive), alive_B


def choose(logits_BV: Tensor, temperature: float, draw_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A token per row, its log-probability, and the entropy of what it was drawn from."""
    logits_BV = tempered(logits_BV, temperature)
    token_B = chosen(logits_BV, temperature, draw_B)
    logp_B, entropy_B = told(logits_BV, token_B)
    return token_B, logp_B, entropy_B


def tempered(logits_BV: Tensor, temperature: float) -> Tensor:
    """Logits at a temperature, at least in float32; at 0, where the highest is taken, as they are at 1."""
    wide_BV = logits_BV if logits_BV.dtype == torch.float64 else logits_BV.float()
    return wide_BV if temperature == 0 or temperature == 1 else wide_BV / temperature


def chosen(logits_BV: Tensor, temperature: float, draw_B: Tensor) -> Tensor:
    """A token per row: the likeliest at temperature 0, otherwise one drawn from the softmax.

    One random number a row, in [0, 1), looked up in the running sum of the probabilities: noise for every token of a
    real vocabulary would cost more than the model. A probability of 0 is never hit. Non-finite logits still give some
    token, with a non-finite log-probability: evidence for the metrics instead of a crash here.
    """
    if temperature == 0:
        return logits_BV.argmax(-1)
    last = logits_BV.shape[1] - 1
    sum_BV = torch.softmax(logits_BV, dim=-1).cumsum(-1, dtype=torch.float64)
    sought_B1 = draw_B.unsqueeze(1) * sum_BV.narrow(1, last, 1)
    return torch.searchsorted(sum_BV, sought_B1, right=True).squeeze(1).clamp_max(last)


def told(logits_NV: Tensor, token_N: Tensor, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
    """Log-probabilities of tokens, and the entropies of what they were drawn from."""
    logp_NV = torch.log_softmax(logits_NV, dim=-1)
    logp_N = logp_NV.gather(1, token_N.unsqueeze(1)).squeeze(1)
    if not entropy_grad:
        logp_NV = logp_NV.detach()
    return logp_N, -(logp_NV.exp() * logp_NV.clamp_min(-3e38)).sum(-1)  # 0 x log 0 = 0


def goes_on(alive_B: Tensor, token_B: Tensor, stops: list[int]) -> Tensor:
    """Rows that had not ended and don't with this token."""
    for stop in stops:
        alive_B = alive_B & (token_B != stop)
    return alive_B
