"""One table a trainer says where a setting stands: advice writes there, diagnosis and compare read there."""

from __future__ import annotations

from pathlib import Path

import pytest

from stabilizer import trainers
from stabilizer.compare.differences import SETTINGS
from stabilizer.core.records import RemedyAdvice
from stabilizer.incidents.diagnosis.case import Case
from stabilizer.runs.history import History
from stabilizer.trainers.all import FAMILIES, TRAINERS, find, plain
from stabilizer.trainers.knobs import how
from stabilizer.trainers.settings import configured, keys_of

ADVISED = [trainer for trainer in TRAINERS if trainer.advice]
SWITCHES = {"control/filter_groups", "control/mask_truncated"}
WORKED_OUT = {"control/minibatches", "control/prompts"}
"""Knobs that may follow from several keys of a trainer."""
NESTED = {("openrlhf", "control/epsilon_high")}
"""One of two numbers in a list."""
VALUE = 0.375


def single(trainer) -> dict[str, str]:
    """Knob -> the key that holds its value, of all knobs that advice can turn by one key."""
    found = {knob: trainer.keys_of("lr" if knob == "control/lr_scale" else knob[8:]) for knob in trainer.advice.keys}
    return {knob: keys[0] for knob, keys in found.items() if keys}


@pytest.mark.parametrize("trainer", ADVISED, ids=lambda trainer: trainer.id)
def test_only_switches_and_what_several_keys_make_have_no_key_of_their_own(trainer):
    without = set(trainer.advice.keys) - set(single(trainer))
    assert without <= SWITCHES | WORKED_OUT | {knob for id, knob in NESTED if id == trainer.id}


@pytest.mark.parametrize("trainer", ADVISED, ids=lambda trainer: trainer.id)
def test_advice_diagnosis_and_compare_know_the_same_knobs(trainer):
    for knob, key in single(trainer).items():
        quantity = "lr" if knob == "control/lr_scale" else knob.removeprefix("control/")
        advice = RemedyAdvice("x", "soft", {knob: (VALUE, VALUE)}, "", "")
        assert key in how(trainer.id, advice, {}, onset=1), knob
        history = History({"trainer": trainer.id, "config": {key: VALUE}})
        history.append(1, {"reward/mean": 0.5})
        if quantity != "lr":  # diagnosis takes the rate from the log
            assert Case((), history.view()).setting(knob) == VALUE, knob
        setting = next(setting for setting in SETTINGS if setting.id == quantity)
        assert key in setting.keys(trainer.id), knob


def test_a_trainers_own_key_goes_before_that_of_another():
    first = [key for key in keys_of("group_size", "search_r1") if key.startswith("actor_rollout_ref")]
    assert first == ["actor_rollout_ref.rollout.n_agent", "actor_rollout_ref.rollout.n"]


def test_the_keys_of_older_versions_are_known_too():
    assert "n_samples_per_prompt" in keys_of("group_size", "openrlhf")


@pytest.mark.parametrize("name", ["search_r1", "search-r1", "Search_R1", "searchr1"])
def test_a_trainer_is_found_under_each_spelling_of_its_name(name):
    assert find(name).id == "search_r1"


def test_no_two_trainers_share_a_name():
    names = [plain(name) for trainer in TRAINERS for name in (trainer.id, *trainer.aliases)]
    assert len(set(names)) == len(names)
    assert all(plain(trainer.schema.name) == plain(trainer.id) for trainer in TRAINERS if trainer.schema)


def test_every_folder_of_a_trainer_is_in_the_list():

    folders = {path.name for path in Path(trainers.__path__[0]).iterdir() if path.is_dir()}
    assert len(folders - {"__pycache__"}) == len(FAMILIES)


def test_a_quantity_is_worked_out_from_the_keys_that_are_written() -> None:
    written = {"actor_rollout_ref.actor.ppo_mini_batch_size": 128, "data.train_batch_size": 256}
    assert configured(written, "verl", "prompts_update") == 128
    nested = {"actor_rollout_ref": {"actor": {"ppo_mini_batch_size": 128}}}
    assert configured(nested, "verl", "prompts_update") == 128
    assert configured({"data.train_batch_size": 256}, "verl", "prompts_update") is None, "a default of some version"
    assert configured(written, "nobody", "prompts_update") is None
    for odd in (None, [], {"actor_rollout_ref": {"actor": {"ppo_mini_batch_size": "many"}}}):
        assert configured(odd, "verl", "prompts_update") is None
