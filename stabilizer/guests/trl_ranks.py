"""One decision for all processes of a TRL training: the first one decides, all apply at the end of the same step.

Messages go through a group of their own over gloo, so no stream of the accelerator is involved. The group is made when
the training begins, and only if every process has attached: a process that did not would never join it. When the
training begins and at the end of each step the first process sends its orders and then `go` with the new knobs; the
others wait for `go`, because gloo delivers nothing in advance. Then all compare a hash of what their knobs are.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from stabilizer.core.knobs import Checkpoint
from stabilizer.guests.knobs import LoopKnob
from stabilizer.guests.states import Keeper
from stabilizer.training.checkpoint import scan, verified

PRESENT, AGREED = "stabilizer/present", "stabilizer/agreed"
"""Keys in the store of torch.distributed, with the number of the attached trainer behind them."""
JOINED_S = 60.0
"""Longest wait for the first process's word when the training begins, in seconds."""
SILENT_S = 600.0
"""Longest silence of the first process. It sends more often, also while it pauses."""
DIGITS = 9
"""Digits of a knob that are compared."""
_attached = 0


class Ranks:
    """The processes of one training, seen from one of them."""

    def __init__(self, rank: int, world: int):
        global _attached
        _attached += 1
        self._rank, self._world, self._number = rank, world, _attached
        self._group: Any = None
        with contextlib.suppress(ValueError):  # no process group of torch, so nobody joins
            _store().set(f"{PRESENT}/{self._number}/{rank}", "1")

    def join(self) -> bool:
        """Make the group if all processes attached; False if not. Called by each when the training begins."""
        import torch.distributed as dist

        if not dist.is_initialized():
            return False
        store, key = _store(), f"{AGREED}/{self._number}"
        if self._rank == 0:
            keys = [f"{PRESENT}/{self._number}/{rank}" for rank in range(self._world)]
            store.set(key, "1" if store.check(keys) else "0")
        store.wait([key], timedelta(seconds=JOINED_S))
        if store.get(key) != b"1":
            return False
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=SILENT_S))
        return True

    @property
    def joined(self) -> bool:
        """Whether there is a group."""
        return self._group is not None

    def leave(self) -> None:
        """Take no further part."""
        self._group = None

    def send(self, what: str, **data: Any) -> None:
        """Tell all others. Only the first process does."""
        import torch.distributed as dist

        if self._group is not None:
            dist.broadcast_object_list([(what, data)], src=0, group=self._group)

    def receive(self) -> tuple[str, dict[str, Any]]:
        """The next message of the first process."""
        import torch.distributed as dist

        found: list[Any] = [None]
        dist.broadcast_object_list(found, src=0, group=self._group)
        what, data = found[0]
        return what, data

    def compare(self, number: int) -> list[int]:
        """The ranks whose number is not that of the first."""
        import torch
        import torch.distributed as dist

        if self._group is None:
            return []
        found = [torch.zeros(1, dtype=torch.int64) for _ in range(self._world)]
        dist.all_gather(found, torch.tensor([number]), group=self._group)
        return [rank for rank, other in enumerate(found) if int(other) != int(found[0])]


def fingerprint(knobs: Mapping[str, LoopKnob]) -> int:
    """A number that two processes share exactly if all their knobs have the same values."""
    values = {}
    for name, knob in sorted(knobs.items()):
        try:
            values[name] = f"{float(knob.get()):.{DIGITS}g}"
        except Exception as error:  # the other process can read it, so they differ
            values[name] = type(error).__name__
    digest = hashlib.sha256(json.dumps(values).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


class SharedKeeper:
    """The keeper of the first process: it saves for all, and all restore together or none does."""

    def __init__(self, keeper: Keeper, ranks: Ranks):
        self._keeper = keeper
        self._ranks = ranks

    def save(self) -> Mapping[str, Any]:
        """The files of the present state, which is the same in every process but for its random numbers."""
        return self._keeper.save()

    def load(self, files: Mapping[str, Path]) -> None:
        """Restore a verified state everywhere; OSError, and nothing changed, if a process cannot read it."""
        folder = str(next(iter(files.values())).parent.resolve())
        self._ranks.send("look", folder=folder)
        if missing := self._ranks.compare(1):
            raise OSError(f"{folder}: rank {missing[0]} cannot read it; all processes need the folder of the run")
        self._ranks.send("load", folder=folder)
        self._keeper.load(files)

    def reset_optimizer(self) -> None:
        """Clear the running averages everywhere."""
        self._ranks.send("reset_optimizer")
        self._keeper.reset_optimizer()

    def reset_reference(self) -> None:
        """Make the present policy the reference everywhere."""
        self._ranks.send("reset_reference")
        self._keeper.reset_reference()


class Follower:
    """A process other than the first: it does what the first one says, between two steps."""

    def __init__(self, ranks: Ranks, keeper: Keeper, rank: int, found: Callable[[Path], None]):
        self._ranks, self._keeper, self._rank = ranks, keeper, rank
        self.found = found
        """Called with the folder of the run once it is known."""
        self.knobs: dict[str, LoopKnob] = {}
        self.skips = False
        """Whether the update that is about to be made is to be discarded."""

    def follow(self) -> bool:
        """Follow orders until `go`; True if the training is to stop. A message is sent only while this waits for it."""
        while self._ranks.joined:
            what, data = self._ranks.receive()
            if what == "go":
                self._go(data["knobs"])
                self.skips = data["skip"]
                self._ranks.compare(fingerprint(self.knobs))
                return bool(data["stop"])
            if what == "leave":
                self._ranks.leave()
            elif what == "run":
                self.found(Path(data["folder"]))
            elif what == "look":
                self._ranks.compare(int(_readable(Path(data["folder"]))))
            elif what != "wait":
                self._try(what, lambda: self._do(what, data))  # noqa: B023 (called at once)
        return False

    def take_skip(self) -> bool:
        """Whether to skip this update; the answer clears the request."""
        skip, self.skips = self.skips, False
        return skip

    def _go(self, knobs: Mapping[str, float]) -> None:
        for name, value in knobs.items():
            if name in self.knobs and self.knobs[name].applied != value:
                self._try(name, lambda: self.knobs[name].apply(value))  # noqa: B023 (called at once)

    def _do(self, what: str, data: Mapping[str, Any]) -> None:
        if what == "load":
            self._keeper.load(verified(_state(Path(data["folder"]))))
        elif what == "reset_optimizer":
            self._keeper.reset_optimizer()
        elif what == "reset_reference":
            self._keeper.reset_reference()

    def _try(self, what: str, do: Callable[[], object]) -> None:
        """A failure is said, and shows in the comparison; it never leaves the first process waiting."""
        try:
            do()
        except Exception as error:
            print(f"stabilizer: rank {self._rank}: {what}: {type(error).__name__}: {error}", file=sys.stderr)


def _state(folder: Path) -> Checkpoint:
    """The checkpoint in a folder; OSError if there is none."""
    for state in scan(folder.parent):
        if state.path.name == folder.name:
            return state
    raise FileNotFoundError(f"no checkpoint in {folder}")


def _readable(folder: Path) -> bool:
    try:
        return bool(verified(_state(folder)))
    except OSError:
        return False


def _store() -> Any:
    """The store of the process group."""
    from torch.distributed import distributed_c10d

    return distributed_c10d._get_default_store()
