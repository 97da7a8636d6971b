"""Commands that train nothing are named, and are no training of another trainer's."""

from __future__ import annotations

from pathlib import Path

import pytest

from stabilizer.configs import reading
from stabilizer.configs.config import ConfigError
from stabilizer.configs.purposes import CONVERTS, EVALUATES, GENERATES, LOOKS, PREPARES, SERVES, purpose
from stabilizer.configs.shell import read
from stabilizer.preflight.check import Options, configured
from stabilizer.trainers.configs import recognised


@pytest.mark.parametrize(
    ("words", "does"),
    [("vllm serve Qwen/Qwen2.5-7B", SERVES), ("trl vllm-serve", SERVES), ("swift deploy", SERVES),
     ("swift rollout", SERVES), ("python -m vllm.entrypoints.openai.api_server", SERVES),
     ("python3 -m sglang.launch_server", SERVES), ("llamafactory-cli api x.yaml", SERVES),
     ("swift infer", GENERATES), ("python3 -m verl.trainer.main_generation", GENERATES),
     ("swift eval", EVALUATES), ("lm_eval", EVALUATES), ("uv run eval", EVALUATES),
     ("swift export", CONVERTS), ("llamafactory-cli export x.yaml", CONVERTS),
     ("python -m verl.model_merger merge", CONVERTS), ("python tools/convert_hf_to_torch_dist.py", CONVERTS),
     ("pip install trl", PREPARES), ("ray start", PREPARES), ("stabilizer replay runs/a", LOOKS)],
)  # fmt: skip
def test_what_a_command_does_is_known_by_its_words(words, does):
    assert purpose(words).does == does


@pytest.mark.parametrize(
    "words",
    ["swift rlhf", "trl grpo", "python3 -m verl.trainer.main_ppo", "accelerate launch src/open_r1/grpo.py",
     "llamafactory-cli train x.yaml", "python3 train.py", "ray job submit python3 train.py", "uv run rl @ rl.toml",
     "swift rlhf examples/train/grpo/plugin.py", "python train_abcd.py", "python hf_export.py", "python sci-uv pip.py",
     "python my_swift_eval_and_train.py", "python -m openrlhf.cli.train_ppo_ray",
     "stabilizer train c.yaml", "stabilizer supervise", "python -m stabilizer train c.yaml"],
)  # fmt: skip
def test_a_command_that_may_train_has_no_other_purpose(words):
    assert purpose(words) is None


def script(text: str):
    return read(Path("run.sh"), text)


@pytest.mark.parametrize("command", ["vllm serve m --max-model-len 8192", "swift deploy --model m --temperature 0.7",
                                     "trl vllm-serve --model m --tensor_parallel_size 2"])  # fmt: skip
def test_a_command_that_trains_nothing_is_named_and_taken_for_no_trainers(command):
    with pytest.raises(ConfigError, match="serves a model and trains nothing; give the command that trains"):
        recognised(script(command))


def test_of_a_server_and_a_training_the_training_is_judged_and_the_server_kept_beside_it():
    parsed = script(
        "CUDA_VISIBLE_DEVICES=7 vllm serve m --a 1 --b 2 --c 3 --d 4 &\nswift rlhf --rlhf_type grpo --model m\n"
    )
    assert parsed.command == "swift rlhf" and parsed.does == ""
    (server,) = parsed.beside
    assert (server.program, server.words, server.devices, server.line) == ("vllm serve", ("m",), (7,), 1)
    assert server.settings == {"a": 1, "b": 2, "c": 3, "d": 4}


def test_the_value_of_a_flag_is_no_word_of_the_command():
    parsed = script("accelerate launch train.py --output_dir out/swift/run1 --num_generations 8")
    assert parsed.command == "accelerate launch train.py"


def test_the_words_of_an_array_are_the_commands():
    text = (
        'ARGS=(\n  --lr 1e-6  # low\n  --rollout-batch-size 32\n)\nARGS+=(--colocate)\npython3 train.py "${ARGS[@]}"\n'
    )
    parsed = script(text)
    assert [(s.key, s.value, s.line) for s in parsed.settings] == [
        ("lr", 1e-6, 2), ("rollout-batch-size", 32, 3), ("colocate", True, 5),
    ]  # fmt: skip


def test_an_unknown_array_is_left_a_word():
    assert script("python3 train.py --x=1 ${NONE[@]}").settings[0].value == 1


def test_a_file_that_a_launcher_takes_as_its_first_word_is_read(tmp_path):
    (tmp_path / "ppo.yaml").write_text("stage: ppo\nfinetuning_type: lora\nppo_epochs: 2\n")
    path = tmp_path / "run.sh"
    path.write_text("llamafactory-cli train ppo.yaml\n")
    config = configured(reading.read(path), Options())
    assert config.trainer.name == "llama-factory" and config.settings["ppo_epochs"].value == 2


@pytest.mark.parametrize(
    ("text", "processes"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1 \\\nNPROC_PER_NODE=2 \\\nswift rlhf --rlhf_type grpo --model m", 2),
        ("export NPROC_PER_NODE=8\nexport NNODES=2\nswift rlhf --rlhf_type grpo --model m", 16),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 llamafactory-cli train ppo.yaml", 4),
        ("CUDA_VISIBLE_DEVICES=0,1 swift rlhf --rlhf_type grpo --model m", None),
        ("NPROC_PER_NODE=$GPUS swift rlhf --rlhf_type grpo --model m", None),
        ("export NPROC_PER_NODE=8\npython train.py --learning_rate 1e-6 --num_generations 8", None),
        ("NPROC_PER_NODE=4 accelerate launch --num_processes 2 train.py --num_generations 8", 2),
    ],
)
def test_processes_that_a_program_starts_by_itself_are_counted(text, processes):
    assert script(text).processes == processes
