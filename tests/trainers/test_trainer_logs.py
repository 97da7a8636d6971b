"""Trainers' own logs: every name of every table, the form of each version, and the traps of each format."""

from __future__ import annotations

import json
import math

import pytest

from stabilizer.cli import main
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError
from stabilizer.trainers.areal import log as areal
from stabilizer.trainers.naming import Naming
from stabilizer.trainers.nemo_rl import log as nemo_rl
from stabilizer.trainers.openrlhf import log as openrlhf
from stabilizer.trainers.prime_rl import console
from stabilizer.trainers.prime_rl import log as prime_rl
from stabilizer.trainers.reading import READERS, load
from stabilizer.trainers.roll import log as roll
from stabilizer.trainers.skyrl import log as skyrl
from stabilizer.trainers.slime import log as slime
from stabilizer.trainers.verl import names as verl_names
from tests.trainers import console_logs as logs
from tests.trainers.trl_logs import record


def run_of(tmp_path, text: str, name: str = "train.log", **options) -> LoadedRun:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return load(path, **options)


def value(run: LoadedRun, name: str) -> float | None:
    return run.history.view().latest(name)


def source(run: LoadedRun, name: str) -> str:
    return run.history.about["metrics"][name]["source"]


ROWS = [(kind, theirs, ours) for kind, (_, _, names, _) in logs.LOGS.items() for theirs, ours in names.items()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, LoadedRun]:
    folder = tmp_path_factory.mktemp("logs")
    return {kind: run_of(folder, logs.log(kind), f"{place}.log") for place, kind in enumerate(logs.LOGS)}


@pytest.mark.parametrize("kind,theirs,ours", ROWS)
def test_each_name_of_each_trainer(runs, kind, theirs, ours):
    run, expected = runs[kind], logs.values(logs.LOGS[kind][2])[theirs]
    assert value(run, ours) == pytest.approx(expected, abs=0.006 if kind == "nemo-rl" else 1e-9)
    assert source(run, ours) == theirs


@pytest.mark.parametrize("kind", logs.LOGS)
def test_format_trainer_and_steps_of_each_kind(runs, kind):
    format, trainer, _, _ = logs.LOGS[kind]
    found = runs[kind].source
    assert (found.format, found.trainer, found.steps, found.skipped_lines) == (format, trainer, 3, 0)


def test_every_row_of_every_table_is_in_a_sample():
    shown = {theirs for _, theirs, _ in ROWS}
    tables = (
        verl_names.NAMES, verl_names.INSTEAD, verl_names.SEARCH_R1_NAMES, verl_names.EASYR1_NAMES, openrlhf.NAMES,
        openrlhf.INSTEAD, skyrl.NAMES, skyrl.INSTEAD, prime_rl.NAMES, logs.ORCHESTRATOR, nemo_rl.LABELS.values(),
        console.NAMES, slime.NAMES, slime.INSTEAD, areal.NAMES, areal.INSTEAD, roll.NAMES, roll.INSTEAD,
    )  # fmt: skip
    assert {key for table in tables for key in table} - shown == logs.WITH_GROUPS


@pytest.mark.parametrize("theirs,ours", nemo_rl.NAMES.items())
def test_each_name_of_nemo_rls_loggers(theirs, ours):
    assert nemo_rl.naming([theirs]).ours([theirs], {}) == {theirs: ours}


@pytest.mark.parametrize(
    "table",
    [verl_names.NAMES, openrlhf.NAMES, skyrl.NAMES, nemo_rl.NAMES, prime_rl.NAMES, prime_rl.AGENT_NAMES,
     verl_names.EASYR1_NAMES, verl_names.SEARCH_R1_NAMES, console.NAMES, slime.NAMES, areal.NAMES, roll.NAMES],
)  # fmt: skip
def test_no_two_names_of_a_table_share_one_of_ours(table):
    assert len(set(table.values())) == len(table)


@pytest.mark.parametrize("kind", logs.LOGS)
def test_no_two_names_of_a_log_share_one_of_ours_and_none_is_lost(runs, kind):
    sources = [entry["source"] for entry in runs[kind].history.about["metrics"].values()]
    assert len(sources) == len(set(sources))
    assert set(sources) >= set(logs.LOGS[kind][2])


def test_a_name_we_do_not_know_keeps_the_trainers(tmp_path):
    run = run_of(tmp_path, logs.verl(1, {"actor/pg_loss": 0.1, "perf/throughput": 19.5}))
    assert value(run, "verl/perf/throughput") == 19.5


def test_of_two_kls_the_losss_is_taken_and_the_rewards_keeps_its_name(tmp_path):
    run = run_of(tmp_path, logs.verl(1, {"actor/kl_loss": 0.25, "actor/reward_kl_penalty": -0.5}))
    assert value(run, "policy/kl_ref") == 0.25 and value(run, "verl/actor/reward_kl_penalty") == -0.5
    assert "k3" in run.history.about["metrics"]["policy/kl_ref"]["estimator"]


