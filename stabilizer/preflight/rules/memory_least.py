"""Memory that a training takes whatever its batches are: on each GPU, and in main memory where parts are offloaded.

What it checks
    Weights, gradients and AdamW's moments of the policy, the reference where the KL needs one, and the critic and
    reward model of PPO, spread over all GPUs, against a GPU of 80 GB. What offloading and sleeping engines put into
    main memory is added up.
Why it matters
    A model that does not fit fails at its first step, after minutes of loading, and main memory that is full ends the
    process without a message.
Exceptions
    Nothing is said where the number of GPUs or the size of the model is not known, nor of adapters. Below 80 GB it is
    said only where `--gpus` asks for it.
Fix
    More GPUs with sharding, offloading, an 8-bit optimizer, or an adapter; less offloading where main memory is short.
References
    arXiv:1910.02054 (16 bytes a parameter); huggingface/trl docs/source/reducing_memory_usage.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from stabilizer.preflight.memory import GIB
from stabilizer.preflight.rules.base import Finding, found, size_of
from stabilizer.trainers.quantities import View

ID = "memory/least"
CARD = 80.0
"""GiB of a GPU that is taken for the reader's, as in `plan`."""
LEAST, USUAL = 8.0, 16.0
"""Bytes a parameter that is trained: all in bf16, and with fp32 copies as mixed precision keeps them."""
WEIGHTS = 2.0
"""Bytes a parameter of a model that is not trained, or whose optimizer is elsewhere: bf16."""
HOST = {"optimizer": 12.0, "weights": WEIGHTS, "engine weights": WEIGHTS}
"""Bytes a parameter that offloading puts into main memory: fp32 copy and moments; weights in bf16."""

KEYS = {
    "optimizer": re.compile(r"(?:optim|adam).*offload|offload.*(?:optim|adam)"),
    "weights": re.compile(r"param.*offload|offload.*param|(?<!optimizer.)cpu.offload"),
    "engine weights": re.compile(r"sleep"),
}
"""How trainers call the settings that do it."""


def check(view: View) -> Iterator[Finding]:
    """One finding, on the GPUs and the main memory."""
    billions, gpus = size_of(view), _gpus(view)
    if billions is None or not gpus or view.value("lora") or view.config.trainer.name == "stabilizer":
        return
    need = _needed(view, billions * 1e9, gpus)
    if need.least > CARD or view.config.gpus:
        yield _said(view, need, billions, gpus)


class _Need(NamedTuple):
    """GiB on each GPU, all in bf16 and with fp32 copies; GiB in main memory, and what is there."""

    least: float
    usual: float
    host: float
    offloaded: list[str]


def _needed(view: View, parameters: float, gpus: float) -> _Need:
    trained = 2 if view.value("algorithm") == "ppo" else 1
    kept = WEIGHTS * (_reference(view) + trained - 1)
    offloaded = _offloaded(view)
    least, usual = (WEIGHTS, WEIGHTS) if "optimizer" in offloaded else (LEAST, USUAL)
    host = sum(HOST[part] * (1 if part == "engine weights" else trained) for part in offloaded)
    each = parameters / gpus / GIB
    return _Need((least * trained + kept) * each, (usual * trained + kept) * each, host * parameters / GIB, offloaded)


def _said(view: View, need: _Need, billions: float, gpus: float) -> Finding:
    what = ", reference" * _reference(view) + ", critic and reward model" * (view.value("algorithm") == "ppo")
    span = f"{need.least:.0f} GiB"
    if need.usual > need.least:
        span = f"{need.least:.0f} (all in bf16) to {need.usual:.0f} GiB (fp32 copies)"
    main = f"; {' and '.join(need.offloaded)} in main memory: up to {need.host:.0f} GiB" if need.offloaded else ""
    large = need.least > CARD
    return found(
        view,
        "warn" if large else "info",
        "",
        f"policy{what} of {billions:g}B parameters take {span} on each of {gpus:g} GPU{'s' * (gpus > 1)} if they are"
        f" sharded over all{main}",
        why=f"More than a GPU of {CARD:.0f} GB holds." if large else "Activations, logits and the engine come on top.",
        how=f"`stabilizer plan --trainer {view.config.trainer.name} --gpus {gpus:g} --model-size {billions:g}B` adds"
        " the batch and the engine; to need less: more GPUs, offloading, an 8-bit optimizer or an adapter",
        sure="likely",
        source="arXiv:1910.02054",
    )


def _gpus(view: View) -> float | None:
    return view.config.gpus or view.config.processes or view.config.parsed.hints.get("gpus")


def _reference(view: View) -> bool:
    return any((view.number(name) or 0.0) > 0 for name in ("kl_loss", "kl_reward"))


def _offloaded(view: View) -> list[str]:
    """What is kept in main memory, by the settings that are on."""
    on = [key.lower() for key, setting in view.config.settings.items() if _is_on(setting.value)]
    return [part for part, key in KEYS.items() if any(map(key.search, on))]


def _is_on(value: Any) -> bool:
    return value is True or str(value).lower() in ("true", "cpu", "1")
