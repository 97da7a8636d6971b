"""Configurations as people have them: what is read, where it stands, and what is only known when it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stabilizer.configs import reading
from stabilizer.configs.config import ConfigError, Unresolved, number
from stabilizer.preflight.check import Options, as_json, configured, preflight


def read(tmp_path: Path, name: str, text: str):
    path = tmp_path / name
    path.write_text(text)
    return reading.read(path)


def values(parsed) -> dict:
    return {s.key: s.value for s in parsed.settings}


def at(parsed, key: str) -> tuple[int | None, str | None]:
    """(line, the text its span covers)."""
    setting = next(s for s in parsed.settings if s.key == key)
    return setting.line, parsed.text[slice(*setting.span)] if setting.span else None


@pytest.mark.parametrize(
    "text,value",
    [("1e-6", 1e-6), ("1.0e-6", 1e-6), ("2.0e-05", 2e-5), ("8", 8), ("-1", -1), ("1_000", 1000), (".5", 0.5),
     ("1e400", None), ("9" * 400, None), ("9" * 5000, None),
     ("1e308", None), ("0.18.0", None), ("", None), ("x", None), ("1e", None)],
)  # fmt: skip
def test_numbers_as_trainers_read_them(text: str, value: float | None) -> None:
    assert number(text) == value


def test_yaml_keeps_lines_and_the_text_of_each_value(tmp_path) -> None:
    parsed = read(tmp_path, "a.yaml", "# recipe\nlearning_rate: 1e-6  # small\nnested:\n  beta: 0.0\n  name: 'a b'\n")
    assert values(parsed) == {"learning_rate": 1e-6, "nested.beta": 0.0, "nested.name": "a b"}
    assert at(parsed, "learning_rate") == (2, "1e-6") and at(parsed, "nested.beta") == (4, "0.0")


def test_yaml_words_and_references(tmp_path) -> None:
    parsed = read(tmp_path, "a.yaml", "a: yes\nb: null\nc: ${data.n}\nd: [1, 2e-5]\ne: '8'\n")
    assert values(parsed) == {"a": True, "b": None, "c": Unresolved("${data.n}"), "d": [1, 2e-5], "e": "8"}


def test_overrides_behind_set_are_settings(tmp_path) -> None:
    parsed = read(tmp_path, "a.sh", "stabilizer train addition --set optim.lr=2e-2 --steps 500\n")
    assert values(parsed) == {"optim.lr": 2e-2, "steps": 500} and at(parsed, "optim.lr") == (1, "2e-2")


def test_json_may_be_indented_with_tabs(tmp_path) -> None:
    parsed = read(tmp_path, "experiment_config.json", '{\n\t"data": {\n\t\t"rollout_batch_size": 32\n\t}\n}\n')
    assert values(parsed) == {"data.rollout_batch_size": 32} and at(parsed, "data.rollout_batch_size") == (3, "32")


def test_toml_tables_dotted_keys_and_comments(tmp_path) -> None:
    text = 'max_steps = 20 # short\n[trainer.optim]\nlr = 3e-6\n[[orchestrator.env]]\nname = "x"\n[a]\nb.c = "d"\n'
    parsed = read(tmp_path, "rl.toml", text)
    assert values(parsed) == {"max_steps": 20, "trainer.optim.lr": 3e-6, "a.b.c": "d"}
    assert at(parsed, "trainer.optim.lr") == (3, "3e-6") and at(parsed, "max_steps") == (1, "20")


SCRIPT = r"""#!/bin/bash
# --beta 9 in a comment
LR=1e-6; export BASE='Qwen/Qwen2.5-3B'
GPUS=$(nvidia-smi -L | wc -l)
: "${N:=4}"
FOO=1 python3 -m verl.trainer.main_ppo \
    data.train_batch_size=256 \
    actor_rollout_ref.actor.optim.lr=$LR \
    actor_rollout_ref.model.path="${BASE}-Instruct" \
    trainer.n_gpus_per_node=$GPUS \
    trainer.nnodes=${N} \
    trainer.logger=['console','wandb'] \
    +trainer.val_only=false \
    trainer.experiment_name=$NAME 2>&1 | tee run-$NAME.log