def test_the_kl_of_the_reward_says_that_it_is_signed(tmp_path):
    run = run_of(tmp_path, logs.verl(1, {"critic/kl": -0.5, "critic/score/mean": 1.0}))
    assert "signed" in run.history.about["metrics"]["policy/kl_ref"]["estimator"]


def test_the_reward_after_its_penalty_counts_only_where_the_score_is_missing(tmp_path):
    both = run_of(tmp_path, logs.verl(1, {"critic/score/mean": 0.5, "critic/rewards/mean": 0.25}))
    assert value(both, "reward/mean") == 0.5 and value(both, "verl/critic/rewards/mean") == 0.25
    alone = run_of(tmp_path, logs.verl(1, {"critic/rewards/mean": 0.25}))
    assert value(alone, "reward/mean") == 0.25


def test_map_goes_before_every_table(tmp_path):
    text = logs.verl(1, {"critic/score/mean": 0.5, "critic/rewards/mean": 0.25})
    run = run_of(tmp_path, text, mapping={"reward/mean": "critic/rewards/mean"})
    assert value(run, "reward/mean") == 0.25 and value(run, "verl/critic/score/mean") == 0.5
    with pytest.raises(RunError, match="has no 'nothing'"):
        run_of(tmp_path, text, mapping={"reward/mean": "nothing"})


# --- veRL and Search-R1 --------------------------------------------------------------------------------------------


def test_a_learning_rate_printed_as_0_000_is_missing_and_a_clip_fraction_is_not(tmp_path):
    numbers = {"actor/lr": 1e-6, "actor/kl_loss": 2e-4, "actor/pg_clipfrac": 0.0, "critic/score/mean": 0.5}
    run = run_of(tmp_path, logs.verl(1, numbers, logs.three))
    assert value(run, "optim/lr") is None and value(run, "policy/kl_ref") is None
    assert value(run, "policy/clip_frac") == 0.0
    assert any("three decimals" in note for note in run.source.notes)


def test_a_learning_rate_of_zero_in_full_figures_is_a_zero(tmp_path):
    run = run_of(tmp_path, logs.verl(1, {"actor/lr": 0.0, "actor/pg_loss": 0.1234}))
    assert value(run, "optim/lr") == 0.0


@pytest.mark.parametrize("style,text", [(repr, "nan"), (logs.np_float, "np.float64(nan)"), (logs.three, "nan")])
def test_nan_and_inf_are_read_in_every_style(tmp_path, style, text):
    numbers = {"critic/vf_explained_var": math.nan, "actor/grad_norm": math.inf, "critic/score/mean": 0.5}
    line = logs.verl(1, numbers, style)
    assert text in line
    run = run_of(tmp_path, line)
    assert math.isnan(value(run, "value/explained_variance")) and value(run, "optim/grad_norm") == math.inf


@pytest.mark.parametrize(
    "prefix",
    ["", logs.RAY, "(main_task pid=2818891) ", "(TaskRunner pid=3, ip=10.0.0.7) ", "2026-01-05T10:00:00Z stdout F ",
     "Training Progress:  10%|█    | 1/10 [00:10<01:30, 10.0s/it]\r"],
)  # fmt: skip
def test_text_before_a_step_is_ignored(tmp_path, prefix):
    assert value(run_of(tmp_path, logs.verl(7, {"critic/score/mean": 0.5}, prefix=prefix)), "reward/mean") == 0.5


def test_rays_note_of_repetition_and_foreign_lines_are_left_out(tmp_path):
    line = logs.verl(1, {"actor/pg_loss": 0.1, "critic/score/mean": 0.5}).rstrip()
    text = f"INFO something\n{line} [repeated 4x across cluster]\n[response] Let us go step:2 - first: add\n"
    run = run_of(tmp_path, text)
    assert run.source.steps == 1 and value(run, "reward/mean") == 0.5


@pytest.mark.parametrize("cut", [4, 8, 12, 16])
def test_the_number_at_the_end_of_a_killed_log_is_dropped(tmp_path, cut):
    numbers = {"actor/pg_loss": 0.1, "critic/score/mean": 0.123456789}
    text = logs.verl(1, numbers) + logs.verl(2, numbers)[: -cut - 1]
    run = run_of(tmp_path, text)
    assert run.history.view().series("reward/mean").values.tolist() == [0.123456789]
    assert run.source.skipped_lines == 1


