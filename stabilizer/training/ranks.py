"""One run in several processes, as `torchrun` starts them. Each process is a rank, and rank 0 leads.

Every rank has all weights and all rows, and computes the same numbers. Three parts of a step are divided between the
ranks, and their results exchanged: completions, passes without gradients, and gradients.

Rank 0 has the run directory, the rewards, the remedies and the requests. The other ranks wait for its calls of the
trainer's methods that are marked `together`. They make the same calls with the same arguments and knobs.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stabilizer.core.knobs import Controls
from stabilizer.training.rollout.rollouts import Rollouts
from stabilizer.training.settings import TrainConfig
from stabilizer.training.sharding import is_part

T = TypeVar("T")
MEETING = timedelta(minutes=10)
"""Time in which all ranks must have started."""
PATIENCE = timedelta(days=365)
"""Time that a rank waits for the next call: a paused run makes none. The loss of rank 0 ends the wait at once."""
RUN = "stabilizer/run"
"""Key under which the launcher remembers a run."""
BUCKET = 16_000_000
"""Numbers of gradients that are summed over the ranks in one call (64 MB)."""


class RankLost(ConnectionError):
    """The ranks of a run no longer work together."""


class Led(Protocol):
    """What the ranks need to know of a trainer."""

    controls: Controls
    ranks: Ranks


class Ranks:
    """The place of this process among those of its run."""

    def __init__(self, rank: int = 0, size: int = 1, local: int = 0, on_this_machine: int = 1):
        self.rank, self.size, self.local, self.on_this_machine = rank, size, local, on_this_machine
        self.device = torch.device("cpu")
        self._calls: Any = None  # process group: what rank 0 asks the others to do
        self._rows: Any = None  # process group: results of a step, on the CPU
        self._gradients: Any = None  # process group: gradients, on the device
        self._inside = False
        self._apart = ""

    @property
    def leads(self) -> bool:
        """Whether this process owns the run."""
        return self.rank == 0

    # --- what a step divides ----------------------------------------------------------------------------------------

    def share(self, count: int) -> slice:
        """The part of `count` things that this rank does."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def place(self, count: int) -> tuple[int, int]:
        """The number of things that lower ranks have, and that all ranks have, if this one has `count`."""
        counts = self.gather(count)
        return sum(counts[: self.rank]), sum(counts)

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, in order, their tensors on this rank's device."""
        if self.size == 1:
            return [value]
        packed: list[Any] = [None] * self.size
        with self._exchange("results"):
            dist.all_gather_object(packed, _packed(value), group=self._rows)
        return [_unpacked(data, self.device) for data in packed]

    def from_lead(self, make: Callable[[], T]) -> T:
        """A value that only rank 0 computes."""
        if self.size == 1:
            return make()
        box = [make() if self.leads else None]
        with self._exchange("rank 0"):
            dist.broadcast_object_list(box, 0, group=self._rows)
        value: Any = box[0]
        return value  # type: ignore[no-any-return]

    def every_row(
        self, pass_: Callable[[Rollouts], tuple[Tensor | None, ...]], rollouts: Rollouts
    ) -> tuple[Tensor | None, ...]:
        """What a pass without gradients gives for all rows; every rank passes its share of them."""
        if self.size == 1:
            return pass_(rollouts)
        mine = self.share(len(rollouts))
        parts = self.gather(pass_(rollouts.rows(mine)) if mine.start < mine.stop else None)
        return tuple(_joined(values) for values in zip(*(part for part in parts if part is not None), strict=True))

    def passes(self, rollouts: Rollouts, micro_batch: int, micro_tokens: int) -> tuple[list[Tensor], list[Tensor]]:
        """The rows of each pass with gradients: of all ranks, and of this one."""
        if self.size > 1:
            most = -(-len(rollouts) // self.size)
            micro_batch = min(micro_batch or most, most)
        parts = rollouts.passes(micro_batch, micro_tokens)
        return parts, parts[self.rank :: self.size]

    def lacks(self, parts: Sequence[Tensor], mine: Sequence[Tensor]) -> bool:
        """Whether another rank makes one more of these passes than this one."""
        return len(mine) < -(-len(parts) // self.size)

    def add_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace every gradient by its sum over the ranks. A rank without rows contributes zeros."""
        if self.size == 1:
            return
        present = torch.tensor([p.grad is not None for p in parameters], dtype=torch.uint8)
        with self._exchange("gradients"):
            dist.all_reduce(present, dist.ReduceOp.MAX, group=self._rows)
            learned = [p for p, there in zip(parameters, present.tolist(), strict=True) if there]
            for bucket in _buckets(learned):
                self._add(bucket)

    def _add(self, bucket: Sequence[nn.Parameter]) -> None:
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
        flat = torch.cat([grad.reshape(-1).float() for grad in grads])
        dist.all_reduce(flat, group=self._gradients)
        for p, total in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
            p.grad = total.view_as(p).to(p.dtype)

    def agree(self, weights: Iterable[Tensor], when: str) -> None:
        """RankLost unless all ranks hold the same weights, to the last bit; of sharded weights they hold parts."""
        shared = [weight for weight in weights if not is_part(weight)]
        if self.size == 1 or not shared:
            return
        with torch.no_grad():
            mine = torch.stack([_bits(weight) for weight in shared]).tolist()
        theirs = self.gather(mine)
        if odd := [rank for rank, sums in enumerate(theirs) if sums != theirs[0]]:
            self._apart = f"rank {odd[0]} and rank 0 hold different weights {when}"
            raise RankLost(
                f"{self._apart}. Give every rank the same model files, packages and kind of device; then resume"
            )

    # --- rank 0 calls, the others follow ----------------------------------------------------------------------------

    def begin(self, config: TrainConfig) -> None:
        """Agree on the configuration, before any model is loaded; ValueError if these ranks cannot train it."""
        if self.size == 1:
            if (size := launched().size) > 1:
                raise ValueError(
                    f"WORLD_SIZE = {size}: only `stabilizer train` runs in several processes, started by torchrun;"
                    " start one process for anything else, or unset WORLD_SIZE"
                )
            return
        if self.leads:
            refuse(config, self)
            self._tell(config)
        self._set_up(config)

    def call(self, trainer: Led, method: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a method of the trainer on every rank."""
        if self.size == 1 or self._inside:
            return method(trainer, *args, **kwargs)
        if self._apart:
            raise RankLost(f"the ranks stopped working together ({self._apart}); resume the run")
        if self.leads:
            controls = trainer.controls
            self._tell((method.__name__, args, kwargs, controls.values(), controls.skipping))
        self._inside = True
        try:
            return method(trainer, *args, **kwargs)
        except BaseException as error:  # the others may be elsewhere in this call
            self._apart = self._apart or str(error) or type(error).__name__
            if isinstance(error, RuntimeError) and _in_exchange(error):
                raise self._waited_for("weights and gradients", error) from error
            raise
        finally:
            self._inside = False

    def told(self) -> Any:
        """What rank 0 says next: a configuration, a call, or None at its end."""
        box: list[Any] = [None]
        with self._exchange("rank 0"):
            dist.broadcast_object_list(box, 0, group=self._calls)
        return box[0]

    def end(self) -> None:
        """Let the other ranks end, unless the ranks already lost each other."""
        if self.size > 1 and self.leads and not self._apart:
            with contextlib.suppress(RankLost):
                self._tell(None)

    def _tell(self, what: Any) -> None:
        with self._exchange("the other ranks"):
            dist.broadcast_object_list([what], 0, group=self._calls)

    # --- restarts ---------------------------------------------------------------------------------------------------

    def remember(self, run: str) -> None:
        """Have the launcher remember the run of these processes, for `remembered` after it restarts them."""
        if store := _launcher_store():
            store.set(RUN, run)

    def remembered(self) -> str | None:
        """The run that these processes had begun before the launcher (`torchrun --max-restarts`) restarted them."""
        if not _number("TORCHELASTIC_RESTART_COUNT", 0):
            return None
        store = _launcher_store()
        return str(store.get(RUN), "utf-8") if store and store.check([RUN]) else None

    # --- groups of processes ----------------------------------------------------------------------------------------

    def meet(self) -> None:
        """Wait for all ranks to start."""
        if self.size == 1:
            return
        with self._exchange("the other ranks at the start"):
            dist.init_process_group("gloo", timeout=MEETING, **_meeting_place(self.rank, self.size))
            self._calls = dist.new_group(backend="gloo", timeout=PATIENCE)

    def _set_up(self, config: TrainConfig) -> None:
        """The groups of the processes within a step, with its time-out."""
        timeout = timedelta(seconds=config.rank_timeout_s)
        with self._exchange("the other ranks at the start"):
            self._rows = self._gradients = dist.new_group(backend="gloo", timeout=timeout)
            if config.device != "cpu" and torch.cuda.is_available():
                self.device = torch.device("cuda", self.local)
                torch.cuda.set_device(self.device)
                if torch.cuda.device_count() >= self.on_this_machine:
                    self._gradients = dist.new_group(backend="nccl", timeout=timeout)

    @contextlib.contextmanager
    def _exchange(self, what: str) -> Iterator[None]:
        """A failed exchange as an error in words."""
        try:
            yield
        except RuntimeError as error:
            self._apart = self._apart or f"the exchange of {what} failed"
            raise self._waited_for(what, error) from error

    def _waited_for(self, what: str, error: RuntimeError) -> RankLost:
        return RankLost(f"rank {self.rank} was waiting for {what} when {_lost(error)}")

    def mesh(self) -> Any:
        """All ranks, as `fully_shard` takes them."""
        from torch.distributed.device_mesh import DeviceMesh

        return DeviceMesh.from_group(self._gradients, self.device.type, mesh=list(range(self.size)))


ALONE = Ranks()
"""A run in one process."""


def together(method: Callable[..., T]) -> Callable[..., T]:
    """A method of the trainer that all ranks call at the same time, because it exchanges numbers or changes state."""

    @functools.wraps(method)
    def everywhere(self: Led, *args: Any, **kwargs: Any) -> T:
        return self.ranks.call(self, method, *args, **kwargs)

    return everywhere


def follow(ranks: Ranks, build: Callable[[TrainConfig], Any], waits: Callable[[], object] = lambda: None) -> None:
    """The work of every rank but the first: build the trainer, then make every call that rank 0 makes.

    `waits` is called before each wait for a call. Such a wait lasts as long as rank 0 is paused.
    """
    config = ranks.told()
    if config is None:
        return
    trainer = build(config)
    waits()
    while (told := ranks.told()) is not None:
        name, args, kwargs, knobs, skip = told
        trainer.controls.mirror(knobs, skip=skip)
        getattr(trainer, name)(*args, **kwargs)
        waits()


# --- how a process learns its place -----------------------------------------------------------------------------------


def launched() -> Ranks:
    """The place of this process, from the variables that `torchrun` sets; ValueError if some are missing."""
    size = _number("WORLD_SIZE", 1)
    if size < 2:
        return Ranks()
    needed = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if missing := [name for name in needed if name not in os.environ]:
        raise ValueError(
            f"WORLD_SIZE = {size} without {missing[0]}: start several processes with `torchrun --nproc-per-node"
            f" {size} -m stabilizer train ...`, or unset WORLD_SIZE"
        )
    local = _number("LOCAL_RANK", 0)
    return Ranks(_number("RANK", 0), size, local, _number("LOCAL_WORLD_SIZE", local + 1))


@contextlib.contextmanager
def joined() -> Iterator[Ranks]:
    """This process among the ranks of its run. On leaving, rank 0 lets the others end.

    Only rank 0 answers SIGTERM and Ctrl-C: it ends the run after a step, and the others end with it.
    """
    ranks = launched()
    ranks.meet()
    if not ranks.leads:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    try:
        yield ranks
    finally:
        ranks.end()
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()


def refuse(config: TrainConfig, ranks: Ranks) -> None:
    """ValueError for a configuration that several processes cannot train."""
    engine, gpus = config.rollout.engine, torch.cuda.device_count()
    wrong = {
        f"rollout.engine = {engine!r}: with several processes it must be builtin": engine != "builtin",
        "rollout.asynchronous = True: with several processes it must be false": config.rollout.asynchronous,
        f"{ranks.on_this_machine} processes on a machine with {gpus} GPUs: start at most one for each GPU, or set"
        " device=cpu": config.device != "cpu" and 0 < gpus < ranks.on_this_machine,
    }
    if words := next((words for words, applies in wrong.items() if applies), None):
        raise ValueError(words)


def _launcher_store() -> Any:
    """The memory of `torchrun`, which outlives the processes that it starts; None with another launcher."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    place = os.environ["MASTER_ADDR"], _number("MASTER_PORT", 0)
    return dist.TCPStore(*place, is_master=False, timeout=MEETING)  # type: ignore[attr-defined]


def _meeting_place(rank: int, size: int) -> dict[str, Any]:
    """Where the ranks find each other. The launcher's memory still has the addresses of processes that it replaced."""
    store = _launcher_store()
    if store is None:
        return {}
    attempt = f"attempt {_number('TORCHELASTIC_RESTART_COUNT', 0)}"
    return {"store": dist.PrefixStore(attempt, store), "rank": rank, "world_size": size}  # type: ignore[attr-defined]


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "").strip()
    if text and not text.isdecimal():
        raise ValueError(f"{name} = {text!r}: must be a number, as torchrun sets it")
    return int(text) if text else default


# --- small parts ------------------------------------------------------------------------------------------------------


def _packed(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _unpacked(data: bytes, device: torch.device) -> Any:
    """What another rank of this run packed: it runs the same program, so that its pickles are trusted."""
    return torch.load(io.BytesIO(data), map_location=device, weights_only=False)


def _joined(values: Sequence[Tensor | None]) -> Tensor | None:
    known = [value for value in values if value is not None]
    return torch.cat(known) if known else None


def _buckets(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """The parameters in order, in parts of about `BUCKET` numbers."""
    bucket: list[nn.Parameter] = []
    count = 0
    for parameter in parameters:
        bucket.append(parameter)
        count += parameter.numel()
        if count >= BUCKET:
            yield bucket
            bucket, count = [], 0
    if bucket:
        yield bucket


def _bits(parameter: Tensor) -> Tensor:
    """The sum of a tensor's bits as whole numbers, which no order of summation changes."""
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return parameter.detach().contiguous().view(kinds[parameter.element_size()]).sum(dtype=torch.int64)


def _in_exchange(error: RuntimeError) -> bool:
    """Whether torch raised this error while it exchanged tensors between the ranks by itself."""
    return isinstance(error, dist.DistError) or bool(re.search(r"gloo|NCCL|closed by peer|ProcessGroup", str(error)))


def _lost(error: RuntimeError) -> str:
    """What became of the other ranks, from the words of gloo or NCCL, and what to do."""
    text = (str(error).splitlines() or [""])[0]
    reason = re.sub(r"\[[^\]]*\.cc:\d+\]\s*", "", text).partition(". This is")[0]
    late = "timed out" in text.lower() or "timeout" in text.lower()
    how = "hangs or is slow, and the time was over" if late else "ended"
    return (
        f"another process of the run {how} ({reason}). The messages of that process say why. Resume the run from its"
        " newest checkpoint"
    )
