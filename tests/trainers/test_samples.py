"""A hand-written log a trainer and version, with the noise around it: what is read from each."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from stabilizer.trainers.reading import load

SAMPLES = Path(__file__).parent / "samples"
EXPECTED = {
    # file                     format              trainer         steps  reward/mean  optim/lr  clock
    "verl-0.3.log":           ("verl_console",     "verl",          2,    0.312,       None,    "rollout_batch"),
    "verl-0.5.log":           ("verl_console",     "verl",          4,    0.4401,      1e-6,    "rollout_batch"),
    "verl-0.9.log":           ("verl_console",     "verl",          2,    0.4401,      1e-6,    "rollout_batch"),
    "verl-file.jsonl":        ("verl_file",        "verl",          2,    0.4401,      1e-6,    "rollout_batch"),
    "search-r1.log":          ("verl_console",     "search_r1",     2,    0.301,       None,    "rollout_batch"),
    "easyr1":                 ("easyr1",           "easyr1",        3,    0.45,        1e-6,    "rollout_batch"),
    "easyr1-console.log":     ("easyr1",           "easyr1",        2,    0.45,        1e-6,    "rollout_batch"),
    "trl-transformers-4.log": ("trl_console",      "trl",           2,    0.45,        9.8e-7,  "optimizer_step"),
    "trl-transformers-5.log": ("trl_console",      "trl",           2,    0.45,        9e-7,    "optimizer_step"),
    "openrlhf.log":           ("openrlhf_console", "openrlhf",      2,    0.45,        1e-6,    "rollout_batch"),
    "skyrl.log":              ("skyrl_console",    "skyrl",         2,    0.45,        None,    "rollout_batch"),
    "nemo-rl.log":            ("nemo_rl_console",  "nemo_rl",       2,    0.45,        None,    "rollout_batch"),
    "prime-rl":               ("prime_rl",         "prime_rl",      2,    0.45,        1e-6,    "optimizer_step"),
    "prime-rl-logs":          ("prime_rl_console", "prime_rl",      3,    0.4312,      1e-6,    "optimizer_step"),
    "verl-dumps":             ("verl_rollouts",    "verl",          4,    0.5,         None,    "rollout_batch"),
    "ms-swift.jsonl":         ("hf_jsonl",         "ms-swift",      2,    0.45,        9.8e-7,  "optimizer_step"),
    "ms-swift.log":           ("ms_swift_console", "ms-swift",      2,    0.45,        9.8e-7,  "optimizer_step"),
    "slime.log":              ("slime_console",    "slime",         2,    0.45,        1e-6,    "rollout_batch"),
    "areal.log":              ("areal_console",    "areal",         2,    0.45,        1.7e-5,  "rollout_batch"),
    "roll.log":               ("roll_console",     "roll",          2,    0.45,        1e-6,    "rollout_batch"),
    "llama-factory.jsonl":    ("hf_jsonl",         "llama-factory", 2,    0.45,        9.8e-7,  "optimizer_step"),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_each_sample_is_read_as_what_it_is(name):
    format, trainer, steps, reward, lr, clock = EXPECTED[name]
    run = load(SAMPLES / name)
    view = run.history.view()
    assert (run.source.format, run.source.trainer, run.source.steps) == (format, trainer, steps)
    assert view.latest("reward/mean") == reward and view.latest("optim/lr") == lr and view.about("clock") == clock


def test_every_sample_is_expected():
    assert {path.name for path in SAMPLES.iterdir() if path.name != "README.md"} == set(EXPECTED)


@pytest.mark.parametrize(
    "name,metric,step",
    [("verl-0.5.log", "optim/grad_norm", 2), ("verl-0.9.log", "value/explained_variance", 1),
     ("verl-file.jsonl", "policy/loss", 2), ("easyr1", "optim/grad_norm", 2), ("prime-rl", "policy/loss", 2),
     ("easyr1-console.log", "optim/grad_norm", 2), ("trl-transformers-4.log", "optim/grad_norm", 2),
     ("prime-rl-logs", "optim/grad_norm", 2), ("slime.log", "optim/grad_norm", 1)],
)  # fmt: skip
def test_a_nan_is_a_nan_however_it_is_written(name, metric, step):
    series = load(SAMPLES / name).history.view().series(metric)
    assert math.isnan(dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))[step])


def test_the_samples_have_their_notes_and_settings():
    assert load(SAMPLES / "ms-swift.log").history.view().latest("policy/entropy") == 0.31
    assert load(SAMPLES / "verl-0.5.log").history.view().config("beta") == 0.001
    assert load(SAMPLES / "verl-0.5.log").source.skipped_lines == 1
    assert load(SAMPLES / "easyr1").history.view().config("beta") == 0.01
    assert load(SAMPLES / "openrlhf.log").history.view().latest("accuracy/val") == 0.41
    assert load(SAMPLES / "verl-0.9.log").history.events[-1].data["failure"] == "oom"
    assert [step for _, step in load(SAMPLES / "trl-transformers-5.log").ticks] == [5, 10]