def test_a_line_cut_in_the_middle_of_the_log_loses_its_last_number_alone(tmp_path):
    numbers = {"actor/pg_loss": 0.25, "critic/score/mean": 0.125, "perf/throughput": 9.5}
    lines = [logs.verl(step, numbers) for step in range(1, 6)]
    lines[2] = lines[2].split("5 - perf")[0] + "\n"  # ... critic/score/mean:0.12
    run = run_of(tmp_path, "".join(lines))
    assert run.history.view().series("reward/mean").steps.tolist() == [1, 2, 4, 5]
    assert run.history.view().series("policy/loss").steps.tolist() == [1, 2, 3, 4, 5]
    assert run.source.skipped_lines == 1


def test_validation_before_training_and_rows_of_one_step_merge(tmp_path):
    text = logs.verl(0, {"val-core/math/acc/mean@1": 0.25}) + logs.verl(1, {"critic/score/mean": 0.5})
    text += logs.verl(1, {"val-core/math/acc/mean@1": 0.375})
    run = run_of(tmp_path, text)
    assert run.history.view().series("accuracy/val").steps.tolist() == [0, 1] and run.source.steps == 2


def test_a_restart_appended_to_the_file_is_an_attempt_of_its_own(tmp_path):
    steps = [*range(1, 7), *range(4, 9)]
    run = run_of(tmp_path, "".join(logs.verl(step, {"critic/score/mean": 0.5 + n}) for n, step in enumerate(steps)))
    assert sorted(run.histories) == [0, 1]
    assert run.history.view().series("reward/mean").steps.tolist() == list(range(1, 9))
    assert [event.kind for event in run.history.events] == ["resume"]


def test_a_restart_names_the_failure_before_it_and_no_earlier_one(tmp_path, capsys):
    row, failed = (lambda step: logs.verl(step, {"critic/score/mean": 0.5})), "torch.OutOfMemoryError: out of memory\n"
    run = run_of(tmp_path, "".join([row(1), row(2), row(3), failed, row(2), failed, row(3), row(2)]))
    first, second = (run.histories[attempt].events[0].text for attempt in (1, 2))
    assert "out of memory" in first and second.endswith("from step 3 to 2: a restart")
    main(["diagnose", str(tmp_path / "train.log")])
    shown = capsys.readouterr().out
    assert "· 2 restarts" in shown and "OutOfMemoryError" in shown
    assert not [line for line in shown.split("\n") if line != line.rstrip()]  # a page that is piped can be pasted


def test_validation_of_several_sets_or_of_a_mere_score_is_not_the_accuracy(tmp_path):
    two = {"val-core/a/acc/mean@1": 0.25, "val-core/b/acc/mean@1": 0.5, "critic/score/mean": 0.5}
    score = {"val-core/a/reward/mean@1": 0.25, "critic/score/mean": 0.5}
    for numbers in (two, score):
        run = run_of(tmp_path, logs.verl(1, numbers))
        assert value(run, "accuracy/val") is None and value(run, f"verl/{next(iter(numbers))}") == 0.25
        assert any("--map" in note for note in run.source.notes)


def test_a_ppo_kl_of_zero_throughout_was_not_measured(tmp_path):
    numbers = {"actor/ppo_kl": 0.0, "critic/score/mean": 0.5}
    run = run_of(tmp_path, logs.verl(1, numbers) + logs.verl(2, numbers))
    assert value(run, "policy/kl_old") is None and value(run, "verl/actor/ppo_kl") == 0.0
    run = run_of(tmp_path, logs.verl(1, numbers) + logs.verl(2, {**numbers, "actor/ppo_kl": 1e-5}))
    assert value(run, "policy/kl_old") == 1e-5


CONFIG = {
    "actor_rollout_ref": {
        "actor": {"use_kl_loss": False, "kl_loss_coef": 0.001, "optim": {"lr": 1e-6}}, "rollout": {"n": 4},
    },
    "algorithm": {"use_kl_in_reward": False, "kl_ctrl": {"kl_coef": 0.002}},
    "trainer": {"total_training_steps": 50},
}  # fmt: skip


def printed(config: object, prefix: str = logs.RAY) -> str:
    import pprint

    return "".join(f"{prefix}{line}\n" for line in pprint.pformat(config).splitlines())


def test_the_configuration_printed_at_the_start_is_read(tmp_path):
    run = run_of(tmp_path, printed(CONFIG) + logs.verl(1, {"critic/score/mean": 0.5}))
    view = run.history.view()
    assert view.config("actor_rollout_ref.rollout.n") == 4 and view.about("steps") == 50
    assert any("configuration taken from the log" in note for note in run.source.notes)


@pytest.mark.parametrize("loss,reward,beta", [(True, False, 0.001), (False, True, 0.002), (False, False, 0.0)])
def test_beta_is_the_weight_of_the_kl_in_loss_or_reward(tmp_path, loss, reward, beta):
    config = json.loads(json.dumps(CONFIG))
    config["actor_rollout_ref"]["actor"]["use_kl_loss"] = loss
    config["algorithm"]["use_kl_in_reward"] = reward
    run = run_of(tmp_path, printed(config) + logs.verl(1, {"critic/score/mean": 0.5}))
    assert run.history.view().config("beta") == beta


