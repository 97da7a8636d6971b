"""Keys left at a default that is not what it was.

What it checks
    Keys that are not written, that matter to stability, and whose default changed between versions.
Why it matters
    "The same configuration" after an upgrade is a different run: TRL's beta went from 0.04 to 0.0 in 0.19, so an older
    recipe loses its KL term.
Exceptions
    Keys that are written. Reported only when the version is a guess, because the value in force is then not certain.
Fix
    Write the value you mean.
References
    The defaults of `GRPOConfig` in TRL 0.14 to 1.16.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found
from stabilizer.trainers.quantities import Since, View

ID = "keys/changed-default"
MATTER = ("beta", "temperature", "max_completion_length", "loss_type", "vllm_importance_sampling_correction")


def check(view: View) -> Iterator[Finding]:
    """One finding in all, at the first such key."""
    config = view.config
    unset = {key: default for key, default in _unset(view) if _in_doubt(view, default)}
    if config.version is not None or not unset or view.value("algorithm") != "grpo":
        return
    texts = [f"{key} " + ", ".join(f"{v} from {since}" for since, v in d.history) for key, d in unset.items()]
    yield found(
        view,
        "info",
        next(iter(unset)),
        f"left at defaults that changed between versions: {'; '.join(texts)}",
        why=f"Which version runs decides; judged here as {config.version_used} ({config.version_why}).",
        how="write the values you mean, or give --version",
        sure="certain",
        source="defaults of GRPOConfig in TRL 0.14 to 1.16",
    )


def _unset(view: View) -> Iterator[tuple[str, Since]]:
    """The keys that matter, are in use and are not written, with their defaults by version."""
    for key, default in view.ask.defaults.items():
        idle = "vllm" in key and not view.ask.flag("use_vllm")
        if isinstance(default, Since) and key in MATTER and key not in view.config.settings and not idle:
            yield key, default


def _in_doubt(view: View, default: Since) -> bool:
    """Whether another version than the one assumed may have another default."""
    used, newest = view.config.version_used, view.config.trainer.newest
    return bool(used == newest or default.at(used) != default.at(newest))
