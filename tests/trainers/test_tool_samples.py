"""Logs that trainers' own code wrote: every version is read, and the console tells the same run as the file."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from stabilizer.runs.reader import RunError
from stabilizer.trainers.reading import load

SAMPLES = Path(__file__).parent / "tool_samples"


@pytest.mark.parametrize(
    "name,oldest,std",
    [("trl-0.14", ">=0.14", "reward/std_group"), ("trl-0.19", ">=0.18", "reward/std_group"),
     ("trl-0.26", ">=0.26", "reward/std"), ("trl-1.16", ">=0.26", "reward/std")],
)  # fmt: skip
def test_each_version_of_trl_is_read_from_its_state_and_from_its_console(name, oldest, std):
    for path, format in ((SAMPLES / name, "trl_trainer_state"), (SAMPLES / f"{name}.log", "trl_console")):
        run = load(path)
        view = run.history.view()
        assert (run.source.format, run.source.trainer, run.source.steps) == (format, "trl", 6)
        assert view.series("optim/grad_norm").steps.tolist() == [1, 2, 3, 4, 5, 6] and view.about("steps") == 6
        assert view.about("versions") == {"trl": oldest} and std in view and "policy/kl_ref" in view


@pytest.mark.parametrize("name", ["trl-0.14", "trl-0.19", "trl-0.26"])
def test_the_console_of_trl_has_the_numbers_of_its_state(name):
    _same(load(SAMPLES / name), load(SAMPLES / f"{name}.log"), digits=2e-3, but=("trl/epoch",))


@pytest.mark.parametrize(
    "name,trainer,kl",
    [("verl-0.3.0.log", "verl", None), ("search-r1.log", "verl", None), ("verl-0.5.0.log", "verl", 0.00031),
     ("verl-0.9.1.log", "verl", 0.00031), ("verl-0.9.1.jsonl", "verl", 0.00031), ("easyr1", "easyr1", 0.00031),
     ("easyr1.log", "easyr1", None)],
)  # fmt: skip
def test_what_the_loggers_of_verl_and_its_kin_write_is_read(name, trainer, kl):
    run = load(SAMPLES / name)
    view = run.history.view()
    assert (run.source.trainer, run.source.steps) == (trainer, 4)
    assert view.latest("policy/kl_ref") == (kl if kl is None else pytest.approx(kl, rel=0.1)), "0.000 is no KL"
    assert view.latest("reward/mean") == pytest.approx(0.4625, abs=1e-3)
    assert view.latest("optim/grad_norm") == pytest.approx(0.187, rel=0.1)
    assert math.isnan(view.series("policy/loss").values[2])


def test_the_console_of_verl_has_the_numbers_of_its_file():
    _same(load(SAMPLES / "verl-0.9.1.jsonl"), load(SAMPLES / "verl-0.9.1.log"), digits=0)
    _same(load(SAMPLES / "verl-0.5.0.log"), load(SAMPLES / "verl-0.9.1.log"), digits=0)


def test_the_console_of_easyr1_has_the_numbers_and_the_configuration_of_its_file():
    file, console = load(SAMPLES / "easyr1"), load(SAMPLES / "easyr1.log")
    rounded = ("policy/kl_ref", "policy/kl_old")
    _same(file, console, digits=6e-4, but=rounded)
    assert not set(rounded) & set(console.history.names())
    assert console.history.view().config("worker.actor.optim.lr") == 1e-6
    assert console.history.about["config"] == file.history.about["config"] and console.history.about["steps"] == 100


def test_the_event_file_of_openrlhf_has_the_numbers_of_its_console():
    console = load(SAMPLES / "openrlhf-0.11.2.log")
    events = load(SAMPLES / "events.out.tfevents.1700000000.openrlhf-0.11.2")
    assert console.source.trainer == events.source.trainer == "openrlhf"
    assert console.source.steps == events.source.steps == 4
    ours = {name for name in console.history.names() if not name.startswith("openrlhf/")}
    assert ours == {name for name in events.history.names() if not name.startswith("openrlhf/")}
    assert {"optim/grad_norm", "policy/kl_ref", "reward/std_group", "accuracy/val", "time/step_s"} <= ours
    for name in ours:
        left, right = (run.history.view().series(name) for run in (console, events))
        assert left.steps.tolist() == right.steps.tolist(), name
        assert np.allclose(left.values, right.values, rtol=1e-6, equal_nan=True), name  # event files hold float32
    assert math.isnan(console.history.view().series("policy/loss").values[2])


def _same(one, other, *, digits, but=()):
    """Two logs of one training hold the same numbers, as far as the second prints them."""
    assert set(one.history.names()) - set(but) == set(other.history.names()) - set(but)
    for name in set(one.history.names()) - set(but):
        left, right = (run.history.view().series(name) for run in (one, other))
        assert left.steps.tolist() == right.steps.tolist(), name
        assert np.allclose(left.values, right.values, rtol=digits, atol=digits, equal_nan=True), name


@pytest.mark.parametrize("value", ["!!float ''", "!!int 'x'", "!!timestamp '1'", "[", "&a *b"])
def test_a_damaged_configuration_is_none_in_a_log_and_a_message_in_a_file(value, tmp_path):
    text = (SAMPLES / "easyr1.log").read_text()
    (tmp_path / "easyr1.log").write_text(text.replace("lr: 1.0e-06", f"lr: {value}", 1))
    assert load(tmp_path / "easyr1.log").history.about["config"] == {}
    (tmp_path / "config.yaml").write_text(f"lr: {value}\n")
    with pytest.raises(RunError, match="not readable as YAML"):
        load(SAMPLES / "easyr1.log", config=tmp_path / "config.yaml")
