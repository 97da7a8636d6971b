"""Settings in texts that hold prose and logs besides."""

from pathlib import Path

import pytest

from stabilizer.configs.config import ConfigError
from stabilizer.configs.excerpts import excerpts
from stabilizer.preflight.check import Options, in_text, preflight

COMMAND = """\
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_batch_size=256 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=512
"""
PROSE = "I don't know what's wrong, it doesn't start:\n"
PATH = Path("question.md")


def keys(text):
    config = in_text(PATH, text, Options(alone=True))
    return {} if config is None else {key: (setting.value, setting.line) for key, setting in config.settings.items()}


@pytest.mark.parametrize(
    "text",
    [
        f"{PROSE}\n```bash\n{COMMAND}```\nand then:\n```\nAssertionError\n```\n",
        f"{PROSE}\n\n{COMMAND}\nAssertionError\n",
        f"{PROSE}\n\n$ {COMMAND}\nAssertionError\n",
    ],
)
def test_a_command_among_prose_is_read_with_the_lines_of_the_text(text):
    value, line = keys(text)["actor_rollout_ref.actor.ppo_mini_batch_size"]
    assert value == 512 and text.splitlines()[line - 1].strip().endswith("ppo_mini_batch_size=512")


OVERRIDES = [line.strip(" \\") for line in COMMAND.splitlines()[1:]]


@pytest.mark.parametrize(
    "text",
    [
        PROSE + "\n".join(COMMAND.splitlines()[1:]) + "\nstep:1 - critic/score/mean:0.4 - actor/pg_loss:0.1\n",
        PROSE + " ".join(OVERRIDES),
        PROSE + "\n\n# batches\n+".join(OVERRIDES),
        PROSE + " # a comment\n".join(OVERRIDES),
    ],
)
def test_overrides_without_their_command_are_read_with_the_lines_of_the_text(text):
    value, line = keys(text)["actor_rollout_ref.actor.ppo_mini_batch_size"]
    assert value == 512 and "ppo_mini_batch_size=512" in text.splitlines()[line - 1]


def test_flags_without_their_command_are_read():
    assert keys("--rlhf_type grpo\n--num_generations 8\n--learning_rate 1e-6\n")["num_generations"][0] == 8


def test_a_call_in_python_is_read_up_to_its_last_bracket():
    call = "    args = GRPOConfig(\n        output_dir='x', num_generations=8,\n        beta=0.0,\n    )\n"
    text = f"{PROSE}{call}it's slow\n"
    assert keys(text)["num_generations"][0] == 8 and keys(text)["beta"][0] == 0.0


def test_a_fenced_mapping_is_read():
    text = f"{PROSE}```yaml\ntrainer_type: x\nnum_generations: 6\nmax_completion_length: 512\nbeta: 0.04\n```\n"
    assert keys(text)["num_generations"][0] == 6


@pytest.mark.parametrize(
    "text",
    [
        PROSE,
        "```\nTraceback (most recent call last):\n  File 'a.py', line 3\nKeyError: 'x'\n```\n",
        "step: 1\nloss: 0.2\nreward: 0.1\nkl: 0.0\n",
        "{'loss': 0.0, 'reward': 0.3}\n",
        "self.model.lr=0.1\nuse --beta 0.1 or so\n",
        "--- a/train.py\n+++ b/train.py\n--- x\n",
    ],
)
def test_prose_tracebacks_and_rows_are_no_settings(text):
    assert keys(text) == {}


def test_the_version_in_the_text_is_the_one_that_is_judged():
    call = "GRPOConfig(output_dir='x', num_generations=8)"
    text = f"```\n- Python 3.11\n- TRL version: 0.15.2\n```\n```python\n{call}\n```\n"
    config = in_text(PATH, text, Options(alone=True))
    assert config.version == "0.15.2" and "around it" in config.version_why


def test_nothing_is_written_back_into_a_longer_text(tmp_path):
    path = tmp_path / "question.md"
    path.write_text(f"{PROSE}```bash\n{COMMAND}```\n", encoding="utf-8")
    result = preflight(path)
    assert result.config.parsed.part and {finding.file for finding in result.findings} == {str(path)}


def test_a_text_without_settings_is_refused(tmp_path):
    path = tmp_path / "question.txt"
    path.write_text(PROSE, encoding="utf-8")
    with pytest.raises(ConfigError):
        preflight(path)


@pytest.mark.parametrize(
    "text", ["```\n" * 50_000, "a: b\n" * 100_000, "X=1 " * 100_000, "$ " * 100_000, "Config(" * 50_000]
)
def test_a_hostile_text_has_bounded_excerpts(text):
    assert sum(len(part) for _, part in excerpts(PATH, text)) < 8 * 2**20
