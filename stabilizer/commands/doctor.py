"""`stabilizer doctor`: check the packages of this installation without importing them."""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import re
import sys
from importlib import metadata
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from stabilizer.core.version import __version__
from stabilizer.output.screen import console
from stabilizer.training.rollout.vllm_install import INSTALL, find_vllm

OLDEST_PYTHON = (3, 11)


class Need(NamedTuple):
    """A package, the oldest release that will do, and the extra of pyproject.toml it belongs to ("": none)."""

    package: str
    module: str
    oldest: str
    extra: str = ""


NEEDS = (
    Need("numpy", "numpy", "1.26"),
    Need("orjson", "orjson", "3.10"),
    Need("pyyaml", "yaml", "6.0.1"),
    Need("rich", "rich", "13.7"),
    Need("plotly", "plotly", "7.0"),
    Need("dash", "dash", "4.4.1"),
    Need("dash-mantine-components", "dash_mantine_components", "2.8"),
    Need("waitress", "waitress", "3.0"),
    Need("torch", "torch", "2.10", "train"),
    Need("transformers", "transformers", "5.0", "train"),
    Need("safetensors", "safetensors", "0.5", "train"),
    Need("jsonargparse", "jsonargparse", "4.40", "train"),
    Need("docstring-parser", "docstring_parser", "0.16", "train"),
    Need("peft", "peft", "0.18", "lora"),
    Need("gguf", "gguf", "0.17", "gguf"),
    Need("accelerate", "accelerate", "1.0", "gguf"),
    Need("bitsandbytes", "bitsandbytes", "0.50", "eight-bit"),
    Need("pyarrow", "pyarrow", "18", "data"),
    Need("datasets", "datasets", "3.0", "data"),
    Need("math-verify", "math_verify", "0.7", "math"),
    Need("mcp", "mcp", "2.0", "mcp"),
    Need("apprise", "apprise", "1.9", "notify"),
)
"""The same as in pyproject.toml, which a test ensures."""
PURPOSES = {
    "train": "`train`",
    "lora": "lora.rank",
    "gguf": "models in one GGUF file",
    "eight-bit": "optim.kind: adamw_8bit",
    "data": "Parquet files and Hugging Face data sets",
    "math": "the reward `boxed_math`",
    "mcp": "`mcp`, for agents",
    "notify": "`watch --notify` by e-mail and other services",
}
"""What each extra is for."""


class Check(NamedTuple):
    """The result of one check. `ok` is None when something optional is missing."""

    name: str
    ok: bool | None
    found: str
    advice: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This verb has no arguments of its own."""


def run(args: argparse.Namespace) -> int:
    """Print the checks; 1 when something required is missing or too old."""
    packages = [_package(need) for need in NEEDS]
    checks = [_python(), *packages, _vllm()]
    ok = all(check.ok is not False for check in checks)
    trains = all(check.ok for check, need in zip(packages, NEEDS, strict=True) if need.extra == "train")
    if args.json:
        rows = [check._asdict() for check in checks]
        print(json.dumps({"stabilizer": __version__, "ok": ok, "can_train": trains, "checks": rows}, indent=2))
        return int(not ok)
    out = console()
    out.print(Text(f"stabilizer {__version__} on {platform.system()} {platform.machine()}", "bold"))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    styles = {True: ("ok", "green"), False: ("PROBLEM", "bold red"), None: ("missing", "yellow")}
    for check in checks:
        word, style = styles[check.ok]
        table.add_row(Text(word, style), Text(check.name), Text(check.found), Text(check.advice, "dim"))
    out.print(table)
    reading = "Reading, diagnosing and reporting runs works." if ok else "Fix the problems above first."
    training = "Training works." if trains else "Training does not: run `pip install '.[train]'` in the project folder."
    out.print(Text(f"{reading} {training}"))
    return int(not ok)


def _python() -> Check:
    found = platform.python_version()
    ok = sys.version_info >= OLDEST_PYTHON
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return Check("python", ok, found, "" if ok else f"requires {oldest} or later")


def _package(need: Need) -> Check:
    here = importlib.util.find_spec(need.module) is not None
    try:
        found = metadata.version(need.package) if here else ""
    except metadata.PackageNotFoundError:
        found = "unknown version"
    upgrade = f"pip install '{need.package}>={need.oldest}'"
    if not here:
        return Check(
            need.package,
            None if need.extra else False,
            "",
            f"for {PURPOSES[need.extra]}: {upgrade}" if need.extra else upgrade,
        )
    if _numbers(found) and _numbers(found) < _numbers(need.oldest):
        return Check(need.package, False, found, f"requires {need.oldest} or later: {upgrade}")
    return Check(need.package, True, found, "")


def _vllm() -> Check:
    found = find_vllm()
    if found is None:
        return Check("vllm", None, "", f"for rollout.engine=vllm: {INSTALL}")
    return Check("vllm", not found.problem, found.version, found.problem)


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in release[0].split(".")) if release else ()