def test_a_configuration_that_never_ends_is_given_up(tmp_path):
    text = printed(CONFIG).rsplit("\n", 3)[0] + "\n" + "noise\n" * 3000 + logs.verl(1, {"critic/score/mean": 0.5})
    assert run_of(tmp_path, text).history.view().config("beta") is None


def test_null_of_the_file_logger_is_nan(tmp_path):
    text = '{"step":1,"data":{"actor/grad_norm":null,"critic/score/mean":0.5}}\n{"step":2,"da'
    run = run_of(tmp_path, text, "run.jsonl")
    assert math.isnan(value(run, "optim/grad_norm")) and run.source.skipped_lines == 1


# --- EasyR1 --------------------------------------------------------------------------------------------------------


def test_easyr1s_folder_with_its_configuration_and_tracker(tmp_path):
    (tmp_path / "experiment_config.json").write_text(
        json.dumps({"worker": {"actor": {"use_kl_loss": True}}, "algorithm": {"kl_coef": 0.01, "disable_kl": False}})
    )
    tracker = {"best_global_step": 5, "best_val_reward_score": 0.61, "last_global_step": 20}
    (tmp_path / "checkpoint_tracker.json").write_text(json.dumps(tracker))
    numbers = {"actor/grad_norm": 0.5, "critic/score/mean": 0.25}
    text = "".join(logs.easyr1_file(step, numbers) for step in range(11, 14))
    (tmp_path / "experiment_log.jsonl").write_text(text)
    run = load(tmp_path)
    assert run.history.view().config("beta") == 0.01 and value(run, "reward/mean") == 0.25
    assert any("step 5, validation score 0.61" in note for note in run.source.notes)
    assert any("begins at step 11" in note for note in run.source.notes)
    assert any("ends at step 13, before the newest" in note for note in run.source.notes)


TRACKER = {"best_global_step": 2, "best_val_reward_score": 0.61, "last_global_step": 3, "last_actor_path": "x"}


def test_easyr1s_tracker_alone_says_what_it_holds_and_which_file_to_give(tmp_path):
    tracker = tmp_path / "checkpoint_tracker.json"
    tracker.write_text(json.dumps(TRACKER))
    for place in (tracker, tmp_path):
        with pytest.raises(RunError, match=r"step 2, validation score 0\.61; newest .* step 3\); give experiment_log"):
            load(place)
    tracker.write_text("{")
    with pytest.raises(RunError, match="checkpoint_tracker.json: the JSON ends too early"):
        load(tracker)


def test_easyr1s_tracker_leads_to_the_log_beside_it(tmp_path):
    numbers = {"actor/grad_norm": 0.5, "critic/score/mean": 0.25}
    (tmp_path / "checkpoint_tracker.json").write_text(json.dumps(TRACKER))
    (tmp_path / "experiment_log.jsonl").write_text("".join(logs.easyr1_file(k, numbers) for k in range(1, 4)))
    run = load(tmp_path / "checkpoint_tracker.json")
    assert run.source.steps == 3 and run.source.files == load(tmp_path).source.files
    assert [note for note in run.source.notes if "tracker" in note] == [
        "the tracker holds no steps: read from experiment_log.jsonl beside it",
        "best checkpoint by its tracker: step 2, validation score 0.61",
        "newest checkpoint by its tracker: step 3",
    ]


def test_easyr1s_tracker_beside_a_console_log_is_read_along(tmp_path):
    (tmp_path / "checkpoint_tracker.json").write_text(json.dumps(TRACKER))
    numbers = {"actor/pg_clipfrac_higher": 0.125, "critic/score/mean": 0.5}
    (tmp_path / "train.log").write_text("".join(logs.easyr1_console(k, numbers) for k in range(1, 5)))
    for place in (tmp_path, tmp_path / "train.log"):
        assert "best checkpoint by its tracker: step 2, validation score 0.61" in load(place).source.notes


def test_easyr1s_overall_is_the_reward_only_where_the_score_is_missing(tmp_path):
    numbers = {"actor/pg_clipfrac_higher": 0.0, "critic/score/mean": 0.5, "reward/overall": 0.25}
    run = run_of(tmp_path, logs.easyr1_file(1, numbers))
    assert value(run, "reward/mean") == 0.5 and value(run, "easyr1/reward/overall") == 0.25


def test_easyr1s_console_ends_a_step_at_the_first_line_that_is_no_entry(tmp_path):
    numbers = {"actor/pg_clipfrac_higher": 0.125, "critic/score/mean": 0.5}
    text = logs.easyr1_console(1, numbers) + "(Runner pid=7) Start validation...\n  mean: 9.0\n"
    run = run_of(tmp_path, text + logs.easyr1_console(2, numbers))
    assert run.history.view().series("reward/mean").values.tolist() == [0.5, 0.5] and run.source.steps == 2


