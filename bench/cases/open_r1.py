"""Seven processes and eight answers (Open-R1): every command of the case is started in the TRL of its time.

Seven processes on a processor, with the flags of `config.sh`, a tiny model and no vLLM. First as the user had it, then
as `preflight --fix` and `plan` write it, and as published answers advise. What TRL prints on refusing is given to
`diagnose`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bench.cases import shared
from bench.cases.shared import SAMPLES, Tell
from bench.environment import CACHE, install, python_of, says_yes
from stabilizer.analysis.analyse import analyse
from stabilizer.preflight.check import Options, preflight
from stabilizer.preflight.fix import corrected
from stabilizer.runs.loaded import NoMetrics
from stabilizer.trainers.reading import load

NAME = "case-open-r1"
TRL, TRANSFORMERS, ACCELERATE = "0.15.2", "4.49.0", "1.4.0"
"""What `pip install trl` gave at the time of the thread (February 2025)."""
PROCESSES, GPUS = 7, 8
STARTER = Path(__file__).with_name("start_trl.py")
LONGEST_S = 900
"""Seconds after which a start is given up."""


def measure(seeds: Sequence[int], tell: Tell, *, record: bool = True) -> None:
    """Start every command; nothing is recorded and no seed is drawn."""
    python = environment(tell)
    measured = {}
    for words, flags in commands().items():
        printed = started(python, flags)
        measured[f"{words} ({_shown(flags)})" if flags else words] = said(printed)
        tell(f"{words}: {said(printed)}")
    shared.write(NAME, measured=measured)


def commands() -> dict[str, Mapping[str, Any]]:
    """What is started: in words, and the flags in which it differs from the user's command."""
    checked = preflight(SAMPLES / NAME / "config.sh", Options(version=TRL))
    fixed = {
        key: new
        for finding in corrected(checked, Options(version=TRL)).applied
        for key, (_, new) in finding.change.items()
    }
    words = (
        f"plan --trainer open-r1 --version {TRL} --gpus {GPUS} --vllm server --num-generations 8 --model-size 1.5B"
        " --limit 1 --json"
    )
    ran = subprocess.run([sys.executable, "-m", "stabilizer", *words.split()], capture_output=True, text=True)  # noqa: S603
    planned = json.loads(ran.stdout)["plans"][0]["config"]
    return {
        "The user's command": {},
        "As `preflight --fix` writes it": fixed,
        "As the first of `plan` has it": {
            key: planned[key]
            for key in ("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations")
        },
        "With eight answers on each GPU": {"per_device_train_batch_size": 8},
        "With more accumulation alone": {"gradient_accumulation_steps": 8},
        "With one answer a prompt": {"num_generations": 1},
    }


def _shown(flags: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in flags.items())


def environment(tell: Tell) -> Path:
    """The Python of an environment with that TRL, which is made first where there is none."""
    folder = Path(os.environ.get("STABILIZER_OLD_TRL", CACHE / f"trl-{TRL}"))
    python = python_of(folder)
    if says_yes(python, f"import trl, sys; sys.exit(trl.__version__ != {TRL!r})"):
        return python
    tell(f"making {folder} with trl {TRL} (once; some minutes)")
    venv.create(folder, with_pip=True, clear=True)
    plain = f"torch=={torch.__version__.split('+')[0]}"
    pinned = (f"trl=={TRL}", f"transformers=={TRANSFORMERS}", f"accelerate=={ACCELERATE}", "rich")
    if failed := install(python, plain) or install(python, plain, *pinned):
        raise ValueError(
            f"{folder}: trl=={TRL} could not be installed: {failed}; make the environment elsewhere and name it with"
            " STABILIZER_OLD_TRL=FOLDER"
        )
    return python


def started(python: Path, flags: Mapping[str, Any]) -> str:
    """What seven processes print that begin to train with these flags."""
    changed = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
    command = [
        python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(PROCESSES), STARTER,
        SAMPLES / NAME / "config.sh", *changed,
    ]  # fmt: skip
    quiet = {
        "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "1", "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error",
    }  # fmt: skip
    ran = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, env=os.environ | quiet, timeout=LONGEST_S,
    )  # fmt: skip
    return ran.stdout + ran.stderr


def said(printed: str) -> str:
    """The answer of TRL in a sentence; of a refusal also what `diagnose` names."""
    if done := re.search(r"^(trl .* steps done, .*)$", printed, re.MULTILINE):
        return f"starts: {done[1]}"
    refused = re.search(r"ValueError: (.*)", printed)
    if not refused:
        return f"failed otherwise: {printed.strip().splitlines()[-1] if printed.strip() else 'nothing printed'}"
    rule = refused[1].split(". ")[0]
    return f"refused: {rule}; `diagnose` of this output: {diagnosed(printed)}"


def diagnosed(printed: str) -> str:
    """The first finding of `diagnose`, and the fix it names first."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        log.write_text(printed, encoding="utf-8")
        try:
            run = load(log)
        except NoMetrics as error:
            run = error.run
        found = analyse(run).findings
    if not found:
        return "nothing"
    fix = found[0].remedies[0].how.split(" (")[0] if found[0].remedies else "no fix"
    return f"{found[0].id}, {fix}"
