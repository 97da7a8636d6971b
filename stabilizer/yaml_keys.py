"""YAML in which a key stands once in its group. PyYAML, and JSON's readers, keep the last of several without a word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml


class Twice(NamedTuple):
    """A key that stands more than once in one group."""

    key: str
    first: int
    """Line of the first, counted from 1."""
    last: int
    """Line of the last, which is the one that counts."""
    tag: str = ""
    """YAML's word for the kind of key: 1 and "1" are two keys."""

    def __str__(self) -> str:
        if self.first == self.last:
            return f"{self.key!r} stands in line {self.last} twice"
        return f"{self.key!r} stands in line {self.first} and again in line {self.last}"


class KeyTwice(ValueError):
    """A key stands twice: one of its values would be lost. The message says where both are and what to do."""


def twice(node: yaml.MappingNode) -> Iterator[Twice]:
    """The keys that stand more than once in this group, not in those within it. `<<` may be repeated."""
    first: dict[tuple[str, str], yaml.Node] = {}
    last: dict[tuple[str, str], yaml.Node] = {}
    for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and not key.tag.endswith(":merge")):
        known = key.tag, key.value
        if known in first:
            last[known] = key
        else:
            first[known] = key
    for known, key in last.items():
        yield Twice(key.value, first[known].start_mark.line + 1, key.start_mark.line + 1, key.tag)


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        if found := next(twice(node), None):
            raise KeyTwice(f"{found}; the one that comes last would count, and the other be lost: delete one of them")
        return node


def load(text: str) -> Any:
    """What a YAML text says, nothing but plain types. KeyTwice where it contradicts itself."""
    return yaml.load(text, _Loader)  # noqa: S506 (made of the safe loader)
