"""The newest states in memory, so that a rollback to one needs no disk read, even if the disk no longer has it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from stabilizer.core.knobs import Checkpoint
from stabilizer.training.tensor_file import TensorFile


class Ring:
    """At most `count` states with at most `limit` bytes together; the oldest are dropped first. A larger state is not
    added.

    For a model with adapters, a state holds only these, as on disk.
    """

    def __init__(self, count: int, limit: float):
        self._count, self._limit = count, limit
        self._states: OrderedDict[Checkpoint, Mapping[str, bytes]] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(len(data) for files in self._states.values() for data in files.values())

    def takes(self, files: Mapping[str, bytes | TensorFile]) -> bool:
        """Whether a state of this size would be held."""
        size = sum(content.nbytes if isinstance(content, TensorFile) else len(content) for content in files.values())
        return self._count > 0 and size <= self._limit

    def put(self, checkpoint: Checkpoint, files: Mapping[str, bytes]) -> None:
        """Add a state; it replaces one of the same name."""
        self._states.pop(checkpoint, None)
        self._states[checkpoint] = files
        while self._states and (len(self._states) > self._count or self.nbytes > self._limit):
            self._states.popitem(last=False)

    def get(self, checkpoint: Checkpoint) -> Mapping[str, bytes] | None:
        """The files of a state, if it is in memory."""
        return self._states.get(checkpoint)

    def checkpoints(self) -> list[Checkpoint]:
        """The states in memory, oldest first."""
        return list(self._states)
