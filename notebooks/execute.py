"""Execute the notebooks and write them back with their outputs: `python notebooks/execute.py [NAME ...]`.

Plots are stored twice: as Plotly data for Jupyter, and as PNG for viewers that show pictures only. PNG needs kaleido
and a Chromium; `PLOTLY_RENDERER=plotly_mimetype` does without.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
TIMEOUT_S = 240
"""Longest a cell may take. A whole notebook takes less than two minutes on two cores."""


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with fresh outputs. What libraries write to stderr is left out: it names this machine's paths."""
    book = nbformat.read(path, 4)
    NotebookClient(book, timeout=TIMEOUT_S, resources={"metadata": {"path": str(HERE)}}).execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return book


def main(names: list[str]) -> None:
    """Execute all notebooks, or those whose file names begin with a word that was given."""
    os.environ.setdefault("PLOTLY_RENDERER", "plotly_mimetype+png")
    for path in sorted(HERE.glob("*.ipynb")):
        if not names or path.name.startswith(tuple(names)):
            nbformat.write(execute(path), path)
            print(path.name, f"{path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
