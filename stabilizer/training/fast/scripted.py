"""Functions that torch runs by itself, in the interpreter of TorchScript, where it has one.

A model of some hundred thousand parameters spends a third of its time between two operations, in Python. Here it does
not, and since Python's lock is free meanwhile, several threads run such a function at once. What is computed is the
same, operation by operation: nothing is fused or reordered, so that no number depends on how often one was called.

They keep to what TorchScript understands. It is no longer developed; but what is to replace it wants a C++ compiler on
the machine, or runs in Python. So one that can't be translated, as in a Python too new for it, is called as it is.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def run_scripted(function: Callable[..., Result], *args: Any) -> Result:
    """function(*args), without Python where that is possible. A function is translated when it is first run."""
    translated = translation(function)
    if translated is None:
        return function(*args)
    with torch.jit.optimized_execution(False):
        return translated(*args)


def translation(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """What TorchScript makes of a function; None where it makes nothing of it."""
    with _one_at_a_time:
        return _translation(function)


_one_at_a_time = Lock()


@functools.cache
def _translation(function: Callable[..., Any]) -> Callable[..., Any] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is no longer developed
        try:
            return torch.jit.script(function)
        except Exception:  # noqa: BLE001 (whatever it may be: the function itself does the same)
            return None


def unlocked() -> bool:
    """Whether these functions run without Python's lock."""
    return translation(_nothing) is not None


def _nothing(x: torch.Tensor) -> torch.Tensor:
    return x