echo done --beta 3
"""


def test_a_script_is_split_into_words_and_its_variables_followed(tmp_path) -> None:
    parsed = read(tmp_path, "train_ppo.sh", SCRIPT)
    assert values(parsed) == {
        "data.train_batch_size": 256,
        "actor_rollout_ref.actor.optim.lr": 1e-6,
        "actor_rollout_ref.model.path": "Qwen/Qwen2.5-3B-Instruct",
        "trainer.n_gpus_per_node": Unresolved("$GPUS"),
        "trainer.nnodes": 4,
        "trainer.logger": ["console", "wandb"],
        "trainer.val_only": False,
        "trainer.experiment_name": Unresolved("$NAME"),
    }
    assert at(parsed, "data.train_batch_size") == (7, "256")
    assert at(parsed, "actor_rollout_ref.actor.optim.lr") == (8, "$LR")


DAPO = r"""MODEL=${MODEL:-"${HOME}/models/32B"}
rollout=512; mini=32
context=$((1024 * 2 + 1024*20))
NNODES=${NNODES:-${SLURM_NNODES:-16}}
NAME="run-$(date +"%H")-${mini}"
ray job submit --runtime-env="${ENV}" -- python3 -m recipe.dapo.main_dapo \
    data.gen_batch_size=$((rollout * 3)) \
    data.train_batch_size="${rollout}" \
    actor_rollout_ref.model.path="${MODEL}" \
    trainer.experiment_name="$NAME" \
    trainer.nnodes="${NNODES}" \
    trainer.n_gpus_per_node=$(( $# + 1 )) \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$(((context) / 2))
"""


def test_quoted_and_nested_defaults_and_sums_of_a_script_are_evaluated(tmp_path) -> None:
    parsed = read(tmp_path, "dapo.sh", DAPO)
    found = values(parsed)
    assert (found["data.train_batch_size"], found["data.gen_batch_size"], found["trainer.nnodes"]) == (512, 1536, 16)
    assert found["actor_rollout_ref.actor.ppo_max_token_len_per_gpu"] == (2048 + 20480) // 2
    unknown = {key for key, value in found.items() if isinstance(value, Unresolved)}
    assert {"actor_rollout_ref.model.path", "trainer.experiment_name", "trainer.n_gpus_per_node"} <= unknown
    assert at(parsed, "data.gen_batch_size") == (7, "$((rollout * 3))")


def test_nothing_of_a_script_is_run(tmp_path) -> None:
    mark = tmp_path / "ran"
    script = f"touch {mark}\nX=$(touch {mark})\npython -m verl.trainer.main_ppo data.train_batch_size=`touch {mark}`\n"
    read(tmp_path, "a.sh", script)
    read(tmp_path, "a.py", f"open({str(mark)!r}, 'w')\nimport os\nGRPOConfig(beta=os.system('touch {mark}'), lr=1)\n")
    assert not mark.exists()


def test_a_launcher_gives_the_processes_and_its_flags_are_not_settings(tmp_path) -> None:
    text = "accelerate launch --num_processes=7 --config_file z.yaml grpo.py --beta 0.0 --bf16 --reward_funcs a b -x\n"
    parsed = read(tmp_path, "run.sh", text)
    assert parsed.processes == 7
    assert values(parsed) == {"beta": 0.0, "bf16": True, "reward_funcs": ["a", "b"]}
    assert values(read(tmp_path, "c.sh", "python grpo.py --config_file z.yaml --beta 0\n"))["config_file"] == "z.yaml"
    assert read(tmp_path, "b.sh", "torchrun --nproc_per_node 4 grpo.py --beta -1\n").processes == 4


def test_a_command_takes_the_settings_of_the_recipe_it_names_and_overrides_them(tmp_path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/r.yaml").write_text("beta: 0.04\nnum_generations: 16\nper_device_train_batch_size: 4\n")
    path = tmp_path / "run.sh"
    path.write_text("accelerate launch --num_processes 4 src/open_r1/grpo.py --config recipes/r.yaml --beta 0.01\n")
    config = preflight(path).config
    assert config.value("beta") == 0.01 and config.value("num_generations") == 16
    assert config.settings["num_generations"].file.endswith("r.yaml") and config.settings["num_generations"].line == 2
    path.write_text("python src/open_r1/grpo.py --config recipes/gone.yaml --beta 0.01\n")
    config = preflight(path).config
    assert config.value("beta") == 0.01
    assert "recipes/gone.yaml, on which it builds, is not found" in config.parsed.notes[0]


def test_the_gpus_that_a_script_leaves_to_the_training_are_counted(tmp_path) -> None:
    path, command = tmp_path / "run.sh", "python3 -m openrlhf.cli.train_ppo_ray --actor_num_gpus_per_node 1\n"
    for before, gpus in (
        ("ray start --head --num-gpus 2\n", 2),
        ("export CUDA_VISIBLE_DEVICES=0,1,2\n", 3),
        ("ray start --head --num-gpus 8\nssh other ray start --num-gpus 8\nray start --num-gpus 4\n", None),
        ("", None),
    ):
        path.write_text(before + command)
        assert reading.read(path).hints["gpus"] == gpus


PYTHON = '''"""Comment: GRPOConfig(beta=9)"""
from trl import GRPOConfig
import os
BATCH = 16 // 2
extra = dict(temperature=0.9)
for lr in (1, 2):
    pass
args = GRPOConfig(
    output_dir="ä", per_device_train_batch_size=BATCH, beta=-0.0, learning_rate=lr, logging_steps=int(os.environ["N"]),
    num_generations=2 ** 3, max_grad_norm=1 / 0, warmup_steps=2 ** 9999, **extra,
)
peft = LoraConfig(r=8)
'''


def test_a_python_script_is_parsed_constants_and_arithmetic_followed(tmp_path) -> None:
    parsed = read(tmp_path, "train.py", PYTHON)
    found = values(parsed)
    assert (found["per_device_train_batch_size"], found["num_generations"], found["temperature"]) == (8, 8, 0.9)
    unknown = {key for key, value in found.items() if isinstance(value, Unresolved)}
    assert unknown == {"learning_rate", "logging_steps", "max_grad_norm", "warmup_steps"}
    assert at(parsed, "per_device_train_batch_size") == (9, "BATCH"), "columns are counted in bytes by the parser"
    assert parsed.command == "GRPOConfig" and parsed.hints["lora"] is True


def test_the_last_of_several_configurations_is_checked_and_noted(tmp_path) -> None:
    parsed = read(tmp_path, "a.py", "a = GRPOConfig(beta=0.1)\nb = GRPOConfig(beta=0.2)\n")
    assert values(parsed) == {"beta": 0.2} and "2 configurations" in parsed.notes[0]


def test_a_later_setting_wins_and_set_wins_over_all(tmp_path) -> None:
    parsed = read(tmp_path, "a.sh", "trl grpo --beta 0.1 --beta 0.2 --num_generations 8\n")
    assert configured(parsed, Options()).value("beta") == 0.2
    assert configured(parsed, Options(overrides=("beta=0.3",))).value("beta") == 0.3


@pytest.mark.parametrize(
    "keys,version",
    [("beta: 0.0", "1.16.0"), ("beta: 0.0\nmax_prompt_length: 512", "0.27.2"),
     ("vllm_device: auto\nbeta: 0.0", "0.17.0"), ("num_ppo_epochs: 4", "1.12.0"),
     ("vllm_device: auto\nvllm_importance_sampling_clip_max: 3.0", "1.16.0")],
)  # fmt: skip
def test_the_version_follows_from_the_keys(tmp_path, keys: str, version: str) -> None:
    parsed = read(tmp_path, "a.yaml", f"num_generations: 8\n{keys}\n")
    assert configured(parsed, Options()).version_used == version


def test_old_and_dotted_flags_of_openrlhf_mean_the_same(tmp_path) -> None:
    old = read(tmp_path, "a.sh", "python -m openrlhf.cli.train_ppo_ray --init_kl_coef 0.01 --n_samples_per_prompt 4\n")
    new = read(tmp_path, "b.sh", "python -m openrlhf.cli.train_ppo_ray --algo.kl.init_coef 0.01"
                                 " --rollout.n_samples_per_prompt 4\n")  # fmt: skip
    assert configured(old, Options()).plain() == configured(new, Options()).plain()


BAD = {
    "empty.yaml": (b"", "is empty"),
    "blank.sh": (b"  \n", "is empty"),
    "binary.yaml": (bytes(range(256)), "binary"),
    "latin.yaml": ("beta: é".encode("latin-1"), "UTF-8"),
    "list.yaml": (b"- 1\n- 2\n", "mapping"),
    "broken.yaml": (b"a: [1\nb: 2\n", "line"),
    "tag.yaml": (b"!!python/object/apply:os.system ['true']\n", "mapping"),
    "deep.yaml": (b"{a: " * 3000 + b"1" + b"}" * 3000, "nested|YAML"),
    "deep.json": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested|JSON"),
    "broken.json": (b'{"a": 1', "line 1"),
    "broken.toml": (b"a = = 1\n", "TOML"),
    "broken.py": (b"def f(:\n", "line 1"),
    "none.py": (b"x = 1\n", "GRPOConfig"),
    "none.sh": (b"echo hello\n", "no settings"),
    "bomb.yaml": (b"a: &a [1,1,1,1,1,1,1,1,1]\n" + b"".join(
        f"k{i}: &k{i} {{{', '.join(f'x{j}: *k{i - 1}' for j in range(30))}}}\n".encode() if i else b"k0: &k0 {x: 1}\n"
        for i in range(9)), "more than|trainer"),
    "loop.yaml": (b"a: &a\n  b: *a\n", "nested"),
    "many.yaml": (b"".join(b"k%d: 1\n" % i for i in range(30_000)), "more than"),
    "log.docx": (b"beta: 1\n", "no form"),
    "other.yaml": (b"flour: 500\nwater: 300\n", "which trainer"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_not_a_configuration_is_an_error_with_a_message(tmp_path, name: str) -> None:
    content, said = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=said) as caught:
        preflight(tmp_path / name)
    assert name in str(caught.value) and len(str(caught.value)) < 700


def test_paths_that_are_not_files_are_refused(tmp_path) -> None:
    (tmp_path / "big.yaml").write_bytes(b"# " + b"x" * (5 * 2**20))
    for path, said in (("gone.yaml", "no such file"), (".", "a folder"), ("a\0b", "NUL"), ("big.yaml", "MiB")):
        with pytest.raises(ConfigError, match=said):
            preflight(tmp_path / path)


def test_an_unknown_trainer_names_the_nearest(tmp_path) -> None:
    (tmp_path / "a.yaml").write_text("beta: 1\n")
    with pytest.raises(ConfigError, match="did you mean 'easyr1'"):
        preflight(tmp_path / "a.yaml", Options(trainer="easy_r1x"))


def test_our_own_keys_and_defaults_are_those_of_the_trainer() -> None:
    config = pytest.importorskip("stabilizer.training.config")
    from stabilizer.trainers.stabilizer.config import DEFAULTS, OWN

    assert set(OWN.keys) == set(config.SCHEMA), (
        "remake the list: python -c 'from stabilizer.training.config import SCHEMA as s; print(*sorted(s), sep=chr(10))'"  # noqa: E501
        " > stabilizer/trainers/stabilizer/keys.txt"
    )
    flat = config._flat(config.config_dict(config.TrainConfig()))
    assert {key: flat[key] for key in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(
    "name,text",
    [("a.yaml", "a: " + "[" * 100_000), ("b.yaml", "a: " + "[" * 50_000 + "]" * 50_000), ("c.py", "x=" + "(" * 50_000),
     ("d.py", "GRPOConfig(a=" + "-" * 20_000 + "1)"), ("e.toml", "a=" + "[" * 50_000),
     ("f.sh", "trl grpo " + "--a 1 " * 30_000)],
)  # fmt: skip
def test_endless_nesting_ends_with_a_message(tmp_path, name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        read(tmp_path, name, text)


def test_a_variable_that_doubles_itself_is_not_followed(tmp_path) -> None:
    parsed = read(tmp_path, "a.sh", "A=xxxxxxxx\n" + "A=$A$A\n" * 60 + "trl grpo --beta $A --num_generations 8\n")
    assert isinstance(values(parsed)["beta"], Unresolved) and values(parsed)["num_generations"] == 8


def test_a_file_takes_missing_settings_from_the_file_it_builds_on(tmp_path) -> None:
    (tmp_path / "base.yaml").write_text("grpo:\n  num_prompts_per_step: 32\n  num_generations_per_prompt: 16\n")
    path = tmp_path / "mine.yaml"
    path.write_text("defaults: base.yaml\ngrpo:\n  num_prompts_per_step: 4\n")
    config = preflight(path).config
    assert config.value("grpo.num_prompts_per_step") == 4 and config.value("grpo.num_generations_per_prompt") == 16
    path.write_text("defaults: gone.yaml\ngrpo:\n  num_prompts_per_step: 4\n")
    assert "gone.yaml" in preflight(path).config.parsed.notes[0]


def test_lists_of_references_to_lists_are_refused(tmp_path) -> None:
    lists = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
    with pytest.raises(ConfigError, match="aliases written out"):
        read(tmp_path, "bomb.yaml", f"num_generations: 8\na0: &a0 [x]\n{lists}")


def test_numbers_beyond_arithmetic_are_unresolved(tmp_path) -> None:
    huge = "9" * 400
    for name, text in (
        ("a.yaml", f"num_generations: {huge}\nper_device_train_batch_size: {huge}\n"),
        ("b.py", f"GRPOConfig(num_generations={huge}, learning_rate=1e999, beta=0.0)\n"),
        ("c.toml", f"max_steps = nan\n[orchestrator]\nbatch_size = {huge}\ngroup_size = inf\n"),
    ):
        path = tmp_path / name
        path.write_text(text)
        json.dumps(as_json(preflight(path, Options(processes=8))), allow_nan=False)
