"""Generation by an engine with its own weights: every update is transferred to it, and every transfer is checked.

An engine with stale weights looks healthy: no error, plausible text, and a learner whose ratios are silently wrong. So
every transfer is checked with a probe, a few fixed token sequences whose log-probabilities both sides compute:

- at set-up, a probe that disagrees is a ValueError: this engine cannot serve this model;
- later the transfer is repeated; if that fails too, the error remains in the metrics of the step that made the update,
  and the next `generate` raises `StaleWeights`. Training on stale answers is worse than stopping, and stopping there
  allows the previous step to be recorded and saved.

The weights may be in any program that can `load`, `score` and `complete`: vLLM in this process (`vllm_engine.py`) or
servers of vLLM (`vllm_server.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from stabilizer.training.model import Policy, adapted_name
from stabilizer.training.rollout.engine import Cut, Sampling
from stabilizer.training.rollout.rollouts import Rollouts, decode, pad_left
from stabilizer.training.tasks import random_bits

PROBE_LENGTH = 32
"""Tokens of a probe sequence."""
UNMOVED = 0.1
"""Share of the tolerance by which the learner may move while the engine's answers remain the same to the last bit."""


class Completion(NamedTuple):
    """The completion of one prompt."""

    ids: list[int]
    """Tokens, the end token included."""
    logps: list[float]
    """Log-probability of each token at the sampling temperature; with a cut, relative to the tokens that it allows."""
    version: int | None = None
    """Lowest version of the weights that chose a token; None if the program does not say."""


class Request(NamedTuple):
    """A request for one completion with its own seed: the result does not depend on other requests."""

    prompt: Sequence[int]
    seed: int
    temperature: float
    max_tokens: int
    stop_ids: tuple[int, ...]
    cut: Cut = Cut()

    def sampling(self) -> dict[str, Any]:
        """The parameters of vLLM for it."""
        return {
            "temperature": self.temperature,
            "seed": self.seed,
            "max_tokens": self.max_tokens,
            **self.cut._asdict(),
            "stop_token_ids": list(self.stop_ids),
            "logprobs": 0,  # of the chosen token only
            "detokenize": False,
        }


class Server(Protocol):
    """A copy of the weights. A server remembers nothing else between calls."""

    max_length: int
    """Tokens of prompt and completion together."""
    exact: bool
    """Whether it computes in float32."""
    version: int
    """Version of its weights; 0 if it never got any."""
    failures: Counter[str]
    """Reasons for which a part of it failed so far."""

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Load all weights, by their names in a checkpoint."""

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probability of every token but the first, at temperature 1."""

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion per request, in order."""

    def close(self) -> None:
        """Release memory and all other resources."""


class StaleWeights(ValueError):
    """The engine does not use the current weights."""


class SyncedEngine:
    """The `Engine` over a `Server`: weights are transferred at its creation, by `sync`, and after unannounced
    changes; with `held` only by `sync`, because the learner updates while this generates."""

    def __init__(self, policy: Policy, server: Server, *, tolerance: float, probe: int, held: bool = False):
        self._model, self._tokenizer = policy
        self._server = server
        self._tolerance = tolerance
        self._held = held
        self._own_stops = end_ids(policy)
        self._probe = probe_sequences(policy, probe, min(PROBE_LENGTH, server.max_length - 1))
        self._before: tuple[Tensor, Tensor] | None = None  # the probe's log-probabilities here and there, last time
        self._changes = -1
        self._refusal = ""
        self.version = server.version
        self.failures = server.failures
        self.sync()
        if self._refusal:
            raise ValueError(f"this engine cannot serve this model: {self._refusal}")

    @property
    def max_length(self) -> int:
        """Tokens that the server was started with room for."""
        return self._server.max_length

    def sync(self, updates: int = 1) -> dict[str, float]:
        """Transfer the weights and check that they arrived; reports the difference as `rollout/sync_error`. Their
        version counts the updates."""
        began = perf_counter()
        self.version += updates
        ours = learner_scores(self._model, self._probe)
        theirs, error, problem = self._hand_over(ours)
        retries = int(bool(problem))
        if retries:
            theirs, error, problem = self._hand_over(ours)
        self._refusal = problem
        if not problem:  # otherwise the last good values remain, for the next comparison
            self._before = (ours, theirs)
        self._changes = self._count_changes()
        return {
            "rollout/sync_error": error,
            "rollout/sync_retries": retries,
            "time/sync_s": perf_counter() - began,
        }

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> Rollouts:
        """`group_size` completions per prompt; StaleWeights if the current weights could not be transferred."""
        if not self._held and self._changes != self._count_changes():
            self.sync()
        if self._refusal:
            raise StaleWeights(
                f"{self._refusal} Generation stopped: answers from other weights would mislead the learner."
            )
        stops = (*self._own_stops, *sampling.stop_ids)
        completions = self._server.complete([*self._requests(prompts, sampling, stops)])
        return self._assembled(prompts, completions, sampling, stops)

    def close(self) -> None:
        """Release the server."""
        self._server.close()

    def _hand_over(self, ours: Tensor) -> tuple[Tensor, float, str]:
        """The probe's log-probabilities there, their distance from ours, and the problem with that or ''."""
        self._server.load(checkpoint_weights(self._model), self.version)
        theirs = torch.tensor(self._server.score(self._probe), dtype=torch.float64)
        error = disagreement(ours, theirs)
        return theirs, error, self._problem(ours, theirs, error)

    def _problem(self, ours: Tensor, theirs: Tensor, error: float) -> str:
        """Why the engine's weights must be different ones, or ''."""
        if error > self._tolerance:
            return (
                f"after the transfer of the weights, its log-probabilities of {theirs.numel()} probe tokens differ"
                f" from the learner's by {error:.3g} on average, and rollout.vllm.tolerance is {self._tolerance:g}. Try"
                " rollout.vllm.dtype=float32. If that agrees, precision was the cause, and a higher tolerance"
                " is correct; if not, the engine does not load this model's weights: use rollout.engine=builtin."
            )
        if self._before is None:
            return ""
        moved, answered = disagreement(ours, self._before[0]), disagreement(theirs, self._before[1])
        if answered == 0 and moved > UNMOVED * self._tolerance:
            return (
                f"the learner's log-probabilities of the probe moved by {moved:.3g} with the last update and the"
                " engine's did not change by a single bit: it still has the old weights. Resume from the last"
                " checkpoint (a fresh engine loads all weights), or use rollout.engine=builtin."
            )
        return ""

    def _requests(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, stops: tuple[int, ...]
    ) -> Iterator[Request]:
        for number, prompt in enumerate(prompts, sampling.first):
            room = self._server.max_length - len(prompt)
            if room < 1:
                raise ValueError(
                    f"a prompt of {len(prompt)} tokens leaves no room for an answer in rollout.vllm.max_model_len ="
                    f" {self._server.max_length}: raise it, or use shorter prompts"
                )
            for member in range(sampling.group_size):
                seed = random_bits(sampling.seed, "completion", number, member) >> 1
                yield Request(
                    prompt, seed, sampling.temperature, min(room, sampling.max_completion), stops, sampling.cut
                )

    def _assembled(
        self,
        prompts: Sequence[Sequence[int]],
        completions: Sequence[Completion],
        sampling: Sampling,
        stops: tuple[int, ...],
    ) -> Rollouts:
        device, pad = self._model.device, self._tokenizer.pad_token_id
        prompt_ids_PL, prompt_mask_PL = pad_left(prompts, pad, device)
        width = max(len(completion.ids) for completion in completions)
        rest = [width - len(completion.ids) for completion in completions]
        ids_BT = torch.tensor([c.ids + [pad] * more for c, more in zip(completions, rest, strict=True)], device=device)
        logp_BT = torch.tensor(
            [c.logps + [0.0] * more for c, more in zip(completions, rest, strict=True)], device=device
        )
        length_B = width - torch.tensor(rest, device=device)
        last_B = ids_BT.gather(1, (length_B - 1)[:, None])[:, 0]
        return Rollouts(
            prompt_ids_BP=prompt_ids_PL.repeat_interleave(sampling.group_size, 0),
            prompt_mask_BP=prompt_mask_PL.repeat_interleave(sampling.group_size, 0),
            completion_ids_BT=ids_BT,
            mask_BT=torch.arange(width, device=device)[None] < length_B[:, None],
            logp_BT=logp_BT,
            length_B=length_B,
            span_B=length_B,
            truncated_B=~torch.isin(last_B, last_B.new_tensor(stops)),
            texts=decode(self._tokenizer, ids_BT, length_B, torch.isin(last_B, last_B.new_tensor(self._own_stops))),
            group_size=sampling.group_size,
            staleness=max(self.version - (self.version if c.version is None else c.version) for c in completions),
        )

    def _count_changes(self) -> int:
        """torch counts the in-place changes of each tensor."""
        return sum(parameter._version for parameter in self._model.parameters())