# --- TRL and its kin -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", [logs.trl_v4, logs.trl_v5])
def test_trls_console_in_both_styles(tmp_path, style):
    run = run_of(tmp_path, logs.trl_console([record("0.20", step) for step in (5, 10, 15)], style))
    assert run.source.format == "trl_console" and run.source.trainer == "trl"
    assert [step for _, step in run.ticks] == [5, 10, 15] and run.history.about["steps"] == 500
    assert value(run, "reward/mean") == pytest.approx(0.415) and value(run, "optim/lr") == 1e-6
    assert value(run, "policy/kl_ref") == 0.0006 and value(run, "reward/right/mean") == 0.4


def test_bare_nan_of_version_4_and_None_are_read(tmp_path):
    rows = [record("0.20", step, grad_norm=math.nan, kl=None) for step in (5, 10)]
    run = run_of(tmp_path, logs.trl_console(rows, logs.trl_v4))
    assert math.isnan(value(run, "optim/grad_norm")) and math.isnan(value(run, "policy/kl_ref"))


def test_other_progress_bars_are_not_the_trainings(tmp_path):
    rows = [record("0.20", step) for step in (10, 20, 30)]
    text = "\rLoading checkpoint shards: 100%|████| 2/2 [00:05<00:00, 5.0s/it]\n"
    for row in rows:
        text += f"\rGenerating: 100%|████| 64/64 [00:01<00:00, 50.0it/s]{logs.trl_console([row])}"
    assert [step for _, step in run_of(tmp_path, text).ticks] == [10, 20, 30]


def test_without_a_bar_lines_are_counted_and_logging_steps_multiplies(tmp_path):
    text = "".join(logs.trl_v5(record("0.20", step)) + "\n" for step in (1, 2, 3))
    run = run_of(tmp_path, text)
    assert [step for _, step in run.ticks] == [1, 2, 3] and any("no progress bar" in note for note in run.source.notes)
    config = tmp_path / "c.json"
    config.write_text('{"logging_steps": 10}')
    assert [step for _, step in run_of(tmp_path, text, config=config).ticks] == [10, 20, 30]


def test_without_a_bar_the_summary_tells_the_interval(tmp_path):
    # 40 lines; 100 s at 2.0 steps/s (1.95 to 2.05) are 195 to 205 steps, 4.9 to 5.1 a line: 5
    text = "".join(logs.trl_v5(record("0.20", step)) + "\n" for step in range(1, 41))
    text += "{'train_runtime': '100', 'train_steps_per_second': '2.0', 'train_loss': '0.01', 'epoch': '1'}\n"
    assert run_of(tmp_path, text).ticks[-1][1] == 200
    vague = text.replace("'2.0'", "'2'").replace("'2.0'", "'2'")  # 1.5 to 2.5 steps/s: 4, 5 or 6
    assert run_of(tmp_path, vague).ticks[-1][1] == 40


def test_dictionaries_of_the_users_own_are_not_metrics(tmp_path):
    rows = logs.trl_console([record("0.20", 5)])
    run = run_of(tmp_path, rows + "{'agent_id': 'a', 'reward': 9.0, 'epoch': 1}\n{'reward': 9.0, 'kl': 1.0}\n")
    assert run.source.steps == 1 and value(run, "reward/mean") == pytest.approx(0.405)


def test_a_dictionary_cut_off_is_counted(tmp_path):
    text = logs.trl_console([record("0.20", 5), record("0.20", 10)])
    run = run_of(tmp_path, text[:-40])
    assert run.source.steps == 1 and run.source.skipped_lines == 1


@pytest.mark.parametrize("width", [40, 97])
def test_dictionaries_that_a_terminals_width_broke_are_read(tmp_path, width):
    rows = [logs.trl_v4(record("0.20", step)) for step in (1, 2, 3)]
    broken = "".join(row[at : at + width].rstrip(" ") + "\n" for row in rows for at in range(0, len(row), width))
    run, whole = run_of(tmp_path, broken), run_of(tmp_path, "\n".join(rows))
    assert run.source.steps == 3 and run.source.skipped_lines == 0
    assert {name: value(run, name) for name in run.history.names()} == {
        name: value(whole, name) for name in whole.history.names()
    }


@pytest.mark.parametrize("next", ["Traceback (most recent call last):", "epoch 2 begins", "{'note': 'no number'}"])
def test_what_follows_a_dictionary_that_was_cut_off_is_no_part_of_it(tmp_path, next):
    row = logs.trl_v4(record("0.20", 1))
    run = run_of(tmp_path, f"{row}\n{row[:60]}\n{next}\n{row}\n")
    assert run.source.steps == 2 and run.source.skipped_lines == 1


