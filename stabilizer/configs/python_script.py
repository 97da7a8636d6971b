"""A Python script that builds GRPOConfig, RLOOConfig or PPOConfig: parsed, never imported, never run.

Literal arguments are taken as they are, a name is followed when the script gives it one literal value, and simple
arithmetic is calculated. Everything else stays unresolved.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stabilizer.configs.config import ConfigError, Parsed, Setting, Unresolved, limited

FORM = "python"
SUFFIXES = (".py",)
CLASSES = ("GRPOConfig", "RLOOConfig", "PPOConfig", "GRPOScriptArguments")
"""Classes of TRL that hold a run's settings."""
Names = Mapping[str, ast.expr | None]
"""The value of each name in a script; None where it is given more than one."""
_LARGEST = 2**53
"""Larger numbers are not calculated with."""
_LARGEST_POWER = 64
_MAX_DEPTH = 30
"""Expressions within each other that are followed."""
_MAX_ITEMS = 200
"""Items of a list that are read."""
_SHOWN = 80
"""Characters of an unresolved expression that are kept."""


@dataclass(frozen=True)
class _Script:
    """A parsed script."""

    path: Path
    text: str
    names: Names
    starts: list[int]
    """Where each line begins."""

    def setting(self, name: str, node: ast.expr) -> Setting:
        span = self.offset(node.lineno, node.col_offset), self.end(node)
        return Setting(
            key=name,
            value=literal(node, self.names),
            written=name,
            file=str(self.path),
            line=node.lineno,
            span=span,
        )

    def end(self, node: ast.expr) -> int:
        """Where an expression ends in the text."""
        return self.offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def offset(self, line: int, column: int) -> int:
        """A place in the text; Python counts columns in bytes of UTF-8."""
        start = self.starts[line - 1]
        body = self.text[start : self.starts[line]] if line < len(self.starts) else self.text[start:]
        return start + len(body.encode()[:column].decode(errors="ignore"))


_MATCHES = ("match", "fullmatch", "search", "findall", "compile")
_ANY_TEXT = re.compile(r"(?<!\\)\.[*+]")
"""`.*` in a pattern, which ends at a line break."""


def _one_line_patterns(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Reward functions that look for text between two tags within one line, and the lines of the patterns."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and "reward" in node.name]
    for function in functions:
        texts = _names(function)
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and _called(call) in _MATCHES and _ends_at_a_line(call, texts):
                yield function.name, call.lineno


def _ends_at_a_line(call: ast.Call, texts: Names) -> bool:
    pattern = literal(call.args[0], texts) if call.args else None
    flagged = re.search(r"\bre\.(?:S|DOTALL)\b", ast.unparse(call))
    return isinstance(pattern, str) and not flagged and _within_a_line(pattern)


def _within_a_line(pattern: str) -> bool:
    return pattern.count("<") > 1 and bool(_ANY_TEXT.search(pattern)) and not pattern.startswith("(?s")


def read(path: Path, text: str) -> Parsed:
    """The arguments of the last call of a configuration class in the script."""
    tree = _tree(path, text)
    every_call = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls = [call for call in every_call if _called(call) in CLASSES[:3]]
    script = _Script(path, text, _names(tree), _line_starts(text))
    hints = {"lora": any(_called(call) == "LoraConfig" for call in every_call), "end": 0, **_model(tree, script.names)}
    hints["one_line_patterns"] = tuple(_one_line_patterns(tree))
    if not calls:
        return Parsed(form=FORM, path=path, text=text, settings=(), hints=hints)
    notes: tuple[str, ...] = ()
    if len(calls) > 1:
        notes = (f"{len(calls)} configurations are made in it; the last one is used, in line {calls[-1].lineno}",)
    last = max(calls, key=lambda node: node.lineno)
    return Parsed(
        form=FORM,
        path=path,
        text=text,
        settings=limited(_arguments(last, script), path),
        command=_called(last),
        hints=hints | {"end": script.end(last) - 1},
        notes=notes,
    )


def _tree(path: Path, text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise ConfigError(f"{path}: not readable as Python{line}: {getattr(error, 'msg', error)}") from None


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


def literal(node: ast.expr, names: Names, depth: int = 0) -> Any:
    """The value of an expression made of literals, names of literals and arithmetic, else Unresolved."""
    if depth > _MAX_DEPTH:
        return Unresolved("...")
    evaluate = _EVALUATE.get(type(node), _unknown)
    return evaluate(node, names, depth)


def _unknown(node: ast.expr, names: Names, depth: int) -> Unresolved:
    return Unresolved(ast.unparse(node)[:_SHOWN])


def _constant(node: ast.Constant, names: Names, depth: int) -> Any:
    return node.value if not isinstance(node.value, (bytes, complex)) else Unresolved(ast.unparse(node))


def _name(node: ast.Name, names: Names, depth: int) -> Any:
    known = names.get(node.id)
    if known is None:
        return _unknown(node, names, depth)
    return literal(known, {name: value for name, value in names.items() if name != node.id}, depth + 1)


def _unary(node: ast.UnaryOp, names: Names, depth: int) -> Any:
    if not isinstance(node.op, (ast.USub, ast.Not)):
        return _unknown(node, names, depth)
    value = literal(node.operand, names, depth + 1)
    if isinstance(value, Unresolved):
        return value
    if isinstance(node.op, ast.Not):
        return not value
    return -value if isinstance(value, (int, float)) else Unresolved(ast.unparse(node))


def _items(node: ast.List | ast.Tuple, names: Names, depth: int) -> list[Any]:
    return [literal(item, names, depth + 1) for item in node.elts[:_MAX_ITEMS]]


def _arithmetic(node: ast.BinOp, names: Names, depth: int) -> Any:
    left, right = literal(node.left, names, depth + 1), literal(node.right, names, depth + 1)
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) and abs(v) < _LARGEST for v in (left, right))
    calculate = _OPERATIONS.get(type(node.op))
    if not numbers or calculate is None:
        return Unresolved("an expression")
    try:
        return calculate(left, right)
    except (ZeroDivisionError, OverflowError, ValueError):
        return Unresolved("an expression")


