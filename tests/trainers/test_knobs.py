"""Advice in the words of the trainer whose log it is: a key that it has, or that it has none; and about a restart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stabilizer
from stabilizer.core.failures import meaning
from stabilizer.core.knobs import KNOBS
from stabilizer.core.records import Cause, RemedyAdvice
from stabilizer.incidents.diagnosis import CAUSES
from stabilizer.remedies import BY_ID, REMEDIES, advise
from stabilizer.remedies.advice import Advice
from stabilizer.runs.reader import RunError
from stabilizer.trainers.all import TRAINERS
from stabilizer.trainers.config_file import config_file
from stabilizer.trainers.knobs import configured_rate, has_setting, how
from stabilizer.trainers.reading import load
from stabilizer.trainers.settings import own_keys, todo
from tests.series import history

RUN = {"reward/mean": "0.2+0.002~0.02x200", "optim/grad_norm": "0.5%0.2x200", "policy/entropy": "1.0x200"}
BETAS = ({}, {"control/beta": "0x200"}, {"control/beta": "0.001x200"})


def advised() -> dict[str, RemedyAdvice]:
    """All that can be advised against any cause in another trainer's run, by remedy and the knobs it turns."""
    found = {}
    for beta in BETAS:
        view = history(RUN | beta).view()
        for cause in CAUSES:
            found |= {f"{one.id} {one.change}": one for one in advise([Cause(cause, 0.9, "")], view, 150)}
    return found


ADVISED = advised()
SPELLINGS = {trainer.id: trainer.advice for trainer in TRAINERS if trainer.advice}
FOREIGN = (*SPELLINGS, "unknown")


def advice(knob: str, before: float | None, after: float | None, id: str = "x") -> RemedyAdvice:
    return RemedyAdvice(id, "soft", {knob: (before, after)}, "", "")


def said(trainer: str, name: str, config=None) -> str:
    one = ADVISED[name]
    remedy = BY_ID[one.id]
    return how(trainer, one, config or {}, onset=150, of_settings=remedy.of_settings, restart=remedy.restart)


# --- laws, over all trainers and all that can be advised ------------------------------------------------------------


def test_every_trainer_whose_logs_are_read_has_a_spelling():
    assert {trainer.id for trainer in TRAINERS if trainer.metrics} <= set(SPELLINGS)


@pytest.mark.parametrize("trainer", FOREIGN)
def test_every_fix_has_a_key_or_says_that_there_is_none(trainer):
    for name, one in ADVISED.items():
        text = said(trainer, name)
        lacking = "has no setting for" in text or "The trainer of this log is not known" in text
        assert lacking == (BY_ID[one.id].of_settings and not has_setting(trainer, one)), text


def test_a_restart_that_the_advice_names_already_is_named_once():
    one = RemedyAdvice("check-reward", "advice", {}, "", "read ten answers; needs no restart")
    assert how("trl", one, {}, onset=150, of_settings=False, restart="needs no restart") == one.how


@pytest.mark.parametrize("trainer", FOREIGN)
def test_every_fix_says_whether_it_needs_a_restart(trainer):
    for name in ADVISED:
        assert re.search(r"\bneeds (a|no) restart\b", said(trainer, name)), said(trainer, name)


@pytest.mark.parametrize("trainer", FOREIGN)
def test_no_fix_uses_our_own_keys(trainer):
    for name in ADVISED:
        text = said(trainer, name)
        assert "control/" not in text and "lr_scale" not in text and "--remedy" not in text, text
        assert not re.search(r"[{}]|\[\d|None|\bnan\b", text), text


def test_every_entry_of_a_spelling_is_a_knob_or_a_remedy_of_ours():
    for spelling in SPELLINGS.values():
        assert set(spelling.keys) <= set(KNOBS) and set(spelling.procedures) <= set(BY_ID)
        assert set(spelling.lacks) <= set(BY_ID) | set(KNOBS)
        assert not set(spelling.lacks) & (set(spelling.procedures) | set(spelling.keys)), spelling.title


def test_advice_without_settings_has_its_own_words_on_a_restart():
    assert all(remedy.of_settings or remedy.restart for remedy in REMEDIES)
    by_keys = {remedy.id for remedy in REMEDIES if isinstance(remedy, Advice) and remedy.of_settings}
    assert by_keys == {"unpay-length", "steadier-reward", "more-bits"}


