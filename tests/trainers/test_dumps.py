"""Dumps of completions: veRL's JSON lines and TRL's Parquet, the group statistics in them, and the texts."""

from __future__ import annotations

import builtins
import json
import math
import os
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest

from stabilizer.analysis.importing import write_run
from stabilizer.core.records import Sample
from stabilizer.formats import samples
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError, RunReader, read_records
from stabilizer.trainers.places import find
from stabilizer.trainers.reading import load
from stabilizer.trainers.verl import rollouts as verl_rollouts
from tests.trainers.console_logs import verl

HERE = Path(__file__).parent
VERL, TRL = HERE / "samples" / "verl-dumps", HERE / "tool_samples" / "trl-1.16"
NAN = math.nan


def row(step: int = 1, prompt: str = "p", text: str = "a b", score: Any = 1.0, **more: Any) -> dict[str, Any]:
    """One completion as veRL dumps it."""
    return {"input": prompt, "output": text, "gts": "7", "score": score, "step": step, **more}


def dump(folder: Path, step: int, rows: list[Any]) -> Path:
    """The file of a step; a row that is text is a line as it stands."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{step}.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in rows))
    return path


def latest(run: LoadedRun, name: str) -> float | None:
    return run.history.view().latest(name)


def names(run: LoadedRun) -> set[str]:
    return set(run.history.names())


def said(run: LoadedRun) -> str:
    return " | ".join(run.source.notes)


# --- the statistics --------------------------------------------------------------------------------------------------

GROUPS = {"all right": (1, 1), "none": (0, 0), "half": (1, 0)}
"""Two answers to each of three prompts. "none" gave the same text twice, and one of its words six times."""
ROWS = [
    row(prompt=prompt, text="no no no no no no" if prompt == "none" else f"x{'y' * (4 * score)} {place}", score=score)
    for place in range(2)
    for prompt, scores in GROUPS.items()
    for score in [scores[place]]
]
EXPECTED = {
    "reward/mean": 0.5,
    "reward/std": statistics.stdev([1, 1, 0, 0, 1, 0]),
    "reward/std_group": (0 + 0 + statistics.stdev([1, 0])) / 3,
    "reward/zero_std_frac": 2 / 3,
    "reward/all_fail_frac": 1 / 3,
    "reward/all_pass_frac": 1 / 3,
    "accuracy/train": 0.5,
    # lengths 7, 17, 7, 7, 17, 3 against rewards 1, 0, 1, 1, 0, 0: covariance -8, squares 520/3 and 1.5
    "rollout/length_reward_corr": -8 / (520 / 3 * 1.5) ** 0.5,
    # five pairs of "no no" and one different: 1 - 1/5 in two of six completions
    "rollout/repetition": 2 * 0.8 / 6,
    # the groups' distinct texts: 2 of 2, 1 of 2, 2 of 2
    "rollout/distinct": 2.5 / 3,
    "batch/prompts": 3,
    "batch/group_size": 2,
}


@pytest.mark.parametrize("theirs,ours", samples.NAMES.items())
def test_each_statistic_of_a_dump_equals_a_manual_calculation(tmp_path, theirs, ours):
    run = load(dump(tmp_path, 1, ROWS).parent)
    assert latest(run, ours) == pytest.approx(EXPECTED[ours])
    assert run.history.about["metrics"][ours]["source"] == theirs


@pytest.mark.parametrize("theirs,ours", verl_rollouts.VALIDATION_NAMES.items())
def test_each_name_of_a_dump_of_validation(tmp_path, theirs, ours):
    run = load(dump(tmp_path, 1, [{**line, "reward": line["score"]} for line in ROWS]).parent)
    assert latest(run, ours) == pytest.approx({"accuracy/val": 0.5, "accuracy/val_passk": 2 / 3}[ours])
    assert run.history.about["metrics"][ours]["source"] == theirs
    assert "reward/mean" not in names(run) and run.source.format == "verl_validation"


def test_no_two_statistics_share_one_of_our_names():
    assert len(set(samples.NAMES.values())) == len(samples.NAMES)


def test_lengths_are_characters_and_keep_a_name_that_says_so(tmp_path):
    run = load(dump(tmp_path, 1, ROWS).parent)
    assert latest(run, "verl/characters/max") == 17 and "rollout/length_mean" not in names(run)


def test_every_number_of_a_dump_says_what_it_was_made_of(tmp_path):
    metrics = load(dump(tmp_path, 1, ROWS).parent).history.about["metrics"]
    assert "pairs of words" in metrics["rollout/repetition"]["estimator"]
    assert "not tokens" in metrics["rollout/length_reward_corr"]["estimator"]
    assert all("dump" in metrics[name]["aggregation"] for name in samples.NAMES.values())


def test_one_completion_a_prompt_has_no_group_statistics(tmp_path):
    run = load(dump(tmp_path, 1, [row(prompt=str(n), score=n % 2) for n in range(4)]).parent)
    assert latest(run, "reward/mean") == 0.5 and latest(run, "batch/group_size") == 1
    assert not names(run) & {"reward/std_group", "reward/zero_std_frac", "rollout/distinct", "reward/all_fail_frac"}


def test_rewards_between_0_and_1_do_not_decide_what_is_right(tmp_path):
    dump(tmp_path, 1, ROWS)
    run = load(dump(tmp_path, 2, [row(2, score=0.5), row(2, score=1.0)]).parent)
    assert not names(run) & {"reward/all_fail_frac", "reward/all_pass_frac", "accuracy/train"}
    assert "which answers are right is not known" in said(run)
    assert {sample.solved for step in (1, 2) for sample in run.texts.read(step)} == {None}


def test_acc_decides_what_is_right_whatever_the_reward(tmp_path):
    run = load(dump(tmp_path, 1, [row(score=-1.0, acc=False), row(score=0.3, acc=True)]).parent)
    assert latest(run, "accuracy/train") == 0.5 and latest(run, "reward/all_fail_frac") == 0.0
    assert [sample.solved for sample in run.texts.read(1)] == [False, True]


def test_nan_and_infinite_rewards_are_evidence(tmp_path):
    run = load(dump(tmp_path, 1, [row(score=NAN), row(score=0.5), row(prompt="q", score=1), row(prompt="q")]).parent)
    assert math.isnan(latest(run, "reward/mean")) and latest(run, "reward/zero_std_frac") == 1.0
    run = load(dump(tmp_path, 1, [row(score=math.inf), row(score=0.5)]).parent)
    assert latest(run, "reward/mean") == math.inf


def test_words_of_a_script_without_spaces_are_its_characters(tmp_path):
    run = load(dump(tmp_path, 1, [row(text="答案答案答案答案")]).parent)
    assert latest(run, "rollout/repetition") == pytest.approx(1 - 2 / 7)


# --- veRL ------------------------------------------------------------------------------------------------------------


def test_one_prompt_is_one_group_wherever_its_rows_are():
    run = load(VERL / "rollout")
    assert latest(run, "batch/prompts") == 3 and latest(run, "batch/group_size") == 4
    groups = [sample.group for sample in run.texts.read(1)]
    assert groups == sorted(groups) and len(groups) == 12


def test_one_question_with_two_truths_is_two_groups(tmp_path):
    run = load(dump(tmp_path, 1, [row(gts="1"), row(gts="2"), row(gts="1"), row(gts="2")]).parent)
    assert latest(run, "batch/prompts") == 2


def test_what_the_reward_function_returned_is_kept_under_its_name():
    run = load(VERL / "rollout")
    assert latest(run, "reward/format_reward/mean") == 0.875 and latest(run, "verl/acc/mean") == 0.5
    assert load(VERL / "rollout", mapping={"accuracy/val": "acc/mean"}).history.view().latest("accuracy/val") == 0.5


def test_the_clock_and_the_estimator_are_recorded():
    about = load(VERL / "rollout").history.about
    assert about["clock"] == "rollout_batch" and about["metrics"]["reward/mean"]["source"] == "reward/mean"


def test_a_dump_before_0_5_without_ground_truths_is_read(tmp_path):
    old = [{key: value for key, value in line.items() if key != "gts"} for line in ROWS]
    assert latest(load(dump(tmp_path, 1, old).parent), "reward/zero_std_frac") == pytest.approx(2 / 3)


def test_steps_are_those_of_the_records_in_the_order_of_numbers():
    assert [step for _, step in load(VERL / "rollout").ticks] == [1, 2, 10]


def test_a_single_file_of_a_dump_is_one_step():
    run = load(VERL / "rollout" / "10.jsonl")
    assert run.source.format == "verl_rollouts" and [step for _, step in run.ticks] == [10]


@pytest.mark.parametrize(
    "line",
    ['{"input": "p", "output": "cut o', "null", "[]", '"text"', '{"input": 3, "output": "x", "score": 1, "step": 1}',
     '{"input": "p", "output": null, "score": 1, "step": 1}', '{"input": "p", "output": "x", "score": "1", "step": 1}',
     '{"input": "p", "output": "x", "score": null, "step": 1}', '{"input": "p", "output": "x", "score": 1}',
     '{"input": "p", "output": "x", "score": 1, "step": -1}', '{"input": "p", "output": "x", "score": 1, "step": 1.5}'],
)  # fmt: skip
def test_a_line_that_is_no_completion_is_counted(tmp_path, line):
    run = load(dump(tmp_path, 1, [*ROWS, line]).parent)
    assert run.source.skipped_lines == 1 and latest(run, "reward/mean") == 0.5 and "1 lines left out" in said(run)


def test_an_empty_file_among_others_is_a_step_without_completions(tmp_path):
    dump(tmp_path, 2, [])
    assert [step for _, step in load(dump(tmp_path, 1, ROWS).parent).ticks] == [1]


def test_a_line_longer_than_any_completion_is_left_out_piece_by_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(verl_rollouts, "MAX_LINE", 400)
    run = load(dump(tmp_path, 1, [*ROWS, row(text="z" * 5000)]).parent)
    assert latest(run, "verl/characters/max") == 17 and run.source.skipped_lines > 1


def test_a_step_too_large_for_memory_is_skipped_with_a_note(tmp_path, monkeypatch):
    dump(tmp_path, 2, [row(2, text="z" * 5000)])
    monkeypatch.setattr(verl_rollouts, "MAX_FILE", 4000)
    run = load(dump(tmp_path, 1, ROWS).parent)
    assert [step for _, step in run.ticks] == [1] and "skipped: 2.jsonl" in said(run)


def test_a_folder_of_other_numbered_json_is_not_a_dump(tmp_path):
    dump(tmp_path, 1, [{"step": 1, "reward": 0.5}, {"step": 2, "reward": 0.6}])
    assert load(tmp_path).source.format == "json"


def test_files_an_earlier_attempt_left_behind_are_not_read(tmp_path):
    for step in range(1, 7):
        path = dump(tmp_path, step, [{**line, "step": step} for line in ROWS])
        written = 1e9 + (3600 if step <= 4 else 0) + step  # steps 1-4 were taken again an hour later
        os.utime(path, (written, written))
    run = load(tmp_path)
    assert [step for _, step in run.ticks] == [1, 2, 3, 4] and "2 files from 5.jsonl on are older" in said(run)


def test_files_copied_in_another_order_are_all_read(tmp_path):
    for place, step in enumerate([1, 10, 11, 2, 3]):
        path = dump(tmp_path, step, [{**line, "step": step} for line in ROWS])
        os.utime(path, (1e9 + place, 1e9 + place))
    assert load(tmp_path).source.steps == 5


def test_hostile_texts_are_kept_as_they_are(tmp_path):
    text = "<script>alert(1)</script>\x1b[31m\u202e\ud800"
    run = load(dump(tmp_path, 1, [row(text=text, prompt=text), row(text=text, prompt=text)]).parent)
    assert run.texts.read(1)[0].completion == text


# --- with the log of the same training -------------------------------------------------------------------------------


def console(folder: Path, steps: list[int]) -> None:
    lines = [verl(step, {"critic/score/mean": 0.25, "response_length/mean": 90.0}) for step in steps]
    (folder / "run.log").write_text("".join(lines))


def test_a_log_and_its_dumps_are_one_training(tmp_path):
    shutil.copytree(VERL, tmp_path / "out")
    console(tmp_path / "out", [1, 2, 3, 10])
    run = load(tmp_path / "out")
    assert run.source.format == "verl_console" and [step for _, step in run.ticks] == [0, 1, 2, 3, 10]
    assert latest(run, "reward/mean") == 0.25  # the trainer's own number goes before
    assert latest(run, "reward/zero_std_frac") == pytest.approx(2 / 3) and latest(run, "accuracy/val") is not None
    assert "words" in run.history.about["metrics"]["rollout/repetition"]["estimator"]
    assert run.texts.steps == (0, 1, 2, 10) and run.texts.read(10)[0].step == 10 and run.texts.read(3) == []
    assert len(run.texts.read(10)) == 12  # of training, not of the validation at the same step
    assert "rollout" in said(run) and "not used" not in said(run)


def test_a_dump_of_training_is_preferred_to_one_of_validation():
    assert load(VERL).source.format == "verl_rollouts" and latest(load(VERL), "accuracy/val") is not None


def test_a_dump_belongs_to_the_newest_attempt_of_a_log(tmp_path):
    shutil.copytree(VERL / "rollout", tmp_path / "rollout")
    console(tmp_path, [1, 2, 3, 4, 2, 3])
    run = load(tmp_path)
    assert run.ticks == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 10)]
    assert run.history.view(2).latest("reward/zero_std_frac") is not None
    assert run.histories[0].view().latest("reward/zero_std_frac") is None


def test_a_dump_of_another_trainer_is_set_aside(tmp_path):
    shutil.copytree(VERL / "rollout", tmp_path / "rollout")
    shutil.copy(TRL / "trainer_state.json", tmp_path)
    run = load(tmp_path)
    assert run.source.trainer == "trl" and run.texts.steps == () and "not used" in said(run)


def test_two_dumps_of_training_are_two_trainings(tmp_path):
    for name in ("a", "b"):
        shutil.copytree(VERL / "rollout", tmp_path / name)
    with pytest.raises(RunError, match="2 logs of the format verl_rollouts"):
        load(tmp_path)


def test_a_list_of_logs_names_a_dump_once(tmp_path):
    shutil.copytree(VERL / "rollout", tmp_path / "rollout")
    shutil.copytree(TRL / "completions", tmp_path / "completions")
    assert sorted((place.path.name, place.format) for place in find(tmp_path)) == [
        ("completions", "trl_completions"), ("rollout", "verl_rollouts"),
    ]  # fmt: skip


# --- TRL -------------------------------------------------------------------------------------------------------------


def table(folder: Path, step: int, columns: dict[str, Any]) -> Path:
    """A file as TRL writes it."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"completions_{step:05d}.parquet"
    count = len(next(iter(columns.values())))
    full = {"step": [step] * count, "prompt": ["p", "q"] * (count // 2), **columns}
    full.setdefault("completion", [f"{step} {place}" for place in range(count)])
    order = ["step", "prompt", "completion", *[key for key in full if key not in ("step", "prompt", "completion")]]
    parquet.write_table(pyarrow.table({key: full[key] for key in order}), path)
    return path


def test_what_is_computed_from_trls_completions_is_what_trl_logged():
    pytest.importorskip("pyarrow")
    state = {row["step"]: row for row in json.loads((TRL / "trainer_state.json").read_text())["log_history"]}
    view = load(TRL / "completions").history.view()
    for ours, theirs in {
        "reward/mean": "reward", "reward/std": "reward_std", "reward/zero_std_frac": "frac_reward_zero_std",
        "reward/vowels/mean": "rewards/vowels/mean", "reward/short/mean": "rewards/short/mean",
    }.items():  # fmt: skip
        series = view.series(ours)
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            assert value == pytest.approx(state[step][theirs], abs=1e-6), (ours, step)


def test_trls_output_folder_is_its_state_with_the_completions():
    pytest.importorskip("pyarrow")
    run = load(TRL)
    assert run.source.format == "trl_trainer_state" and run.texts.steps == (1, 3, 5)
    assert "rollout/distinct" in names(run) and run.source.steps == 6
    sample = run.texts.read(5)[0]
    assert sample.prompt and sample.completion and math.isfinite(sample.advantage) and "vowels" in sample.rewards


def test_a_batch_that_serves_several_updates_counts_once():
    pytest.importorskip("pyarrow")
    run = load(TRL / "completions")
    assert [step for _, step in run.ticks] == [1, 3, 5] and "3 files left out" in said(run)
    assert (run.name, run.source.trainer, run.history.about["clock"]) == ("trl-1.16", "trl", "optimizer_step")


def test_the_reward_is_what_the_advantages_follow(tmp_path):
    # prompt p has every second row: 1, 4, 0 with a + b, so -2/3, 7/3, -5/3 from their mean; q: 0, 1, 0
    columns = {
        "a": [1.0, 0.0, 0.0, 1.0, 0.0, 0.0], "b": [0.0, 0.0, 4.0, 0.0, 0.0, 0.0], "length": [9, 2, 7, 3, 5, 5],
        "advantage": [-2 / 3, -1 / 3, 7 / 3, 2 / 3, -5 / 3, -1 / 3],
    }  # fmt: skip
    run = load(table(tmp_path, 1, columns).parent)
    assert latest(run, "reward/mean") == 1.0 and latest(run, "reward/b/mean") == 4 / 6
    assert latest(run, "trl/length/mean") == 31 / 6 and "reward/length/mean" not in names(run)


def test_unknown_weights_leave_the_reward_out_unless_a_configuration_has_them(tmp_path):
    # a - b/4: prompt p 1, -1, 0; prompt q -0.25, 0.5, 0
    columns = {
        "a": [1.0, 0.0, 0.0, 1.0, 0.0, 0.0], "b": [0.0, 1.0, 4.0, 2.0, 0.0, 0.0],
        "advantage": [1.0, -4.0, -1.0, 5.0, 0.0, -1.0],
    }  # fmt: skip
    folder = table(tmp_path / "run", 1, columns).parent
    run = load(folder)
    assert "reward/mean" not in names(run) and "follow no plain sum of a, b" in said(run)
    assert latest(run, "reward/zero_std_frac") == 0.0 and latest(run, "reward/b/mean") == 7 / 6
    (tmp_path / "config.yaml").write_text("reward_weights: [1.0, -0.25]\n")
    assert latest(load(folder, config=tmp_path / "config.yaml"), "reward/mean") == pytest.approx(0.25 / 6)


def test_a_function_that_does_not_apply_is_not_nan(tmp_path):
    columns = {"a": [1.0, 0.0, 0.0, 1.0], "b": [None, None, 1.0, None], "advantage": [0.0, -1.0, 0.0, 1.0]}
    run = load(table(tmp_path, 1, columns).parent)
    assert latest(run, "reward/mean") == 0.75 and latest(run, "reward/b/mean") == 1.0
    assert "b" not in run.texts.read(1)[0].rewards


def test_an_accuracy_of_0_and_1_says_what_is_right(tmp_path):
    columns = {"accuracy_reward": [1.0, 0.0, 0.0, 0.0], "advantage": [1.0, 0.0, -1.0, 0.0]}
    run = load(table(tmp_path, 1, columns).parent)
    assert latest(run, "accuracy/train") == 0.25 and latest(run, "reward/all_fail_frac") == 0.5
    table(tmp_path, 2, {**columns, "accuracy_reward": [0.5, 0.0, 0.0, 0.0]})
    assert "accuracy/train" not in names(load(tmp_path)) and "which answers are right" in said(load(tmp_path))


def test_conversations_become_text(tmp_path):
    asked = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "2+2?"}]
    columns = {
        "prompt": [asked, asked], "completion": [[{"role": "assistant", "content": "4"}]] * 2, "r": [1.0, 0.0],
        "advantage": [1.0, -1.0],
    }  # fmt: skip
    run = load(table(tmp_path, 1, columns).parent)
    sample = run.texts.read(1)[0]
    assert sample.completion == "4" and sample.prompt == "[system]\nbe brief\n\n[user]\n2+2?"
    assert latest(run, "batch/prompts") == 1


