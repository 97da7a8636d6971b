"""Damage to a checkpoint that its manifest cannot show: every hash is right, and the content is wrong.

Damage of the bytes alone is the easy half: a hash finds it. Here a file is changed and the manifest made again, as a
faulty copy tool, an older version or a careless edit would leave it.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save

DEEP = 100_000
"""Levels of a nested JSON text, far beyond what any parser follows."""
HUGE = 8 * 1024**3
"""Bytes of a file that is mostly a hole."""


def reseal(folder: Path, name: str, content: bytes) -> None:
    """Write a file of a state, and a manifest that agrees with it."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def _tensors(name: str, change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / name)
        change(tensors)
        reseal(folder, name, save(tensors))

    return damage


def _state(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        state = json.loads((folder / "state.json").read_text())
        change(state)
        reseal(folder, "state.json", json.dumps(state).encode())

    return damage


def _content(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: reseal(folder, name, content)


def _header(length: int, text: bytes) -> bytes:
    return length.to_bytes(8, "little") + text


def _lying_header(folder: Path) -> None:
    """The first tensor claims to be a million times as large."""
    data = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    first = next(entry for name, entry in header.items() if name != "__metadata__")
    first["shape"] = [size * 1000 for size in first["shape"]]
    text = json.dumps(header).encode()
    reseal(folder, "model.safetensors", _header(len(text), text) + data[8 + length :])


def _sparse(folder: Path) -> None:
    """A file of 8 GB that takes no room on the disk. Its hash is not computed: nothing should read so far."""
    os.truncate(folder / "model.safetensors", HUGE)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["model.safetensors"]["size"] = HUGE
    (folder / "manifest.json").write_text(json.dumps(manifest))


def _also_names(name: str, entry: Mapping[str, Any]) -> Callable[[Path], None]:
    """A manifest that names one more file."""

    def damage(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["files"][name] = entry
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return damage


def _pipe(folder: Path) -> None:
    """A file that never ends, and never begins."""
    os.mkfifo(folder / "pipe")
    _also_names("pipe", {"size": 0, "sha256": hashlib.sha256(b"").hexdigest()})(folder)


def _elsewhere(folder: Path) -> None:
    """A file outside of the state, with the right hash."""
    content = b"another state's"
    (folder.parent / "elsewhere").write_bytes(content)
    entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    _also_names("../elsewhere", entry)(folder)


def _each(change: Callable[[torch.Tensor], torch.Tensor], of: str = "") -> Callable[[dict[str, torch.Tensor]], None]:
    """Change all tensors whose names end so."""

    def changed(tensors: dict[str, torch.Tensor]) -> None:
        tensors.update({name: change(tensor) for name, tensor in tensors.items() if name.endswith(of)})

    return changed


def _drop_first(tensors: dict[str, torch.Tensor]) -> None:
    del tensors[min(tensors)]


def _reshape_first(tensors: dict[str, torch.Tensor]) -> None:
    name = min(tensors)
    tensors[name] = torch.zeros(3, 5, 7)


def _foreign(tensors: dict[str, torch.Tensor]) -> None:
    tensors["transformer.of.another.model/exp_avg"] = torch.zeros(4)


def _set(group: str, name: str, value: Any) -> Callable[[Path], None]:
    return _state(lambda state: state[group].__setitem__(name, value))


DEEP_JSON = b"[" * DEEP + b"]" * DEEP

BEHIND_A_VALID_HASH: Mapping[str, Callable[[Path], None]] = {
    "weights: no tensors": _content("model.safetensors", _header(2, b"{}")),
    "weights: empty file": _content("model.safetensors", b""),
    "weights: text": _content("model.safetensors", b"version https://git-lfs.github.com/spec/v1\n" * 4),
    "weights: header of 2**60 bytes": _content("model.safetensors", _header(2**60, b"{}")),
    "weights: header that lies": _lying_header,
    "weights: header nested without end": _content("model.safetensors", _header(len(DEEP_JSON), DEEP_JSON)),
    "weights: a tensor is missing": _tensors("model.safetensors", _drop_first),
    "weights: a tensor of another shape": _tensors("model.safetensors", _reshape_first),
    "weights: 8 GB": _sparse,
    "weights: whole numbers": _tensors("model.safetensors", _each(lambda tensor: tensor.to(torch.int64))),
    "optimizer: moments in half precision": _tensors("optimizer.safetensors", _each(torch.Tensor.half, "/exp_avg")),
    "optimizer: negative squares": _tensors("optimizer.safetensors", _each(lambda t: -t.abs() - 1, "/exp_avg_sq")),
    "manifest: a file elsewhere": _elsewhere,
    "manifest: a device": _also_names("/dev/zero", {"size": 0, "sha256": ""}),
    "manifest: a pipe": _pipe,
    "manifest: no name of a file": _also_names("a\0b", {"size": 0, "sha256": ""}),
    "manifest: 8 GB": lambda folder: os.truncate(folder / "manifest.json", HUGE),
    "optimizer: text": _content("optimizer.safetensors", b"nothing of the kind"),
    "optimizer: of another model": _tensors("optimizer.safetensors", _foreign),
    "optimizer: a moment is missing": _tensors("optimizer.safetensors", _drop_first),
    "optimizer: a moment of another shape": _tensors("optimizer.safetensors", _reshape_first),
    "reference: of another model": _content("reference.safetensors", save({"another": torch.zeros(2)})),
    "state: empty": _content("state.json", b""),
    "state: null": _content("state.json", b"null"),
    "state: a list": _content("state.json", b"[1, 2]"),
    "state: nested without end": _content("state.json", DEEP_JSON),
    "state: no position": _state(lambda state: state.pop("progress")),
    "state: no knobs": _state(lambda state: state.pop("knobs")),
    "state: knobs are a text": _state(lambda state: state.update(knobs="none")),
    "state: an unknown knob": _set("knobs", "control/warp", 1.0),
    "state: a knob beyond its bounds": _set("knobs", "control/beta", 1e300),
    "state: a knob is a text": _set("knobs", "control/beta", "much"),
    "state: an unknown field": _set("progress", "mood", 1),
    "state: seed is a text": _set("progress", "seed", "seven"),
    "state: step is negative": _set("progress", "step", -4),
    "state: step is a fraction": _set("progress", "step", 1.5),
    "state: step of another state": _set("progress", "step", 99),
    "state: cursor is null": _set("progress", "cursor", None),
    "state: norms are a text": _set("progress", "norms", "abc"),
    "state: norms are negative": _set("progress", "norms", [-1.0]),
    "state: norms are no numbers": _set("progress", "norms", [float("nan")]),
    "state: the best step is negative": _set("progress", "best_step", -3),
    "state: beta scale is negative": _set("progress", "beta_scale", -1.0),
    "state: norms hold a list": _set("progress", "norms", [[1.0]]),
    "state: lineage is a list": _set("progress", "lineage", [0]),
    "state: lineage names no attempt": _set("progress", "lineage", {"first": 0}),
    "state: lineage holds a text": _set("progress", "lineage", {"0": "zero"}),
    "state: beta scale is infinite": _set("progress", "beta_scale", 1e999),
}
"""What is wrong, and how it is done to the folder of a state."""


def flip_a_bit(folder: Path, draw: random.Random) -> str:
    """Change one bit of one file of a state; returns which."""
    file = draw.choice([path for path in sorted(folder.iterdir()) if path.stat().st_size])
    data = bytearray(file.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    file.write_bytes(data)
    return file.name


def cut_short(folder: Path, draw: random.Random) -> str:
    """Cut one file of a state at a random length; returns which."""
    file = draw.choice([path for path in sorted(folder.iterdir()) if path.stat().st_size])
    os.truncate(file, draw.randrange(file.stat().st_size))
    return file.name


def drop_a_file(folder: Path, draw: random.Random) -> str:
    """Delete one file of a state; returns which."""
    file = draw.choice(sorted(folder.iterdir()))
    file.unlink()
    return file.name


OF_THE_BYTES: tuple[Callable[[Path, random.Random], str], ...] = (flip_a_bit, cut_short, drop_a_file)
