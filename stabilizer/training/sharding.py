"""Models whose weights are divided between the ranks (`sharding: full`), by torch's `fully_shard` (FSDP2).

Each rank holds a part of every tensor: of the weights, their gradients and the optimizer's state. A pass with gradients
gathers one block of layers at a time, and all ranks make as many passes. Work without gradients gathers a whole model
once, because the ranks then make different numbers of passes: they write completions of different lengths.

The functions here leave a model or tensor that is not sharded as it is.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from stabilizer.training.ranks import Ranks

T = TypeVar("T")


def shard(module: nn.Module, ranks: Ranks) -> None:
    """Divide a model between the ranks: each of its blocks, and then what is left."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # takes a second to import

    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view")  # nothing here changes it in place
    names = {name for part in module.modules() for name in getattr(part, "_no_split_modules", None) or ()}
    blocks = [part for part in module.modules() if type(part).__name__ in names]
    sums_in_float32 = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    for part in (*blocks, module):
        # without the explicit True, the weights outside of blocks would stay gathered, and miss an update
        divided = fully_shard(part, mesh=ranks.mesh(), reshard_after_forward=True, mp_policy=sums_in_float32)
        divided.set_gradient_divide_factor(1.0)  # a sum: every loss is already divided by the tokens of all ranks
        divided.set_force_sum_reduction_for_comms(True)  # gloo has no other reduction


def is_sharded(module: nn.Module) -> bool:
    """Whether the weights of this module are divided."""
    return hasattr(module, "reshard")


def family(module: nn.Module) -> type:
    """The class of a module; `fully_shard` replaces it by a subclass of the same behaviour."""
    kind = type(module)
    return kind.__bases__[1] if is_sharded(module) else kind


@contextlib.contextmanager
def gathered(*modules: nn.Module | None) -> Iterator[None]:
    """Inside, every rank has all weights of these models, and passes without gradients need no other rank."""
    found: Any = [part for module in modules if module is not None for part in module.modules() if is_sharded(part)]
    for part in found:
        part.unshard()
        part.set_reshard_after_forward(False, recurse=False)
    try:
        yield
    finally:
        for part in found:
            part.set_reshard_after_forward(True, recurse=False)
            part.reshard()


def within(module: nn.Module, work: Callable[[], T]) -> T:
    """Do work that uses the weights of a module outside of its blocks. They are gathered during a call of it."""
    if not is_sharded(module):
        return work()
    called: Any = module
    called.forward = work
    try:
        result: T = called()
        return result
    finally:
        del called.forward


# --- tensors ----------------------------------------------------------------------------------------------------------


def is_part(tensor: Tensor) -> bool:
    """Whether this rank holds a part of this tensor only."""
    return hasattr(tensor, "to_local")


def own(tensor: Tensor) -> Tensor:
    """The part of this rank."""
    part: Any = tensor
    return part.to_local() if is_part(tensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """The whole tensor, on every rank; all ranks ask at the same time."""
    part: Any = tensor
    return part.full_tensor() if is_part(tensor) else tensor


def like(value: Tensor, tensor: Tensor) -> Tensor:
    """A value on the device of `tensor`, divided as `tensor` is; a number for the whole tensor stays as it is."""
    value = value.to(tensor.device)
    if not is_part(tensor) or value.shape != tensor.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    part: Any = tensor
    divided: Tensor = distribute_tensor(value, part.device_mesh, part.placements, src_data_rank=None)
    return divided


def first_of(tensor: Tensor) -> int:
    """How many numbers of the whole tensor are before the part of this rank. Tensors are divided by rows."""
    if not is_part(tensor):
        return 0
    part: Any = tensor
    rows: int = -(-len(tensor) // part.device_mesh.size()) * part.device_mesh.get_local_rank()
    return min(rows, len(tensor)) * (tensor.numel() // max(1, len(tensor)))