def test_a_file_that_was_cut_off_is_skipped_with_a_note(tmp_path):
    pytest.importorskip("pyarrow")
    shutil.copytree(TRL / "completions", tmp_path / "completions", copy_function=shutil.copyfile)
    for name, size in (("completions_00003.parquet", 900), ("completions_00004.parquet", 0)):
        path = tmp_path / "completions" / name
        path.write_bytes(path.read_bytes()[:size])
    run = load(tmp_path / "completions")
    assert [step for _, step in run.ticks] == [1, 5] and run.source.skipped_lines == 2
    assert "skipped" in said(run) and "completions_00003.parquet" in said(run)


def test_every_truncation_of_a_completions_file_gives_a_message(tmp_path):
    pytest.importorskip("pyarrow")
    raw = (TRL / "completions" / "completions_00001.parquet").read_bytes()
    path = tmp_path / "completions_00001.parquet"
    for length in range(0, len(raw), 97):
        path.write_bytes(raw[:length])
        with pytest.raises(RunError, match=r"completions_00001\.parquet"):
            load(path)


def test_a_few_kilobytes_of_a_billion_rows_are_not_unpacked(tmp_path):
    path = table(tmp_path, 1, {"r": [1.0] * 300_000, "completion": ["same"] * 300_000, "advantage": [0.0] * 300_000})
    with pytest.raises(RunError, match="300,000 rows are more"):
        load(path)


