"""Models that are placed on more GPUs than there are.

What it checks
    The GPUs of every group of models (actor, critic, engines) against those that the script leaves to the training:
    `ray start --num-gpus`, CUDA_VISIBLE_DEVICES, the cluster in the configuration, or `--gpus`.
Why it matters
    Ray and the launchers wait for GPUs that never come: the run loads a part of its models and hangs, without an
    error, often with one GPU idle.
Exceptions
    Nothing is said where a number is not known, of several nodes, and of trainers with one process per GPU.
Fix
    Let models share GPUs, or ask for fewer.
References
    OpenRLHF/OpenRLHF#951; the trainers' own launchers.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import View
from stabilizer.trainers.schema import Placement

ID = "gpus/too-few"


def check(view: View) -> Iterator[Finding]:
    """One finding where the groups need more than is there."""
    placed = _placed(view)
    if placed is None:
        return
    parts = {name: int(gpus) for name, gpus in placed.parts.items() if gpus}
    need, have = sum(parts.values()), view.config.gpus or placed.have or view.config.parsed.hints.get("gpus")
    if not have or need <= have:
        return
    each = " + ".join(f"{gpus} ({name})" for name, gpus in parts.items())
    sums = f"{each} = {need} GPUs" if len(parts) > 1 else f"{need} GPUs"
    yield found(
        view,
        "critical",
        _key(view),
        f"the models are placed on {sums}, and {have:g} are there",
        why="The launcher waits for GPUs that never come: the run hangs without an error.",
        how=f"{placed.share}; or {need} GPUs",
        sure="likely",
        source="OpenRLHF/OpenRLHF#951",
    )


def _placed(view: View) -> Placement | None:
    """Where the models are placed, if all of that is known and on one node."""
    ask = view.config.trainer.placement
    placed = ask(view.ask) if ask and not view.config.guessed else None
    return placed if placed and placed.nodes <= 1 and None not in placed.parts.values() else None


def _key(view: View) -> str:
    """A setting of the placement that is written, to point at."""
    return next((key for key in view.config.settings if "num_gpus" in key or "n_gpus" in key or "backend" in key), "")
