"""The case studies: what five users saw, made small, with each candidate cause as a run of its own.

A case is a folder of `sample_runs`. Its recorded run, its figures (`arms.json`) and its page in `docs/case-studies` are
written again; `--pages` writes the pages alone, from the figures that are there. Every run of a seed has the same
prompts. Levels are means over seeds with a 95 % interval by Student's t.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from bench.cases.page import PAGES, write_pages
from bench.cases.shared import SAMPLES

MEASURED = {
    "case-easyr1": "easyr1", "case-trl-beta0": "beta0", "case-search-r1": "halved", "case-open-r1": "open_r1",
    "length-vs-published": "tldr",
}  # fmt: skip
"""The module of each case that is measured by training."""
SEEDS = (10, 11, 12, 13, 14)
QUICK = (10,)


def measure(
    names: Sequence[str], *, quick: bool = False, record: bool = True, tell: Callable[[str], None] = print
) -> None:
    """Train what the figures of these cases need; they and the recorded run are written into the case's folder."""
    for name in names:
        if name in MEASURED:
            tell(f"{name}:")
            import_module(f"bench.cases.{MEASURED[name]}").measure(QUICK if quick else SEEDS, tell, record=record)


def chosen(name: str | None) -> list[str]:
    """The cases to work on; ValueError for an unknown one."""
    if name is not None and name not in PAGES:
        raise ValueError(f"no case named {name!r}; choose one of {', '.join(PAGES)}")
    return [name] if name else list(PAGES)


def kept(name: str) -> dict[str, Any]:
    """The figures of a case, as last written."""
    path = SAMPLES / name / "arms.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


__all__ = ["chosen", "kept", "measure", "write_pages"]
