"""A plan as that trainer's users write it: a recipe, Hydra overrides, flags or TOML, and how to launch it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stabilizer.configs.config import parse_version
from stabilizer.preflight.planner import Plan, Wanted

_ENTRY = {
    "verl": "python3 -m verl.trainer.main_ppo",
    "search-r1": "python3 -m verl.trainer.main_ppo",
    "skyrl": "python -m skyrl.train.entrypoints.main_base",
    "openrlhf": "python3 -m openrlhf.cli.train_ppo_ray",
}


def paste(asked: Wanted, plan: Plan) -> str:
    """The plan's configuration with a first line that says what it is."""
    each, times = "s" * (plan.prompts > 1), "s" * (plan.updates > 1)
    comment = (
        f"# {plan.prompts} prompt{each} x {plan.group} = {plan.completions} completions per update, {plan.updates} "
        f"update{times} per rollout; about {plan.memory.total:.0f} GiB per GPU (estimate)"
    )
    if asked.trainer in ("trl", "trl-rloo", "open-r1"):
        return "\n".join([comment, *_flat_yaml(plan.config), "", *_launch(asked, plan)])
    if asked.trainer in ("verl", "search-r1", "skyrl"):
        words = [f"{key}={_plain(value)}" for key, value in plan.config.items()]
        return "\n".join([comment, _continued(_ENTRY[asked.trainer], words)])
    if asked.trainer == "openrlhf":
        words = [f"--{key}" if value is True else f"--{key} {_plain(value)}" for key, value in plan.config.items()]
        return "\n".join([comment, _continued(_ENTRY["openrlhf"], words)])
    if asked.trainer == "prime-rl":
        return "\n".join([comment, *_toml(plan.config)])
    return "\n".join([comment, *_nested_yaml(plan.config)])


def _launch(asked: Wanted, plan: Plan) -> list[str]:
    """How TRL is started so that the processes are the planned ones."""
    count = plan.processes
    accelerate, script = _ACCELERATE[asked.sharding], "YOUR_SCRIPT.py"
    if asked.trainer == "open-r1":
        accelerate, script = f"recipes/accelerate_configs/{accelerate}", "src/open_r1/grpo.py"
    launch = f"accelerate launch --config_file {accelerate} --num_processes {count} {script} --config THIS.yaml"
    if asked.vllm != "server":
        return [f"# {launch}"]
    if parse_version(asked.version) < (0, 16, 0):
        return [f"# {launch}", f"# all {asked.gpus} GPUs visible: vLLM takes cuda:{count} by itself"]
    size = f" --tensor_parallel_size {plan.vllm_gpus}" if plan.vllm_gpus > 1 else ""
    if count + plan.vllm_gpus > 8:
        return [
            f"# on GPUs of its own ({plan.vllm_gpus}): trl vllm-serve --model YOUR_MODEL{size}",
            f"# on the other {count}: {launch} --vllm_server_host THAT_MACHINE",
        ]
    served = ",".join(map(str, range(count, count + plan.vllm_gpus)))
    trained = ",".join(map(str, range(count)))
    return [
        f"# CUDA_VISIBLE_DEVICES={served} trl vllm-serve --model YOUR_MODEL{size}",
        f"# CUDA_VISIBLE_DEVICES={trained} {launch}",
    ]


_ACCELERATE = {"zero3": "zero3.yaml", "zero2": "zero2.yaml", "none": "ddp.yaml"}


def _plain(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _scalar(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, str)) else str(value)


def _flat_yaml(config: Mapping[str, Any]) -> list[str]:
    return [f"{key}: {_plain(value)}" for key, value in config.items()]


def _continued(command: str, words: list[str]) -> str:
    return " \\\n  ".join([command, *words])


def _tree(config: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in config.items():
        *sections, last = key.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[last] = value
    return tree


def _nested_yaml(config: Mapping[str, Any]) -> list[str]:
    def lines(node: Mapping[str, Any], depth: int) -> list[str]:
        made = []
        for key, value in node.items():
            below = isinstance(value, dict)
            made.append("  " * depth + (f"{key}:" if below else f"{key}: {_plain(value)}"))
            made += lines(value, depth + 1) if below else []
        return made

    return lines(_tree(config), 0)


def _toml(config: Mapping[str, Any]) -> list[str]:
    tree = _tree(config)
    made = [f"{key} = {_scalar(value)}" for key, value in tree.items() if not isinstance(value, dict)]
    for section, node in tree.items():
        if isinstance(node, dict):
            made += ["", f"[{section}]", *(f"{key} = {_scalar(value)}" for key, value in node.items())]
    return made
