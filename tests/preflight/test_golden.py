"""The case studies' configurations: what preflight says of each, and what the corrected copy says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stabilizer.core.paths import sample_runs
from stabilizer.preflight.check import Options, preflight
from stabilizer.preflight.fix import corrected

HERE = Path(__file__).parent
RECIPES = sorted((HERE / "recipes").iterdir())


def golden(name: str, **said):
    options = Options(**said)
    return preflight(sample_runs() / name, options), options


def loud(result) -> list[tuple[str, str]]:
    return [(f.id, f.key) for f in result.findings if f.severity != "info"]


def remarks(result) -> set[str]:
    return {f.id for f in result.findings if f.severity == "info"}


def finding(result, id: str):
    return next(f for f in result.findings if f.id == id)


def test_easyr1_few_prompts_two_kl_keys_and_no_validation() -> None:
    result, options = golden("case-easyr1/config.yaml")
    assert result.config.trainer.name == "easyr1" and "early 2025" in result.config.version_why
    assert loud(result) == [
        ("batch/too-few-prompts", "worker.actor.global_batch_size"),
        ("watching/sparse", "trainer.val_freq"),
        ("watching/sparse", "trainer.save_freq"),
    ]
    assert remarks(result) == {"kl/placement", "lr/conservative", "recipe/differs"}
    few = finding(result, "batch/too-few-prompts")
    assert few.line == 16 and few.change == {"worker.actor.global_batch_size": (8, 32)}
    assert "no contradiction" in finding(result, "kl/placement").summary
    fixed = corrected(result, options)
    assert loud(fixed.after) == [] and "global_batch_size: 32  # the recipe has 128" in fixed.text
    assert "lr: 1.0e-6" in fixed.text, "the learning rate is advice, last of all"


def test_trl_without_beta_is_seen_before_the_first_step() -> None:
    result, options = golden("case-trl-beta0/config.py")
    assert result.config.version_used == "0.17.0", "the keys were gone in 0.18"
    assert loud(result) == [("kl/no-anchor", "beta"), ("updates/off-policy", "num_iterations")]
    anchor = finding(result, "kl/no-anchor")
    assert anchor.change == {"beta": (0.0, 0.001)} and anchor.line == 24
    assert "before clipping" in anchor.why and "restart" in anchor.how
    assert "optimizer/eight-bit" in remarks(result)
    fixed = corrected(result, options, only="kl/no-anchor")
    assert "beta=0.001,  # no KL" in fixed.text and "num_iterations=4" in fixed.text
    assert loud(corrected(result, options).after) == []


def test_a_long_run_is_counted_from_the_data() -> None:
    result, _ = golden("case-trl-beta0/config.py", processes=1, prompts=50_000)
    # 16 x 4 x 1 / 16 = 4 prompts an update, each learned from 4 times: 50,000 x 4 / 4 = 50,000 steps
    assert "50,000 steps" in finding(result, "kl/no-anchor").summary


def test_search_r1_halved_batches_are_told_from_memory_knobs() -> None:
    result, options = golden("case-search-r1/config.sh")
    assert loud(result) == [("batch/smaller-than-recipe", "actor_rollout_ref.actor.ppo_mini_batch_size")]
    halved = finding(result, "batch/smaller-than-recipe")
    assert "memory is saved by actor.ppo_micro_batch_size" in halved.why
    warmup = finding(result, "lr/warmup-long")
    assert "286 steps" in warmup.summary and "at step 120 it is 42%" in warmup.summary
    assert "watching/sparse" in remarks(result)
    fixed = corrected(result, options)
    changed = [
        (a.strip(), b.strip())
        for a, b in zip(result.config.parsed.text.splitlines(), fixed.text.splitlines(), strict=True)
        if a != b
    ]
    assert changed == [
        ("data.train_batch_size=256 \\", "data.train_batch_size=512 \\"),
        (
            "actor_rollout_ref.actor.ppo_mini_batch_size=128 \\",
            "actor_rollout_ref.actor.ppo_mini_batch_size=256 \\",
        ),
    ]


@pytest.mark.parametrize(
    "version,valid",
    [("0.15.2", [7]), ("0.17.0", [7, 4, 14, 2, 28])],  # 7 x 1 = 7; since 0.17 accumulation counts: 7 x 1 x 4 = 28
)
def test_open_r1_seven_processes_get_every_valid_number_nearest_first(version: str, valid: list[int]) -> None:
    result, options = golden("case-open-r1/config.sh", version=version)
    assert result.config.trainer.name == "open-r1" and result.config.processes == 7
    assert result.verdict == "critical"
    refused = finding(result, "trainer/rejects")
    assert refused.key == "num_generations" and refused.change == {"num_generations": (8, valid[0])}
    others = next((text for text in refused.alternatives if text.startswith("num_generations")), "")
    assert [int(n) for n in re.findall(r"\d+", others)] == valid[1:]
    assert "1 is not a valid number" in refused.why and "vLLM" in refused.why
    after = corrected(result, options).after
    assert "trainer/rejects" not in {f.id for f in after.findings}


def test_the_tldr_example_on_one_process_has_one_prompt_an_update() -> None:
    result, _ = golden("length-vs-published/config.py", processes=1)
    few = finding(result, "batch/too-few-prompts")
    # 8 per device x 1 process x 1 accumulated / 8 answers = 1
    assert few.severity == "warn" and few.summary.startswith("1 prompt behind each update")
    engine = finding(result, "generation/no-engine")
    assert "range" in engine.why and "reward" in engine.why


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_an_official_recipe_yields_no_warning(path: Path) -> None:
    said = re.search(r"^# preflight: (.*)$", path.read_text(), re.M)
    words = dict(re.findall(r"--(\w+) (\S+)", said.group(1))) if said else {}
    processes = int(words["processes"]) if "processes" in words else None
    result = preflight(path, Options(processes=processes, version=words.get("version")))
    assert loud(result) == [], [f.summary for f in result.findings]
    assert result.config.trainer.name.replace("-", "_") in path.stem or path.stem == "experiment_config"


def test_recipes_of_all_trainers_are_there() -> None:
    from stabilizer.trainers.configs import TRAINERS

    names = " ".join(path.stem for path in RECIPES)
    assert [t.name for t in TRAINERS if t.name.replace("-", "_") not in names] == []
