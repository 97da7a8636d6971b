"""Several processes of one run, for tests: what `torchrun` would start, without its start-up time."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as from_safetensors

from stabilizer.cli import main
from stabilizer.live.session import Session  # noqa: F401  (loaded once, for all processes)
from stabilizer.training.loop import Trainer
from stabilizer.training.ranks import follow, joined
from stabilizer.training.settings import TrainConfig
from stabilizer.training.sharding import own

LIMIT_S = 90
"""A test fails when its processes need longer, on a machine with many other jobs."""

Lead = Callable[[Trainer], Any]
"""What rank 0 does with its trainer."""


def nothing(trainer: Trainer) -> None:
    """Change nothing."""


def run_ranks(
    size: int, lead: Lead, config: TrainConfig, folder: Path, prepare: Lead = nothing, lost: int | None = None
) -> list[Any]:
    """The result of `lead` on rank 0, and then the weights of every rank at the end.

    `prepare` changes the trainer of each rank before that. A rank that is `lost` on purpose gives no answer.
    """
    pipes, processes = _processes(size, _led_or_following, lead, config, folder, prepare)
    for process in processes:
        process.start()
    try:
        expected = [pipe for rank, (pipe, _) in enumerate(pipes) if rank != lost]
        answers = [pipe.recv() if pipe.poll(LIMIT_S) else "no answer" for pipe in expected]
    finally:
        for rank, process in enumerate(processes):
            process.join(0 if rank == lost else 5)
            process.kill()
    if wrong := [answer for answer in answers if isinstance(answer, str)]:
        raise AssertionError("\n".join(wrong))
    return [answers[0][0], *(weights for _, weights in answers)]


def run_commands(size: int, argv: list[str]) -> list[int]:
    """The exit code of `stabilizer` with these arguments, in each of several processes that `torchrun` would start."""
    pipes, processes = _processes(size, _command, argv)
    for process in processes:
        process.start()
    try:
        return [pipe.recv() if pipe.poll(LIMIT_S) else -1 for pipe, _ in pipes]
    finally:
        for process in processes:
            process.join(5)
            process.kill()


def cut_off(size: int, argv: list[str], victim: int, seen: Callable[[], set[int]], wait_s: float = 0.0) -> set[int]:
    """Start `stabilizer` in several processes and kill one a moment after something was seen; the others end by
    themselves. Returns what was seen last before the kill."""
    _, processes = _processes(size, _command, argv)
    for process in processes:
        process.start()
    try:
        until = time.monotonic() + LIMIT_S
        while not seen() and time.monotonic() < until and all(process.is_alive() for process in processes):
            time.sleep(0.02)
        time.sleep(wait_s)
        last = seen()
        processes[victim].kill()
        for process in processes:
            process.join(LIMIT_S)
        assert not any(process.is_alive() for process in processes), "a process waits for one that was killed"
        return last
    finally:
        for process in processes:
            process.kill()


def _processes(size: int, work: Callable[..., Any], *args: Any) -> tuple[list[Any], list[Any]]:
    """A pipe and a process for each rank, not yet started."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.training.rank_processes"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pipes = [context.Pipe(duplex=False) for _ in range(size)]
    ranks = [
        context.Process(target=_process, args=(rank, size, port, pipes[rank][1], work, *args)) for rank in range(size)
    ]
    return pipes, ranks


def weights(trainer: Trainer) -> torch.Tensor:
    """All weights of policy and critic that this process holds, as one vector."""
    models = trainer._weights.models.values()
    return torch.cat([own(p).detach().reshape(-1).float() for model in models for p in model.parameters()])


def whole_weights(trainer: Trainer) -> torch.Tensor:
    """All weights that learn, as a checkpoint holds them. Rank 0 asks for them if the ranks share the weights."""
    state = trainer.state()
    parts = [from_safetensors(state[f"{name}.safetensors"]) for name in trainer._weights.models]
    return torch.cat([part[name].reshape(-1).float() for part in parts for name in sorted(part)])


def _process(rank: int, size: int, port: int, pipe: Connection, work: Callable[..., Any], *args: Any) -> None:
    torch.set_num_threads(1)
    place = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size}
    os.environ |= {name: str(value) for name, value in place.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        answer = work(*args)
    except BaseException:
        pipe.send(f"rank {rank}: {traceback.format_exc()}")
        raise
    pipe.send(answer)


def _command(argv: list[str]) -> int:
    """What it prints is shown if it fails."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(argv)
    if code:
        print(said.getvalue(), file=sys.stderr)
    return code


def _led_or_following(lead: Lead, config: TrainConfig, folder: Path, prepare: Lead) -> tuple[Any, Any]:
    built: list[Trainer] = []
    with joined() as ranks:

        def build(config: TrainConfig) -> Trainer:
            built.append(Trainer(config, checkpoints=folder, ranks=ranks))
            prepare(built[0])
            return built[0]

        result = lead(build(config)) if ranks.leads else follow(ranks, build)
        read = whole_weights if ranks.leads and built[0].sharded and built[0].whole else weights
        return result, read(built[0]).numpy()
