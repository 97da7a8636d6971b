"""CSV, JSON lines, JSON and notebooks of anyone's making: forms, guesses, and what is told of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stabilizer.core.metrics import VOCABULARY
from stabilizer.runs.reader import RunError
from stabilizer.trainers.nemo_rl import log as nemo_rl
from stabilizer.trainers.openrlhf import log as openrlhf
from stabilizer.trainers.other import guesses as names
from stabilizer.trainers.prime_rl import log as prime_rl
from stabilizer.trainers.reading import load
from stabilizer.trainers.skyrl import log as skyrl


def write(folder: Path, text: str, name: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


ROWS = [{"step": step, "reward": step / 8, "kl": 0.25} for step in range(1, 13)]
FORMS: dict[str, Any] = {
    "lines.jsonl": "\n".join(json.dumps(row) for row in ROWS) + "\n",
    "list.json": json.dumps(ROWS, indent=1),
    "under.json": json.dumps({"args": {"lr": 1}, "history": ROWS}),
    "columns.json": json.dumps({key: [row[key] for row in ROWS] for key in ROWS[0]}),
    "steps.json": json.dumps({row["step"]: {"reward": row["reward"], "kl": row["kl"]} for row in ROWS}),
    "nested.jsonl": "\n".join(
        json.dumps({"step": r["step"], "train": {"reward": r["reward"], "kl": r["kl"]}}) for r in ROWS
    ),
    "wide.csv": "step,reward,kl\n" + "".join(f"{r['step']},{r['reward']},{r['kl']}\n" for r in ROWS),
    "semicolons.csv": "Step;Reward;KL\r\n" + "".join(f"{r['step']};{r['reward']};{r['kl']}\r\n" for r in ROWS),
    "decimal-commas.csv": "Step;Reward;KL\n"
    + "".join(f"{r['step']};{r['reward']};{r['kl']}\n" for r in ROWS).replace(".", ","),
    "long.csv": "step,metric,value\n" + "".join(f"{r['step']},{k},{r[k]}\n" for r in ROWS for k in ("reward", "kl")),
    "wandb.csv": '"Step","run a - reward","run a - reward__MIN","run a - reward__MAX","run a - kl","run a - kl__MIN",'
    '"run a - kl__MAX"\n' + "".join(f'"{r["step"]}",{r["reward"]},0,9,{r["kl"]},0,9\n' for r in ROWS),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_the_same_log_gives_the_same_run(tmp_path: Path, name: str) -> None:
    run = load(write(tmp_path, FORMS[name], name))
    view = run.history.view()
    assert set(view.names()) == {"reward/mean", "policy/kl_ref"}
    assert view.series("reward/mean").steps.tolist() == list(range(1, 13))
    assert view.series("reward/mean").values.tolist() == [row["reward"] for row in ROWS]
    assert any("guessed from the names" in note and "--map" in note for note in run.source.notes)


@pytest.mark.parametrize("odd", ["NaN", "0.5", ""])
def test_a_header_with_one_odd_name_is_still_a_header(tmp_path: Path, odd: str) -> None:
    text = f"step,reward,kl,{odd}\n" + "".join(f"{r['step']},{r['reward']},{r['kl']},1.5\n" for r in ROWS)
    view = load(write(tmp_path, text, "odd.csv")).history.view()
    assert {"reward/mean", "policy/kl_ref"} <= set(view.names())
    assert view.series("reward/mean").values.tolist() == [row["reward"] for row in ROWS]


def test_a_table_without_a_header_is_not_read_as_one(tmp_path: Path) -> None:
    with pytest.raises(RunError):
        load(write(tmp_path, "".join(f"{r['step']},{r['reward']},{r['kl']}\n" for r in ROWS), "bare.csv"))


@pytest.mark.parametrize("name", ["lines.jsonl", "wide.csv", "long.csv"])
def test_every_prefix_of_a_file_is_a_prefix_of_the_run(tmp_path: Path, name: str) -> None:
    whole = load(write(tmp_path, FORMS[name], name)).history.view().series("reward/mean").values.tolist()
    for length in range(len(FORMS[name])):
        try:
            run = load(write(tmp_path, FORMS[name][:length], name))
        except RunError as error:
            assert name in str(error)
            continue
        values = run.history.view().series("reward/mean").values.tolist()
        last = len(values) - 1  # a number cut in the middle of its digits is still one in a table
        assert values[:last] == whole[:last]


def test_a_mapping_wins_over_a_guess_and_a_note_lists_guesses(tmp_path: Path) -> None:
    path = write(tmp_path, "step,reward,score\n1,0.5,2\n2,0.25,3\n", "log.csv")
    run = load(path, mapping={"reward/mean": "score"})
    assert run.history.view().series("reward/mean").values.tolist() == [2, 3]
    assert run.history.view().series("reward").values.tolist() == [0.5, 0.25]
    with pytest.raises(RunError, match="has no 'scor'.*score"):
        load(path, mapping={"reward/mean": "scor"})


def test_our_names_and_unknown_names_are_kept(tmp_path: Path) -> None:
    text = "\n".join(json.dumps({"step": s, "reward/mean": 0.5, "optim/lr": 1e-6, "my_thing": s}) for s in (1, 2))
    run = load(write(tmp_path, text, "log.jsonl"))
    assert set(run.history.names()) == {"reward/mean", "optim/lr", "my_thing"} and run.source.notes == ()


def test_a_percentage_is_not_taken_for_a_share(tmp_path: Path) -> None:
    run = load(write(tmp_path, "step,reward,accuracy\n1,0.5,35\n2,0.6,40\n", "log.csv"))
    assert "accuracy/train" not in run.history.names() and "accuracy" in run.history.names()


def test_progress_csv_of_stable_baselines(tmp_path: Path) -> None:
    text = (
        "rollout/ep_rew_mean,train/approx_kl,train/entropy_loss,time/total_timesteps,time/fps\n"
        "10.5,,,2048,900\n20.25,0.01,-0.69,4096,850\n31.0,0.02,-0.6,6144,800\n"
    )
    run = load(write(tmp_path, text, "progress.csv"))
    view = run.history.view()
    assert view.series("reward/mean").steps.tolist() == [2048, 4096, 6144]
    assert view.series("policy/kl_old").steps.tolist() == [4096, 6144]  # an empty cell is no measurement
    assert "policy/entropy" not in view and view.latest("train/entropy_loss") == -0.6  # its sign is turned round


def test_tensorboards_export_is_named_after_its_file(tmp_path: Path) -> None:
    run = load(write(tmp_path, "Wall time,Step,Value\n1.7e9,1,0.5\n1.7e9,2,0.6\n", "reward.csv"))
    assert run.history.view().series("reward/mean").values.tolist() == [0.5, 0.6]


def test_of_several_runs_in_an_export_the_largest_is_read_with_a_note(tmp_path: Path) -> None:
    text = "Step,a - reward,b - reward,b - kl\n1,0.1,0.5,0.01\n2,0.2,0.6,0.02\n"
    run = load(write(tmp_path, text, "export.csv"))
    assert run.history.view().latest("reward/mean") == 0.6 and any("2 runs" in note for note in run.source.notes)


def test_a_log_filled_forward_is_read_without_its_repetitions(tmp_path: Path) -> None:
    rows = [{"step": s, "reward": (s // 5) / 8, "loss": 0.5 - (s // 5) / 64} for s in range(100)]
    run = load(write(tmp_path, json.dumps(rows), "log.json"))
    assert run.history.view().series("reward/mean").steps.tolist() == list(range(0, 100, 5))
    assert any("80 rows left out" in note for note in run.source.notes)


def test_a_constant_run_is_not_mistaken_for_a_filled_log(tmp_path: Path) -> None:
    rows = [{"step": s, "reward": 1.0, "kl": 0.0} for s in range(100)]
    assert load(write(tmp_path, json.dumps(rows), "log.json")).source.steps == 100


def test_nan_is_kept_null_is_not_and_a_torn_line_is_counted(tmp_path: Path) -> None:
    text = '{"step":1,"reward":0.5,"kl":NaN}\n{"step":2,"reward":null,"kl":0.25}\n{"step":3,"rew'
    run = load(write(tmp_path, text, "log.jsonl"))
    view = run.history.view()
    assert view.series("reward/mean").steps.tolist() == [1] and run.source.skipped_lines == 1
    assert np.isnan(view.series("policy/kl_ref").values[0]) and view.latest("policy/kl_ref") == 0.25


def test_a_log_appended_to_after_a_restart_has_two_attempts(tmp_path: Path) -> None:
    steps = [*range(6), *range(3, 9)]
    text = "\n".join(json.dumps({"step": s, "reward": 0.5}) for s in steps)
    run = load(write(tmp_path, text, "log.jsonl"))
    assert sorted(run.histories) == [0, 1]


def test_steps_are_counted_where_there_are_none(tmp_path: Path) -> None:
    run = load(write(tmp_path, json.dumps({"rewards_avg": [0.1, 0.2, 0.3]}), "log.json"))
    assert run.history.view().series("reward/mean").steps.tolist() == [1, 2, 3]
    assert any("counted in records" in note for note in run.source.notes)


def test_names_of_trl_and_verl_are_recognised_in_every_container(tmp_path: Path) -> None:
    trl = "\n".join(json.dumps({"step": s, "train/reward": 0.5, "train/completions/mean_length": 9.0}) for s in (1, 2))
    assert load(write(tmp_path, trl, "a.jsonl")).source.trainer == "trl"
    verl = "step,critic/score/mean,actor/grad_norm\n1,0.5,0.1\n2,0.5,0.1\n"
    run = load(write(tmp_path, verl, "b.csv"))
    assert run.source.trainer == "verl" and "reward/mean" in run.history.names()


def test_a_training_without_rewards_is_seen_as_such(tmp_path: Path) -> None:
    text = "\n".join(
        json.dumps({"loss": 1.0, "learning_rate": 1e-5, "epoch": s / 9, "global_step/max_steps": f"{s}/9"})
        for s in range(1, 9)
    )
    run = load(write(tmp_path, text, "logging.jsonl"))
    assert run.source.trainer == "transformers" and run.history.view().series("optim/lr").steps.tolist() == [
        *range(1, 9)
    ]


@pytest.mark.parametrize("ours", names.GUESSES)
def test_every_guess_is_one_of_our_metrics_and_works_for_each_of_its_words(tmp_path: Path, ours: str) -> None:
    assert ours in VOCABULARY
    for word in names.GUESSES[ours]:
        run = load(write(tmp_path, f"step,{word},other\n1,0.5,7\n2,0.25,8\n", "log.csv"))
        assert run.history.view().series(ours).values.tolist() == [0.5, 0.25], word


SPELLED = {
    "train/rewards/mean": "reward/mean", "total_reward": "reward/mean", "env/all/reward/total": "reward/mean",
    "Mean Score": "reward/mean", "avg_episode_return": "reward/mean", "reward/std_dev": None, "reward_max": None,
    "val/reward": None, "ref_kl": "policy/kl_ref", "kl_to_reference": "policy/kl_ref", "kl/mean": "policy/kl_ref",
    "kl_coef": None, "mean_token_entropy": "policy/entropy", "entropy_coef": None, "grad_norm/mean": "optim/grad_norm",
    "critic_grad_norm": None, "mean_response_length": "rollout/length_mean", "response_length/mean":
    "rollout/length_mean", "avg_completion_tokens": "rollout/length_mean", "response_length/max": None,
    "max_completion_length": None, "frac_truncated": "rollout/truncated_frac", "zero_std_ratio":
    "reward/zero_std_frac", "frac_zero_variance_groups": "reward/zero_std_frac", "success_rate": "accuracy/train",
    "train/pass@1": "accuracy/train", "eval/success_rate": "accuracy/val", "heldout_accuracy": "accuracy/val",
    "rewards/fmt": "reward/fmt/mean",
}  # fmt: skip


@pytest.mark.parametrize("theirs", SPELLED)
def test_a_name_is_known_in_any_order_and_form_of_its_words(tmp_path: Path, theirs: str) -> None:
    beside = "advantage_max,lr" if SPELLED[theirs] == "reward/mean" else "reward,lr"
    run = load(write(tmp_path, f"step,{beside},{theirs}\n1,0.5,1,0.25\n2,0.5,1,0.125\n", "log.csv"))
    ours = SPELLED[theirs] or theirs
    assert run.history.view().series(ours).values.tolist() == [0.25, 0.125], run.history.names()


@pytest.mark.parametrize(
    "beside", ["loss", "weekly_users", "cross_entropy", "generation_time", "response_rate", "policy_count"]
)
def test_the_scores_of_a_training_without_a_policy_are_no_rewards(tmp_path: Path, beside: str) -> None:
    text = f"step,score,correct_rate,{beside},grad_norm_total\n1,0.5,0.5,0.3,1\n2,0.5,0.6,0.2,1\n"
    names = load(write(tmp_path, text, "log.csv")).history.names()
    assert "optim/grad_norm" in names and not {"reward/mean", "accuracy/train"} & set(names)


@pytest.mark.parametrize(
    "beside", ["approxkl", "kl_coef", "token-entropy", "response_len", "generated_tokens", "policy/pi_loss", "episodes"]
)
def test_a_score_beside_what_only_a_policy_has_is_its_reward(tmp_path: Path, beside: str) -> None:
    text = f"step,score,{beside}\n1,0.5,3\n2,0.25,3\n"
    assert load(write(tmp_path, text, "log.csv")).history.view().series("reward/mean").values.tolist() == [0.5, 0.25]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("log.csv", "step,a\n", "no rows"),
        ("log.csv", "step,a\n1,x\n", "no metrics"),
        ("log.json", '{"lr": 1}', "no records of numbers"),
        ("log.json", '{"step": 1, "rew', "ends too early"),
        ("log.json", "[" * 50_000, "known format|deeply"),
        ("wide.csv", ",".join(f"m{k}" for k in range(60_000)) + "\n" + ",".join("1" * 60_000) + "\n", "names"),
        ("wide.jsonl", json.dumps({f"m{k}": k for k in range(60_000)}), "different names|no records"),
        ("nb.ipynb", '{"cells": [], "nbformat": 4}', "cleared"),
    ],
)
def test_every_fault_gives_a_message(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(RunError, match=said) as caught:
        load(write(tmp_path, text, name))
    assert name in str(caught.value) and len(str(caught.value)) < 700


def notebook(*outputs: dict[str, Any]) -> str:
    cells = [{"cell_type": "code", "source": ["trainer.train()"], "outputs": list(outputs)}]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def test_the_table_a_trainer_shows_in_a_notebook(tmp_path: Path) -> None:
    rows = "".join(
        f"<tr><td>{s}</td><td>0.001000</td><td>{s / 80}</td><td>0.3</td><td>1,024.5</td><td>0.25</td></tr>"
        for s in (10, 20)
    )
    page = (
        "<div><progress value='20' max='50'></progress> [20/50 01:00, Epoch 0/1]</div>"
        '<table border="1"><thead><tr><th>Step</th><th>Training Loss</th><th>reward</th><th>reward_std</th>'
        f"<th>completion_length</th><th>rewards / right</th></tr></thead><tbody>{rows}</tbody></table><p>"
    )
    run = load(write(tmp_path, notebook({"output_type": "display_data", "data": {"text/html": [page]}}), "nb.ipynb"))
    view = run.history.view()
    assert (run.source.format, run.source.trainer, run.history.about["steps"]) == ("notebook", "trl", 50)
    assert view.series("reward/mean").steps.tolist() == [10, 20] and view.latest("reward/right/mean") == 0.25
    assert view.latest("rollout/length_mean") == 1024.5


def test_what_a_notebook_printed_is_read_as_a_console(tmp_path: Path) -> None:
    lines = [f"step:{s} - actor/grad_norm:0.5 - actor/pg_loss:0.01 - critic/score/mean:0.{s}25\n" for s in (1, 2, 3)]
    run = load(write(tmp_path, notebook({"output_type": "stream", "name": "stdout", "text": lines}), "nb.ipynb"))
    assert (run.source.format, run.source.trainer, run.source.steps) == ("notebook", "verl", 3)
    assert run.source.files == (str(tmp_path / "nb.ipynb"),)


def cells(*printed: str) -> str:
    said = [{"outputs": [{"output_type": "stream", "name": "stdout", "text": text}]} for text in printed]
    return json.dumps({"cells": said, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.mark.parametrize(
    "line",
    [
        "[Step {s}/40] loss=0.5 reward_avg=0.{s}5 avg_resp_len=236.8\n", "Step {s}: Mean Reward=0.{s}5\n",
        "step {s} -- mean_reward: (0.{s}5) -- decoding samples:\n", "Step {s} | reward: 0.{s}5\n",
    ],
)  # fmt: skip
def test_what_a_loop_of_ones_own_printed_in_a_notebook_is_read(tmp_path: Path, line: str) -> None:
    other = "torch 2.9 needs cuda 12\nTraceback (most recent call last):\nNameError: name 'model' is not defined\n"
    text = cells(other, "".join(line.format(s=s) for s in range(1, 9)), other)
    run = load(write(tmp_path, text, "nb.ipynb"))
    assert run.source.format == "notebook" and run.history.view().series("reward/mean").values.tolist()[2] == 0.35
    assert not run.history.events, "what other cells printed is no part of the training"


def test_printed_rewards_go_before_a_table_of_losses(tmp_path: Path) -> None:
    rows = "".join(f"<tr><td>{s}</td><td>0.1</td></tr>" for s in range(1, 40))
    table = {"data": {"text/html": [f"<table><tr><th>Step</th><th>Training Loss</th></tr>{rows}</table>"]}}
    printed = {"output_type": "stream", "text": "".join(f"Step {s} | reward: 0.{s}\n" for s in range(1, 9))}
    run = load(write(tmp_path, notebook(table, printed), "nb.ipynb"))
    assert run.source.steps == 8 and "reward/mean" in run.history.names()


def test_rewards_of_samples_are_no_training_beside_the_trainers_table(tmp_path: Path) -> None:
    rows = "".join(f"<tr><td>{s}</td><td>0.1</td><td>0.{s}</td></tr>" for s in (1, 2, 3))
    head = "<tr><th>Step</th><th>Training Loss</th><th>reward</th></tr>"
    table = {"data": {"text/html": [f"<table>{head}{rows}</table>"]}}
    printed = {"output_type": "stream", "text": "".join(f"Sample {s} | len: {s} | Reward: 0.0\n" for s in range(9))}
    run = load(write(tmp_path, notebook(table, printed), "nb.ipynb"))
    assert run.source.trainer == "trl" and run.history.view().series("reward/mean").values.tolist() == [0.1, 0.2, 0.3]


def test_numbers_of_another_program_are_no_training(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no output of a training"):
        load(write(tmp_path, cells("Step 1 | score: 0.5\nStep 2 | score: 0.6\n", "the reward is fun\n"), "nb.ipynb"))


def test_a_failure_printed_in_a_notebook_is_found_in_the_notebook(tmp_path: Path) -> None:
    lines = [f"step:{s} - actor/grad_norm:0.5 - critic/score/mean:0.{s}25\n" for s in (1, 2, 3)]
    lines += ["Traceback (most recent call last):\n", '  File "train.py", line 3, in <module>\n', "ValueError: no\n"]
    run = load(write(tmp_path, notebook({"output_type": "stream", "name": "stderr", "text": lines}), "nb.ipynb"))
    data = [event.data for event in run.history.events if "failure" in event.data]
    assert data and {one["file"] for one in data} == {str(tmp_path / "nb.ipynb")}
    assert not any("line" in one for one in data), "lines of the text, which the notebook does not have"


@pytest.mark.parametrize("trainer", [openrlhf, skyrl, nemo_rl, prime_rl], ids=lambda module: module.__name__)
@pytest.mark.parametrize("kept", ["csv", "jsonl"])
def test_what_a_tracker_exports_of_a_trainer_is_read_in_its_own_words(trainer, kept, tmp_path: Path) -> None:
    before = "train/" if trainer is openrlhf else ""
    theirs = {before + key: ours for key, ours in trainer.NAMES.items()}
    rows = [{"step": step, **{key: step / 8 + n / 64 for n, key in enumerate(theirs)}} for step in range(1, 5)]
    path = tmp_path / f"export.{kept}"
    if kept == "csv":
        lines = [",".join(rows[0]), *(",".join(str(value) for value in row.values()) for row in rows)]
    else:
        lines = [json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    run = load(path)
    view = run.history.view()
    assert run.source.trainer == trainer.__name__.split(".")[-2]
    for n, ours in enumerate(theirs.values()):
        assert view.series(ours).values.tolist() == [step / 8 + n / 64 for step in range(1, 5)], ours
    assert not any("guessed" in note for note in run.source.notes)


def test_a_table_with_few_of_a_trainers_names_is_not_taken_for_its_log(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("step,train/reward,train/loss,policy/final_loss\n1,0.1,0.2,0.3\n2,0.2,0.1,0.2\n")
    assert load(path).source.trainer == "unknown"


def tracked(step: int, before: str = "train/") -> dict[str, float]:
    return {"step": step, f"{before}actor_lr": 1e-6, f"{before}ppo_clip_ratio": 0.01, f"{before}reward": 0.5}


def lines_of(folder: Path, *rows: dict[str, float]) -> Path:
    return write(folder, "".join(json.dumps(row) + "\n" for row in rows), "log.jsonl")


def test_a_note_that_asks_for_a_map_is_gone_once_it_is_answered(tmp_path: Path) -> None:
    tests = {"eval/eval_gsm8k_pass1": 0.25, "eval/eval_math_pass1": 0.5}
    path = lines_of(tmp_path, *({**tracked(step), **tests} for step in (1, 2)))
    assert any("2 data sets" in note for note in load(path).source.notes)
    answered = load(path, mapping={"accuracy/val": "eval/eval_math_pass1"})
    assert answered.history.view().series("accuracy/val").values.tolist() == [0.5, 0.5]
    assert not any("--map" in note for note in answered.source.notes)


def test_what_prime_rl_leaves_open_is_counted_and_named(tmp_path: Path) -> None:
    row = {f"train/{env}/effective/solver/reward/mean": 0.5 for env in ("code", "math")}
    row |= {f"eval/{test}/effective/solver/avg@1": 0.5 for test in ("aime", "gsm8k")}
    path = lines_of(tmp_path, *({"step": step, "is_masked/mean": 0.0, **row} for step in (1, 2)))
    notes = load(path).source.notes
    reward = "train/code/effective/solver/reward/mean"
    assert any("(2 environments)" in note and f"'reward/mean={reward}'" in note for note in notes)
    assert any("validation" in note and "'accuracy/val=eval/aime/effective/solver/avg@1'" in note for note in notes)
    assert not any("rewards stay" in note for note in load(path, mapping={"reward/mean": reward}).source.notes)


@pytest.mark.parametrize("key", ["eval/accuracy", "val/acc", "validation/accuracy", "Test/Accuracy", "eval_accuracy"])
def test_held_out_accuracy_is_known_with_a_slash_too(key: str, tmp_path: Path) -> None:
    run = load(lines_of(tmp_path, *({"step": step, "reward": 0.5, key: 0.25} for step in (1, 2))))
    assert run.history.view().series("accuracy/val").values.tolist() == [0.25, 0.25]


def test_a_loss_on_held_out_problems_is_no_loss_of_training(tmp_path: Path) -> None:
    run = load(lines_of(tmp_path, *({"step": step, "eval/kl": 0.5, "eval/reward": 0.5} for step in (1, 2))))
    assert set(run.history.names()) == {"eval/kl", "eval/reward"}


def test_a_map_to_nearly_one_of_our_names_gives_a_note(tmp_path: Path) -> None:
    path = lines_of(tmp_path, *({"step": step, "score": 0.5, "acc": 0.5, "acc2": 0.5} for step in (1, 2)))
    notes = load(path, mapping={"reward/men": "score"}).source.notes
    assert any("did you mean reward/mean?" in note for note in notes)
    second = load(path, mapping={"accuracy/val": "acc", "accuracy/val2": "acc2", "my/own": "score"})
    assert not any("did you mean" in note for note in second.source.notes)


EVALUATIONS = {
    "openrlhf": ({"eval/eval_math_pass1": 0.5, "eval/eval_response_length_mean": 200.0}, 0.5),
    "skyrl": ({"eval/all/avg_score": 0.4, "eval/all/pass_at_1": 0.5, "eval/gsm8k/avg_score": 0.4}, 0.5),
    "prime_rl": ({"eval/aime/effective/solver/avg@4": 0.5, "eval/aime/effective/solver/pass@4": 0.75}, 0.5),
    "nemo_rl": ({"validation/accuracy": 0.5, "validation/avg_length": 200.0}, 0.5),
}


@pytest.mark.parametrize("trainer", EVALUATIONS)
def test_a_tracker_with_evaluations_alone_is_known_by_their_names(trainer, tmp_path: Path) -> None:
    values, accuracy = EVALUATIONS[trainer]
    run = load(lines_of(tmp_path, *({"step": step, **values} for step in (5, 10))))
    assert run.source.trainer == trainer
    assert run.history.view().series("accuracy/val").values.tolist() == [accuracy, accuracy]


@pytest.mark.parametrize(
    "key", ["eval/reward", "eval/pass1", "eval_math_pass1", "eval/all/avg_score", "validation/accuracy", "eval/x/avg@4"]
)
def test_a_common_evaluation_name_identifies_no_trainer(key: str, tmp_path: Path) -> None:
    assert load(lines_of(tmp_path, {"step": 5, key: 0.5}, {"step": 10, key: 0.5})).source.trainer == "unknown"


def test_nemo_rls_one_validation_set_is_the_accuracy_and_of_several_none_is(tmp_path: Path) -> None:
    row = {"train/gen_kl_error": 0.001, "train/reward": 0.5}
    one = load(lines_of(tmp_path, *({"step": step, **row, "validation-math/accuracy": 0.25} for step in (1, 2))))
    assert one.source.trainer == "nemo_rl" and one.history.view().latest("accuracy/val") == 0.25
    sets = {f"validation-{name}/accuracy": 0.25 for name in ("code", "math")}
    several = load(lines_of(tmp_path, *({"step": step, **row, **sets} for step in (1, 2))))
    assert several.history.view().latest("accuracy/val") is None
    assert any("--map 'accuracy/val=validation-code/accuracy'" in note for note in several.source.notes)
    whole = load(lines_of(tmp_path, *({"step": s, **row, **sets, "validation/accuracy": 0.5} for s in (1, 2))))
    assert whole.history.view().latest("accuracy/val") == 0.5


def test_one_metric_of_a_log_cannot_be_two_of_ours(tmp_path: Path) -> None:
    path = lines_of(tmp_path, {"step": 1, "score": 0.5})
    with pytest.raises(RunError, match=r"--map accuracy/train=score: 'score' is read as reward/mean already; leave"):
        load(path, mapping={"reward/mean": "score", "accuracy/train": "score"})


GROUPS = [[0, 1], [1, 1], [0.5, 1, 1], [0, 0]] * 4
"""The rewards of each answer of a step."""


def counted_script() -> str:
    """What a script of somebody prints: a test before the first step, then the rewards of every answer."""
    lines = ["Rewards: 1.0", "Rollout time: 177"]
    for step, each in enumerate(GROUPS, 1):
        lines += [f"[step {step:04}] SKIP rewards=[{', '.join(map(str, each))}] elapsed={step}s kl=0.1"]
        if step in (8, 16):
            lines += [f"  eval [{place}/20] pred={place} gt=7 OK" for place in range(1, 21)] + ["  Accuracy: 50.0%"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", ["run.log", "run.jsonl"])
def test_the_rewards_of_single_answers_are_read_as_their_mean(tmp_path: Path, name: str) -> None:
    records = [{"step": step, "rewards": each, "kl": 0.1} for step, each in enumerate(GROUPS, 1)]
    text = counted_script() if name == "run.log" else "".join(json.dumps(row) + "\n" for row in records)
    view = load(write(tmp_path, text, name)).history.view()
    assert view.series("reward/mean").values[-4:] == pytest.approx([0.5, 1.0, 5 / 6, 0.0], abs=1e-5)
    assert view.series("reward/std").values[-4:] == pytest.approx([0.5, 0.0, 0.2357, 0.0], abs=1e-4)
    assert view.step == len(GROUPS), "examples of an evaluation are counted like steps, and are none"


def test_a_list_of_other_numbers_is_no_metric(tmp_path: Path) -> None:
    records = [{"step": step, "reward": 0.5, "tokens": [1, 2, 3], "rewards": ["a", 1]} for step in range(1, 9)]
    view = load(write(tmp_path, "".join(json.dumps(row) + "\n" for row in records), "run.jsonl")).history.view()
    assert not {name for name in view.names() if "tokens" in name or "std" in name}


def test_of_names_in_two_spellings_the_one_in_most_rows_is_the_reward(tmp_path: Path) -> None:
    rows = [{"step": 1, "Reward": 9.0, "kl": 0.1}, *({"step": step, "reward": 0.5, "kl": 0.1} for step in range(2, 9))]
    view = load(write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "run.jsonl")).history.view()
    assert view.latest("reward/mean") == 0.5
