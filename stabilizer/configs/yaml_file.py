"""YAML, and JSON as its subset: recipes of TRL and Open-R1, veRL, EasyR1 and NeMo-RL files, experiment_config.json.

The document is composed, not constructed: no tag is followed, and every value keeps its line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from stabilizer.configs import yaml_keys
from stabilizer.configs.bounds import TooMuch
from stabilizer.configs.config import ConfigError, Parsed, Repeated, Setting, Unresolved, limited, number
from stabilizer.configs.yaml_keys import Twice, children, twice

FORM = "yaml"
SUFFIXES = (".yaml", ".yml", ".json")
MAX_REPEATED = 20
"""Repeated keys that are reported. A file with more is broken altogether."""
SHORT = 40
"""Characters of a value that are shown in a message."""
MAX_MEMBERS = 10_000
"""Members of one list, nested ones included. Lists of references to lists can grow without end."""


def read(path: Path, text: str) -> Parsed:
    """All leaves of a YAML or JSON file."""
    body = text.removeprefix("\ufeff")
    shift = len(text) - len(body)
    if path.suffix.lower() == ".json":
        _check_json(path, body)
        body = body.replace("\t", " ")  # JSON may be indented with tabs, YAML may not
    try:
        root = yaml_keys.compose(body)
    except TooMuch as error:
        raise ConfigError(f"{path}: {error}") from None
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        kind = "JSON" if path.suffix.lower() == ".json" else "YAML"
        raise ConfigError(f"{path}: not readable as {kind}{where}: {what}") from None
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{path}: a configuration is a mapping of keys to values, but this is not one")
    repeated: list[Repeated] = []
    settings = limited(_leaves(root, "", str(path), shift, repeated), path)
    return Parsed(form=FORM, path=path, text=text, settings=settings, repeated=tuple(repeated))


def insert(parsed: Parsed, key: str, value: Any) -> tuple[int, str]:
    """A new key goes into the innermost existing group, below the last value of that group. A second group of the same
    name would replace the first: PyYAML and JSON keep the last, OmegaConf refuses the file."""
    json_file = parsed.path.suffix.lower() == ".json"
    body = parsed.text.removeprefix("\ufeff")
    shift = len(parsed.text) - len(body)
    root = yaml_keys.compose(body.replace("\t", " ") if json_file else body)
    assert isinstance(root, yaml.MappingNode)  # `read` has seen to it
    group, rest = _innermost(root, key.split("."), parsed.path)
    if any(str(name.value).startswith(f"{rest[0]}.") for name, _ in group.value):  # a list may be a key, too
        rest = [".".join(rest)]  # a file of dotted keys stays one
    if group.flow_style:
        comma = ", " if group.value else ""
        return group.start_mark.index + 1 + shift, f"{_inline(rest, value, quoted=json_file)}{comma}"
    return _below(group, rest, value, parsed.text, shift, is_root=group is root)


def _below(
    group: yaml.MappingNode, rest: list[str], value: Any, text: str, shift: int, *, is_root: bool
) -> tuple[int, str]:
    """A new key as a line of its own: below the last plain value of its group."""
    indent = " " * min(name.start_mark.column for name, _ in group.value)
    plain = [inner for name, inner in group.value if _one_line(inner) and not _elsewhere(name, inner)]
    if is_root and (len(rest) > 1 or not plain):  # a new group comes last
        tail = "" if text.endswith("\n") else "\n"
        return len(text), f"{tail}{_block(rest, value, indent)}\n"
    if not plain:  # into a group that holds groups alone: before the first of them
        first = group.value[0][0].start_mark
        return first.index - first.column + shift, f"{_block(rest, value, indent)}\n"
    at = text.find("\n", plain[-1].end_mark.index + shift)
    return (len(text) if at < 0 else at), f"\n{_block(rest, value, indent)}"


def _innermost(group: yaml.MappingNode, key: list[str], path: Path) -> tuple[yaml.MappingNode, list[str]]:
    """The innermost group there is for a key, and the parts of the key that it lacks."""
    while len(key) > 1 and (found := _member(group, key[0])):
        name, inner = found
        if not isinstance(inner, yaml.MappingNode) or not inner.value or _elsewhere(name, inner):
            raise ConfigError(f"{path}:{name.start_mark.line + 1}: {name.value} can't be added to; do it there")
        group, key = inner, key[1:]
    return group, key


def _member(node: yaml.MappingNode, key: str) -> tuple[yaml.ScalarNode, yaml.Node] | None:
    """The key of a group and its value. Of several equal keys the last one counts."""
    return next((pair for pair in reversed(node.value) if pair[0].value == key), None)


def _elsewhere(name: yaml.Node, inner: yaml.Node) -> bool:
    """Whether a value is only referred to (`*base`)."""
    return bool(inner.start_mark.index < name.start_mark.index)


def _one_line(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style not in ("|", ">")


def written(value: Any) -> str:
    """A value as YAML reads it back: 1e-06 would be text to PyYAML, 1.0e-06 is a number."""
    if isinstance(value, float):
        text = repr(value)
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    return json.dumps(value)


def _check_json(path: Path, body: str) -> None:
    try:
        json.loads(body)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{path}: not readable as JSON: {error.msg} in line {error.lineno}, column {error.colno}"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{path}: not readable as JSON: {error}") from None


def _leaves(node: yaml.MappingNode, prefix: str, file: str, shift: int, repeated: list[Repeated]) -> Iterator[Setting]:
    for name, value in _last_of_each(node, prefix, file, repeated):
        key = f"{prefix}{name.value}"
        if isinstance(value, yaml.MappingNode) and value.value:
            yield from _leaves(value, f"{key}.", file, shift, repeated)
            continue
        single = isinstance(value, yaml.ScalarNode) and value.style not in ("|", ">")
        span = (value.start_mark.index + shift, value.end_mark.index + shift) if single else None
        yield Setting(
            key=key,
            value=_value(value, iter(range(MAX_MEMBERS))),
            written=key,
            file=file,
            line=name.start_mark.line + 1,
            span=span,
        )


def _last_of_each(
    node: yaml.MappingNode, prefix: str, file: str, repeated: list[Repeated]
) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    """The members that count: of a repeated key the last, whole groups included."""
    members = _scalar_keyed(node)
    again = list(twice(node))
    if not again:
        return members
    first = {_id(pair[0]): pair for pair in reversed(members)}
    last = {_id(pair[0]): pair for pair in members}
    for key in again:
        found = _repetition(key, f"{prefix}{key.key}", file, first[key.tag, key.key][1], last[key.tag, key.key][1])
        if found not in repeated and len(repeated) < MAX_REPEATED:
            repeated.append(found)
    return [pair for pair in members if last[_id(pair[0])] is pair or pair[0].tag.endswith(":merge")]


def _scalar_keyed(node: yaml.MappingNode) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    return [pair for pair in node.value if isinstance(pair[0], yaml.ScalarNode)]


def _repetition(again: Twice, key: str, file: str, lost: yaml.Node, kept: yaml.Node) -> Repeated:
    return Repeated(
        key=key,
        file=file,
        first=again.first,
        last=again.last,
        lost=_short(lost),
        kept=_short(kept),
        same=_same(lost, kept, iter(range(MAX_MEMBERS))),
    )


def _id(key: yaml.ScalarNode) -> tuple[str, str]:
    """What makes two keys the same: 1 and "1" are two keys."""
    return key.tag, key.value


def _same(one: yaml.Node, other: yaml.Node, budget: Iterator[int]) -> bool:
    """Whether two nodes hold the same, whole groups included. False once the budget of members is used up."""
    if one is other:
        return True
    if next(budget, None) is None or one.tag != other.tag or not isinstance(other, type(one)):
        return False
    if isinstance(one, yaml.ScalarNode):
        return bool(one.value == other.value)
    ours, theirs = children(one), children(other)
    return len(ours) == len(theirs) and all(_same(*pair, budget) for pair in zip(ours, theirs, strict=True))


def _short(node: yaml.Node) -> str:
    """A value for a sentence."""
    if isinstance(node, yaml.MappingNode):
        return f"a group of {len(node.value)}"
    if isinstance(node, yaml.SequenceNode):
        return f"a list of {len(node.value)}"
    text = str(node.value)
    return (text if len(text) <= SHORT else f"{text[:SHORT]}...") or "nothing"


def _value(node: yaml.Node, budget: Iterator[int]) -> Any:
    """The value of a node; a list ends where the budget of members does."""
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, budget) for item, _ in zip(node.value, budget, strict=False)]
    if isinstance(node, yaml.MappingNode):
        return {}
    assert isinstance(node, yaml.ScalarNode)
    return _scalar(node.tag.rpartition(":")[2], node.value, quoted=bool(node.style))


def _scalar(tag: str, text: str, *, quoted: bool) -> Any:
    if tag == "bool":
        return text.lower() in ("true", "yes", "on")
    if tag == "null":
        return None
    found = number(text) if tag in ("int", "float", "str") and not quoted else None
    if found is None and "${" in text:
        return Unresolved(text)
    return text if found is None else found


def _inline(parts: list[str], value: Any, *, quoted: bool) -> str:
    name = json.dumps(parts[0]) if quoted else parts[0]
    if len(parts) > 1:
        return f"{name}: {{{_inline(parts[1:], value, quoted=quoted)}}}"
    return f"{name}: {json.dumps(value) if quoted else written(value)}"


def _block(parts: list[str], value: Any, indent: str) -> str:
    lines = [f"{indent}{'  ' * depth}{part}:" for depth, part in enumerate(parts)]
    return "\n".join([*lines[:-1], f"{lines[-1]} {written(value)}"])
