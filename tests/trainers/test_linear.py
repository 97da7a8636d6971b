"""No text that somebody may hand in takes a reader longer than its size allows: twice the text, twice the time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SIZE = 1_000_000
SECONDS = 8
"""Of the processor, beside starting Python: each input is looked at several times, and this machine may be slow."""


def filled(piece: str) -> str:
    return (piece * (SIZE // len(piece) + 1))[:SIZE]


def notebook(page: str, times: int = 1) -> str:
    return json.dumps({"nbformat": 4, "cells": [{"outputs": [{"data": {"text/html": page}}] * times}]})


VERL = "step:1 - actor/grad_norm:1.0 - critic/score/mean:0.5\n"
TRL = "{'loss': 0.1, 'reward': 0.5, 'kl': 0.1, 'epoch': 0.1}\n"
NEMO = "========================= Step 1/10 =========================\n"
INPUTS = {
    "tables.ipynb": notebook(filled("<table")),
    "rows.ipynb": notebook(filled("<table><tr>")),
    "cells.ipynb": notebook("<table><tr>" + filled("<td>") + "</table>"),
    "tags.ipynb": notebook("<table" + "<" * 5000, 200),
    "repeated.log": VERL + " " * SIZE + "across cluster]\n" + VERL,
    "items.log": TRL + filled("{'loss': 0.1, ") + "\n" + TRL,
    "quotes.log": TRL + "{'loss': 0.1, " + filled("'x': ") + "}\n" + TRL,
    "rules.log": NEMO + filled("=") + "\n" + NEMO,
    "head.csv": '"step","' + filled(" - a")[:120_000] + '\n"\n1,2\n2,3\n',
    "current.jsonl": filled('{"current_steps":1 '),
    "table.toml": 'x = """\n[' + " " * 20_000 + '\n"""\n',
    "brackets.jsonl": filled("[ "),
    "escapes.log": filled("\x1b]"),
    "plain.log": filled("Error "),
}  # fmt: skip
CHILD = """
import resource, sys
from pathlib import Path
from stabilizer.trainers.reading import load
from stabilizer.configs.config import ConfigError
from stabilizer.configs.reading import read
from stabilizer.runs.reader import RunError
seconds = int(resource.getrusage(resource.RUSAGE_SELF).ru_utime) + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
path = Path(sys.argv[1])
try:
    read(path) if path.suffix == ".toml" else load(path)
except (RunError, ConfigError) as error:
    print(error)
"""


@pytest.mark.parametrize("name", INPUTS)
def test_a_megabyte_made_to_be_slow_is_read_or_refused_in_seconds(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(INPUTS[name])
    command = [sys.executable, "-c", CHILD, str(file), str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)  # noqa: S603
    assert done.returncode == 0, f"{name}: {done.stderr[-500:] or 'out of time'}"
