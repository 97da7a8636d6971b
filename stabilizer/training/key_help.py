"""The reference of all configuration keys: every key with its type, default and reason, read from the source.

A key is explained only in the docstring below its field; `--help` prints these docstrings.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, NamedTuple, get_type_hints

from stabilizer.core.algorithms import ALGORITHMS
from stabilizer.training.config import type_words
from stabilizer.training.presets import TASK_DEFAULTS
from stabilizer.training.settings import TrainConfig


class Key(NamedTuple):
    """One key."""

    name: str
    kind: str
    default: Any
    meaning: str


class Group(NamedTuple):
    """Keys that belong together. The name is empty for keys outside any group."""

    name: str
    meaning: str
    keys: list[Key]


def groups(kind: Any = TrainConfig) -> list[Group]:
    """All keys, those outside any group first."""
    hints, meanings = get_type_hints(kind), field_docstrings(kind)
    own = [
        Key(f.name, type_words(hints[f.name]), _default(f), meanings[f.name])
        for f in fields(kind)
        if not is_dataclass(hints[f.name])
    ]
    found = [Group("", "", own)]
    for f in fields(kind):
        if is_dataclass(inner := hints[f.name]):
            for group in groups(inner):
                keys = [key._replace(name=f"{f.name}.{key.name}") for key in group.keys]
                name = f"{f.name}.{group.name}" if group.name else f.name
                found.append(Group(name, group.meaning or meanings[f.name], keys))
    return found


def as_text(width: int = 100) -> str:
    """The reference as plain text."""
    return "\n".join(_lines(width))


def field_docstrings(kind: type) -> dict[str, str]:
    """The docstring below each field of a class, in one line; a field without one causes a KeyError later."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        ast.unparse(field.target): " ".join(str(below.value.value).split())
        for field, below in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }


def _lines(width: int) -> Iterator[str]:
    yield "Every key of a configuration, as YAML (`optim: {lr: 1e-4}`) or with --set (`--set optim.lr=1e-4`):"
    for group in groups():
        yield ""
        if group.name:
            yield f"{group.name}: {group.meaning}"
        for key in group.keys:
            yield f"  {key.name}: {key.kind} (default {_shown(key.default)})"
            yield from textwrap.wrap(key.meaning, max(width, 40), initial_indent=" " * 6, subsequent_indent=" " * 6)
    yield from _presets("A task changes some of these defaults:", TASK_DEFAULTS, "task", width)
    yield from _presets("An algorithm then changes more; your settings override both:", ALGORITHMS, "algorithm", width)


def _presets(heading: str, presets: Mapping[str, Mapping[str, Any]], own: str, width: int) -> Iterator[str]:
    yield from ("", heading)
    for name, changes in presets.items():
        words = ", ".join(f"{key}={_shown(value)}" for key, value in changes.items() if key != own)
        yield from textwrap.wrap(
            f"{name}: {words}", max(width, 40), initial_indent="  ", subsequent_indent=" " * 6, break_on_hyphens=False
        )


def _default(f: Any) -> Any:
    return f.default if f.default is not MISSING else f.default_factory()


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "none" if value is None else "empty"
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)
