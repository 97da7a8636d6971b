"""A Python script that builds GRPOConfig, RLOOConfig or PPOConfig: parsed, never imported, never run.

Literal arguments are taken as they are; a name is followed when the script gives it one literal value, and simple
arithmetic is worked out. Everything else stays unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stabilizer.configs.config import ConfigError, Parsed, Setting, Unresolved, limited

FORM = "python"
SUFFIXES = (".py",)
CLASSES = ("GRPOConfig", "RLOOConfig", "PPOConfig", "GRPOScriptArguments")
"""Classes of TRL that hold a run's settings."""
_LARGEST = 2**53


def read(path: Path, text: str) -> Parsed:
    """The arguments of the last call of a configuration class in the script."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise ConfigError(f"{path}: not readable as Python{line}: {getattr(error, 'msg', error)}") from None
    names = _names(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) in CLASSES[:3]]
    notes = []
    if len(calls) > 1:
        notes.append(f"{len(calls)} configurations are made in it; judged is the last, in line {calls[-1].lineno}")
    call = max(calls, key=lambda node: node.lineno) if calls else None
    settings = limited(_arguments(call, names, path, _offsets(text), text), path) if call else ()
    called = {_called(node) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    end = _offset(_offsets(text), text, call.end_lineno or 1, (call.end_col_offset or 1) - 1) if call else 0
    return Parsed(
        form=FORM, path=path, text=text, settings=settings, command=_called(call) if call else "",
        hints={"lora": "LoraConfig" in called, "end": end, **_model(tree, names)}, notes=tuple(notes),
    )  # fmt: skip


def insert(parsed: Parsed, key: str, value: Any) -> tuple[int, str]:
    """As the last argument of the call."""
    end = int(parsed.hints["end"])
    before = parsed.text[:end].rstrip()
    last = max(s.line or 1 for s in parsed.settings)
    own_line = parsed.text[:end].count("\n") + 1 > last
    if own_line:
        source = parsed.text.splitlines()[last - 1]
        indent = source[: len(source) - len(source.lstrip())]
        comma = "" if before.endswith((",", "(")) else ","
        return len(before), f"{comma}\n{indent}{key}={written(value)},"
    return len(before), f"{'' if before.endswith(('(', ',')) else ','} {key}={written(value)}"


def written(value: Any) -> str:
    """A value as Python."""
    return repr(value)


def literal(node: ast.expr, names: Mapping[str, ast.expr | None], depth: int = 0) -> Any:
    """The value of an expression made of literals, names of literals and arithmetic, else Unresolved."""
    if depth > 30:
        return Unresolved("...")
    if isinstance(node, ast.Constant):
        return node.value if not isinstance(node.value, (bytes, complex)) else Unresolved(ast.unparse(node))
    if isinstance(node, ast.Name) and isinstance(known := names.get(node.id), ast.expr):
        return literal(known, {name: value for name, value in names.items() if name != node.id}, depth + 1)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        value = literal(node.operand, names, depth + 1)
        if isinstance(value, Unresolved):
            return value
        if isinstance(node.op, ast.Not):
            return not value
        return -value if isinstance(value, (int, float)) else Unresolved(ast.unparse(node))
    if isinstance(node, (ast.List, ast.Tuple)):
        return [literal(item, names, depth + 1) for item in node.elts[:200]]
    if isinstance(node, ast.Dict):
        return {}
    if isinstance(node, ast.BinOp):
        return _arithmetic(node, names, depth)
    return Unresolved(ast.unparse(node)[:80])


def _arithmetic(node: ast.BinOp, names: Mapping[str, ast.expr | None], depth: int) -> Any:
    left, right = literal(node.left, names, depth + 1), literal(node.right, names, depth + 1)
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) and abs(v) < _LARGEST for v in (left, right))
    if not numbers:
        return Unresolved("an expression")
    try:
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right
            case ast.FloorDiv():
                return left // right
            case ast.Mod():
                return left % right
            case ast.Pow() if abs(right) <= 64:
                return float(left) ** right if isinstance(right, float) or right < 0 else left**right
    except (ZeroDivisionError, OverflowError, ValueError):
        pass
    return Unresolved("an expression")


def _called(node: ast.Call) -> str:
    func = node.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _names(tree: ast.Module) -> dict[str, ast.expr | None]:
    """Names that are given exactly one value in the whole script; None for the others."""
    found: dict[str, ast.expr | None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found[target.id] = None if target.id in found else node.value
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)) and isinstance(node.target, ast.Name):
            fresh = isinstance(node, ast.AnnAssign) and node.target.id not in found
            found[node.target.id] = node.value if fresh else None
        elif isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.target, ast.Name):
            found[node.target.id] = None
    return found


def _arguments(
    call: ast.Call, names: Mapping[str, ast.expr | None], path: Path, starts: list[int], text: str
) -> Iterator[Setting]:
    for keyword in call.keywords:
        if keyword.arg is None:
            yield from _spread(keyword.value, names, path, starts, text)
        else:
            yield _setting(keyword.arg, keyword.value, names, path, starts, text)


def _spread(
    node: ast.expr, names: Mapping[str, ast.expr | None], path: Path, starts: list[int], text: str
) -> Iterator[Setting]:
    """`**kwargs` where kwargs is a literal dict or dict(...)."""
    if isinstance(node, ast.Name):
        known = names.get(node.id)
        if known is None:
            return
        node = known
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield _setting(key.value, value, names, path, starts, text)
    elif isinstance(node, ast.Call) and _called(node) == "dict":
        for keyword in node.keywords:
            if keyword.arg:
                yield _setting(keyword.arg, keyword.value, names, path, starts, text)


def _setting(
    name: str, node: ast.expr, names: Mapping[str, ast.expr | None], path: Path, starts: list[int], text: str
) -> Setting:
    span = (
        _offset(starts, text, node.lineno, node.col_offset),
        _offset(starts, text, node.end_lineno or node.lineno, node.end_col_offset or 0),
    )
    return Setting(
        key=name, value=literal(node, names), written=name, file=str(path), line=node.lineno, span=span
    )  # fmt: skip


def _offsets(text: str) -> list[int]:
    """Where each line begins."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _offset(starts: list[int], text: str, line: int, column: int) -> int:
    """Python counts columns in bytes of UTF-8."""
    start = starts[line - 1]
    body = text[start : starts[line]] if line < len(starts) else text[start:]
    return start + len(body.encode()[:column].decode(errors="ignore"))


def _model(tree: ast.Module, names: Mapping[str, ast.expr | None]) -> dict[str, Any]:
    """The `model=` of a trainer in the same script, when it is a literal."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node).endswith("Trainer"):
            for keyword in node.keywords:
                if keyword.arg == "model" and isinstance(value := literal(keyword.value, names), str):
                    return {"model": value}
    return {}
