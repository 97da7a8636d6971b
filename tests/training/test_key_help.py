from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from stabilizer.core.nearest import OTHER_NAMES, nearest, nearest_key
from stabilizer.training.config import SCHEMA
from stabilizer.training.key_help import as_text, field_docstrings, groups


def test_every_key_is_in_the_help_with_type_default_and_reason():
    text = as_text()
    keys = {key.name: key for group in groups() for key in group.keys}
    assert list(keys) == list(SCHEMA) or set(keys) == set(SCHEMA)
    for name, key in keys.items():
        assert key.meaning and f"  {name}: {key.kind} (default" in text
    assert "optim.lr: a number (default 0.0004)" in text


def test_the_help_says_what_tasks_and_algorithms_set():
    lines = as_text(width=1000).splitlines()
    addition = next(line for line in lines if line.startswith("  addition: "))
    assert "steps=800, optim.lr=0.0008" in addition and "task=" not in addition
    ppo = next(line for line in lines if line.startswith("  ppo: "))
    assert "policy.advantage=gae" in ppo and "critic.kind=separate" in ppo


@dataclass(frozen=True)
class Inner:
    """A group."""

    share: float = 0.5
    """A share."""


@dataclass(frozen=True)
class Outer:
    """All."""

    name: str = ""
    """Of what
    it is."""
    inner: Inner = field(default_factory=Inner)
    """Things inside."""


def test_the_words_are_those_below_the_fields():
    assert field_docstrings(Outer) == {"name": "Of what it is.", "inner": "Things inside."}
    first, second = groups(Outer)
    assert [tuple(key) for key in first.keys] == [("name", "text", "", "Of what it is.")]
    assert (second.name, second.meaning) == ("inner", "Things inside.")
    assert [tuple(key) for key in second.keys] == [("inner.share", "a number", 0.5, "A share.")]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("optim.learning_rate", "optim.lr"),
        ("learning_rate", "optim.lr"),
        ("kl_coef", "policy.beta"),
        ("policy.kl_coef", "policy.beta"),
        ("num_generations", "rollout.group_size"),
        ("rollout.groupsize", "rollout.group_size"),
        ("temperture", "rollout.temperature"),
        ("data.promt_column", "data.prompt_column"),
        ("reward.function", "reward.functions"),
        ("max_new_tokens", "rollout.max_completion"),
        ("sed", "seed"),
        ("data", "data.path"),
    ],
)
def test_the_nearest_key_is_the_one_that_was_meant(wrong, meant):
    assert nearest_key(wrong, SCHEMA) == meant


def test_other_trainers_names_lead_to_keys_that_exist():
    assert set(OTHER_NAMES.values()) <= set(SCHEMA) and not set(OTHER_NAMES) & set(SCHEMA)


def test_nothing_alike_is_no_hint():
    assert nearest("promt", ["prompt", "answer"]) == "prompt"
    assert nearest("xyz", ["prompt", "answer"]) is None and nearest("x", []) is None