def test_a_console_kept_as_json_by_a_service_is_unwrapped(tmp_path):
    text = logs.trl_console([record("0.20", step) for step in (5, 10)])
    half = len(text) // 2
    wrapped = "[" + "\n,".join(
        json.dumps({"stream_name": "stdout", "time": 1.5, "data": part}, separators=(",", ":"))
        for part in (text[:half], text[half:])
    )
    run = run_of(tmp_path, wrapped + "\n]")
    assert [step for _, step in run.ticks] == [5, 10]


@pytest.mark.parametrize(
    "write,trainer,total", [(logs.swift, "ms-swift", 438), (logs.llama_factory, "llama-factory", 100)]
)
def test_json_lines_of_the_trainers_built_on_transformers(tmp_path, write, trainer, total):
    text = "".join(write(step, record("0.20", step)) for step in (5, 10))
    summary = {"train_runtime": 9.0, "global_step/max_steps": "10/438"}
    run = run_of(tmp_path, text + json.dumps(summary) + "\n" + '{"log_history": []}\n', "logging.jsonl")
    assert (
        run.source.format == "hf_jsonl" and run.source.trainer == trainer and run.history.about["steps"] in (total, 438)
    )
    assert [step for _, step in run.ticks] == [5, 10] and value(run, "optim/lr") == 1e-6
    assert value(run, "policy/clip_frac") == 0.003


def test_supervised_training_in_the_same_file_is_no_rl(tmp_path):
    row = {"loss": 1.5, "grad_norm": 2.0, "learning_rate": 1e-4, "token_acc": 0.7, "epoch": 0.1}
    run = run_of(tmp_path, "".join(logs.swift(step, row) for step in (1, 2)), "logging.jsonl")
    assert run.source.trainer == "transformers" and value(run, "trl/token_acc") == 0.7


# --- OpenRLHF, SkyRL, NeMo-RL, prime-rl ----------------------------------------------------------------------------


def test_openrlhfs_evaluation_and_a_kl_that_was_not_measured(tmp_path):
    text = logs.openrlhf_line(1, {"policy_loss": 0.1, "kl": 0.0}) + logs.openrlhf_line(
        2, {"policy_loss": 0.1, "kl": 0.0}
    )
    text += "INFO ✨ Evaluation completed in 3s, global_step 2, eval_metrics: {'eval_math_pass1': 0.25}\n"
    run = run_of(tmp_path, text)
    assert value(run, "accuracy/val") == 0.25 and value(run, "policy/kl_ref") is None
    assert value(run, "openrlhf/kl") == 0.0 and run.source.steps == 2


def test_skyrls_learning_rate_printed_as_0_0000_is_missing(tmp_path):
    run = run_of(tmp_path, logs.skyrl_lines(1, {"policy/final_loss": 0.5, "policy/policy_lr": 1e-6}))
    assert value(run, "policy/loss") == 0.5 and value(run, "optim/lr") is None
    assert any("four decimals" in note for note in run.source.notes)


def test_skyrls_step_cut_off_is_counted(tmp_path):
    numbers = {"policy/final_loss": 0.5, "policy/grad_norm": 0.25, "reward/avg_raw_reward": 0.75}
    text = logs.skyrl_lines(1, numbers) + logs.skyrl_lines(2, numbers).rsplit("\n", 2)[0] + "\n"
    run = run_of(tmp_path, text)
    assert run.source.steps == 1 and run.source.skipped_lines == 1


def test_prime_rls_missing_number_beside_its_siblings_is_nan(tmp_path):
    def line(step, **more):
        return json.dumps({"step": step, "time": 1.0, "entropy/all/mean": 0.3, "loss/max": 1.0, **more}) + "\n"

    run = run_of(tmp_path, line(1, **{"loss/mean": 0.1}) + line(2) + line(3, **{"loss/mean": 0.1}))
    assert [math.isnan(v) for v in run.history.view().series("policy/loss").values] == [False, True, False]


