"""The layers of the dashboard: pages use components and data, components use data, and data uses neither."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

DASHBOARDS = Path(__file__).parents[2] / "dashboards"
FORBIDDEN = {"data": ("dash", "dashboards.components", "dashboards.pages"), "components": ("dashboards.pages",)}


def imported(file: Path) -> set[str]:
    """The modules that a file names in its imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("layer", FORBIDDEN)
def test_a_layer_imports_nothing_above_it(layer: str) -> None:
    files = sorted((DASHBOARDS / layer).glob("*.py"))
    assert len(files) > 5
    for file in files:
        wrong = {
            name
            for name in imported(file)
            for above in FORBIDDEN[layer]
            if name == above or name.startswith(f"{above}.")
        }
        assert not wrong, f"{file.name} imports {', '.join(sorted(wrong))}"


def test_callbacks_name_their_values() -> None:
    for file in DASHBOARDS.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            is_callback = isinstance(node, ast.Call) and ast.unparse(node.func) == "app.callback"
            assert not (is_callback and node.args), f"{file.name}:{node.lineno} takes its values by position"
