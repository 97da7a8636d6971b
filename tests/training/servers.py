"""Stand-ins for vLLM: a copy of the model that can be told to misbehave, and a replay of what the real one wrote."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from stabilizer.training.model import Policy
from stabilizer.training.rollout.engine import Cut, Sampling
from stabilizer.training.rollout.sampler import Sampler
from stabilizer.training.rollout.synced import Completion, Request, learner_scores

RECORDINGS = Path(__file__).parent / "recordings"
RECORDED = (
    "rollout.engine=vllm", "rollout.vllm.kv_cache_gb=0.1", "rollout.temperature=0.8", "rollout.max_completion=8",
)  # fmt: skip
"""What the recordings were made with, on top of the small configuration of sorting."""


class CopyServer:
    """Holds a copy of the model, as vLLM does, and answers with it."""

    def __init__(self, policy: Policy, max_length: int = 64):
        self.max_length = max_length
        self.exact, self.version, self.failures = True, 0, Counter()
        self.copy = Policy(copy.deepcopy(policy.model), policy.tokenizer)
        self.loads = 0
        self.deaf: set[int] = set()
        """Which hand-overs, counted from 1, are accepted without a word and lost."""
        self.closed = False

    @torch.no_grad()
    def load(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        self.loads += 1
        if self.loads in self.deaf:
            return
        own = dict(self.copy.model.named_parameters())
        for name, weight in weights:
            own.pop(name).copy_(weight)
        assert not own, f"never handed over: {sorted(own)}"

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        return learner_scores(self.copy.model, sequences).tolist()

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        sampler = Sampler(self.copy)
        return [self._complete(sampler, request) for request in requests]

    def _complete(self, sampler: Sampler, request: Request) -> Completion:
        sampling = Sampling(1, request.temperature, request.max_tokens, request.seed, request.stop_ids, cut=request.cut)
        one = sampler.generate([request.prompt], sampling)
        return Completion(one.completion_ids_BT[0].tolist(), one.logp_BT[0].tolist())

    def close(self) -> None:
        self.closed = True


class RecordedServer(CopyServer):
    """vLLM's first scores and completions as they were recorded; weights that have moved since are scored by the copy.

    It answers nothing but what it was asked when it was recorded: other requests are an error, with the way to mend it.
    """

    def __init__(self, policy: Policy, dtype: str):
        super().__init__(policy, max_length=256)
        self.recording = json.loads((RECORDINGS / f"vllm-{dtype}.json").read_text())
        self._scores = [self.recording["scores"]]

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        self._check("probe", sequences)
        return self._scores.pop() if self._scores else super().score(sequences)

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        assert all(request.cut == Cut() for request in requests), "recorded without a cut"
        self._check("requests", [request[:-1] for request in requests])
        return [Completion(*one) for one in self.recording["completions"]]

    def _check(self, what: str, asked: object) -> None:
        now, then = json.loads(json.dumps(asked)), self.recording[what]
        assert now == then, (
            f"recorded for other {what}; in the environment with vLLM: python -m tests.training.record_vllm"
        )
