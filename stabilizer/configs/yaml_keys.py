"""YAML of unknown origin: plain types, within bounds, and no key twice in one group.

PyYAML and JSON parsers silently keep the last of several equal keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from stabilizer.configs.bounds import TOO_DEEP, TooMuch, check_size
from stabilizer.core.json_text import MAX_NESTING

MAX_NODES = 100_000
"""Values and groups of one document, with every alias replaced by its value."""
MAX_NUMBER = 1000
"""Characters of a number. PyYAML takes quadratic time for a long one in base 60, `1:30:00`."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Twice(NamedTuple):
    """A key that is written more than once in one group."""

    key: str
    first: int
    """Line of the first, counted from 1."""
    last: int
    """Line of the last, which counts."""
    tag: str = ""
    """YAML's type of the key: 1 and "1" are two keys."""

    def __str__(self) -> str:
        if self.first == self.last:
            return f"{self.key!r} stands in line {self.last} twice"
        return f"{self.key!r} stands in line {self.first} and again in line {self.last}"


class KeyTwice(ValueError):
    """A key is written twice, so that one value would be lost. The message says where both are and what to do."""


def twice(node: yaml.MappingNode) -> Iterator[Twice]:
    """The keys that are repeated in this group, not in those within it. `<<` may be repeated."""
    first: dict[tuple[str, str], yaml.ScalarNode] = {}
    last: dict[tuple[str, str], yaml.ScalarNode] = {}
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and not key.tag.endswith(":merge"):
            known = key.tag, key.value
            (last if known in first else first)[known] = key
    for known, again in last.items():
        yield Twice(again.value, first[known].start_mark.line + 1, again.start_mark.line + 1, again.tag)


def load(text: str, *, unique: bool = True) -> Any:
    """The value of a YAML text, in plain types.

    TooMuch where it exceeds a bound; KeyTwice where a key is repeated and keys must be `unique`.
    """
    loader, node = _composed(text)
    try:
        if node is None:
            return None
        if unique:
            _check_keys(node)
        return loader.construct_document(node)
    except (KeyTwice, yaml.YAMLError):
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:  # `!!float ''`, 2021-99-99
        raise yaml.YAMLError(f"a value can't be what its tag or its form says: {error}") from None
    finally:
        loader.dispose()


def compose(text: str) -> yaml.Node | None:
    """The nodes of a YAML text with their places, None where it is empty. TooMuch where it exceeds a bound."""
    loader, node = _composed(text)
    loader.dispose()
    return node


def _composed(text: str) -> tuple[Any, yaml.Node | None]:
    check_size(text)
    _check_events(text)
    loader = _LOADER(text)
    try:
        node = loader.get_single_node()
        for inner in _nodes(node) if node else ():
            if inner.tag.endswith((":int", ":float")) and len(inner.value) > MAX_NUMBER:
                raise TooMuch(
                    f"a number of {len(inner.value):,} characters in line {inner.start_mark.line + 1};"
                    " put it in quotes where it is a text"
                )
        return loader, node
    except BaseException:
        loader.dispose()
        raise


class _Extent(NamedTuple):
    """The size of a node, with every alias replaced by its value."""

    nodes: int = 1
    depth: int = 0


def _check_events(text: str) -> None:
    """Refuse a document that is too large or too deep once its aliases and merges are expanded.

    It counts the parser's events: the C composer recurses without a limit, and an alias takes no memory in it.
    """
    anchors: dict[str | None, _Extent] = {}
    open_: list[tuple[str | None, _Extent]] = [(None, _Extent())]
    total = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, _Extent(depth=1)))
            if len(open_) > MAX_NESTING + 1:
                raise TooMuch(TOO_DEEP)
            continue
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_):
                raise TooMuch(f"*{event.anchor} in line {_line(event)} is nested in the group it refers to")
            done = anchors.get(event.anchor, _Extent())
        elif isinstance(event, yaml.ScalarEvent):
            done = _Extent()
            anchors.update({event.anchor: done} if event.anchor else {})
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, done = open_.pop()
            anchors.update({anchor: done} if anchor else {})
        else:
            continue
        anchor, outer = open_[-1]
        total = outer.nodes + done.nodes
        open_[-1] = anchor, _Extent(total, max(outer.depth, done.depth + 1))
        if total > MAX_NODES:
            raise TooMuch(
                f"more than {MAX_NODES:,} values and groups by line {_line(event)}, aliases written out;"
                " is this the right file?"
            )
        if len(open_) - 1 + done.depth > MAX_NESTING:
            raise TooMuch(TOO_DEEP)


def _line(event: yaml.Event) -> int:
    """Line of an event, counted from 1."""
    return event.start_mark.line + 1 if event.start_mark else 0


def _nodes(node: yaml.Node) -> Iterator[yaml.Node]:
    """A node and those in it, the inner ones first, each once."""
    seen: set[int] = set()
    pending = [(node, False)]
    while pending:
        node, entered = pending.pop()
        if entered or isinstance(node, yaml.ScalarNode):
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            pending.append((node, True))
            pending += [(part, False) for part in reversed(children(node))]


def children(node: yaml.Node) -> list[yaml.Node]:
    """Items of a list; keys and values of a group in turn."""
    inner = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in node.value for part in pair]
    return list(inner)


def _check_keys(root: yaml.Node) -> None:
    for node in _nodes(root):
        if isinstance(node, yaml.MappingNode) and (found := next(twice(node), None)):
            raise KeyTwice(f"{found}; the one that comes last would count, and the other be lost: delete one of them")
