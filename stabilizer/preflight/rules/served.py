"""A server of the same script that does not fit the training it is for.

What it checks
    A command that serves a model (`trl vllm-serve`, `swift rollout`, `vllm serve`) beside the one that trains: GPUs
    that both see, ranks against GPUs, the model, the length that the engine holds, the port, and whether the training
    asks the server at all.
Why it matters
    Each of these shows late and elsewhere: an NCCL error at the first synchronisation of weights, requests that are
    refused for their length, or a server that stands idle while the training generates by itself.
Exceptions
    Nothing is said of what the script leaves to variables, nor where no command of the script trains.
Fix
    The flag to change, with its value.
References
    huggingface/trl docs/source/vllm_integration.md; modelscope/ms-swift docs, GRPO server mode.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from stabilizer.configs.config import Beside
from stabilizer.configs.purposes import SERVES
from stabilizer.preflight.rules.base import Finding, Severity, found
from stabilizer.trainers.quantities import View

ID = "serving/disagrees"
_PORTS = {"trl": 8000, "ms-swift": 8000, "open-r1": 8000}
"""Port on which these trainers ask for their server when none is given."""
_RANKS = (
    ("tensor_parallel_size", "data_parallel_size"),
    ("vllm_tensor_parallel_size", "vllm_data_parallel_size"),
    ("tp", "dp"),
)
_LENGTHS = ("max_model_len", "vllm_max_model_len", "context_length")
_MODELS = ("model", "model_path", "model_name_or_path")
_SOURCE = "huggingface/trl docs/source/vllm_integration.md"


def check(view: View) -> Iterator[Finding]:
    """One finding for each disagreement."""
    for server in view.config.parsed.beside:
        if server.does == SERVES:
            yield from _devices(view, server)
            yield from _model(view, server)
            yield from _length(view, server)
            yield from _asked(view, server)


def _say(view: View, server: Beside, severity: Severity, key: str, summary: str, why: str, how: str) -> Finding:
    return found(
        view, severity, key, f"`{server.program}` (line {server.line}): {summary}", why=why, how=how, sure="likely",
        source=_SOURCE,
    )  # fmt: skip


def _number(said: Mapping[str, Any], *keys: str) -> int | None:
    return next((said[key] for key in keys if isinstance(said.get(key), int) and said[key] is not True), None)


def _devices(view: View, server: Beside) -> Iterator[Finding]:
    ranks = math.prod(_number(server.settings, *names) or 1 for names in zip(*_RANKS, strict=True))
    if server.devices is not None and ranks > len(server.devices):
        yield _say(
            view, server, "critical", "CUDA_VISIBLE_DEVICES",
            f"{ranks} ranks (tensor x data parallel) on {len(server.devices)} visible GPUs",
            "The server stops at its start for want of GPUs.",
            f"{len(server.devices)} ranks, or {ranks} GPUs in its CUDA_VISIBLE_DEVICES",
        )  # fmt: skip
    both = sorted({*(server.devices or ())}.intersection(view.config.parsed.devices or ()))
    if both:
        names = ", ".join(map(str, both))
        yield _say(
            view, server, "critical", "CUDA_VISIBLE_DEVICES", f"GPU {names} is also one of the training's",
            "NCCL can't connect a trainer and a server on one GPU, and both want its memory.",
            "GPUs of its own for the server, and a training process fewer for each",
        )  # fmt: skip


def _model(view: View, server: Beside) -> Iterator[Finding]:
    named = next((server.settings[key] for key in _MODELS if isinstance(server.settings.get(key), str)), None)
    served = named or next((word for word in server.words if "/" in word), None)
    trained = view.value("model")
    if not isinstance(trained, str) or served is None:
        return
    if PurePosixPath(served).name.lower() != PurePosixPath(trained).name.lower():
        yield _say(
            view, server, "warn", view["model"].key, f"serves {served}, and {trained} is trained",
            "Weights are sent by name: with another architecture this fails, and until the first synchronisation"
            " another model answers.",
            f"serve {trained}",
        )  # fmt: skip


def _length(view: View, server: Beside) -> Iterator[Finding]:
    held, answer = _number(server.settings, *_LENGTHS), view.number("max_completion")
    if held is None or answer is None:
        return
    prompt = view.number("max_prompt") or 0
    if held <= answer or held < prompt + answer:
        asked = f"{prompt:g} + {answer:g}" if prompt else f"{answer:g}"
        yield _say(
            view, server, "critical", view["max_completion"].key,
            f"holds {held:,} tokens, and prompt and answer may take {asked} = {prompt + answer:,.0f}"
            if prompt else f"holds {held:,} tokens, no more than one answer may take ({asked})",
            "The engine refuses such a request, or cuts the answer below the length that counts as finished.",
            f"a length of {prompt + answer or answer:,.0f} or more for the server, or shorter answers",
        )  # fmt: skip


def _asked(view: View, server: Beside) -> Iterator[Finding]:
    """Whether TRL or ms-swift ask the server."""
    trainer, ask = view.config.trainer, view.ask
    if trainer.name not in _PORTS:
        return
    if server.program.startswith("swift deploy"):
        yield _say(
            view, server, "critical", "vllm_mode", "it serves users and takes no weights from a training",
            "GRPO's server mode needs the server that synchronises weights.",
            "swift rollout with the same model and GPUs",
        )  # fmt: skip
        return
    if not ask.flag("use_vllm"):
        yield _say(
            view, server, "warn", "use_vllm", "the training does not ask it: use_vllm is off",
            "Answers are then generated by the model that learns, many times slower, while the server stands idle.",
            "use_vllm true with vllm_mode server",
        )  # fmt: skip
        return
    mode = ask.raw("vllm_mode")
    if mode == "colocate":
        written = "written" if "vllm_mode" in view.config.settings else "the default of this version"
        yield _say(
            view, server, "critical", "vllm_mode", f"the training does not ask it: vllm_mode is colocate, {written}",
            "The training then starts an engine of its own on the GPUs that train, which often runs out of memory,"
            " while the server stands idle.",
            "vllm_mode server with vllm_server_host; or no server",
        )  # fmt: skip
        return
    served = _number(server.settings, "port") or _PORTS[trainer.name]
    port = ask.num("vllm_server_port") or _PORTS[trainer.name]
    if served != port and ask.raw("vllm_server_base_url") is None:
        yield _say(
            view, server, "critical", "vllm_server_port", f"listens on port {served}, and the training asks {port:g}",
            "The training waits for a server until its time is over.", f"vllm_server_port {served}",
        )  # fmt: skip
