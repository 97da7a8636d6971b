"""TRL, the trainers that run on it or on transformers, and the logs of all of them."""

from __future__ import annotations

from dataclasses import replace

from stabilizer.trainers.reader import Rank, reader
from stabilizer.trainers.trainer import Checks, Family, Groups, Trainer
from stabilizer.trainers.trl import completions, config, console, jsonl, knobs, old_ppo, plan, state, tracked, validity

SETTINGS = {
    "task": ("dataset_name",),
    "precision": ("torch_dtype",),
    "reward": ("reward_funcs",),
    "reward_weights": ("reward_weights",),
    "model": ("model_name_or_path",),
    "steps": ("max_steps",),
    "per_device": ("per_device_train_batch_size",),
    "accumulation": ("gradient_accumulation_steps",),
    "schedule": ("lr_scheduler_type",),
    "warmup": ("warmup_steps", "warmup_ratio"),
    "engine": ("use_vllm",),
    "vllm_mode": ("vllm_mode",),
    "logging": ("logging_steps",),
    "processes": ("num_processes",),
}
_UNSLOTH = Trainer(
    id="unsloth",
    parent="trl",
    advice=knobs.TRL,
    metrics=(state.NAMES,),
    switches={"policy/kl_ref": "with beta above 0"},
    gpu_memory=(
        "halve per_device_train_batch_size and double gradient_accumulation_steps (the optimisation stays the"
        " same); with a colocated vLLM also lower vllm_gpu_memory_utilization, or shorten max_completion_length"
    ),
)

FAMILY = Family(
    trainers=(
        replace(
            _UNSLOTH,
            id="trl",
            parent="",
            aliases=("trl-grpo",),
            packages=("trl",),
            schema=config.TRL,
            checks=Checks(validity.grpo, config.TRL),
            planned=plan.PLANNED,
            settings=SETTINGS,
            groups=Groups("num_generations"),
        ),
        Trainer(
            id="trl-rloo", checks=Checks(validity.rloo, config.TRL, differ=config.RLOO_DEFAULTS), planned=plan.RLOO
        ),
        Trainer(
            id="trl-ppo",
            checks=Checks(validity.ppo, config.TRL, newest="1.12.0"),
            advice=knobs.PPO,
            metrics=(state.PPO_NAMES,),
            gpu_memory=(
                "halve per_device_train_batch_size and double gradient_accumulation_steps (the optimisation"
                " stays the same), lower local_rollout_forward_batch_size, or shorten response_length"
            ),
        ),
        replace(
            _UNSLOTH,
            id="open-r1",
            aliases=("openr1",),
            packages=("open_r1",),
            dumps_as="trl",
            schema=config.OPEN_R1,
            checks=Checks(validity.grpo, config.OPEN_R1),
            planned=plan.OPEN_R1,
        ),
        _UNSLOTH,
        Trainer(
            id="trl-old-ppo",
            advice=knobs.OLD_PPO,
            metrics=(old_ppo.NAMES,),
            gpu_memory=(
                "halve mini_batch_size and double gradient_accumulation_steps (the optimisation stays the same)"
            ),
        ),
        Trainer(id="transformers", dumps_as="trl"),
    ),
    readers=(
        reader(state, Rank.STATE, takes_folder=True, file_names=("trainer_state.json",)),
        reader(completions, Rank.FILE, takes_folder=True, step_file=completions.STEP_FILE),
        reader(jsonl, Rank.DICTIONARIES),
        reader(console, Rank.DICTIONARIES, printed=True),
    ),
    named=tracked.named,
)
