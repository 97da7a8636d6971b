"""Imports follow the dependency rule of docs/architecture.md: a part imports only what is below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIERS = (
    ("core",),
    ("runs", "configs", "troubles"),
    ("formats",),
    ("trainers",),
    ("detectors",),
    ("incidents", "remedies"),
    ("control", "analysis"),
    ("preflight", "compare"),
    ("figures",),
    ("output",),
    ("live",),
    ("guests",),
    ("dashboards",),
    ("commands",),
)
"""From the bottom up. A part may import its own tier and every tier below."""
RANK = {part: rank for rank, tier in enumerate(TIERS) for part in tier}
TRAINING_IMPORTS = {"core", "configs", "training"}
MAY_IMPORT_TRAINING = {"live", "commands", "output", "guests"}
"""`output` exports the model of a run; `guests` keep checkpoints in the same form."""
TOP = {"stabilizer", "stabilizer.cli", "stabilizer.__main__"}


def modules() -> dict[str, Path]:
    found = {}
    for top in ("stabilizer", "dashboards"):
        for path in (ROOT / top).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def imports(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Modules of the project that a file imports, wherever in the file; not those imported for types alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module


def part(module: str) -> str:
    """The part of the project a module belongs to."""
    top, _, rest = module.partition(".")
    return "dashboards" if top == "dashboards" else rest.partition(".")[0]


@cache
def graph() -> dict[str, set[str]]:
    known = modules()
    return {module: set(imports(path, known)) - {module} for module, path in known.items()}


def allowed(importer: str, imported: str) -> bool:
    if imported in TOP or importer in TOP:
        return True
    above, below = part(importer), part(imported)
    if above == below:
        return True
    if above == "training":
        return below in TRAINING_IMPORTS
    if below == "training":
        return above in MAY_IMPORT_TRAINING
    return RANK[below] < RANK[above] or (RANK[below] == RANK[above] and below == above)


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach one another (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def test_every_import_follows_the_dependency_rule():
    broken = {(a, b) for a, others in graph().items() for b in others if not allowed(a, b)}
    assert broken == set()


def test_no_files_import_each_other_in_a_circle():
    assert circles(graph()) == []


def test_no_parts_import_each_other_in_a_circle():
    parts: dict[str, set[str]] = {}
    for module, others in graph().items():
        if module not in TOP:
            parts.setdefault(part(module), set()).update(part(other) for other in others - TOP)
    knots = circles({name: others - {name} for name, others in parts.items()})
    assert knots == []


def test_only_three_modules_lie_loose_at_the_top():
    assert {path.stem for path in (ROOT / "stabilizer").glob("*.py")} == {"__init__", "__main__", "cli"}


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
