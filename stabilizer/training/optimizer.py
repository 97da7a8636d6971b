"""AdamW: torch's own; for weights in a short precision, with a copy of them in float32; or with moments in 8 bits.

An update of 1e-6 is far below the spacing of bfloat16 numbers: added to a weight of 0.02 it is lost. The copy collects
such updates, and the model's weights are its rounded values.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from stabilizer.training.sharding import own

COPY = "float32"
"""The name of the copy in the optimizer's state, beside the two moments."""
SHORT = (torch.bfloat16, torch.float16)


EIGHT_BIT = "adamw_8bit"
BLOCK = 256
"""Numbers with a common scale in the 8-bit form of bitsandbytes, and the size of its tables."""
SMALLEST = 4096
"""Numbers of a tensor from which on bitsandbytes keeps its moments in 8 bits."""


def kept_of(parameter: Tensor, kind: str) -> dict[str, tuple[int, ...]]:
    """What the optimizer keeps of a parameter after its first update: names and shapes."""
    shape = tuple(parameter.shape)
    if kind != EIGHT_BIT:
        copy = {COPY: shape} if parameter.dtype in SHORT else {}
        return {"step": (), "exp_avg": shape, "exp_avg_sq": shape} | copy
    kept: dict[str, tuple[int, ...]] = {"step": (), "state1": shape, "state2": shape}
    if parameter.numel() >= SMALLEST:
        scales = (-(-parameter.numel() // BLOCK),)
        kept |= {"qmap1": (BLOCK,), "qmap2": (BLOCK,), "absmax1": scales, "absmax2": scales}
    return kept


def possible(quantity: str, value: Tensor, parameter: Tensor, kind: str) -> bool:
    """Whether what is kept of a parameter has a type and a sign that the optimizer can have given it.

    What is not finite passes: a run that diverged keeps that, and resumes as it was.
    """
    if kind == EIGHT_BIT:
        return True
    dtype = torch.float32 if parameter.dtype in SHORT else parameter.dtype
    right = value.is_floating_point() if quantity == "step" else value.dtype == dtype
    return right and not (quantity in ("step", "exp_avg_sq") and bool((value < 0).any()))


def need_optimizer(kind: str) -> None:
    """ValueError if the package of an optimizer is not installed."""
    if kind == EIGHT_BIT and find_spec("bitsandbytes") is None:
        raise ValueError(
            f"optim.kind = {kind!r} needs bitsandbytes, which is not installed: pip install bitsandbytes, or set"
            " optim.kind=adamw"
        )


def build_optimizer(
    groups: Iterable[dict[str, Any]], *, betas: tuple[float, float], weight_decay: float, kind: str = "adamw"
) -> Any:
    """AdamW over groups of parameters, with copies in float32 where a parameter has a short precision."""
    present = [group for group in groups if group["params"]]
    if kind == EIGHT_BIT:
        from bitsandbytes.optim import AdamW8bit

        return AdamW8bit(present, lr=0.0, betas=betas, weight_decay=weight_decay)
    short = any(p.dtype in SHORT for group in present for p in group["params"])
    return (CopyingAdamW if short else torch.optim.AdamW)(
        present, lr=0.0, betas=betas, weight_decay=weight_decay, fused=True
    )


class CopyingAdamW(torch.optim.AdamW):
    """AdamW that computes on copies in float32 and writes their rounded values into the parameters.

    The state of a parameter holds its copy, so that a checkpoint and a resume include it. A parameter without state
    gets a copy of its current value.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update of all parameters that have a gradient."""
        assert closure is None, "updates do not recompute the loss"
        for group in self.param_groups:
            learning = [p for p in group["params"] if p.grad is not None]
            if learning:
                self._update(group, learning)

    def _update(self, group: dict[str, Any], learning: list[Tensor]) -> None:
        states = [self._state_of(p) for p in learning]
        copies, means, squares, steps = ([s[key] for s in states] for key in (COPY, "exp_avg", "exp_avg_sq", "step"))
        gradients = [gradient.float() for p in learning if (gradient := p.grad) is not None]
        first, second = group["betas"]
        adamw(
            copies, gradients, means, squares, [], steps,
            fused=True, amsgrad=False, maximize=False, beta1=first, beta2=second,
            lr=group["lr"], weight_decay=group["weight_decay"], eps=group["eps"],
        )  # fmt: skip
        torch._foreach_copy_([own(p) for p in learning], [own(copy) for copy in copies])

    def _state_of(self, parameter: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            copy = parameter.detach().to(torch.float32, copy=True, memory_format=torch.preserve_format)
            zeros = torch.zeros_like(copy)
            step = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state |= {COPY: copy, "exp_avg": zeros, "exp_avg_sq": zeros.clone(), "step": step}
        return state