def test_prime_rls_two_processes_are_one_run(tmp_path):
    for name, kind in (("trainer", "prime-rl trainer"), ("orchestrator", "prime-rl orchestrator")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text(logs.log(kind))
    run = load(tmp_path)
    assert value(run, "policy/loss") is not None and value(run, "reward/mean") is not None
    assert run.source.steps == 3 and len(run.source.files) == 2 and len(run.histories) == 1


def test_prime_rls_several_agents_do_not_speak_for_the_run(tmp_path):
    numbers = {"train/agg/effective/a/reward/mean": 0.1, "train/agg/effective/b/reward/mean": 0.2, "loss/mean": 0.3}
    run = run_of(tmp_path, logs.prime(1, numbers))
    assert value(run, "reward/mean") is None and any("2 agents" in note for note in run.source.notes)


# --- failures ------------------------------------------------------------------------------------------------------

TRACEBACK = """\
Traceback (most recent call last):
  File "main.py", line 5, in main
    fit()
{} """


@pytest.mark.parametrize(
    "message,kind",
    [
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.07 GiB.", "oom"),
        ("ValueError: The global train batch size (7 x 1) must be evenly divisible by the number of generations "
         "per prompt (8).", "config-error"),
        ("ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.", "worker-death"),
        ("KeyError: 'answer'", "traceback"),
        ("NotImplementedError", "traceback"),
    ],
)  # fmt: skip
def test_a_failure_in_a_console_is_kept_as_an_event_with_its_kind(tmp_path, message, kind):
    text = logs.log("verl 0.9") + "".join(f"{logs.RAY}{line}\n" for line in TRACEBACK.format(message).splitlines())
    run = run_of(tmp_path, text)
    event = run.history.events[-1]
    assert event.kind == "note" and event.data["failure"] == kind and event.step == 3
    assert message[:40].strip() in event.text


@pytest.mark.parametrize("kind", logs.CONSOLES)
def test_every_console_keeps_a_failure_and_reads_on_after_it(tmp_path, kind):
    text = logs.any_log(kind) + TRACEBACK.format("KeyError: 'answer'") + "\nsomething else\n"
    run = run_of(tmp_path, text)
    assert [event.data["failure"] for event in run.history.events] == ["traceback"]


def test_the_cause_of_a_chain_of_exceptions_is_the_last(tmp_path):
    chain = TRACEBACK.format("ray.exceptions.RayTaskError(RuntimeError): ray::run()") + (
        '\n  File "x.py", line 2, in f\n    g()\nRuntimeError: disk full\n\nSet the environment variable '
        "HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
    )
    run = run_of(tmp_path, logs.log("verl 0.5") + chain)
    assert [event.text.split(": ", 1)[1] for event in run.history.events] == ["RuntimeError: disk full"]


def test_skipped_updates_are_counted_in_one_note(tmp_path):
    text = logs.log("verl 0.5") + "WARN: rank 0 grad_norm is not finite: nan\n" * 40
    run = run_of(tmp_path, text)
    assert [event.data["failure"] for event in run.history.events] == ["non-finite-gradient"]
    assert any("40 updates skipped" in note for note in run.source.notes)


def test_a_thousand_failures_are_counted_not_kept(tmp_path):
    text = logs.log("verl 0.5") + (TRACEBACK.format("KeyError: 'a'") + "\nok\n") * 1000
    run = run_of(tmp_path, text)
    assert len(run.history.events) == 21 and any("1000 failures" in note for note in run.source.notes)


def test_a_log_that_failed_before_its_first_step_says_how(tmp_path):
    message = "ValueError: The global train batch size (7 x 1) must be evenly divisible by the number of generations"
    with pytest.raises(RunError, match="no step of training in it; it ended with line 4: ValueError: The global train"):
        run_of(tmp_path, TRACEBACK.format(message) + "\n")


# --- a folder ------------------------------------------------------------------------------------------------------


def test_a_folder_is_searched_and_a_note_names_the_rest(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/train.log").write_text(logs.log("verl 0.5"))
    (tmp_path / "logs/notes.txt").write_text("hello")
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 100)
    (tmp_path / "loop").symlink_to(tmp_path)
    run = load(tmp_path)
    assert run.source.format == "verl_console"
    assert run.source.files[0].endswith("logs/train.log")


def test_one_training_in_two_formats_is_read_from_the_fuller_one(tmp_path):
    (tmp_path / "train.log").write_text(logs.log("verl 0.4"))
    (tmp_path / "run.jsonl").write_text(logs.log("verl file"))
    run = load(tmp_path)
    assert run.source.format == "verl_file"
    assert any("not used" in note and "train.log" in note for note in run.source.notes)


def test_several_trainings_of_one_format_are_not_guessed_between(tmp_path):
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(logs.log("verl 0.5"))
    with pytest.raises(RunError, match="2 logs of the format verl_console in it .a.log, b.log.; give one"):
        load(tmp_path)


def test_an_empty_naming_keeps_every_name():
    assert Naming(trainer="x", prefix="x", names={}).ours(["a", "b"], {}) == {"a": "x/a", "b": "x/b"}


@pytest.mark.parametrize("kind", logs.KINDS)
def test_exactly_one_reader_of_trainers_recognises_each_kind_of_log(tmp_path, kind):
    path = tmp_path / "some.log"
    path.write_text(logs.any_log(kind))
    knowing = [reader.name for reader in READERS if reader.recognises(path)]
    anyones = {"json", "printed"}  # asked last
    assert len([name for name in knowing if name not in anyones]) == 1 and knowing[0] not in anyones


# --- slime, AReaL, ROLL ---------------------------------------------------------------------------------------------


def test_the_updates_of_a_rollout_of_slime_are_averaged_and_the_last_rate_counts(tmp_path):
    text = "".join(
        [
            "rollout 4: {'rollout/raw_reward': 0.5, 'rollout/log_probs': -0.5}\n",
            "step 8: {'train/pg_clipfrac': 0.25, 'train/lr-pg_0': 2e-06}\n",
            "step 9: {'train/pg_clipfrac': 0.75, 'train/lr-pg_0': 1e-06}\n",
        ]
    )
    run = run_of(tmp_path, text)
    assert [step for _, step in run.ticks] == [4]
    assert (value(run, "policy/clip_frac"), value(run, "optim/lr")) == (0.5, 1e-6)
    assert any("2 updates a rollout" in note for note in run.source.notes)


def test_an_update_of_slime_without_a_rollout_is_a_step(tmp_path):
    run = run_of(tmp_path, "step 8: {'train/pg_clipfrac': 0.25, 'train/lr-pg_0': 2e-06}\n")
    assert [step for _, step in run.ticks] == [8] and value(run, "policy/clip_frac") == 0.25


@pytest.mark.parametrize("config,expected", [({"rollout_batch_size": 32}, 0.375), ({}, None)])
def test_slimes_groups_without_spread_are_a_share_where_their_number_is_known(tmp_path, config, expected):
    path = tmp_path / "args.json"
    path.write_text(json.dumps(config or {"seed": 1}))
    counts = {"rollout/zero_std/count_0.0": 8, "rollout/zero_std/count_1.0": 4, "rollout/truncated_ratio": 0.25}
    run = run_of(tmp_path, f"perf 3: {counts}\n", config=path)
    assert value(run, "reward/zero_std_frac") == expected


def test_several_data_sets_of_slime_are_no_held_out_accuracy_until_one_is_chosen(tmp_path):
    text = "perf 0: {'rollout/truncated_ratio': 0.1}\neval 0: {'eval/aime': 0.25, 'eval/math': 0.5}\n"
    run = run_of(tmp_path, text)
    assert value(run, "accuracy/val") is None and any("2 data sets" in note for note in run.source.notes)
    assert value(run_of(tmp_path, text, mapping={"accuracy/val": "eval/math"}), "accuracy/val") == 0.5


@pytest.mark.parametrize("kind", ["areal", "slime", "roll"])
def test_a_step_that_is_cut_off_is_counted_and_left_out(tmp_path, kind):
    whole = logs.log(kind, 2)
    run = run_of(tmp_path, whole[: -len(logs.log(kind, 1)) // 3])
    assert run.source.skipped_lines == 1 and any("too early" in note for note in run.source.notes)


def test_the_length_of_areals_answers_is_worked_out(tmp_path):
    run = run_of(tmp_path, logs.areal_table(3, {"ppo_actor/seq_len/avg": 500.0, "ppo_actor/prompt_len/avg": 120.0}))
    assert value(run, "rollout/length_mean") == 380.0


def test_a_table_that_no_training_step_stands_over_is_no_log_of_areal(tmp_path):
    with pytest.raises(RunError):
        run_of(tmp_path, "╒══╕\n│ ppo_actor/update/grad_norm │ 0.5 │\n╘══╛\n")


def test_the_step_of_rolls_bare_json_is_that_of_its_pipeline_where_it_names_none(tmp_path):
    text = 'pipeline step 6 start...\n[INFO] [DRIVER 0 / 1] {"critic/score/mean": 0.5, "actor/pg_loss@sum": 0.25}\n'
    run = run_of(tmp_path, text)
    assert [step for _, step in run.ticks] == [6] and value(run, "policy/loss") == 0.25


def test_a_markdown_table_without_outer_lines_is_read_with_the_names_of_the_trainer(tmp_path):
    run = run_of(
        tmp_path, "Step | Training Loss | reward | reward_std | completion_length | kl | rewards / right\n"
        "-- | -- | -- | -- | -- | -- | --\n"
        "1 | 0.0 | 0.5 | 0.2 | 90.0 | 0.0 | 0.25\n2 | 0.1 | 0.6 | 0.2 | 91.0 | 0.1 | 0.5\n",
    )  # fmt: skip
    assert (value(run, "policy/loss"), value(run, "reward/right/mean")) == (0.1, 0.5)


def test_numbers_in_brackets_and_evaluation_episodes_of_cleanrl_are_read(tmp_path):
    lines = [f"global_step={100 * n}, episodic_return=[{20.5 + n}]\nSPS: 14" for n in range(1, 4)]
    run = run_of(tmp_path, "\n".join([*lines, "eval_episode=0, episodic_return=[4.1]", ""]))
    assert (value(run, "reward/mean"), value(run, "eval/episodic_return")) == (23.5, 4.1)
