"""Plans: each is valid by the trainer's rules and whole by arithmetic, the nearest come first, and none hides why."""

from __future__ import annotations

import json
import re
import shlex
import tomllib

import pytest
import yaml

from stabilizer.cli import main
from stabilizer.preflight import planner
from stabilizer.preflight.memory import GIB, Shape, estimate, kv_bytes, model_shape
from stabilizer.preflight.paste import paste
from stabilizer.trainers.validity import violations

TRL = ("trl", "trl-rloo", "open-r1")
PER_PROCESS = (*TRL, "ms-swift")


def questions():
    for trainer, known in planner.TRAINERS.items():
        for vllm in known.placements:
            for gpus, group, prompts in ((2, 4, 16), (7, 8, 24), (16, 5, 32)):
                yield planner.wanted(trainer, gpus, vllm=vllm, group=group, prompts=prompts, model_size="1.5B")
    for version in ("0.14.0", "0.15.2", "0.17.0", "0.18.0", "0.24.0", "1.0.0"):
        for vllm in ("none", "server"):
            yield planner.wanted("trl", 8, version=version, vllm=vllm, group=8, prompts=16)


@pytest.mark.parametrize("asked", list(questions()), ids=lambda a: f"{a.trainer}-{a.version}-{a.vllm}-{a.gpus}")
def test_every_plan_is_accepted_and_its_numbers_add_up(asked):
    found = planner.plans(asked)
    assert found
    for plan in found[:: max(len(found) // 60, 1)]:
        processes = plan.processes if asked.trainer in PER_PROCESS else None
        assert violations(asked.trainer, asked.version, plan.config, processes=processes, gpus=asked.gpus) == []
        assert plan.processes + plan.vllm_gpus <= asked.gpus
        per_prompt = plan.group if asked.version == "0.14.0" else 1  # there the per-device batch counts prompts
        assert plan.completions == plan.processes * plan.per_device * plan.accumulation * per_prompt
        assert plan.group >= 2 and plan.prompts >= 1


@pytest.mark.parametrize("trainer", TRL)
def test_no_valid_cut_within_the_grid_is_left_out(trainer):
    """Exhaustively, for fixed processes: whatever the rules accept near what was asked is among the plans."""
    asked = planner.wanted(trainer, 6, vllm="none", group=4, prompts=8, processes=6)
    found = {(plan.per_device, plan.accumulation, plan.group) for plan in planner.plans(asked)}
    for per_device in (1, 2, 3, 4):
        for accumulation in (1, 2, 3, 4):
            for group in range(2, 9):
                prompts = 6 * per_device * accumulation / group
                keys = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations")
                config = dict(zip(keys, (per_device, accumulation, group), strict=True))
                valid = not violations(trainer, asked.version, config, processes=6) and 2 <= prompts <= 32
                assert ((per_device, accumulation, group) in found) == valid


def test_what_was_asked_comes_first_when_it_is_possible():
    first = planner.plans(planner.wanted("trl", 8, group=16, prompts=24))[0]
    assert (first.group, first.prompts, first.processes) == (16, 24, 8)


def test_a_vllm_server_takes_as_many_gpus_as_its_model_needs():
    """70B at 2.2 bytes are 151 GiB with a cache: 77 on each of two GPUs, of whose 80 GiB 72 may be used, so four."""
    big, small = (planner.wanted("trl", 32, vllm="server", model_size=size) for size in ("70B", "7B"))
    assert {plan.vllm_gpus for plan in planner.plans(big)} == {4}
    assert {plan.vllm_gpus for plan in planner.plans(small)} == {1}
    tight = planner.wanted("trl", 32, vllm="server", model_size="70B", memory=16)
    assert {plan.vllm_gpus for plan in planner.plans(tight)} == {16}


def test_open_r1_with_a_vllm_server_trains_on_seven_of_eight():
    found = planner.plans(planner.wanted("open-r1", 8, vllm="server", group=8))
    assert found[0].processes == 7 and found[0].vllm_gpus == 1 and found[0].group == 8
    assert found[0].completions % 7 == 0
    assert all(plan.group != 1 for plan in found)


def test_the_case_study_is_explained_with_the_settings_that_would_do():
    asked = planner.wanted("open-r1", 8, version="0.16.1", vllm="server", group=8, per_device=1, accumulation=1)
    refused = planner.exactly(asked)
    assert "7 x 1 = 7" in refused.message and "num_generations 7" in refused.expected
    assert planner.plans(asked)[0].group == 7
    assert planner.exactly(planner.wanted("open-r1", 8, vllm="server", group=8, per_device=1, accumulation=8)) is None


def test_a_server_that_takes_every_gpu_leaves_no_plan_and_says_what_would():
    asked = planner.wanted("trl", 1, vllm="server")
    assert planner.plans(asked) == []
    why, change = planner.impossible(asked)
    assert "takes 1 of 1" in why and "--gpus 2" in change
    assert planner.plans(planner.wanted("trl", 2, vllm="server"))


def test_a_single_completion_is_no_batch_and_the_nearest_change_makes_one():
    asked = planner.wanted("trl", 1, per_device=1, accumulation=1)
    assert planner.plans(asked) == []
    _, change = planner.impossible(asked)
    assert change == "--accumulation 8 (with 8 generations)"
    assert planner.plans(planner.wanted("trl", 1, per_device=1, accumulation=8))[0].group == 8


@pytest.mark.parametrize(("trainer", "gpus", "size"), [("trl", 2, "32B"), ("verl", 8, "72B"), ("open-r1", 4, "14B")])
def test_when_nothing_fits_the_nearest_change_makes_something_fit(trainer, gpus, size):
    asked = planner.wanted(trainer, gpus, model_size=size, memory=40)
    found = planner.plans(asked)
    assert found and not any(plan.fits for plan in found)
    _, change = planner.too_small(asked, found[0])
    flags = dict(re.findall(r"--(gpus|vllm|sharding|per-device) (\S+)", change.split(" or ")[0]))
    named = {"vllm": flags.get("vllm"), "sharding": flags.get("sharding", "zero3")}
    again = planner.wanted(trainer, int(flags.get("gpus", gpus)), model_size=size, memory=40, **named)
    assert any(plan.fits for plan in planner.plans(again))


def test_a_search_too_large_to_finish_keeps_to_the_nearest_prompts():
    found = planner.plans(planner.wanted("verl", 8, prompts=8192, group=1024, per_device=1))
    assert 0 < len(found) <= planner.MOST_TRIED
    assert found[0].prompts == 8192 and found[0].group == 1024


def test_plans_that_fit_come_before_plans_that_do_not():
    fits = [plan.fits for plan in planner.plans(planner.wanted("trl", 8, memory=40))]
    assert fits == sorted(fits, reverse=True) and True in fits and False in fits


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"trainer": "trl", "gpus": 0}, "--gpus 0"),
        ({"trainer": "trl", "gpus": 8, "group": 1}, "never valid"),
        ({"trainer": "trl", "gpus": 8, "processes": 9}, "more than the 8 GPUs"),
        ({"trainer": "trl", "gpus": 8, "model_size": "seven"}, "7B or 500M"),
        ({"trainer": "trl", "gpus": 8, "version": "0.16.1", "vllm": "colocate"}, "it can do none, server"),
        ({"trainer": "verl", "gpus": 8, "vllm": "server"}, "it can do colocate"),
        ({"trainer": "verl", "gpus": 8, "processes": 4}, "--processes is for TRL"),
        ({"trainer": "trl-ppo", "gpus": 8}, "no plans for trl-ppo"),
        ({"trainer": "nope", "gpus": 8}, "no trainer 'nope'; plans are made for trl, trl-rloo, open-r1"),
        ({"trainer": "trl", "gpus": 8, "memory": 0.0}, "--memory 0"),
        ({"trainer": "trl", "gpus": 8, "memory": float("nan")}, "--memory nan must lie between"),
        ({"trainer": "trl", "gpus": 10**19}, "must lie between 1 and 16,384"),
        ({"trainer": "trl", "gpus": 8, "group": 10**8}, "--num-generations 100000000 must lie between"),
        ({"trainer": "verl", "gpus": 8, "prompts": 10**8}, "--prompts-per-update 100000000 must lie between"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_with_what_could_be_asked(arguments, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        planner.wanted(**arguments)


# --- memory ---------------------------------------------------------------------------------------------------------

TINY = Shape(parameters=GIB, layers=10, hidden=1000, kv_width=100, vocabulary=1000)  # 2**30 parameters: 1 GiB a byte


def test_model_state_is_sixteen_bytes_a_parameter_divided_by_what_is_sharded():
    sizes = {"reference": False, "per_device": 1, "prompt_length": 10, "completion_length": 10}
    whole = estimate(TINY, ranks=4, sharding="none", **sizes)
    assert (whole.weights, whole.gradients, whole.optimizer) == (2, 2, 12)
    half = estimate(TINY, ranks=4, sharding="zero2", **sizes)
    assert (half.weights, half.gradients, half.optimizer) == (2, 0.5, 3)
    full = estimate(TINY, ranks=4, sharding="zero3", **sizes)
    assert (full.weights, full.gradients, full.optimizer) == (0.5, 0.5, 3)


def test_activations_logits_and_cache_by_hand():
    memory = estimate(
        TINY,
        ranks=1,
        sharding="none",
        reference=True,
        per_device=2,
        prompt_length=30,
        completion_length=70,
        generated=4,
    )
    assert memory.activations * GIB == pytest.approx(2 * 100 * 1000 * (2 * 10 + 34))  # 200 tokens x 54,000
    assert memory.logits * GIB == pytest.approx(2 * 70 * 1000 * 10)
    assert memory.generation * GIB == pytest.approx(kv_bytes(TINY, 4, 100))  # nothing gathered: nothing is sharded
    assert kv_bytes(TINY, 4, 100) == 2 * 2 * 10 * 100 * 400  # keys and values, 2 bytes
    train = memory.activations + memory.logits
    assert memory.total == pytest.approx(2 + 2 + 12 + 2 + 2 + max(train, memory.generation))


def test_a_vllm_that_sleeps_counts_only_where_it_is_larger_than_the_training_pass():
    sizes = {"ranks": 1, "sharding": "none", "reference": False, "per_device": 1, "prompt_length": 9}
    awake = estimate(TINY, completion_length=9, vllm=20.0, **sizes)
    asleep = estimate(TINY, completion_length=9, vllm=20.0, vllm_sleeps=True, **sizes)
    assert awake.total - asleep.total == pytest.approx(awake.activations + awake.logits)


def test_sizes_are_read_as_people_write_them():
    assert model_shape("7B").parameters == 7e9 and model_shape("7B").layers == 28
    assert model_shape("500M").parameters == model_shape("0.5b").parameters == 5e8


# --- what is pasted -------------------------------------------------------------------------------------------------


def flat(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


@pytest.mark.parametrize("trainer", planner.TRAINERS)
def test_what_is_pasted_says_the_plans_configuration(trainer):
    asked = planner.wanted(trainer, 8)
    plan = planner.plans(asked)[0]
    text = paste(asked, plan)
    assert text.startswith("# ") and f"{plan.prompts} prompts x {plan.group}" in text
    body = text.partition("\n")[2]
    if trainer == "prime-rl":
        read = dict(flat(tomllib.loads(body)))
    elif trainer in ("verl", "search-r1", "skyrl", "areal"):
        words = [word for word in shlex.split(body.replace("\\\n", " ")) if "=" in word]
        read = {key: yaml.safe_load(value) for key, value in (word.split("=", 1) for word in words)}
    elif trainer in ("openrlhf", "slime", "ms-swift"):
        words = shlex.split(body.replace("\\\n", " "))
        flags = " ".join(words).split("--")[1:]
        read = {flag.split()[0]: yaml.safe_load(flag.split()[1]) if len(flag.split()) > 1 else True for flag in flags}
    else:
        read = dict(flat(yaml.safe_load(body)))
    assert read == plan.config


def test_the_launch_line_names_the_planned_processes_and_the_gpu_of_the_server():
    asked = planner.wanted("open-r1", 8)
    text = paste(asked, planner.plans(asked)[0])
    assert "CUDA_VISIBLE_DEVICES=7 trl vllm-serve" in text and "--num_processes 7 " in text


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_prints_the_table_and_the_configuration(capsys):
    assert main(["plan", "--trainer", "open-r1", "--gpus", "8", "--vllm", "server", "--num-generations", "8"]) == 0
    out = " ".join(capsys.readouterr().out.split())  # wherever lines break
    assert "leaves 7 for training" in out and "num_generations: 8" in out and "estimate" in out
    assert "1 is never a valid number of generations" in out
    assert "32 x 8 = 256 completions can't be divided among 7 processes" in out and "a multiple of 7" in out


def test_json_holds_the_plans_and_nothing_else(capsys):
    assert main(["plan", "--trainer", "verl", "--gpus", "8", "--limit", "3", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["plans"]) == 3 <= said["valid"] and said["trouble"] is None
    plan = said["plans"][0]
    assert plan["completions"] == plan["processes"] * plan["per_device"] * plan["accumulation"]
    assert plan["memory_gib"]["total"] <= said["asked"]["memory"]


def test_another_plan_can_be_pasted(capsys):
    main(["plan", "--trainer", "trl", "--gpus", "8", "--paste", "2", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert f"gradient_accumulation_steps: {said['plans'][1]['accumulation']}" in said["paste"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--trainer", "trl", "--gpus", "1", "--vllm", "server"], 1),
        (["--trainer", "trl", "--gpus", "2", "--model-size", "32B"], 1),
        (["--trainer", "trl", "--gpus", "8", "--num-generations", "1"], 2),
        (["--trainer", "trl", "--gpus", "8", "--paste", "99999"], 2),
        (["--trainer", "trl", "--gpus", "8", "--limit", "0"], 2),
    ],
)
def test_the_exit_code_says_whether_there_is_a_plan_or_no_sense_in_the_question(words, code, capsys):
    assert main(["plan", *words]) == code
    said = capsys.readouterr()
    assert ("Nearest change" in said.out) == (code == 1)
    assert ("stabilizer plan:" in said.err) == (code == 2)
