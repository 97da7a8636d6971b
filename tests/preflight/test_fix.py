"""Corrected copies: the fewest keys, everything else as it was, and never worse than before."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import pytest
import yaml

from stabilizer.cli import main
from stabilizer.configs.config import ConfigError
from stabilizer.core.paths import sample_runs
from stabilizer.preflight.check import Options, preflight
from stabilizer.preflight.fix import corrected, default_target, edited, write

HERE = Path(__file__).parent
FILES = sorted([*sample_runs().glob("*/config.*"), *(HERE / "recipes").iterdir()])


def judged(tmp_path: Path, name: str, text: str, **said):
    path = tmp_path / name
    path.write_text(text)
    options = Options(**said)
    return preflight(path, options), options


def changed(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]


FORMS = {
    "a.yaml": "# mine\nmax_grad_norm: 0.0   # off\nnum_generations: 8\n",
    "a.sh": "trl grpo \\\n  --num_generations 8 \\\n  --max_grad_norm 0.0 # off\n",
    "a.py": "args = GRPOConfig(\n    num_generations=8,\n    max_grad_norm=0.0,  # off\n)\n",
    "a.toml": "num_generations = 8\nmax_grad_norm = 0.0 # off\n",
    "a.json": '{"num_generations": 8, "max_grad_norm": 0.0}',
}


@pytest.mark.parametrize("name", FORMS)
def test_a_value_is_replaced_where_it_stands(tmp_path, name: str) -> None:
    result, options = judged(tmp_path, name, FORMS[name], trainer="trl")
    fixed = corrected(result, options)
    assert [f.id for f in fixed.applied] == ["clip/grad-norm"]
    assert fixed.text == FORMS[name].replace("0.0", "1" if name == "a.sh" else "1.0")


@pytest.mark.parametrize("name", FORMS)
def test_a_key_that_is_not_written_is_added_and_read_back(tmp_path, name: str) -> None:
    result, _ = judged(tmp_path, name, FORMS[name], trainer="trl")
    text = edited(result.config, {"beta": 0.001})
    again, _ = judged(tmp_path, f"b{name}", text, trainer="trl")
    assert again.config.value("beta") == 0.001 and again.config.value("num_generations") == 8
    assert len(again.config.settings) == 3


@pytest.mark.parametrize("value", [1e-6, 1.0, 8, True, 2.5e-7])
@pytest.mark.parametrize("name", FORMS)
def test_what_is_written_is_read_back_the_same(tmp_path, name: str, value: object) -> None:
    result, _ = judged(tmp_path, name, FORMS[name], trainer="trl")
    again, _ = judged(tmp_path, f"b{name}", edited(result.config, {"max_grad_norm": value}), trainer="trl")
    assert again.config.value("max_grad_norm") == value


def test_a_new_key_goes_into_its_group(tmp_path) -> None:
    text = "worker:\n  actor:\n    optim:\n      lr: 1.0e-6\n  rollout:\n    n: 8\n"
    result, _ = judged(tmp_path, "a.yaml", text, trainer="easyr1")
    new = edited(result.config, {"worker.actor.global_batch_size": 64, "worker.rollout.top_p": 1.0})
    again, _ = judged(tmp_path, "b.yaml", new, trainer="easyr1")
    assert again.config.value("worker.actor.global_batch_size") == 64
    assert again.config.value("worker.rollout.top_p") == 1.0 and again.config.value("worker.actor.optim.lr") == 1e-6


def test_a_recipe_behind_a_command_is_overridden_in_the_command(tmp_path) -> None:
    (tmp_path / "r.yaml").write_text("beta: 0.001\nlearning_rate: 1.0e-3\n")
    result, options = judged(tmp_path, "run.sh", "python src/open_r1/grpo.py --config r.yaml --num_generations 8\n")
    fixed = corrected(result, options, only="lr/range")
    assert fixed.text == "python src/open_r1/grpo.py --config r.yaml --num_generations 8 --learning_rate 2e-06\n"


def test_plain_flags_stay_among_plain_flags(tmp_path) -> None:
    text = "python -m openrlhf.cli.train_ppo_ray --init_kl_coef 0 --actor_learning_rate 1e-3\n"
    result, _ = judged(tmp_path, "run.sh", text)
    assert edited(result.config, {"rollout.n_samples_per_prompt": 8}) == text.replace(
        "1e-3", "1e-3 --n_samples_per_prompt 8"
    )


def test_one_rule_alone(tmp_path) -> None:
    text = "num_generations: 8\nmax_grad_norm: 0.0\nlogging_steps: 100\n"
    result, options = judged(tmp_path, "a.yaml", text, trainer="trl")
    assert changed(text, corrected(result, options, only="logging/hides-spikes").text) == [
        "-logging_steps: 100", "+logging_steps: 1",
    ]  # fmt: skip
    assert len(changed(text, corrected(result, options).text)) == 4


def test_what_is_set_beside_the_file_is_left_to_the_person(tmp_path) -> None:
    result, options = judged(
        tmp_path, "a.yaml", "num_generations: 8\n", trainer="trl", overrides=("max_grad_norm=0.0",)
    )
    fixed = corrected(result, options)
    assert fixed.text == "num_generations: 8\n" and [f.id for f in fixed.left] == ["clip/grad-norm"]


@pytest.mark.parametrize("processes", [None, 1, 7, 8])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_copy_is_never_worse_and_needs_no_second_round(tmp_path, path: Path, processes: int | None) -> None:
    options = Options(processes=processes)
    before = preflight(path, options)
    fixed = corrected(before, options)
    copy = tmp_path / path.name
    copy.write_text(fixed.text)
    order = ("healthy", "info", "warn", "critical")
    assert order.index(fixed.after.verdict) <= order.index(before.verdict)
    told = Options(processes=processes, trainer=before.config.trainer.name, version=before.config.version_used)
    again = preflight(copy, told)
    assert corrected(again, told).text == fixed.text
    comments = [line.partition("#")[2] for line in path.read_text().splitlines() if "#" in line]
    assert [line.partition("#")[2] for line in fixed.text.splitlines() if "#" in line] == comments


def test_an_existing_file_is_not_overwritten_unless_it_is_the_configuration(tmp_path) -> None:
    source, other = tmp_path / "a.yaml", tmp_path / "b.yaml"
    source.write_text("old")
    source.chmod(0o640)
    other.write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        write(other, "new", source)
    assert other.read_text() == "mine"
    write(source, "new", source)
    assert source.read_text() == "new" and source.stat().st_mode & 0o777 == 0o640
    with pytest.raises(ConfigError, match="no such folder"):
        write(tmp_path / "x/y.yaml", "new", source)
    for name, target in (("loop.yaml", "loop.yaml"), ("dangling.yaml", "gone.yaml")):
        (tmp_path / name).symlink_to(target)
        with pytest.raises(ConfigError, match="exists already"):
            write(tmp_path / name, "new", source)
    with pytest.raises(ConfigError, match="can't be written there"):
        write(Path("/proc/a.yaml"), "new", source)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.yaml", "b.yaml", "dangling.yaml", "loop.yaml"]


def test_the_copy_lies_beside_the_configuration() -> None:
    assert default_target(Path("x/train_ppo.sh")) == Path("x/train_ppo.fixed.sh")


def test_a_file_is_edited_and_the_one_it_builds_on_is_not(tmp_path) -> None:
    base = "grpo:\n  num_prompts_per_step: 32\nloss_fn:\n  ratio_clip_min: 0.2\npolicy:\n  max_grad_norm: 0.0\n"
    (tmp_path / "base.yaml").write_text(base)
    result, options = judged(tmp_path, "mine.yaml", "defaults: base.yaml\ngrpo:\n  num_generations_per_prompt: 16\n")
    fixed = corrected(result, options, only="clip/grad-norm")
    assert fixed.text == result.config.parsed.text + "policy:\n  max_grad_norm: 1.0\n"
    assert (tmp_path / "base.yaml").read_text() == base


def test_a_change_that_the_trainer_would_refuse_is_taken_back(tmp_path) -> None:
    # 4 -> 32 prompts per update takes the rollouts from 12 to 32; and 12 divides 12 x 5, not 32 x 5
    text = (
        "data: {rollout_batch_size: 12}\nworker:\n  rollout: {n: 5}\n  actor:\n    global_batch_size: 4\n"
        "    micro_batch_size_per_device_for_experience: 12\n    micro_batch_size_per_device_for_update: 1\n"
    )
    result, options = judged(tmp_path, "a.yaml", text, trainer="easyr1")
    assert [f.id for f in result.findings if f.severity != "info"] == ["batch/too-few-prompts"]
    fixed = corrected(result, options)
    assert fixed.text == text and [f.id for f in fixed.left] == ["batch/too-few-prompts"]


ONLY_GROUPS = {
    "a.yaml": "worker:\n  actor:\n    optim:\n      lr: 1.0e-6\n  rollout:\n    n: 8\n",
    "b.yaml": "worker: {actor: {optim: {lr: 1.0e-6}}, rollout: {n: 8}}\n",
    "c.json": '{"worker": {\n\t"actor": {"optim": {"lr": 1.0e-6}}, "rollout": {"n": 8}}}\n',
}


@pytest.mark.parametrize("name", ONLY_GROUPS)
def test_a_new_key_leaves_those_of_its_group_in_force(tmp_path, name: str) -> None:
    result, _ = judged(tmp_path, name, ONLY_GROUPS[name], trainer="easyr1")
    change = {"worker.actor.global_batch_size": 64, "worker.rollout.top_p": 1.0, "trainer.a.b": 1, "trainer.a.c": 2}
    assert yaml.safe_load(edited(result.config, change).replace("\t", " ")) == {
        "worker": {
            "actor": {"optim": {"lr": 1e-6}, "global_batch_size": 64},
            "rollout": {"n": 8, "top_p": 1.0},
        },
        "trainer": {"a": {"b": 1, "c": 2}},
    }


def test_a_new_key_of_a_file_of_dotted_keys_is_dotted(tmp_path) -> None:
    result, _ = judged(tmp_path, "a.yaml", "worker.actor.optim.lr: 1.0e-6\nworker.rollout.n: 8\n", trainer="easyr1")
    assert "\nworker.actor.global_batch_size: 64\n" in edited(result.config, {"worker.actor.global_batch_size": 64})


def test_a_new_key_goes_beside_one_that_is_no_text(tmp_path) -> None:
    text = "? [a, b]\n: 1\nworker:\n  rollout:\n    n: 8\n"
    result, _ = judged(tmp_path, "a.yaml", text, trainer="easyr1")
    assert edited(result.config, {"trainer.save_freq": 5}) == f"{text}trainer:\n  save_freq: 5\n"


@pytest.mark.parametrize("group", ["{}", "", "null", "*base"])
def test_a_group_that_cannot_be_added_to_is_left_to_the_person(tmp_path, group: str) -> None:
    text = f"rollout: &base\n  n: 8\nworker:\n  actor: {group}\n  rollout:\n    n: 8\n"
    result, _ = judged(tmp_path, "a.yaml", text, trainer="easyr1")
    with pytest.raises(ConfigError, match="a.yaml:4: actor can't be added to"):
        edited(result.config, {"worker.actor.global_batch_size": 64})


def test_a_run_of_few_steps_is_saved_at_every_one_and_that_is_enough(tmp_path) -> None:
    path = HERE / "recipes" / "openrlhf_plain.sh"
    options = Options(prompts=1000, model_size=0.5)
    fixed = corrected(preflight(path, options), options)
    assert "watching/sparse" in {finding.id for finding in fixed.applied}
    assert not [finding.id for finding in fixed.left if finding.change]


def test_a_change_that_is_not_made_is_left_with_the_reason(tmp_path, capsys) -> None:
    text = (
        "algorithm:\n  adv_estimator: grpo\n"
        "actor_rollout_ref:\n  actor:\n    optim:\n      lr: 1.0e-5\n  rollout:\n    n: 8\n"
    )
    path = tmp_path / "a.yaml"
    path.write_text(text)
    assert main(["preflight", str(path), "--trainer", "verl", "--fix", "--only", "kl/no-anchor"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "kl/no-anchor was not changed: the change would bring trainer/rejects" in said
    assert main(["preflight", str(path), "--trainer", "verl", "--fix", "--only", "kl/no-anchor", "--json"]) == 1
    left = json.loads(capsys.readouterr().out)["fix"]["left"]
    assert "trainer/rejects" in left[0]["not_applied"]
