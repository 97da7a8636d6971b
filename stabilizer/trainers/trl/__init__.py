"""TRL, the trainers that run on it or on transformers, and the logs of all of them."""

from __future__ import annotations

from stabilizer.trainers.reader import Rank, reader
from stabilizer.trainers.trainer import Checks, Family, Groups, Trainer
from stabilizer.trainers.trl import completions, config, console, jsonl, knobs, old_ppo, state, tracked, validity

_METRICS = (state.NAMES,)
_SWITCHES = {"policy/kl_ref": "with beta above 0"}
_GPU_MEMORY = (
    "halve per_device_train_batch_size and double gradient_accumulation_steps (the optimisation stays the"
    " same); with a colocated vLLM also lower vllm_gpu_memory_utilization, or shorten max_completion_length"
)
_GROUPS = Groups("num_generations")
_SETTINGS = {
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

FAMILY = Family(
    trainers=(
        Trainer(
            id="trl",
            aliases=("trl-grpo",),
            packages=("trl",),
            schema=config.TRL,
            checks=Checks(validity.grpo, config.TRL),
            advice=knobs.TRL,
            metrics=_METRICS,
            switches=_SWITCHES,
            settings=_SETTINGS,
            groups=_GROUPS,
            gpu_memory=_GPU_MEMORY,
        ),
        Trainer(id="trl-rloo", checks=Checks(validity.rloo, config.TRL, differ=config.RLOO_DEFAULTS)),
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
        Trainer(
            id="open-r1",
            aliases=("openr1",),
            parent="trl",
            packages=("open_r1",),
            dumps_as="trl",
            schema=config.OPEN_R1,
            checks=Checks(validity.grpo, config.OPEN_R1),
            advice=knobs.TRL,
            metrics=_METRICS,
            switches=_SWITCHES,
            gpu_memory=_GPU_MEMORY,
        ),
        Trainer(
            id="unsloth",
            parent="trl",
            advice=knobs.TRL,
            metrics=_METRICS,
            switches=_SWITCHES,
            gpu_memory=_GPU_MEMORY,
        ),
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
