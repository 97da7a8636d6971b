"""The notebooks run, and are kept with outputs that show their plots."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
BOOKS = sorted(FOLDER.glob("*.ipynb"))
LONGEST_S = 120.0
"""Seconds a notebook may take on two cores that do nothing else."""
BUSY = 3.0
"""Times as long where other tests run beside it."""

STEPS = 60
"""Steps that a notebook trains here: the learning rate of the one that trains is too high from the first."""


@pytest.fixture(scope="module")
def execute() -> ModuleType:
    spec = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shortened(path: Path, version: int, read: Callable[..., Any] = nbformat.read) -> Any:
    """A notebook whose training stops after `STEPS` steps."""
    book = read(path, version)
    for cell in book.cells:
        cell.source = re.sub(r"\bsteps=\d+", f"steps={STEPS}", cell.source)
    return book


def test_there_are_five() -> None:
    assert [book.stem[0] for book in BOOKS] == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, execute: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLOTLY_RENDERER", "plotly_mimetype")
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))
    monkeypatch.setattr(nbformat, "read", shortened)
    begin = time.monotonic()
    book = execute.execute(path)
    assert time.monotonic() - begin < LONGEST_S * BUSY
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type == "error"]


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_its_plots_and_without_paths(path: Path) -> None:
    book = nbformat.read(path, 4)
    data = [output.get("data", {}) for cell in book.cells for output in cell.get("outputs", [])]
    assert any("image/png" in one for one in data)
    assert not re.search(r"/(?:home|root|work|usr|tmp)/", path.read_text(encoding="utf-8")), "a machine's path"
    assert sys.prefix not in path.read_text(encoding="utf-8")
