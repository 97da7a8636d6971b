"""Which trainer a configuration is for: certain by words and own keys, guessed from shared ones, refused from few."""

from __future__ import annotations

from pathlib import Path

import pytest

from stabilizer.configs.config import ConfigError
from stabilizer.configs.reading import parsed
from stabilizer.preflight.check import Options, configured, judge
from stabilizer.trainers.configs import named, recognised
from stabilizer.trainers.versions import version_beside, version_in


def asked(text: str, name: str = "run.sh"):
    return recognised(parsed(Path(name), text))


@pytest.mark.parametrize(
    ("text", "trainer"),
    [("swift rlhf --rlhf_type grpo --model m --learning_rate 1e-6 --max_epochs 1 --save_steps 50 --seed 1", "ms-swift"),
     ("python -m openrlhf.cli.train_ppo_ray --max_epochs 1 --learning_rate 1e-6 --num_train_epochs 1", "openrlhf"),
     ("accelerate launch src/open_r1/grpo.py --num_generations 8 --reward_funcs accuracy", "open-r1"),
     ("trl grpo --num_generations 8 --reward_funcs accuracy", "trl"),
     ("python3 train.py --rollout-max-response-len 8192 --num-rollout 10", "slime"),
     ("python examples/start_rlvr_pipeline.py --config_name x --y 1", "roll"),
     ("llamafactory-cli train --stage ppo --learning_rate 1e-5", "llama-factory")],
)  # fmt: skip
def test_the_words_of_a_command_or_own_keys_make_it_certain(text, trainer):
    found = asked(text)
    assert (found.trainer.name, found.guessed) == (trainer, False)


@pytest.mark.parametrize(
    ("text", "trainer"),
    [("num_generations: 8\nbeta: 0.0\n", "trl"),
     ("rlhf_type: grpo\nnum_generations: 8\nper_device_train_batch_size: 1\nnum_train_epochs: 1\n", "ms-swift"),
     ("stage: ppo\nfinetuning_type: lora\nper_device_train_batch_size: 1\n", "llama-factory"),
     ("actor:\n  ppo_n_minibatches: 1\ngconfig:\n  n_samples: 8\n", "areal"),
     ("rollout_batch_size: 64\nnum_return_sequences_in_group: 8\nactor_train:\n  device_mapping: [0]\n", "roll")],
)  # fmt: skip
def test_a_file_is_told_by_the_keys_that_one_trainer_has(text, trainer):
    found = asked(text, "config.yaml")
    assert (found.trainer.name, found.guessed) == (trainer, False)


PLAIN = "python my_train.py --seed 1 --max_epochs 2 --save_steps 50 --eps_clip 0.2 --prompt_data x"
"""Flags that OpenRLHF had before April 2026, and that a program of one's own may have."""


def test_plain_keys_of_one_trainer_are_a_guess_that_says_so():
    found = asked(PLAIN)
    assert (found.trainer.name, found.guessed) == ("openrlhf", True) and found.why.startswith("guessed from ")


def test_where_the_trainer_is_guessed_no_key_is_renamed_and_no_default_judged():
    config = configured(parsed(Path("run.sh"), f"{PLAIN} --n_samples_per_promp 8 --train_batch_siz 4"), Options())
    assert config.guessed
    assert [f.key for f in judge(config).findings if f.key not in config.settings] == []
    assert [f for f in judge(config).findings if f.id in ("keys/unknown", "keys/removed")] == []


SHARED = "seed: 1\nlearning_rate: 1e-5\ntemperature: 0.9\ntop_p: 1.0\n"


@pytest.mark.parametrize("text", ["seed: 1\n", "lr: 3e-4\nname: x\n", "model: a/b\n", SHARED])
def test_one_key_that_others_have_makes_no_trainer(text):
    with pytest.raises(ConfigError, match="can't tell which trainer"):
        asked(text, "config.yaml")


# --- versions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "trainer", "version"),
    [("torch==2.6.0\ntrl==0.15.2\n", "trl", "0.15.2"), ("trl                      0.18.1\n", "trl", "0.18.1"),
     ("- TRL version: 0.16.0.dev0\n", "trl", "0.16.0.dev0"), ('name = "trl"\nversion = "1.3.0"\n', "trl", "1.3.0"),
     ("  - trl=0.17.0\n", "open-r1", "0.17.0"), ("ms_swift==3.5.3\n", "ms-swift", "3.5.3"),
     ("| Welcome to LLaMA Factory, version 0.9.3     |", "llama-factory", "0.9.3"),
     ("- `llamafactory` version: 0.9.2\n", "llama-factory", "0.9.2"), ("verl @ git+https://x\n", "verl", ""),
     ("trlx==0.7.0\n", "trl", ""), ("trl>=0.15\n", "trl", ""), ("areal==1.0.2\n", "areal", "1.0.2")],
)  # fmt: skip
def test_a_version_is_read_from_what_is_pasted(text, trainer, version):
    assert version_in(text, trainer) == version


def test_a_version_beside_a_configuration_is_the_one_that_judges(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("num_generations: 8\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 4\n")
    assert configured(parsed(path, path.read_text()), Options()).version is None
    (tmp_path / "requirements.lock").write_text("trl==0.14.0\n")
    config = configured(parsed(path, path.read_text()), Options())
    assert (config.version, config.version_why) == ("0.14.0", "by requirements.lock beside it")
    assert configured(parsed(path, path.read_text()), Options(version="1.0.0")).version_used == "1.0.0"
    assert configured(parsed(path, path.read_text()), Options(alone=True)).version is None
    assert version_beside(tmp_path / "nothing" / "x.yaml", named("trl")) is None
