"""Case studies: pages hold what their folders say, and a symptom is recognised by its numbers."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from bench.cases import beta0, chosen, easyr1, halved, live, logged, open_r1, shared, start_trl, tldr
from bench.cases.page import PAGES, files


def without_output(text: str) -> str:
    """A page without the output of commands, whose wording is free to change."""
    return re.sub(r"```text\n.*?```", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_its_folder_says(name: str) -> None:
    for path, text in files(name).items():
        written = path.read_text(encoding="utf-8")
        assert without_output(written) == without_output(text), "run `python -m bench cases --pages`"


def test_an_unknown_case_is_refused_with_the_known_ones() -> None:
    assert chosen("case-easyr1") == ["case-easyr1"] and chosen(None) == list(PAGES)
    with pytest.raises(ValueError, match="no case named 'easyr1'; choose one of case-easyr1"):
        chosen("easyr1")


def series(norm: np.ndarray, reward: np.ndarray) -> dict[str, np.ndarray]:
    return {"optim/grad_norm": norm, "policy/clip_frac": np.full(len(norm), 0.05), "reward/mean": reward}


def test_a_norm_that_climbs_and_swings_while_the_reward_rises_is_the_symptom() -> None:
    rng = np.random.default_rng(0)
    rising, flat = np.linspace(0.5, 0.9, 400), np.full(400, 0.5)
    calm = 1 + 0.3 * rng.standard_normal(400)
    climbing = calm * np.linspace(1, 4, 400)
    assert beta0.sign(series(climbing, rising)).present
    assert not beta0.sign(series(calm, rising)).present
    assert not beta0.sign(series(calm + np.linspace(0, 3, 400), rising)).present, "it climbs and does not swing more"
    assert not beta0.sign(series(climbing, flat)).present


def test_a_reward_that_swings_without_a_trend_is_the_symptom() -> None:
    noise = np.random.default_rng(0).standard_normal(120)
    assert halved.sign(0.06 + 0.05 * noise).present
    assert not halved.sign(0.06 + 0.05 * noise + np.linspace(0, 0.2, 120)).present
    assert not halved.sign(0.5 + 0.05 * noise).present, "swings of a fifth of its level"


def test_a_run_is_measured_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shared, "BUILD", tmp_path)
    made = []
    for key in ("a", "a", "b"):
        assert shared.kept_or(lambda key=key: made.append(key) or [1.5, float("nan")], "case", key)[0] == 1.5
    assert made == ["a", "b"]


def test_a_refusal_of_trl_is_told_with_what_diagnose_names() -> None:
    log = (shared.SAMPLES / "case-open-r1" / "train.log").read_text(encoding="utf-8")
    told = open_r1.said(log)
    assert told.startswith("refused: The global train batch size (7 x 1)") and "num_generations 7" in told
    done = "trl 0.15.2: 2 steps done, 7 processes x 1 per device"
    assert open_r1.said(f"loading\n{done}\n") == f"starts: {done}"
    assert open_r1.said("Killed\n") == "failed otherwise: Killed"


def test_the_started_commands_are_those_that_preflight_and_plan_write() -> None:
    asked = open_r1.commands()
    assert asked["The user's command"] == {}
    assert asked["As `preflight --fix` writes it"] == {"num_generations": 7, "gradient_accumulation_steps": 32}
    planned = asked["As the first of `plan` has it"]
    assert open_r1.PROCESSES * planned["per_device_train_batch_size"] % planned["num_generations"] == 0


def test_flags_of_a_launch_command_are_read_and_replaced() -> None:
    command = "# note\naccelerate launch --num_processes=7 \\\n  grpo.py --beta 0.1 --bf16 \\\n  --reward_funcs a b"
    words = start_trl.flags(command)
    assert words == ["--beta", "0.1", "--bf16", "--reward_funcs", "a", "b"]
    assert start_trl.without(words, ("--bf16", "--reward_funcs")) == ["--beta", "0.1"]


def test_numbers_that_were_not_measured_again_stay(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shared, "SAMPLES", tmp_path)
    (tmp_path / "case").mkdir()
    arm = {"name": "as it was", "present": [True]}
    shared.write("case", [{"title": "one", "n": 1}, {"title": "two", "n": 1}], {"a": "1"}, {"what": "w", "arms": [arm]})
    fresh = {"what": "w", "arms": [{"name": "as it was", "present": [False]}, {"name": "new", "present": [True]}]}
    shared.write("case", [{"title": "two", "n": 2}], {"b": "2"}, fresh)
    held = json.loads((tmp_path / "case" / "arms.json").read_text())
    assert [(trial["title"], trial["n"]) for trial in held["trials"]] == [("one", 1), ("two", 2)]
    assert held["measured"] == {"a": "1", "b": "2"}
    assert [(arm["name"], arm["present"]) for arm in held["symptom"]["arms"]] == [
        ("as it was", [False]),
        ("new", [True]),
    ]


def test_a_reward_that_is_never_above_zero_and_noisy_is_what_the_user_got() -> None:
    rng = np.random.default_rng(0)
    rise = np.linspace(-10, -1, 200)
    assert tldr.sign(np.minimum(rise + rng.standard_normal(200) * 1.5, 0)).present
    assert not tldr.sign(rise + rng.standard_normal(200) * 0.1 - 1).present, "a smooth curve"
    assert not tldr.sign(rise + rng.standard_normal(200) * 1.5 + 10).present, "values above 0"


def test_trls_own_run_of_the_length_reward_is_what_the_user_got() -> None:
    rows = json.loads((tldr.LOGGED / "trainer_state.json").read_text())["log_history"]
    assert tldr.sign(np.array([row["reward"] for row in rows])).present


@pytest.mark.parametrize("name", logged.WRITERS)
def test_a_case_is_seen_in_its_trainers_own_log_with_the_cause_that_its_arms_prove(name: str) -> None:
    told = logged.told(name)
    assert told and {finding.causes[0].id for finding in told} == {logged.SYMPTOMS[name][1]}


def test_a_reward_that_stays_at_its_first_level_is_the_symptom() -> None:
    noise = 0.05 * np.random.default_rng(0).standard_normal(200)
    assert easyr1.sign(0.7 + noise).present
    assert not easyr1.sign(np.linspace(0.65, 0.9, 200) + noise).present


def test_trls_rows_are_judged_by_the_same_numbers() -> None:
    rng, rows = np.random.default_rng(0), 1280
    norm = 1 + 0.2 * rng.standard_normal(rows)
    logged_rows = {
        "grad_norm": norm * np.linspace(1, 3, rows), "clip_ratio/region_mean": np.full(rows, 0.02),
        "reward": np.where(np.arange(rows) % 4 == 0, np.linspace(0.4, 0.9, rows), np.nan),
    }  # fmt: skip
    assert beta0.trl_sign(logged_rows).present
    assert not beta0.trl_sign({**logged_rows, "grad_norm": norm}).present


def test_a_run_in_which_nothing_is_journaled_stands_for_every_mode(monkeypatch) -> None:
    plan = live.Plan("case", "sorting", (), steps=2, every=1, symptom=("reward/plateau",))
    ways = [live.Way("nobody"), live.Way("full", "auto-full"), live.Way("person", turns="prompts=8", change="4 → 8")]
    trained = []

    def run(plan: live.Plan, way: live.Way, seed: int) -> dict:
        trained.append((way.name, seed))
        acts = [(2, "grow-batch")] if way.turns or (way.mode == "auto-full" and seed == 2) else []
        return {
            "steps": [1, 2], "completions": [8, 16], "values": [[0.1, 0.2]], "step_s": [0.1], "change": "",
            "acts": acts, "journaled": acts, "told": {"info": 1}, "causes": {"info": "batch-too-small"},
        }  # fmt: skip

    monkeypatch.setattr(live, "_run", run)
    (trial,), told = live.measured(plan, ways, [1, 2], lambda words: None)
    assert trained == [("full", 1), ("person", 1), ("full", 2), ("nobody", 2), ("person", 2)]
    changes = [arm["change"] for arm in trial["arms"]]
    assert changes == ["", "1 of 2 seeds acted: grow-batch at step 2", "4 → 8"]
    assert live.in_words(told, "info") == "2 of 2 seeds, at step 1, 1; first cause batch-too-small"
    assert live.in_words(told, "warn") == "0 of 2 seeds"


def test_every_reading_of_a_live_run_is_taken_of_the_rows_since_the_last_one() -> None:
    readings = (live.Reading("a"), live.Reading("b", "median"), live.Reading("b", "swing"))
    notes = live._Notes(live.Plan("case", "sorting", (), steps=4, every=2, symptom=(), readings=readings))
    for step, (a, b) in enumerate([(1, 5), (3, 5), (5, 10), (7, 20)], 1):
        notes.add(step, {"a": a, "b": b, "batch/prompts_drawn": 4, "batch/group_size": 2})
    row = notes.as_row()
    assert row["values"] == [[2, 6], [5, 15], [0, 9]], "the swing is from the 5th to the 95th percentile"
    assert (row["steps"], row["completions"]) == ([2, 4], [16, 32])