def end_ids(policy: Policy) -> tuple[int, ...]:
    """The tokens that end a completion: the tokenizer's, and those in the model's configuration."""
    configured = policy.model.generation_config.eos_token_id
    more = configured if isinstance(configured, list) else [configured] if configured is not None else []
    return tuple(sorted({policy.tokenizer.eos_token_id, *more}))


def probe_sequences(policy: Policy, count: int, length: int) -> list[list[int]]:
    """Fixed sequences over the whole vocabulary: no model is certain enough of them to hide a difference."""
    size = min(policy.model.config.vocab_size, len(policy.tokenizer))
    return [[random_bits("probe", row, place) % size for place in range(length)] for row in range(count)]


@torch.no_grad()
def learner_scores(model: PreTrainedModel, sequences: Sequence[Sequence[int]]) -> Tensor:
    """Log-probability of every token but the first, at temperature 1, computed by the learner."""
    ids = torch.tensor(sequences, device=model.device)
    logp = torch.log_softmax(model(input_ids=ids[:, :-1], use_cache=False).logits.float(), dim=-1)
    return logp.gather(2, ids[:, 1:, None])[:, :, 0].double().cpu()


def disagreement(a: Tensor, b: Tensor) -> float:
    """The mean difference; for a single token it would be mostly rounding, in a short precision.

    Two NaN agree, because a transfer does not cause bad weights; a single NaN is an infinite difference.
    """
    difference = (a - b).abs().masked_fill((a == b) | (a.isnan() & b.isnan()), 0.0)
    return difference.nan_to_num(nan=math.inf).mean().item()


def checkpoint_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """The weights under the names in a checkpoint of the plain model, with the adapters (LoRA) added.

    The sum is a new tensor and leaves the model unchanged: merging and unmerging in place would round the base weights
    slightly at every update.
    """
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    adapted: dict[str, list[Any]] = {}
    for name, module in model.named_modules():
        if hasattr(module, "get_delta_weight") and not module.merged:
            adapted.setdefault(adapted_name(name, module), []).append(module)
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            continue
        name, weight = name.replace(".base_layer", ""), parameter.detach()
        for module in adapted.get(name, ()):
            for adapter in module.active_adapters:
                weight = weight + module.get_delta_weight(adapter).detach()
        yield name, weight
