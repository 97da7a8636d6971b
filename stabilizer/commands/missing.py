"""The error for optional packages that are not installed."""

from __future__ import annotations

from importlib.util import find_spec


def need_train_extra() -> None:
    """Raise ImportError with the command to run when the trainer's packages are missing."""
    absent = [name for name in ("torch", "transformers", "safetensors", "jsonargparse") if find_spec(name) is None]
    if absent:
        raise ImportError(
            f"training requires {', '.join(absent)}: run `pip install '.[train]'` in the project folder"
            " (diagnose, report and dashboard work without it)"
        )