# --- the keys exist -------------------------------------------------------------------------------------------------

# fmt: off
LISTED = {
    name: f"{name.replace('-', '_')}/keys.txt"
    for name in (
        "search_r1", "verl", "easyr1", "openrlhf", "skyrl", "ms-swift", "llama-factory", "slime", "areal", "roll",
    )
}
# fmt: on
LISTED |= dict.fromkeys(("trl", "open-r1", "unsloth", "trl-ppo", "trl-old-ppo"), "trl/keys.txt")
"""Trainers of which there is a list of all keys."""
ALSO = {
    **dict.fromkeys(("trl", "open-r1", "unsloth"), {"model", "reward_funcs"}),  # arguments of the trainer itself
    "trl-old-ppo": {"model_name", "init_kl_coef", "kl_penalty", "ppo_epochs"},
    "nemo_rl": {
        "grpo.num_prompts_per_step", "grpo.num_generations_per_prompt", "grpo.use_dynamic_sampling",
        "grpo.overlong_filtering", "grpo.normalize_rewards", "grpo.val_period", "grpo.reward_shaping.enabled",
        "grpo.reward_shaping.overlong_buffer_length", "grpo.skip_reference_policy_logprobs_calculation",
        "ppo.ppo_epochs", "ppo.policy_training_start_step", "value.optimizer.kwargs.lr", "value_loss_fn.cliprange",
        "loss_fn.reference_policy_kl_penalty", "loss_fn.reference_policy_kl_type", "loss_fn.ratio_clip_min",
        "loss_fn.ratio_clip_max", "loss_fn.token_level_loss", "loss_fn.use_importance_sampling_correction",
        "loss_fn.truncated_importance_sampling_type", "loss_fn.truncated_importance_sampling_ratio",
        "policy.optimizer.kwargs.lr", "policy.max_grad_norm", "policy.train_global_batch_size", "policy.precision",
        "policy.model_name", "policy.generation.temperature", "policy.generation.top_p",
        "policy.generation.max_new_tokens", "data.shuffle", "checkpointing.checkpoint_dir",
        "checkpointing.save_optimizer",
    },
    "prime_rl": {
        "trainer.optim.lr", "trainer.optim.max_norm", "trainer.loss.dppo_mask_low", "trainer.loss.dppo_mask_high",
        "trainer.model.optimization_dtype", "trainer.model.reduce_dtype", "orchestrator.batch_size",
        "orchestrator.group_size", "orchestrator.max_off_policy_steps", "orchestrator.eval.interval",
        "orchestrator.train.sampling.temperature", "orchestrator.train.sampling.max_completion_tokens",
        "orchestrator.train.filter_zero_advantages", "orchestrator.algo.length_penalty.type", "resume.step",
    },
    "stable-baselines3": {
        "learning_rate", "n_steps", "batch_size", "n_epochs", "clip_range", "clip_range_vf", "ent_coef", "vf_coef",
        "max_grad_norm", "target_kl", "path", "env", "eval_freq",
    },
}  # fmt: skip
"""Keys read in the trainers' own sources, where there is no list of all, or the list has them not."""
NO_KEY_OF_ITS_OWN = (
    "overlong_buffer of the DAPO", "so that per_device_train_batch_size", "should_accept_fn", "response_length_penalty",
    "query_filter_config", "actor_train.model_args.dtype", "train_infer_correction",
    "gradient_accumulation_steps so that",
)  # fmt: skip


def keys_of(trainer: str) -> set[str]:
    keys = set(ALSO.get(trainer, ()))
    if name := LISTED.get(trainer):
        path = Path(stabilizer.__file__).parent / "trainers" / name
        keys |= {line.split()[0] for line in path.read_text().splitlines() if line.strip()}
    return keys


@pytest.mark.parametrize("trainer", SPELLINGS)
def test_a_trainer_has_every_key_that_advice_sets(trainer):
    """A key that was misspelled, or that another trainer has, would be refused or silently ignored."""
    spelling, known = SPELLINGS[trainer], keys_of(trainer)
    written = {**spelling.procedures, **{knob: key.template for knob, key in spelling.keys.items()}}
    for name, words in written.items():
        named = set(re.findall(r"\[[\d./]+ x ([\w.-]+)", words))
        words = re.sub(r"before April 2026 --\S+", "", words)
        named |= set(re.findall(r"--([a-z][\w-]*(?:\.\w+)*)", words))
        if spelling.form == "{key}: {value}":
            named |= set(re.findall(r"(?<![\w.])([a-z]\w*(?:\.\w+)*): ", words))
        elif not spelling.form.startswith("--"):
            named |= set(re.findall(r"(?<![\w.])([a-z]\w*(?:\.\w+)*) ?=", words))
        assert named <= known, (trainer, name, named - known)
        assert named or any(words_ in words for words_ in NO_KEY_OF_ITS_OWN), (trainer, name)
    assert {key.scales for key in spelling.keys.values() if key.scales} <= known


