"""Models that are placed on more GPUs than there are.

What it checks
    The GPUs of every group of models (actor, critic, engines) against those that the script leaves to the training:
    `ray start --num-gpus`, CUDA_VISIBLE_DEVICES, the cluster in the configuration, or `--gpus`.
Why it matters
    Ray and the launchers wait for GPUs that never come: the run loads a part of its models and hangs, without an
    error, often with one GPU idle.
Exceptions
    Nothing is said where a number is not known, of several nodes, and of trainers with one process per GPU. A script
    shows one machine, and others may join its Ray cluster: there it is a warning.
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
    told = view.config.gpus or (placed.have if placed else None)
    have = told or view.config.parsed.hints.get("gpus")
    parts = {name: int(gpus) for name, gpus in placed.parts.items() if gpus} if placed else {}
    if have and sum(parts.values()) > have:
        yield _short(view, parts, placed.share if placed else "", f"{have:g}", told is not None)


def _short(view: View, parts: dict[str, int], share: str, have: str, told: bool) -> Finding:
    need = f"{sum(parts.values())} GPUs"
    each = " + ".join(f"{gpus} ({name})" for name, gpus in parts.items())
    sums = f"{each} = {need}" if len(parts) > 1 else need
    return found(
        view,
        "critical" if told else "warn",
        _key(view),
        f"the models are placed on {sums}, and {have} are there{'' if told else ', unless other machines join'}",
        why="The launcher waits for GPUs that never come: the run hangs without an error.",
        how=f"{share}; or {need}",
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