def test_without_pyarrow_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def no_pyarrow(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "pyarrow":
            raise ImportError("No module named 'pyarrow'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_pyarrow)
    with pytest.raises(RunError, match=r"pip install 'stabilizer\[data\]'"):
        load(TRL / "completions")
    run = load(TRL)  # the state is read all the same
    assert run.source.format == "trl_trainer_state" and "stabilizer[data]" in said(run)


def test_other_parquet_files_are_no_completions(tmp_path):
    path = table(tmp_path, 1, {"r": [1.0, 0.0], "advantage": [1.0, -1.0]})
    with pytest.raises(RunError):
        load(path.rename(tmp_path / "train.parquet").parent)


# --- imported --------------------------------------------------------------------------------------------------------


def completions(run: Path) -> dict[int, list[Sample]]:
    """The completions of a run directory, by step."""
    files = sorted((run / "samples").glob("*-r0.jsonl"))
    return {int(file.name.partition("-")[0]): read_records(file, Sample).records for file in files}


def test_an_imported_run_has_the_completions(tmp_path):
    found = completions(write_run(load(VERL / "rollout"), tmp_path / "run"))
    assert list(found) == [1, 2, 10]
    first = found[2][0]
    assert len(found[2]) == 12 and first.prompt.startswith("user\nWhat is") and first.solved in (True, False)
    assert math.isnan(first.advantage) and first.rewards.keys() == {"acc", "format_reward"}


def test_of_many_completions_whole_groups_are_imported(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "MAX_SAMPLES", 10)
    run = write_run(load(VERL / "rollout"), tmp_path / "run")
    assert len(completions(run)[1]) == 8 and RunReader(run).history.view().latest("batch/prompts") == 3


def test_a_step_that_was_taken_again_is_imported_once(tmp_path):
    shutil.copytree(VERL / "rollout", tmp_path / "log" / "rollout")
    console(tmp_path / "log", [1, 2, 3, 2, 3])
    found = completions(write_run(load(tmp_path / "log"), tmp_path / "run"))
    assert len(found[2]) == 12 and list(found) == [1, 2, 10]
