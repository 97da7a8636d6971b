import subprocess
import sys

import pytest

from stabilizer.core.knobs import KNOBS
from stabilizer.training.config import SCHEMA, config_dict, config_from_dict, load_config
from stabilizer.training.knobs import initial_knobs
from stabilizer.training.presets import TASK_DEFAULTS, VARIANTS
from stabilizer.training.tasks import DATA, TASKS


def test_reading_a_configuration_does_not_import_torch():
    code = (
        "import sys; from stabilizer.training.config import *; load_config('length'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("task", TASKS)
def test_a_task_name_alone_is_a_full_configuration(task):
    config = load_config(task)
    assert config.task == task and config == load_config(task=task)


@pytest.mark.parametrize("text", ["", "{question}", "42", "yes", "null", "a: b"])
def test_a_text_of_the_command_line_is_taken_as_it_stands(text):
    """A shell takes the quotes away that would make it a text in YAML."""
    assert load_config("addition", [f"data.system_prompt={text}"]).data.system_prompt == text


def test_an_empty_path_of_data_is_no_wish_for_a_built_in_task(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("steps: 3\n")
    with pytest.raises(ValueError, match="data.path = '': must be a file or a data set"):
        load_config(path, ["data.path="])
    assert load_config(path, ["data.path="], task="sorting").task == "sorting"


def test_every_preset_names_keys_that_exist():
    assert set(TASK_DEFAULTS) == {*TASKS, DATA}
    for name in VARIANTS:
        for task in TASKS:
            load_config(task, variant=name)


def test_later_layers_win(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("task: sorting\nsteps: 7\noptim:\n  lr: 1e-3\n  betas: [0.8, 0.9]\npolicy.beta: 0.5\n")
    config = load_config(path, ["policy.beta=0.25"], seed=3)
    assert (config.task, config.steps, config.seed) == ("sorting", 7, 3)
    assert (config.optim.lr, config.optim.betas, config.policy.beta) == (1e-3, (0.8, 0.9), 0.25)
    assert load_config(path, task="length").rollout.max_completion == load_config("length").rollout.max_completion


def test_round_trip_through_json_types():
    config = load_config("length", ["optim.betas=[0.5,0.6]"])
    assert config_from_dict(config_dict(config)) == config


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("optim.lrr=1", ["override 'optim.lrr=1'", "'optim.lrr'", "nearest is 'optim.lr'"]),
        ("group_size=4", ["nearest is 'rollout.group_size'"]),
        ("optim=3", ["a group of keys, such as optim.kind"]),
        ("optim.lr=fast", ["optim.lr = 'fast'", "a number"]),
        ("optim.lr=.nan", ["optim.lr = nan", "above 0"]),
        ("steps=2.5", ["steps = 2.5", "whole number"]),
        ("steps=true", ["steps = True", "whole number"]),
        ("optim.warmup_steps=9223372036854775808", ["optim.warmup_steps = 9223372036854775808", "whole number"]),
        ("critic.coef=.inf", ["critic.coef = inf", "a finite number"]),
        ("optim.betas=[1]", ["optim.betas", "two numbers"]),
        ("optim.schedule=sine", ["'sine'", "constant, linear, cosine"]),
        ("task=chess", ["'chess'", "addition, sorting, length, data, search"]),
        ("rollout.group_size=1", ["rollout.group_size = 1", "at least 2"]),
        ("policy.minibatches=256", ["policy.minibatches = 256", "at most prompts x group_size = 64"]),
        ("policy.beta=2", ["policy.beta = 2.0", "between 0 and 1"]),
        ("policy.gate=[1e39,1]", ["policy.gate = ", "at most 100"]),
        ("reward.solved_by=exact", ["reward.solved_by = 'exact'", "empty without reward.functions"]),
        ("policy.resample_batches=1000", ["policy.resample_batches = 1000", "between 1 and 64"]),
        ("validation.problems=1000", ["at most", "512"]),
        ("lr", ["must look like key=value"]),
    ],
)
def test_errors_say_where_what_and_what_would_do(override, parts):
    with pytest.raises(ValueError) as error:
        load_config("addition", ["rollout.prompts=8", "rollout.group_size=8", override])
    for part in parts:
        assert part in str(error.value).replace("between 1 and 512", "at most 512")


def test_off_is_a_word_where_it_is_a_choice_though_yaml_takes_it_for_a_switch(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("policy:\n  filter_groups: off\n")
    assert load_config(path).policy.filter_groups == "off"
    assert load_config("addition", ["policy.filter_groups=off"]).policy.filter_groups == "off"
    with pytest.raises(ValueError, match="must be one of off, drop, resample"):
        load_config("addition", ["policy.filter_groups=on"])


def test_errors_in_a_file_name_the_file(tmp_path):
    path = tmp_path / "mine.yaml"
    for text, part in [
        ("rollot:\n  prompts: 3", "rollout.prompts"),
        ("steps: soon", "whole number"),
        ("- 1", "mapping"),
    ]:
        path.write_text(text)
        with pytest.raises(ValueError, match="mine.yaml") as error:
            load_config(path)
        assert part in str(error.value)
    with pytest.raises(ValueError, match="no such file"):
        load_config("adition")
    with pytest.raises(ValueError, match="no variant named 'wild'; choose one of .*unstable"):
        load_config("addition", variant="wild")


@pytest.mark.parametrize(
    ("text", "parts"),
    {
        "a list for a name": (b"task: [addition]", ("task = ['addition']", "must be one of addition")),
        "a value for a group": (b"optim: 3", ("optim = 3", "a group of keys, such as optim.kind")),
        "a key twice": (
            b"rollout: {prompts: 4}\nrollout: {group_size: 4}",
            ("'rollout' stands in line 1 and again in line 2", "delete one"),
        ),
        "nothing": (b"# steps: 3\n", ("it sets no key", "`task: addition`")),
        "no text": (b"\xff\xfe\x00", ("not valid YAML",)),
    }.values(),
)
def test_odd_files_are_refused_in_words(tmp_path, text, parts):
    path = tmp_path / "mine.yaml"
    path.write_bytes(text)
    with pytest.raises(ValueError) as error:
        load_config(path)
    assert all(part in str(error.value) for part in ("mine.yaml", *parts))


def test_a_group_of_which_every_line_is_commented_out_says_nothing(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("policy:\n  # beta: 0.1\nsteps: 7\n")
    assert load_config(path) == load_config("addition", steps=7)


def test_every_key_has_its_docstring():
    from docstring_parser import parse_from_object

    from stabilizer.training import settings

    documented = {
        name
        for kind in vars(settings).values()
        if isinstance(kind, type) and kind.__name__.endswith("Config")
        for name in (p.arg_name for p in parse_from_object(kind).params if p.description)
    }
    assert {key.split(".")[-1] for key in SCHEMA} <= documented


def test_every_knob_has_its_initial_value():
    assert set(initial_knobs(load_config("addition"))) == set(KNOBS) - {"control/actor_frozen"}
    assert "control/actor_frozen" in initial_knobs(load_config("addition", ["algorithm=ppo"]))


def test_the_kl_in_the_reward_is_k1_unless_another_is_asked_for():
    assert load_config("addition", ["policy.kl_in=reward"]).policy.kl_kind == "k1"
    assert load_config("addition", ["policy.kl_in=reward", "policy.kl_kind=k3"]).policy.kl_kind == "k3"
    assert load_config("addition", ["algorithm=ppo"]).policy.kl_kind == "k1"
    assert load_config("addition", ["algorithm=ppo", "policy.kl_in=loss"]).policy.kl_kind == "k1"
    assert load_config("addition").policy.kl_kind == "k3"


def test_a_reward_file_that_is_a_link_to_itself_is_no_file(tmp_path):
    loop = tmp_path / "reward.py"
    loop.symlink_to(loop)
    with pytest.raises(ValueError, match="no such file: .*reward.py"):
        load_config("addition", [f"reward.functions=[{loop}:mine]"])
