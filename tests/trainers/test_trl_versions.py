"""What a key of TRL's counts depends on the version, and so do the advice and the corrected copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from stabilizer.preflight.check import Options, preflight
from stabilizer.preflight.fix import corrected
from stabilizer.trainers.quantities import View

GRPO = "per_device_train_batch_size: 2\ngradient_accumulation_steps: 2\nnum_generations: 16\nlearning_rate: 1.0e-6\n"


def view(tmp_path: Path, text: str, version: str, name: str = "grpo.yaml") -> View:
    path = tmp_path / name
    path.write_text(text)
    return View(preflight(path, Options(trainer="trl", version=version, processes=4)).config)


@pytest.mark.parametrize(
    "version,prompts", [("0.14.0", 16), ("0.15.2", 1), ("0.16.1", 1), ("0.17.0", 1), ("0.18.0", 1), ("1.16.0", 1)]
)
def test_the_batch_per_device_counts_prompts_up_to_014_and_answers_later(tmp_path, version, prompts):
    assert view(tmp_path, GRPO, version).value("prompts_update") == prompts
    assert view(tmp_path, GRPO, version).value("prompts_rollout") == prompts


@pytest.mark.parametrize("version,accumulated", [("0.14.0", 8), ("1.16.0", 32)])
def test_a_corrected_copy_grows_the_batch_by_what_the_version_counts(tmp_path, version, accumulated):
    path = tmp_path / "grpo.yaml"
    path.write_text("per_device_train_batch_size: 1\ngradient_accumulation_steps: 1\nnum_generations: 4\n")
    options = Options(trainer="trl", version=version, processes=4)
    fixed = corrected(preflight(path, options), options)
    assert f"gradient_accumulation_steps: {accumulated}\n" in fixed.text


@pytest.mark.parametrize("version,updates", [("0.17.0", 1), ("0.18.0", 4)])
def test_a_key_that_a_version_does_not_have_changes_nothing_in_it(tmp_path, version, updates):
    assert view(tmp_path, GRPO + "steps_per_generation: 8\n", version).value("updates") == updates


@pytest.mark.parametrize("version,group,prompts", [("0.21.0", 4, 4), ("0.22.2", 16, 1)])
def test_the_group_of_rloo_has_another_key_before_022(tmp_path, version, group, prompts):
    found = view(tmp_path, GRPO + "rloo_k: 4\n", version, "rloo.yaml")
    assert found.value("group_size") == group and found.value("prompts_update") == prompts
