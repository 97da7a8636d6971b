"""The files and folders that a run reads at its start: found from any working directory, and compared on resume.

Values that are not files (a name on the hub, a built-in model or function) are left unchanged.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stabilizer.training.settings import TrainConfig


def anchored(config: TrainConfig) -> TrainConfig:
    """The same configuration with the absolute path of every file or folder."""
    builtin = config.model.partition(":")[0] == "builtin"
    data = config.data
    return replace(
        config,
        model=config.model if builtin else _whole(config.model),
        data=replace(data, path=_whole(data.path), held_out_path=_whole(data.held_out_path)),
        reward=replace(config.reward, functions=[_spec_anchored(entry) for entry in config.reward.functions]),
        search=replace(config.search, corpus=_whole(config.search.corpus)),
        environment=replace(config.environment, use=_anchored(config.environment.use)),
    )


def _spec_anchored(entry: str | dict[str, Any]) -> str | dict[str, Any]:
    return {**entry, "use": _anchored(entry["use"])} if isinstance(entry, dict) else _anchored(entry)


def _anchored(use: str) -> str:
    path, colon, name = use.rpartition(":")
    return f"{_whole(path)}:{name}" if colon and path.endswith(".py") else use


def _whole(name: str) -> str:
    path = os.path.expanduser(name)
    return str(Path(path).absolute()) if name and os.path.exists(path) else name


def digests(config: TrainConfig) -> dict[str, str]:
    """Path -> sha256 of the data, reward functions and environment of a configuration, where they are local files."""
    config = anchored(config)
    uses = [entry["use"] if isinstance(entry, dict) else entry for entry in config.reward.functions]
    paths = [use.rpartition(":")[0] for use in (*uses, config.environment.use)]
    paths += [config.data.path, config.data.held_out_path, config.search.corpus]
    return {path: digest for path in dict.fromkeys(paths) if path and (digest := _digest(path))}


def changes(recorded: Mapping[str, str]) -> list[str]:
    """Differences from the recorded `digests`, in words."""
    said = {True: "has changed since the run began; the new version is used", False: "is missing now"}
    now = {path: _digest(path) for path in recorded}
    return [f"{path} {said[now[path] != '']}" for path, digest in recorded.items() if now[path] != digest]


def _digest(path: str) -> str:
    """The hash of a file; for a folder, the hash of its files' names and hashes; '' if the path cannot be read."""
    try:
        if os.path.isfile(path):
            with open(path, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        if not os.path.isdir(path):
            return ""
        files = sorted(str(inner) for inner in Path(path).rglob("*") if inner.is_file())
        lines = "".join(f"{os.path.relpath(file, path)}\0{_digest(file)}\n" for file in files)
        return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()
    except OSError:
        return ""
