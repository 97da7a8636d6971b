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
from stabilizer.configs.yaml_keys import twice

FORM = "yaml"
SUFFIXES = (".yaml", ".yml", ".json")
MAX_REPEATED = 20
"""Keys that stand twice of which it is said; what has more is broken altogether."""
SHORT = 40
"""Characters of a value that a sentence has room for."""
MAX_MEMBERS = 10_000
"""Members of one list, those of lists within it counted: lists of references to lists grow without end."""


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
        raise ConfigError(f"{path}: a configuration is a mapping of keys to values, and this is none")
    repeated: list[Repeated] = []
    settings = limited(_leaves(root, "", str(path), shift, repeated), path)
    return Parsed(form=FORM, path=path, text=text, settings=settings, repeated=tuple(repeated))


def insert(parsed: Parsed, key: str, value: Any) -> tuple[int, str]:
    """A new key goes into the innermost group there is, below the last value that stands in it. A second group of a
    name would take the place of the first: PyYAML and JSON keep the last, OmegaConf refuses the file."""
    json_file = parsed.path.suffix.lower() == ".json"
    body = parsed.text.removeprefix("\ufeff")
    shift = len(parsed.text) - len(body)
    root = node = yaml_keys.compose(body.replace("\t", " ") if json_file else body)
    rest = key.split(".")
    while len(rest) > 1 and (found := _member(node, rest[0])):
        name, inner = found
        if not isinstance(inner, yaml.MappingNode) or not inner.value or _elsewhere(name, inner):
            raise ConfigError(f"{parsed.path}:{name.start_mark.line + 1}: {name.value} can't be added to; do it there")
        node, rest = inner, rest[1:]
    if any(str(name.value).startswith(f"{rest[0]}.") for name, _ in node.value):  # a list may be a key, too
        rest = [".".join(rest)]  # a file of dotted keys stays one
    if node.flow_style:
        comma = ", " if node.value else ""
        return node.start_mark.index + 1 + shift, f"{_inline(rest, value, quoted=json_file)}{comma}"
    indent = " " * min(name.start_mark.column for name, _ in node.value)
    plain = [inner for name, inner in node.value if _one_line(inner) and not _elsewhere(name, inner)]
    if node is root and (len(rest) > 1 or not plain):  # a new group comes last
        tail = "" if parsed.text.endswith("\n") else "\n"
        return len(parsed.text), f"{tail}{_block(rest, value, indent)}\n"
    if not plain:  # into a group that holds groups alone: before the first of them
        first = node.value[0][0].start_mark
        return first.index - first.column + shift, f"{_block(rest, value, indent)}\n"
    at = parsed.text.find("\n", plain[-1].end_mark.index + shift)
    return (len(parsed.text) if at < 0 else at), f"\n{_block(rest, value, indent)}"


def _member(node: yaml.MappingNode, key: str) -> tuple[yaml.ScalarNode, yaml.Node] | None:
    """The key of a group and what it holds; of several the last, which is the one that counts."""
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
    """The members that count: of a key that stands twice the last, whole groups included."""
    members = [pair for pair in node.value if isinstance(pair[0], yaml.ScalarNode)]
    again = list(twice(node))
    if not again:
        return members
    first = {(pair[0].tag, pair[0].value): pair for pair in reversed(members)}
    last = {(pair[0].tag, pair[0].value): pair for pair in members}
    for key in again:
        lost, kept = first[key.tag, key.key][1], last[key.tag, key.key][1]
        found = Repeated(
            key=f"{prefix}{key.key}", file=file, first=key.first, last=key.last, lost=_short(lost), kept=_short(kept),
            same=_same(lost, kept, iter(range(MAX_MEMBERS))),
        )  # fmt: skip
        if found not in repeated and len(repeated) < MAX_REPEATED:
            repeated.append(found)
    return [pair for pair in members if last[pair[0].tag, pair[0].value] is pair or pair[0].tag.endswith(":merge")]


def _same(one: yaml.Node, other: yaml.Node, budget: Iterator[int]) -> bool:
    """Whether two nodes hold the same, whole groups included; where the budget of members ends, that is not known."""
    if one is other:
        return True
    if next(budget, None) is None or one.tag != other.tag or not isinstance(other, type(one)):
        return False
    if isinstance(one, yaml.ScalarNode):
        return one.value == other.value
    if len(one.value) != len(other.value):
        return False
    if isinstance(one, yaml.SequenceNode):
        return all(_same(*pair, budget) for pair in zip(one.value, other.value, strict=True))
    members = zip(one.value, other.value, strict=True)
    return all(_same(key, as_key, budget) and _same(value, to, budget) for (key, value), (as_key, to) in members)


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
    tag, text = node.tag.rpartition(":")[2], node.value
    if tag == "bool":
        return text.lower() in ("true", "yes", "on")
    if tag == "null":
        return None
    if tag in ("int", "float", "str") and not node.style:
        found = number(text)
        if found is not None:
            return found
    if "${" in text:
        return Unresolved(text)
    return text


def _inline(parts: list[str], value: Any, *, quoted: bool) -> str:
    name = json.dumps(parts[0]) if quoted else parts[0]
    if len(parts) > 1:
        return f"{name}: {{{_inline(parts[1:], value, quoted=quoted)}}}"
    return f"{name}: {json.dumps(value) if quoted else written(value)}"


def _block(parts: list[str], value: Any, indent: str) -> str:
    lines = [f"{indent}{'  ' * depth}{part}:" for depth, part in enumerate(parts)]
    return "\n".join([*lines[:-1], f"{lines[-1]} {written(value)}"])
