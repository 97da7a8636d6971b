"""The engine and the scorer of a configuration. Their dependencies are imported only when they are chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from stabilizer.training.model import Policy
from stabilizer.training.rollout.engine import Engine
from stabilizer.training.rollout.logprobs import Scorer
from stabilizer.training.rollout.sampler import CopySampler, Sampler
from stabilizer.training.settings import RolloutConfig, TrainConfig

if TYPE_CHECKING:
    from stabilizer.training.rollout.synced import Server

EXACT, COARSE = 1e-3, 0.2
"""Nats per token by which two correct implementations may differ: both in float32, or either in a shorter precision.

Measured on the built-in models: 1e-6 and 0.01-0.03. A head that keeps its old values differs by half a nat or more.
"""


def build_scorer(config: TrainConfig) -> Scorer:
    """Computes log-probabilities and values of completions."""
    limits = {"micro_batch": config.optim.micro_batch, "micro_tokens": config.optim.micro_tokens}
    if config.fast == "off":
        return Scorer(**limits)
    from stabilizer.training.fast.scorer import FastScorer

    return FastScorer(**limits)


def build_engine(config: RolloutConfig, policy: Policy) -> Engine:
    """The engine that `rollout.engine` names, with the policy's current weights; ValueError if it is unavailable."""
    if config.engine == "builtin":
        return CopySampler(policy) if config.asynchronous else Sampler(policy)
    from stabilizer.training.rollout.synced import SyncedEngine

    server = _server(config, policy)
    if config.max_completion >= server.max_length:
        limit = "rollout.vllm.max_model_len" if config.engine == "vllm" else "the servers' max_model_len"
        server.close()
        raise ValueError(
            f"rollout.max_completion = {config.max_completion}: must be below {limit} = {server.max_length}, which"
            " holds the prompt too"
        )
    usual = EXACT if server.exact and policy.model.dtype is torch.float32 else COARSE
    tolerance = usual if config.vllm.tolerance is None else config.vllm.tolerance
    return SyncedEngine(policy, server, tolerance=tolerance, probe=config.vllm.probe, held=config.asynchronous)


def _server(config: RolloutConfig, policy: Policy) -> Server:
    if config.engine == "vllm-server":
        from stabilizer.training.rollout.vllm_server import VllmServers

        return VllmServers(config.server)
    from stabilizer.training.rollout.vllm_engine import InProcessVllm

    plain: Any = policy.model
    plain = plain.get_base_model() if hasattr(plain, "get_base_model") else plain
    return InProcessVllm(plain.config, type(plain).__name__, config.vllm)
