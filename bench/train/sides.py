"""The two trainers as long-lived processes that make steps when asked to, and the environment TRL lives in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import stabilizer
from bench.environment import CACHE, install, python_of, says_yes

TRL_VERSION = "1.16.0"
TRL_CACHE = CACHE / f"trl-{TRL_VERSION}"

BEFORE = "0"
"""A token that is repeated before every prompt in a race with long prompts."""

Row = dict[str, float]


def environment(threads: int) -> dict[str, str]:
    """What both sides run under: idle threads sleep, because two trainers on the same cores must not spin."""
    package = str(Path(stabilizer.__file__).parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    }


def trl_python(folder: Path, tell: Callable[[str], None]) -> Path:
    """The Python of an environment with TRL in it, which is made first where there is none."""
    python = python_of(folder)
    if _has_trl(python):
        return python
    import torch

    tell(f"making {folder} with torch {torch.__version__} and trl {TRL_VERSION} (once; some minutes)")
    venv.create(folder, with_pip=True, clear=True)
    # torch first and at this side's version: TRL alone would bring another one, and gigabytes of CUDA with it
    versions = [f"torch=={torch.__version__}", f"torch=={torch.__version__.split('+')[0]}"]
    failed = None
    for version in versions:
        failed = install(python, version)
        if failed is None:
            failed = install(python, version, f"trl=={TRL_VERSION}")
            break
    if failed is not None:
        raise ValueError(
            f"{folder}: trl=={TRL_VERSION} and torch=={torch.__version__} could not be installed: {failed}; "
            "without a network, make the environment elsewhere and name it with --env FOLDER"
        )
    return python


def _has_trl(python: Path) -> bool:
    return says_yes(python, f"import trl, sys; sys.exit(trl.__version__ != {TRL_VERSION!r})")


class Side:
    """One trainer process. `start` a job, ask for `steps`, `stop` it; then the next job."""

    def __init__(self, name: str, python: Path, threads: int, more: Mapping[str, Any] = MappingProxyType({})):
        self.name = name
        self._more = more
        self._errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(  # noqa: S603
            [python, "-m", f"bench.train.{'trl' if name == 'trl' else 'ours'}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=environment(threads),
        )  # fmt: skip

    def start(self, job: dict[str, Any]) -> dict[str, Any]:
        """Load the model and wait; versions and number of parameters."""
        return self._ask({**job, **self._more})

    def steps(self, count: int) -> list[Row]:
        """Make this many steps; a row of measurements for each."""
        return self._ask({"steps": count})

    def stop(self) -> None:
        """End the job."""
        self._write({"stop": True})

    def close(self) -> None:
        """End the process."""
        try:
            self._process.stdin.close()
            self._process.wait(timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _ask(self, request: dict[str, Any]) -> Any:
        self._write(request)
        answer = self._process.stdout.readline()
        if not answer:
            raise ValueError(f"the process of {self.name} ended: {self._last_words()}")
        return json.loads(answer)

    def _write(self, request: dict[str, Any]) -> None:
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise ValueError(f"the process of {self.name} ended: {self._last_words()}") from None

    def _last_words(self) -> str:
        self._process.wait(timeout=30)
        self._errors.seek(0)
        return "\n".join(self._errors.read().strip().splitlines()[-15:])


def all_sides(trl: Path, threads: int) -> tuple[Side, Side, Side]:
    """This trainer, the same without its fast path, and TRL."""
    own = Path(sys.executable)
    return Side("ours", own, threads), Side("plain", own, threads, {"fast": "off"}), Side("trl", trl, threads)
