"""Tensors as a file in safetensors form, one tensor after another.

`safetensors` builds a whole file in memory before it is written: for a state of 6 GB that took 40 s and 6 GB on a
machine where the disk needed 7 s. Here only one tensor at a time is copied, and only if it lies on a GPU.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from stabilizer.training.sharding import whole

ALIGNMENT = 8
"""Bytes to which the header is padded, so that tensors are aligned in the file."""
NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


class TensorFile:
    """Named tensors, read when the file is written: they must not change before that.

    The parts of a tensor that is divided between ranks are gathered at that moment. Ranks that do not write the file
    `finish` it instead.
    """

    def __init__(self, tensors: Mapping[str, Tensor]):
        # wide types first, so that every tensor is aligned to the size of its numbers
        self._tensors = dict(sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])))
        self._header = _header(self._tensors)
        self._read = 0

    @property
    def nbytes(self) -> int:
        """The size of the file."""
        return len(self._header) + sum(_nbytes(tensor) for tensor in self._tensors.values())

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The content of the file in order."""
        yield self._header
        self._read = 0
        for tensor in self._tensors.values():
            self._read += 1
            if tensor.numel():
                flat = whole(tensor.detach()).cpu().contiguous().view(-1).view(torch.uint8)
                yield flat.numpy().data

    def finish(self) -> None:
        """Take part in gathering the tensors that were not read here."""
        for tensor in [*self._tensors.values()][self._read :]:
            self._read += 1
            if tensor.numel():
                whole(tensor.detach())

    def __bytes__(self) -> bytes:
        return b"".join(self.chunks())


def _nbytes(tensor: Tensor) -> int:
    return math.prod(tensor.shape) * tensor.element_size()


def _header(tensors: Mapping[str, Tensor]) -> bytes:
    entries, start = {}, 0
    for name, tensor in tensors.items():
        end = start + _nbytes(tensor)
        entries[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
