"""Every table of names in the readers: its rows are asserted one by one somewhere, and lead to metrics we define."""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path

import pytest

from stabilizer import readers
from stabilizer.readers import hf_jsonl, load, notebook
from stabilizer.vocabulary import VOCABULARY

HERE = Path(__file__).parent
ASSERTED = {
    # table                             where each of its rows is
    "hf_jsonl.LLAMA_FACTORY_NAMES":    "test_name_tables.py",
    "names.GUESSES":                   "test_tables.py",
    "nemo_rl.NAMES":                   "test_trainer_logs.py",
    "nemo_rl.LABELS":                  "test_trainer_logs.py",
    "notebook._SPOKEN":                "test_name_tables.py",
    "openrlhf.NAMES":                  "test_trainer_logs.py",
    "openrlhf.INSTEAD":                "test_trainer_logs.py",
    "prime_rl.NAMES":                  "test_trainer_logs.py",
    "prime_rl.AGENT_NAMES":            "test_trainer_logs.py",
    "prime_rl_console.NAMES":          "test_trainer_logs.py",
    "rollouts.NAMES":                  "test_dumps.py",
    "skyrl.NAMES":                     "test_trainer_logs.py",
    "skyrl.INSTEAD":                   "test_trainer_logs.py",
    "trl_ppo.NAMES":                   "test_trl_ppo.py",
    "trl_ppo.INSTEAD":                 "test_trl_ppo.py",
    "trl_state.NAMES":                 "test_trl_state.py",
    "trl_state.OLD_NAMES":             "test_trl_state.py",
    "trl_state.PPO_NAMES":             "test_trl_state.py",
    "verl_names.NAMES":                "test_trainer_logs.py",
    "verl_names.INSTEAD":              "test_trainer_logs.py",
    "verl_names.SEARCH_R1_NAMES":      "test_trainer_logs.py",
    "verl_names.EASYR1_NAMES":         "test_trainer_logs.py",
    "verl_rollouts.VALIDATION_NAMES":  "test_dumps.py",
}  # fmt: skip
TO_THEIRS = {"hf_jsonl.LLAMA_FACTORY_NAMES", "nemo_rl.LABELS", "notebook._SPOKEN"}
"""Tables that lead to names of another trainer, which lead on to ours."""


def tables() -> dict[str, dict]:
    """Every table of names the readers have."""
    found = {}
    for module in pkgutil.iter_modules(readers.__path__):
        for name, value in vars(importlib.import_module(f"stabilizer.readers.{module.name}")).items():
            if isinstance(value, dict) and name.endswith(("NAMES", "INSTEAD", "LABELS", "GUESSES", "_SPOKEN")):
                found[f"{module.name}.{name}"] = value
    return found


def test_no_table_goes_unasserted():
    assert tables().keys() == ASSERTED.keys()
    for table, file in ASSERTED.items():
        module, _, name = table.rpartition(".")
        text = (HERE / file).read_text()
        assert name in text and (module in text or f"from stabilizer.readers.{module}" in text), table


@pytest.mark.parametrize("table", sorted(ASSERTED.keys() - TO_THEIRS - {"names.GUESSES"}))
def test_every_row_leads_to_a_metric_we_define(table):
    assert {ours for ours in tables()[table].values() if ours not in VOCABULARY} == set()


@pytest.mark.parametrize("theirs,trls", hf_jsonl.LLAMA_FACTORY_NAMES.items())
def test_each_name_of_llama_factory(tmp_path, theirs, trls):
    rows = [{"current_steps": 4 * n, "total_steps": 9, "loss": 0.5, "reward": 1.0, "lr": 2e-6} for n in (1, 2)]
    path = tmp_path / "trainer_log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = load(path)
    found = {"learning_rate": run.history.view().latest("optim/lr"), "step": run.history.view().step}
    assert found[trls] == rows[-1][theirs]


@pytest.mark.parametrize("theirs,trls", notebook._SPOKEN.items())
def test_each_head_a_notebook_spells_out(tmp_path, theirs, trls):
    head = "".join(f"<th>{name}</th>" for name in ("Step", "Training Loss", "reward", "Validation Loss"))
    body = "".join(f"<tr><td>{n}</td><td>0.25</td><td>1.0</td><td>0.75</td></tr>" for n in (1, 2, 3))
    page = f"<div>[3/3 00:01]</div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps({"cells": [{"outputs": [{"data": {"text/html": page}}]}], "nbformat": 4}))
    found = load(path).history.view()
    ours = {"loss": "policy/loss", "eval_loss": "trl/eval_loss"}[trls]
    assert found.latest(ours) == {"Training Loss": 0.25, "Validation Loss": 0.75}[theirs]
