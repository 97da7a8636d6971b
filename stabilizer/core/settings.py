"""A setting of a configuration by its dotted key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def setting_at(config: Any, key: str, default: Any = None) -> Any:
    """The value at a dotted key of a configuration, nested or flat; `default` where it has no such key."""
    if not isinstance(config, Mapping):
        return default
    if key in config:
        return config[key]
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return default
        node = node[part]
    return node
