"""Settings of a nested configuration by their dotted keys."""

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


def flat(config: Any, above: str = "") -> dict[str, Any]:
    """All settings by dotted keys. Lists and empty groups stay whole; what is no mapping has no settings."""
    settings: dict[str, Any] = {}
    for key, inner in config.items() if isinstance(config, Mapping) else ():
        name = f"{above}.{key}" if above else str(key)
        settings |= flat(inner, name) if isinstance(inner, Mapping) and inner else {name: inner}
    return settings


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted keys as the groups that a YAML file has."""
    config: dict[str, Any] = {}
    for key, value in settings.items():
        *sections, last = key.split(".")
        node = config
        for section in sections:
            below = node.setdefault(section, {})
            node = below if isinstance(below, dict) else {}
        node[last] = value
    return config
