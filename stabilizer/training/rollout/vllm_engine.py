"""vLLM in this process, holding a copy of the weights.

It changes these defaults of vLLM, each of which has broken a run:

- one process (`VLLM_ENABLE_V1_MULTIPROCESSING=0`), so that weights are passed as tensors, without a file;
- on a CPU, linear layers are kept as they are: vLLM would repack them for oneDNN at start, drop the originals, and
  leave a language-model head tied to the embedding at its old values, without an error;
- log-probabilities of chosen tokens are those of the distribution sampled from, temperature included;
- keys and values cached for a shared prefix belong to the weights that made them, and are dropped with them;
- random generators and the number of torch threads are restored: vLLM reseeds all of them, and replaces
  `torch.set_num_threads` by a function that does nothing;
- usage reports are off.

On CUDA the same code shares one device with the learner and uses the share `gpu_memory` of its memory. This has not
been tested, because no such machine was available.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import os
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig

from stabilizer.training.rollout.synced import Completion, Request
from stabilizer.training.rollout.vllm_install import INSTALL, find_vllm
from stabilizer.training.settings import VllmConfig

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # binding would take the learner's cores away
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
"""Environment variables set before vLLM is imported, unless the user has set them."""
LONGEST = 4096
"""Tokens of prompt and completion when `max_model_len` is not given and the model would allow more."""


class InProcessVllm:
    """A `Server`: vLLM's offline engine, started with random weights, so that only a transfer can make it right."""

    def __init__(self, config: PretrainedConfig, architecture: str, settings: VllmConfig):
        vllm = _import_vllm()
        self.exact = settings.dtype == "float32"
        self.version = 0
        self.failures: Counter[str] = Counter()  # it fails as a whole
        self._params = vllm.SamplingParams
        allowed = getattr(config.get_text_config(), "max_position_embeddings", LONGEST)
        self.max_length = settings.max_model_len or min(LONGEST, allowed)
        config = copy.deepcopy(config)
        config.architectures = [architecture]
        self._llm: Any = None
        atexit.register(self.close)
        try:
            with tempfile.TemporaryDirectory() as folder, _quiet(), _process_left_alone(), _weights_kept_in_place():
                config.save_pretrained(folder)
                self._llm = vllm.LLM(
                    model=folder,
                    skip_tokenizer_init=True,
                    load_format="dummy",
                    dtype=settings.dtype,
                    max_model_len=self.max_length,
                    max_num_seqs=settings.max_num_seqs,
                    logprobs_mode="processed_logprobs",
                    generation_config="vllm",  # a checkpoint's own sampling settings would be applied too
                    disable_log_stats=True,
                    **_memory(settings),
                )
                self.score([[0, 0]])  # an attention kernel that does not support the model fails only when it runs
        except Exception as error:  # of any kind: the user chose the engine and the model
            self.close()
            reason = " ".join(str(error).split())[-600:]
            raise ValueError(
                f"rollout.engine = 'vllm': vLLM {vllm.__version__} cannot serve this {architecture}: {reason}"
                " (on a CPU heads must be 32, 64, 80, 96, 112, 128, ... wide, and rollout.vllm.kv_cache_gb must fit"
                " into memory; rollout.engine=builtin serves any model)"
            ) from error

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Copy all weights over, in the engine's own precision."""
        self.version = version
        self._llm.apply_model(lambda model: model.load_weights(weights))

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities of given tokens, from one pass over them."""
        params = self._params(
            temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False
        )  # generates an unused token
        scored = self._run(sequences, params)
        return [
            [place[token].logprob for place, token in zip(out.prompt_logprobs[1:], ids[1:], strict=True)]
            for out, ids in zip(scored, sequences, strict=True)
        ]

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Generate all completions at once, up to `max_num_seqs`."""
        params = [
            self._params(
                **request.sampling(),
            )
            for request in requests
        ]
        written = [result.outputs[0] for result in self._run([request.prompt for request in requests], params)]
        return [
            Completion(
                list(out.token_ids),
                [place[token].logprob for place, token in zip(out.logprobs, out.token_ids, strict=True)],
            )
            for out in written
        ]

    def close(self) -> None:
        """End the engine; a second call does nothing."""
        atexit.unregister(self.close)
        if self._llm is None:
            return
        self._llm.llm_engine.engine_core.shutdown()
        self._llm = None
        from vllm.distributed import cleanup_dist_env_and_memory

        cleanup_dist_env_and_memory()

    def _run(self, prompts: Sequence[Sequence[int]], params: Any) -> list[Any]:
        # cached values of old weights are wrong, and cached values from before a checkpoint are missing after it
        self._llm.reset_prefix_cache()
        return list(self._llm.generate([{"prompt_token_ids": list(ids)} for ids in prompts], params, use_tqdm=False))


def _import_vllm() -> Any:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if find_vllm() is None:
        raise ValueError(f"rollout.engine = 'vllm' needs vLLM, which is not installed: {INSTALL}")
    try:
        with _quiet():
            import vllm
    except Exception as error:  # torchvision of another torch, a missing driver, ...
        raise ValueError(f"rollout.engine = 'vllm': vLLM cannot be imported ({error}). {INSTALL}") from error
    return vllm


def _memory(settings: VllmConfig) -> dict[str, Any]:
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return {"kv_cache_memory_bytes": int(settings.kv_cache_gb * 2**30), "enforce_eager": True}
    return {"gpu_memory_utilization": settings.gpu_memory}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """vLLM's warnings concern its internals; the checks that matter to the run are made here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _process_left_alone() -> Iterator[None]:
    """Restore threads, random generators, and error hooks, which belong to the surrounding program."""
    set_num_threads, threads, show = torch.set_num_threads, torch.get_num_threads(), sys.excepthook
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 (it is the global one)
    try:
        yield
    finally:
        torch.set_num_threads = set_num_threads
        torch.set_num_threads(threads)
        sys.excepthook = show
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


@contextlib.contextmanager
def _weights_kept_in_place() -> Iterator[None]:
    """While an engine is built for a CPU, keep its linear layers on the parameters that `load` writes to."""
    from vllm.model_executor.layers import utils

    repack = utils.dispatch_cpu_unquantized_gemm

    def keep(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    utils.dispatch_cpu_unquantized_gemm = keep
    try:
        yield
    finally:
        utils.dispatch_cpu_unquantized_gemm = repack
