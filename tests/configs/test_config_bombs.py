"""Configurations of a few bytes that would take hours to read are refused, wherever a configuration is read."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from stabilizer.configs.bounds import TooMuch, load_toml
from stabilizer.configs.yaml_keys import MAX_NODES, compose, load
from stabilizer.core.json_text import MAX_NESTING
from stabilizer.preflight.check import Options, in_text
from stabilizer.training.config import load_config
from tests.bounded import stabilizer

LOG = Path(__file__).parents[1] / "trainers" / "samples" / "trl-transformers-5.log"


def merges(levels: int, wide: int) -> str:
    """Groups that merge the group before them several times."""
    lines = ["num_generations: 8", "a0: &a0 {x: 1}"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level}\n  <<: [{', '.join([f'*a{level - 1}'] * wide)}]")
    return "\n".join(lines) + "\n"


def aliases(levels: int, wide: int) -> str:
    lines = ["num_generations: 8", "a0: &a0 [x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * wide)}]" for level in range(1, levels)]
    return "\n".join(lines) + "\n"


BOMBS = {
    "merges.yaml": (merges(12, 9), "values and groups"),
    "aliases.yaml": (aliases(12, 9), "values and groups"),
    "chain.yaml": (merges(MAX_NESTING + 5, 1), "nested"),
    "deep.yaml": ("a: " + "[" * 100_000, "nested"),
    "wide.yaml": ("a: [" + "{}," * 2 * MAX_NODES + "]", "values and groups"),
    "digits.yaml": ("a: 1" + ":1" * 500_000 + "\n", "a number of 1,000,001 characters"),
    "cycle.yaml": ("a: &a {b: *a}\n", "nested in the group"),
    "dotted.toml": (".".join("a" * 500_000) + " = 1\n", "nested"),
    "quoted.toml": ("[" + ".".join(['"a"'] * 100_000) + "]\n", "nested"),
    "deep.toml": ("a = " + "[" * 500 + "]" * 500 + "\n", "nested"),
    "deeper.toml": ("a = " + "[" * 100_000 + "\n", "nested"),
    "deep.json": ('{"a": ' + "[" * 500 + "]" * 500 + "}", "nested"),
}


CASES = [("preflight", name) for name in BOMBS]
CASES += [("diagnose", name) for name in ("merges.yaml", "dotted.toml", "deep.json")] + [("train", "merges.yaml")]


@pytest.mark.parametrize("command,name", CASES)
def test_a_configuration_that_grows_without_end_is_refused_with_a_message(tmp_path, command, name):
    text, said = BOMBS[name]
    path = tmp_path / name
    path.write_text(text)
    done = stabilizer(command, *([LOG, "--config"] if command == "diagnose" else []), path, cpu_s=30)
    assert done.code == 2 and said in done.err and str(path) in done.err and "Traceback" not in done.err
    assert len(done.err.strip().splitlines()) == 1 and done.peak < 2**30


@pytest.mark.parametrize("text", [merges(6, 3), aliases(6, 3), "a: 1:30:00\nb: 123456789012345678901234567890\n"])
def test_a_configuration_with_a_few_aliases_and_merges_is_read(text):
    assert load(text) and compose(text)


@pytest.mark.parametrize("text", ["a: !!float ''\n", "a: 2021-99-99\n", f"a: !!float 1{':59' * 300}\n", "? [a]\n: 1\n"])
def test_a_value_that_its_tag_forbids_is_an_error_of_yaml(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match="c.yaml"):
        load_config(path)


def test_a_bomb_in_a_key_set_on_the_command_line_is_refused():
    with pytest.raises(ValueError, match=r"optim\.lr.*values and groups"):
        load_config("addition", ["optim.lr={a: &a [x,x,x,x], b: &b [" + "*a," * 30_000 + "]}"])


def test_keys_of_toml_with_dots_in_text_are_read():
    text = 'a.b.c = 1\nd = """' + "See www.example.org for it. " * 100 + '"""\n'
    assert load_toml(text)["a"] == {"b": {"c": 1}}


@pytest.mark.parametrize("load_text,text", [(load, "[{}]"), (load_toml, "a = [{}]")])
def test_yaml_and_toml_allow_the_same_depth(load_text, text):
    outer = 1 if load_text is load else 2
    inner = MAX_NESTING - outer
    assert load_text(text.format("[" * inner + "]" * inner))
    with pytest.raises(TooMuch, match="nested"):
        load_text(text.format("[" * (inner + 1) + "]" * (inner + 1)))


def test_a_megabyte_of_yaml_takes_two_seconds_at_most():
    text = json.dumps({f"key{n}": "x" * 40 for n in range(20_000)})
    started = time.process_time()
    load(text)
    assert time.process_time() - started < 2 * len(text) / 1e6 + 1


@pytest.mark.parametrize("text", ["--flag " * 30_000, "a.b.c=1 --flag x # y\n" * 10_000])
def test_many_flags_take_time_in_proportion_to_their_number(text):
    started = time.process_time()
    in_text(Path("pasted.txt"), text, Options(alone=True))
    assert time.process_time() - started < 4 * len(text) / 1e6 + 1
