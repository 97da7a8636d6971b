"""`stabilizer preflight CONFIG --memory`: how much memory a training needs, before any weight is loaded."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence

from rich.table import Table

from stabilizer.commands.shared import need_train_extra
from stabilizer.core.records import SCHEMA
from stabilizer.output.screen import console

MEANINGS = {
    "weights": "the policy",
    "gradients": "of all weights that learn",
    "optimizer": "moments, and float32 copies of short weights",
    "reference": "the policy that KL is measured from",
    "critic": "a separate critic with gradients and moments",
    "update": "what the largest pass with gradients keeps",
    "generation": "cached keys and values, and the logits of one token",
    "process": "Python and its libraries; on a GPU they are not counted",
}
"""The parts, in the order of the table."""


def run(config: str, overrides: Sequence[str], *, prompt_length: int, processes: int, as_json: bool) -> int:
    """Print the need of each process."""
    need_train_extra()
    from stabilizer.training.config import load_config  # imports torch
    from stabilizer.training.memory import needed

    settings = load_config(config, overrides)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about fake tensors
        need = needed(settings, prompt_tokens=prompt_length, processes=processes, device=_device(settings.device))
    if as_json:
        parts = {"schema": SCHEMA, "processes": processes, "bytes": need._asdict(), "peak": need.peak}
        print(json.dumps(parts, indent=2))
        return 0
    unit, size = ("GB", 1e9) if need.peak >= 1e9 else ("MB", 1e6)
    table = Table(box=None, pad_edge=False)
    table.add_column("part")
    table.add_column(unit, justify="right")
    table.add_column()
    for part, meaning in MEANINGS.items():
        table.add_row(part, f"{getattr(need, part) / size:.2f}", meaning)
    table.add_row("peak", f"{need.peak / size:.2f}", "all of these, but update or generation alone", style="bold")
    out = console()
    out.print(table)
    each = f"Each of {processes} processes, with prompts" if processes > 1 else "With prompts"
    out.print(f"{each} of {prompt_length} tokens and the longest completions. Trainings on CPUs took 1 to 43 % more.")
    return 0


def _device(wanted: str) -> str:
    import torch

    return "cuda" if wanted == "cuda" or (wanted == "auto" and torch.cuda.is_available()) else "cpu"