@pytest.mark.parametrize("trainer", [name for name in SPELLINGS if name != "stable-baselines3"])
def test_advice_on_memory_uses_every_trainers_keys(trainer):
    text = todo(meaning("CUDA out of memory"), trainer)
    assert text != todo(meaning("CUDA out of memory"), "nobody")
    named = (
        set(re.findall(r"(?<![\w.])-*([a-z]+\w*(?:\.\w+)+|(?<=--)[a-z]+(?:-[a-z]+)+|[a-z]+(?:_[a-z]+)+)", text))
        - ABRIDGED
    )
    assert named and named <= keys_of(trainer) | MEMORY, named


def test_a_fix_names_the_keys_of_the_trainer_in_use_alone():
    text = "fewer tokens (size in TRL; budget in veRL; --cap in slime, later), or less (always)"
    assert own_keys(text, "slime") == "fewer tokens (--cap in slime, later), or less (always)"
    assert own_keys(text, "ms-swift") == "fewer tokens (size in TRL), or less (always)"
    assert own_keys(text, "openrlhf") == "fewer tokens, or less (always)"
    assert own_keys("ask (train_split, test_split in TRL, or x)", "trl") == "ask (train_split, test_split in TRL, or x)"
    assert own_keys("ask (train_split, test_split in TRL, or x)", "verl") == "ask (or x)"
    assert own_keys("ask (a, b)", "verl") == "ask (a, b)"
    assert own_keys(text, "unknown") == own_keys(text, "") == text


ABRIDGED = {"log_prob_micro_batch_size", "log_prob_micro_batch_size_per_gpu", "ppo_max_token_len_per_gpu",
            "use_dynamic_bsz", "ppo_mini_batch_size", "micro_train_batch_size", "micro_rollout_batch_size"}  # fmt: skip
"""Keys of a section that stands before them in the sentence, or of versions before."""
MEMORY = {
    "policy.train_micro_batch_size", "policy.logprob_batch_size", "policy.generation.vllm_cfg.gpu_memory_utilization",
    "inference.gpu_memory_utilization", "seq_len", "per_device_train_batch_size",
    "actor_infer.strategy_args.strategy_config.gpu_memory_utilization",
}  # fmt: skip


def test_every_advised_knob_has_words():
    assert {knob for one in ADVISED.values() for knob in one.change} == {"control/lr_scale", "control/beta"}
    for trainer, spelling in SPELLINGS.items():
        assert "control/lr_scale" in spelling.keys, trainer
        assert {"control/beta", "raise-beta"} & {*spelling.keys, *spelling.lacks, *spelling.procedures}, trainer


# --- values ---------------------------------------------------------------------------------------------------------


def test_advice_for_trl_is_a_line_to_paste_with_the_reason_for_the_restart():
    text = how("trl", advice("control/beta", 0.0, 0.001), {}, onset=9)
    assert text.startswith("beta=0.001 in GRPOConfig; needs a restart because") and "reference" in text


@pytest.mark.parametrize(
    "trainer,line",
    [
        ("verl", "actor_rollout_ref.actor.kl_loss_coef=0.001"),
        ("search_r1", "actor_rollout_ref.actor.kl_loss_coef=0.001"),
        ("easyr1", "algorithm.kl_coef=0.001"),
        ("openrlhf", "--algo.kl.init_coef 0.001"),
    ],
)
def test_advice_names_the_key_of_each_trainer_and_why_it_must_restart(trainer, line):
    text = how(trainer, advice("control/beta", 0.0, 0.001), {}, onset=9)
    assert line in text and "needs a restart because" in text


def test_a_learning_rate_of_verl_is_scaled_from_its_own_key():
    config = {"actor_rollout_ref": {"actor": {"optim": {"lr": 2e-6}}}}
    text = how("verl", advice("control/lr_scale", 1.0, 0.5), config, onset=9)
    assert "actor_rollout_ref.actor.optim.lr=1e-06" in text