def _power(left: float, right: float) -> Any:
    if abs(right) > _LARGEST_POWER:
        raise OverflowError
    return float(left) ** right if isinstance(right, float) or right < 0 else left**right


_OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}

_EVALUATE: Mapping[type[ast.expr], Callable[[Any, Names, int], Any]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.UnaryOp: _unary,
    ast.List: _items,
    ast.Tuple: _items,
    ast.Dict: lambda node, names, depth: {},
    ast.BinOp: _arithmetic,
}


def _called(node: ast.Call) -> str:
    func = node.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _names(tree: ast.AST) -> dict[str, ast.expr | None]:
    """Names that are given exactly one value in the whole script; None for the others."""
    found: dict[str, ast.expr | None] = {}
    for node in ast.walk(tree):
        for name, value in _bindings(node):
            found[name] = None if name in found else value
    return found


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Names that a statement gives a value; None where the value is no single expression."""
    if isinstance(node, ast.Assign):
        yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For, ast.comprehension)):
        if isinstance(node.target, ast.Name):
            yield node.target.id, node.value if isinstance(node, ast.AnnAssign) else None


def _arguments(call: ast.Call, script: _Script) -> Iterator[Setting]:
    for keyword in call.keywords:
        if keyword.arg is None:
            yield from (script.setting(name, value) for name, value in _spread(keyword.value, script.names))
        else:
            yield script.setting(keyword.arg, keyword.value)


def _spread(node: ast.expr, names: Names) -> Iterator[tuple[str, ast.expr]]:
    """`**kwargs` where kwargs is a literal dict or dict(...)."""
    known = names.get(node.id) if isinstance(node, ast.Name) else node
    if isinstance(known, ast.Dict):
        for key, value in zip(known.keys, known.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
    elif isinstance(known, ast.Call) and _called(known) == "dict":
        yield from ((keyword.arg, keyword.value) for keyword in known.keywords if keyword.arg)


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _model(tree: ast.Module, names: Names) -> dict[str, Any]:
    """The `model=` of a trainer in the same script, when it is a literal."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node).endswith("Trainer"):
            for keyword in node.keywords:
                if keyword.arg == "model" and isinstance(value := literal(keyword.value, names), str):
                    return {"model": value}
    return {}
