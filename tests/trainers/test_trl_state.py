"""TRL's trainer_state.json: every name, every trap of its versions, and what is not an RL run."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError
from stabilizer.trainers.reading import load
from stabilizer.trainers.trl.state import NAMES, OLD_NAMES, PPO_NAMES, recognises
from tests.trainers.trl_logs import EXTRA, SUMMARY, record, state, write


def read(tmp_path: Path, version: str, **changes: object) -> LoadedRun:
    return load(write(tmp_path / "out", state(version, **changes)))


def value(run: LoadedRun, name: str) -> float | None:
    return run.history.view().latest(name)


def source(run: LoadedRun, name: str) -> str:
    return run.history.about["metrics"][name]["source"]


@pytest.mark.parametrize("theirs,ours", NAMES.items())
def test_each_name_of_0_17_and_later(tmp_path, theirs, ours):
    version = "0.20" if theirs == "kl" else "1.16"
    run = read(tmp_path, version)
    assert value(run, ours) == record(version, 40)[theirs]
    assert source(run, ours) == theirs


@pytest.mark.parametrize("theirs,ours", OLD_NAMES.items())
def test_each_name_of_0_14_to_0_16(tmp_path, theirs, ours):
    run = read(tmp_path, "0.16")
    assert value(run, ours) == record("0.16", 40)[theirs]
    assert source(run, ours) == theirs


@pytest.mark.parametrize("theirs,ours", PPO_NAMES.items())
def test_each_name_of_the_experimental_ppo(tmp_path, theirs, ours):
    run = read(tmp_path, "ppo")
    assert value(run, ours) == record("ppo", 40)[theirs]
    assert run.history.about["clock"] == "rollout_batch"


@pytest.mark.parametrize("table", [NAMES, OLD_NAMES, PPO_NAMES], ids=["new", "old", "ppo"])
def test_no_two_foreign_names_share_one_of_ours(table):
    assert len(set(table.values())) == len(table)


@pytest.mark.parametrize("version", EXTRA)
def test_no_key_of_a_log_is_lost(tmp_path, version):
    run = read(tmp_path, version)
    sources = {entry["source"] for entry in run.history.about["metrics"].values()}
    assert sources >= set(record(version, 1)) - {"step"}
    assert {source(run, name) for name in run.history.names()} == set(record(version, 1)) - {"step"}


@pytest.mark.parametrize(
    "version,name,expected",
    [
        ("0.14", "reward/right/mean", 0.4),
        ("0.14", "reward/form/mean", 0.9),
        ("0.17", "reward/right/mean", 0.4),
        ("0.17", "reward/right/std", 0.45),
        ("1.16", "trl/sampling/sampling_logp_difference/mean", 0.012),
        ("1.16", "trl/clip_ratio/low_min", 0.0),
        ("1.16", "trl/epoch", 0.4),
        ("ppo", "trl/objective/kl", 4.0),
        ("ppo", "trl/objective/entropy", 60.0),
    ],
)
def test_families_of_names_and_names_we_do_not_know(tmp_path, version, name, expected):
    assert value(read(tmp_path, version), name) == expected


def test_a_reward_function_with_a_slash_in_its_name_keeps_it(tmp_path):
    rows = [record("0.17", step, **{"rewards/org/model/mean": 0.2}) for step in range(1, 30)]
    assert value(read(tmp_path, "0.17", log_history=rows), "reward/org/model/mean") == 0.2


def test_a_log_with_old_and_new_length_takes_the_new(tmp_path):
    rows = [record("0.17", step, completion_length=1.0) for step in range(1, 30)]
    run = read(tmp_path, "0.17", log_history=rows)
    assert value(run, "rollout/length_mean") == 181.5 and value(run, "trl/completion_length") == 1.0


@pytest.mark.parametrize(
    "version,oldest", [("0.14", "0.14"), ("0.16", "0.16"), ("0.17", "0.17"), ("0.20", "0.20"), ("1.16", "0.26")]
)
def test_the_version_is_inferred_from_keys(tmp_path, version, oldest):
    assert read(tmp_path, version).history.about["versions"] == {"trl": f">={oldest}"}


@pytest.mark.parametrize(
    "version,card,name",
    [
        ("0.14", None, "reward/std_group"),
        ("0.20", None, "reward/std_group"),
        ("1.16", None, "reward/std"),
        ("1.16", "- TRL: 0.26.2", "reward/std_group"),
        ("1.16", "- TRL: 0.27.0", "reward/std"),
        ("0.20", "* TRL: 1.2.0.dev0", "reward/std"),
    ],
)
def test_reward_std_is_named_by_what_the_version_means(tmp_path, version, card, name):
    if card:
        write(tmp_path / "out", f"# Model\n\n### Framework versions\n\n{card}\n- Transformers: 5.0\n", "README.md")
    run = read(tmp_path, version)
    other = {"reward/std_group", "reward/std"} - {name}
    assert value(run, name) == 0.3 and value(run, other.pop()) is None
    assert any("0.26" in note for note in run.source.notes) == (version == "1.16" and card is None)


def test_batch_scaling_makes_reward_std_that_of_the_batch_in_any_version(tmp_path):
    config = write(tmp_path, {"scale_rewards": "batch"}, "c.json")
    run = load(write(tmp_path / "out", state("0.20")), config=config)
    assert value(run, "reward/std") == 0.3


def test_kl_that_is_zero_throughout_was_not_measured(tmp_path):
    rows = [record("0.20", step, kl=0.0) for step in range(1, 30)]
    run = read(tmp_path, "0.20", log_history=rows)
    assert value(run, "policy/kl_ref") is None and value(run, "trl/kl") == 0.0
    assert run.history.view().config("beta") == 0.0


def test_no_kl_in_the_log_means_beta_is_zero_unless_the_config_says_otherwise(tmp_path):
    assert read(tmp_path, "1.16").history.view().config("beta") == 0.0
    assert read(tmp_path, "0.20").history.view().config("beta") is None
    config = write(tmp_path, {"beta": 0.04}, "c.json")
    assert load(tmp_path / "out", config=config).history.view().config("beta") == 0.04


def test_a_signed_kl_is_called_k1(tmp_path):
    rows = [record("0.20", step, kl=0.01 * (-1) ** step) for step in range(1, 30)]
    about = read(tmp_path, "0.20", log_history=rows).history.about["metrics"]["policy/kl_ref"]
    assert (
        "k1" in about["estimator"]
        and "k3" in read(tmp_path, "0.20").history.about["metrics"]["policy/kl_ref"]["estimator"]
    )


def test_grad_norm_is_said_to_be_the_last_step_of_the_window(tmp_path):
    run = read(tmp_path, "0.20", log_history=state("0.20", every=10)["log_history"])
    assert "last optimizer step" in run.history.about["metrics"]["optim/grad_norm"]["aggregation"]
    assert any("every 10 steps" in note for note in run.source.notes)
    assert run.history.view().series("optim/grad_norm").steps.tolist()[:2] == [10, 20]


def test_nan_and_infinity_are_kept(tmp_path):
    rows = [record("0.20", 1), record("0.20", 2, grad_norm=math.nan), record("0.20", 3, loss=math.inf, kl=-math.inf)]
    view = read(tmp_path, "0.20", log_history=rows).history.view()
    assert math.isnan(view.series("optim/grad_norm").values[1])
    assert view.latest("policy/loss") == math.inf and view.latest("policy/kl_ref") == -math.inf


def test_null_is_nan_for_what_is_always_measured_and_a_gap_for_a_reward_function(tmp_path):
    rows = [record("0.17", 1), record("0.17", 2, kl=None, **{"rewards/right/mean": None})]
    view = read(tmp_path, "0.17", log_history=rows).history.view()
    assert math.isnan(view.series("policy/kl_ref").values[1])
    assert len(view.series("reward/right/mean")) == 1


def test_the_final_summary_is_not_a_step(tmp_path):
    run = read(tmp_path, "0.20")
    assert run.source.steps == 40 and run.source.skipped_lines == 0
    assert not any(SUMMARY.keys() & {name.removeprefix("trl/")} - {"epoch"} for name in run.history.names())


def test_rows_of_one_step_merge_and_evaluation_keeps_its_names(tmp_path):
    rows = []
    for step in range(1, 31):
        rows.append(record("0.20", step))
        if step % 10 == 0:
            rows.append({"step": step, "eval_reward": 0.6, "eval_rewards/right/mean": 0.5, "eval_loss": 0.1})
    run = read(tmp_path, "0.20", log_history=rows)
    assert run.source.steps == 30 and len(run.ticks) == 30
    view = run.history.view()
    assert view.series("trl/eval_reward").steps.tolist() == [10, 20, 30]
    assert "accuracy/val" not in view and any("eval_" in note for note in run.source.notes)


def test_a_step_that_goes_back_opens_an_attempt(tmp_path):
    rows = [record("0.20", step) for step in [*range(1, 21), *range(11, 31)]]
    run = read(tmp_path, "0.20", log_history=rows)
    assert sorted(run.histories) == [0, 1]
    assert run.histories[0].view().series("reward/mean").steps.tolist() == list(range(1, 21))
    assert run.history.view().series("reward/mean").steps.tolist() == list(range(1, 31))
    assert [(event.kind, event.step) for event in run.history.events] == [("resume", 11)]
    assert run.history.about["attempts"][1]["parent"] == 0


@pytest.mark.parametrize("version", ["sft", "dpo", "kto"])
def test_other_trainers_are_read_but_not_taken_for_rl(tmp_path, version):
    run = read(tmp_path, version)
    names = run.history.names()
    assert run.source.trainer == "transformers" and "optim/grad_norm" in names
    assert not [name for name in names if name.startswith(("reward/", "policy/", "rollout/"))]


def test_map_reads_a_key_as_the_metric_it_is(tmp_path):
    rows = [record("0.20", step, eval_acc=0.7) for step in range(1, 30)]
    path = write(tmp_path / "out", state("0.20", log_history=rows))
    run = load(path, mapping={"accuracy/val": "eval_acc", "policy/entropy": "kl"})
    assert value(run, "accuracy/val") == 0.7 and value(run, "policy/entropy") == 0.0006
    assert value(run, "trl/entropy") == 0.7, "the key that had the name keeps its own"
    with pytest.raises(RunError, match="eval_acc"):
        load(path, mapping={"accuracy/val": "eval_ac"})


# --- which file ----------------------------------------------------------------------------------------------------


def test_the_largest_checkpoint_counts_as_a_number(tmp_path):
    for last in (90, 100):
        write(tmp_path / f"out/checkpoint-{last}", state("0.20", rows=last))
    run = load(tmp_path / "out")
    assert run.source.steps == 100 and run.name == "out" and "checkpoint-100" in run.source.files[0]


@pytest.mark.parametrize("top,steps", [(120, 120), (50, 100)])
def test_the_state_that_reaches_furthest_counts(tmp_path, top, steps):
    write(tmp_path / "out/checkpoint-100", state("0.20", rows=100))
    write(tmp_path / "out", state("0.20", rows=top))
    assert load(tmp_path / "out").source.steps == steps


def test_a_damaged_checkpoint_is_skipped_with_a_note(tmp_path):
    write(tmp_path / "out/checkpoint-100", json.dumps(state("0.20"))[:500])
    write(tmp_path / "out/checkpoint-50", state("0.20", rows=50))
    run = load(tmp_path / "out")
    assert run.source.steps == 50 and any("checkpoint-100" in note for note in run.source.notes)


def test_the_name_is_that_of_the_output_folder(tmp_path, monkeypatch):
    write(tmp_path / "my-run/checkpoint-40", state("0.20"))
    assert load(tmp_path / "my-run/checkpoint-40").name == "my-run"
    assert load(write(tmp_path, state("0.20"), "saved.json")).name == "saved"
    monkeypatch.chdir(tmp_path / "my-run/checkpoint-40")
    assert load(Path("trainer_state.json")).name == load(Path(".")).name == "my-run"


def test_recognised_by_content_or_exact_name_only(tmp_path):
    assert recognises(write(tmp_path, state("0.20"), "whatever.txt"))
    assert recognises(write(tmp_path / "a", "{", "trainer_state.json"))
    assert not recognises(write(tmp_path / "b", {"log": []}, "state.json"))
    assert not recognises(write(tmp_path / "c", '{"step": 1}\n', "metrics.jsonl"))
    assert not recognises(tmp_path / "missing")


# --- configuration -------------------------------------------------------------------------------------------------


def test_configuration_from_each_kind_of_file(tmp_path):
    path = write(tmp_path / "out", state("0.20"))
    for name, text in (("c.json", '{"beta": 0.5}'), ("c.yaml", "beta: 0.5\n"), ("c.toml", "beta = 0.5\n")):
        assert load(path, config=write(tmp_path, text, name)).history.view().config("beta") == 0.5


def test_a_trainers_configuration_beside_the_log_is_found_and_a_models_is_not(tmp_path):
    write(tmp_path / "out/checkpoint-40", state("0.20"))
    write(tmp_path / "out/checkpoint-40", {"hidden_size": 64, "model_type": "llama"}, "config.json")
    assert load(tmp_path / "out").history.about["config"] == {}
    write(tmp_path / "out", {"num_generations": 8, "beta": 0.1}, "grpo_config.json")
    assert load(tmp_path / "out").history.view().config("num_generations") == 8


def test_yaml_without_pyyaml_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = write(tmp_path / "out", state("0.20"))
    with pytest.raises(RunError, match="pip install pyyaml"):
        load(path, config=write(tmp_path, "beta: 1\n", "c.yaml"))


@pytest.mark.parametrize(
    "name,text,said",
    [("c.json", "[1]", "mapping"), ("c.yaml", "a: [", "YAML"), ("c.toml", "a", "TOML"), ("c.ini", "a=1", "takes"),
     ("c.json", "{", "too early"), ("c.yaml", "!!python/object/apply:os.system ['true']", "YAML"),
     ("c.json", "", "empty")],
)  # fmt: skip
def test_a_bad_configuration_gives_a_message(tmp_path, name, text, said):
    path = write(tmp_path / "out", state("0.20"))
    with pytest.raises(RunError, match=said):
        load(path, config=write(tmp_path, text, name))


def test_a_missing_configuration_gives_a_message(tmp_path):
    with pytest.raises(RunError, match="no such file"):
        load(write(tmp_path / "out", state("0.20")), config=tmp_path / "none.yaml")


def test_rows_with_only_a_step_are_skipped(tmp_path):
    rows = [{"step": step} for step in range(1, 20)]
    with pytest.raises(RunError, match="no metrics in it"):
        load(write(tmp_path, state("0.20", log_history=rows)))
    rows += [record("0.20", step) for step in range(20, 40)]
    assert load(write(tmp_path, state("0.20", log_history=rows))).history.view().rows("reward/mean") == 20


@pytest.mark.parametrize("summary", [True, False])
def test_a_training_without_rewards_that_ended_before_is_left_out(tmp_path: Path, summary: bool) -> None:
    warmed = [{"loss": 1.5 - row / 10, "entropy": 1.4, "learning_rate": 2e-5, "epoch": row / 10} for row in range(8)]
    ended = [{"train_runtime": 60.0, "train_steps_per_second": 1.0, "train_loss": 0.9, "epoch": 1.0}] * summary
    paid = [{"loss": 0.0, "reward": row / 20, "entropy": 0.1, "learning_rate": 1e-6, "epoch": row} for row in range(12)]
    log = tmp_path / "train.log"
    log.write_text("".join(f"{record}\n" for record in (*warmed, *ended, *paid)))
    run = load(log)
    assert len(run.ticks) == (12 if summary else 20)
    assert any("9 lines of a training without rewards" in note for note in run.source.notes) is summary
