"""Every table of names in the readers: its rows are asserted one by one somewhere, and lead to metrics we define."""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path

import pytest

from stabilizer import formats, trainers
from stabilizer.core.metrics import VOCABULARY
from stabilizer.formats import shapes
from stabilizer.trainers.reading import load
from stabilizer.trainers.trl import jsonl

HERE = Path(__file__).parent
ASSERTED = {
    # table                             where each of its rows is
    "trainers.trl.jsonl.LLAMA_FACTORY_NAMES":    "test_name_tables.py",
    "trainers.other.guesses.GUESSES":                   "test_tables.py",
    "trainers.areal.log.NAMES":                     "test_trainer_logs.py",
    "trainers.areal.log.INSTEAD":                   "test_trainer_logs.py",
    "trainers.roll.log.NAMES":                      "test_trainer_logs.py",
    "trainers.roll.log.INSTEAD":                    "test_trainer_logs.py",
    "trainers.slime.log.NAMES":                     "test_trainer_logs.py",
    "trainers.slime.log.INSTEAD":                   "test_trainer_logs.py",
    "trainers.nemo_rl.log.NAMES":                   "test_trainer_logs.py",
    "trainers.nemo_rl.log.LABELS":                  "test_trainer_logs.py",
    "formats.shapes.SPOKEN":                "test_name_tables.py",
    "trainers.openrlhf.log.NAMES":                  "test_trainer_logs.py",
    "trainers.openrlhf.log.INSTEAD":                "test_trainer_logs.py",
    "trainers.prime_rl.log.NAMES":                  "test_trainer_logs.py",
    "trainers.prime_rl.log.AGENT_NAMES":            "test_trainer_logs.py",
    "trainers.prime_rl.console.NAMES":          "test_trainer_logs.py",
    "formats.samples.NAMES":                  "test_dumps.py",
    "trainers.stabilizer.console.NAMES":         "test_own.py",
    "trainers.skyrl.log.NAMES":                     "test_trainer_logs.py",
    "trainers.skyrl.log.INSTEAD":                   "test_trainer_logs.py",
    "trainers.trl.old_ppo.NAMES":                   "test_trl_ppo.py",
    "trainers.trl.old_ppo.INSTEAD":                 "test_trl_ppo.py",
    "trainers.trl.state.NAMES":                 "test_trl_state.py",
    "trainers.trl.state.OLD_NAMES":             "test_trl_state.py",
    "trainers.trl.state.PPO_NAMES":             "test_trl_state.py",
    "trainers.verl.names.NAMES":                "test_trainer_logs.py",
    "trainers.verl.names.INSTEAD":              "test_trainer_logs.py",
    "trainers.verl.names.SEARCH_R1_NAMES":      "test_trainer_logs.py",
    "trainers.verl.names.EASYR1_NAMES":         "test_trainer_logs.py",
    "trainers.verl.rollouts.VALIDATION_NAMES":  "test_dumps.py",
}  # fmt: skip
TO_THEIRS = {"trainers.trl.jsonl.LLAMA_FACTORY_NAMES", "trainers.nemo_rl.log.LABELS", "formats.shapes.SPOKEN"}
"""Tables that lead to names of another trainer, which lead on to ours."""


def tables() -> dict[str, dict]:
    """Every table of names the readers have."""
    found = {}
    for package in (formats, trainers):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith(".config"):
                continue  # keys of a configuration, not metrics of a log
            for name, value in vars(importlib.import_module(module.name)).items():
                table = isinstance(value, dict) and name.endswith(("NAMES", "INSTEAD", "LABELS", "GUESSES", "SPOKEN"))
                if table and not any(value is known for known in found.values()):  # another module may import it
                    found[f"{module.name.removeprefix('stabilizer.')}.{name}"] = value
    return found


def test_no_table_goes_unasserted():
    assert tables().keys() == ASSERTED.keys()
    for table, file in ASSERTED.items():
        module, _, name = table.rpartition(".")
        text = (HERE / file).read_text()
        assert name in text and module.rpartition(".")[2] in text, table


@pytest.mark.parametrize("table", sorted(ASSERTED.keys() - TO_THEIRS - {"trainers.other.guesses.GUESSES"}))
def test_every_row_leads_to_a_metric_we_define(table):
    assert {ours for ours in tables()[table].values() if ours not in VOCABULARY} == set()


@pytest.mark.parametrize("theirs,trls", jsonl.LLAMA_FACTORY_NAMES.items())
def test_each_name_of_llama_factory(tmp_path, theirs, trls):
    rows = [{"current_steps": 4 * n, "total_steps": 9, "loss": 0.5, "reward": 1.0, "lr": 2e-6} for n in (1, 2)]
    path = tmp_path / "trainer_log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = load(path)
    found = {"learning_rate": run.history.view().latest("optim/lr"), "step": run.history.view().step}
    assert found[trls] == rows[-1][theirs]


@pytest.mark.parametrize("theirs,trls", shapes.SPOKEN.items())
def test_each_head_a_notebook_spells_out(tmp_path, theirs, trls):
    head = "".join(f"<th>{name}</th>" for name in ("Step", "Training Loss", "reward", "Validation Loss"))
    body = "".join(f"<tr><td>{n}</td><td>0.25</td><td>1.0</td><td>0.75</td></tr>" for n in (1, 2, 3))
    page = f"<div>[3/3 00:01]</div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps({"cells": [{"outputs": [{"data": {"text/html": page}}]}], "nbformat": 4}))
    found = load(path).history.view()
    ours = {"loss": "policy/loss", "eval_loss": "trl/eval_loss"}[trls]
    assert found.latest(ours) == {"Training Loss": 0.25, "Validation Loss": 0.75}[theirs]