def test_the_config_that_wandb_saved_is_read_for_its_values(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(
        "wandb_version: 1\n_wandb: {value: {t: 3}}\nlearning_rate: {desc: null, value: 2.0e-6}\nbeta: {value: 0}\n"
    )
    assert config_file(path) == {"learning_rate": 2e-6, "beta": 0}
    path.write_text("lr: {value: 1, unit: s}\nbeta: 0\n")
    assert config_file(path) == {"lr": {"value": 1, "unit": "s"}, "beta": 0}


@pytest.mark.parametrize(
    "config,highest,expected",
    [({"learning_rate": 1e-6}, None, "learning_rate=5e-07"), ({"learning_rate": "2e-6"}, None, "learning_rate=1e-06"),
     ({}, 3e-7, "learning_rate: half of what it was set to (3e-07 is the highest logged); --config FILE"),
     ({}, None, "learning_rate: half of what it was set to (the log leaves it out or rounds it to 0.000); --config"),
     ({"learning_rate": True}, None, "half of"), ({"learning_rate": 10**400}, None, "half of"),
     ({"learning_rate": "1e999"}, None, "half of")],
)  # fmt: skip
def test_a_factor_becomes_the_learning_rate_to_set_or_plain_words(config, highest, expected):
    text = how("trl", advice("control/lr_scale", 1.0, 0.5), config, onset=9, highest=highest)
    assert expected in text and "<" not in text


@pytest.mark.parametrize(
    "trainer,line",
    [("skyrl", "trainer.policy.optimizer_config.lr=5e-07"), ("nemo_rl", "policy.optimizer.kwargs.lr=5e-07"),
     ("prime_rl", "trainer.optim.lr = 5e-07"), ("ms-swift", "--learning_rate 5e-07"),
     ("openrlhf", "--actor.adam.lr 5e-07"), ("easyr1", "worker.actor.optim.lr=5e-07"),
     ("llama-factory", "learning_rate: 5e-07"), ("stable-baselines3", "learning_rate=5e-07 in PPO(...)")],
)  # fmt: skip
def test_a_lower_learning_rate_is_spelled_for_every_trainer_from_the_logged_one(trainer, line):
    text = how(trainer, advice("control/lr_scale", 1.0, 0.5), {}, onset=9, rate=1e-6)
    assert line in text and "needs a restart because" in text


@pytest.mark.parametrize("trainer", FOREIGN)
def test_going_back_names_the_checkpoint_before_the_learning_rate(trainer):
    text = how(trainer, advice("control/lr_scale", 1.0, 0.5, "roll-back"), {}, onset=77)
    assert "77" in text and text.index("77") < text.index("half of")


@pytest.mark.parametrize("trainer", FOREIGN)
def test_a_fault_at_the_first_step_asks_for_no_checkpoint(trainer):
    text = how(trainer, advice("control/lr_scale", 1.0, 0.5, "roll-back"), {}, onset=1)
    assert text.startswith("start from the beginning") and "below 1" not in text


BATCH = {"data": {"rollout_batch_size": 32}, "worker": {"actor": {"global_batch_size": 8}, "rollout": {"n": 5}}}


def test_a_setting_to_be_doubled_is_a_number_if_the_configuration_is_known():
    assert "data.rollout_batch_size=64 and worker.actor.global_batch_size=16;" in said("easyr1", "grow-batch {}", BATCH)
    assert "worker.rollout.n=10;" in said("easyr1", "grow-group {}", BATCH)
    words = said("easyr1", "grow-batch {}")
    assert "data.rollout_batch_size: twice what it is now and" in words and words.count("--config FILE") == 1


def test_a_setting_left_at_its_default_asks_for_no_configuration():
    text = said("easyr1", "clip-updates {}", BATCH)
    assert "worker.actor.max_grad_norm: half of its default;" in text and "--config" not in text


@pytest.mark.parametrize(
    "every,expected", [(5, "val_freq=2 "), (1, "val_freq=1 "), (-1, "val_freq: half of what it is now (5 where it is")]
)
def test_an_interval_is_halved_to_a_whole_one_and_never_is_no_number(every, expected):
    assert expected in said("easyr1", "validate-more {}", {"trainer": {"val_freq": every}})


RECIPES = Path(__file__).parents[1] / "preflight" / "recipes"


@pytest.mark.parametrize(
    "trainer,script,line",
    [("verl", "verl_grpo.sh", "data.train_batch_size=2048 and actor_rollout_ref.actor.ppo_mini_batch_size=512;"),
     ("openrlhf", "openrlhf_plain.sh", "--rollout.batch_size 2048 and --train.batch_size 256;"),  # dashed, of before
     ("skyrl", "skyrl.sh", "trainer.train_batch_size=2048 and trainer.policy_mini_batch_size=512;")],
)  # fmt: skip
def test_the_script_that_starts_a_training_is_configuration_enough(trainer, script, line):
    assert line in said(trainer, "grow-batch {}", config_file(RECIPES / script))


def test_what_only_the_shell_knows_is_no_default(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("python3 -m verl.trainer.main_ppo data.train_batch_size=$BATCH actor_rollout_ref.rollout.n=4\n")
    config = config_file(script)
    assert "data.train_batch_size: twice what it is now" in said("verl", "grow-batch {}", config)
    assert "actor_rollout_ref.rollout.n=8;" in said("verl", "grow-group {}", config)


def test_a_script_without_settings_gives_a_message(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print('hello')\n")
    with pytest.raises(RunError, match="no settings found in it; looked for GRPOConfig"):
        config_file(script)
    other = tmp_path / "other.sh"
    other.write_text("python train_it.py --lr 3\n")
    with pytest.raises(RunError, match="no trainer that is known is started here"):
        config_file(other)
    with pytest.raises(RunError, match=r"takes .yaml, .yml, .json, .toml or a script \(.sh, .*, not .ini"):
        (tmp_path / "a.ini").write_text("a=1")
        config_file(tmp_path / "a.ini")


def test_flat_settings_are_found_as_nested_ones_are():
    assert "--rollout.batch_size 256" in said("openrlhf", "grow-batch {}", {"rollout.batch_size": 128})


def test_a_missing_setting_comes_with_the_reason():
    assert "prime-rl has no setting for this (it has no reference model" in said("prime_rl", "raise-beta {}")
    turned = how("prime_rl", advice("control/beta", 0.0, 0.001), {}, onset=9)
    assert "prime-rl has no setting for the weight of a KL term (it has no reference model" in turned
    assert "ppo_target" in how("llama-factory", advice("control/beta", 0.0, 0.001, "raise-beta"), {}, onset=9)


@pytest.mark.parametrize(
    "logged,rate",
    [([1e-6] * 40, 1e-6), ([0.0, 5e-7, *[1e-6] * 40], 1e-6), ([1e-6 * (1 - k / 50) for k in range(40)], None),
     ([1e-6] * 19, None), ([1e-7 * k for k in range(25)] + [2.4e-6] * 20, None), ([1e-6] * 40 + [5e-7], None),
     ([], None), ([0.0] * 40, None), ([float("nan")] * 40, None)],
)  # fmt: skip
def test_a_constant_rate_is_the_configured_one_and_a_decaying_rate_is_not(logged, rate):
    assert configured_rate(logged) == rate


def test_a_rate_that_never_moved_makes_the_exact_line_to_paste():
    text = how("easyr1", advice("control/lr_scale", 1.0, 0.5), {}, onset=9, highest=1e-6, rate=1e-6)
    assert "worker.actor.optim.lr=5e-07;" in text


# --- what is advised ------------------------------------------------------------------------------------------------


def test_a_larger_batch_comes_before_a_higher_rate():
    ids = [one.id for one in advise([Cause("batch-too-small", 0.9, "")], history(RUN).view(), 150)]
    assert ids == ["grow-batch", "grow-group", "filter-groups", "validate-more", "raise-lr"]


def test_a_penalty_that_is_known_and_at_its_bound_is_not_offered_in_words():
    view = history(RUN | {"control/beta": "0.05x200"}).view()
    assert "raise-beta" not in [one.id for one in advise([Cause("lr-too-high", 0.9, "")], view, 150)]


def test_stable_baselines_is_known_by_its_names(tmp_path):
    path = tmp_path / "progress.csv"
    head = "time/iterations,time/total_timesteps,rollout/ep_rew_mean,train/clip_range,train/learning_rate"
    path.write_text("\n".join([head, *(f"{k},{k * 2048},{0.1 * k},0.2,0.0003" for k in range(1, 40))]))
    assert load(path).source.trainer == "stable-baselines3"
