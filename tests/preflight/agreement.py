"""Do our validity rules say what the trainers themselves say? Ask both, thousands of times, and compare.

    python tests/preflight/agreement.py --version 1.16.0                  # TRL's GRPOConfig
    python tests/preflight/agreement.py --trainer trl-rloo --version 1.16.0
    python tests/preflight/agreement.py --trainer verl --version 0.9.1
    python tests/preflight/agreement.py --trainer openrlhf --version 0.11.2

The trainer is installed into an environment of its own (`.venv-trl-1.16.0`, or `--env DIR`), torch first. The
configurations follow from a seed; half of them are a valid one with one number moved by one, which is where rules go
wrong. Whether each was accepted is written to `recorded/`, one bit each, so the ordinary test suite can hold
our rules against the trainer's verdicts without installing it.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import math
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from stabilizer.configs.config import Version, parse_version
from stabilizer.preflight.planner import plans, wanted
from stabilizer.trainers.constraints import divisors
from stabilizer.trainers.validity import violations

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
COUNT, SEED = 6000, 20
ASK = {"trl": "ask_trl.py", "trl-rloo": "ask_trl.py", "verl": "ask_verl.py", "openrlhf": "ask_openrlhf.py"}
RECORDS = (
    *(("trl", version) for version in ("0.15.2", "0.17.0", "0.18.0", "0.20.0", "0.24.0", "0.27.2", "1.0.0", "1.16.0")),
    *(("trl-rloo", version) for version in ("0.24.0", "1.16.0")),
    ("verl", "0.9.1"),
    ("openrlhf", "0.11.2"),
)
"""What is recorded: (trainer, version)."""

ELSEWHERE = {
    "trl/positive": "the config divides 0 by the group size and finds it whole; the data loader then refuses a batch "
    "of 0, or accelerate an accumulation of 0",
    "trl/sync-without-reference": "refused by GRPOTrainer.__init__, after the config was accepted",
    "verl/positive": "0 divides into nothing: validate_config finds 0 samples whole; the rollout then has no batch",
    "verl/mini-batch-ranks": "asserted by the worker at the first update, after validate_config",
    "verl/micro-divides-rank": "asserted by the worker at the first update, after validate_config",
    "verl/micro-batch-total": "asserted by the worker: only the key per GPU still works",
    "openrlhf/train-batch-ranks": "asserted by DeepSpeed when the actor is made, after the command line's checks",
}
"""Rules of ours that the trainer applies later than the check asked here, and why: the only disagreements allowed."""

Case = tuple[int, dict[str, Any]]
Made = tuple[int, dict[str, Any], list[str]]
"""Processes, a configuration that is valid where that was asked for, and the keys that may be moved by one."""


# --- the configurations ---------------------------------------------------------------------------------------------


def cases(trainer: str, version: str, count: int = COUNT, seed: int = SEED) -> list[Case]:
    """(processes, configuration) pairs that follow from the seed alone: every second one is next to a valid one."""
    draw = random.Random(f"{trainer} {version} {seed}")
    make = {"verl": _verl, "openrlhf": _openrlhf}.get(trainer, _trl)
    made = []
    for index in range(count):
        processes, config, movable = make(draw, parse_version(version), trainer, index % 2 == 1)
        if index % 2:
            key, step = draw.choice(movable), draw.choice((-1, 1))
            config[key] += step if config[key] + step > 0 or draw.random() < 0.1 else 1
        made.append((processes, config))
    return made


def plan_cases(trainer: str, version: str, count: int = 400, seed: int = SEED) -> list[Case]:
    """Plans of TRL's, over a grid of GPUs and questions: their batch keys alone, which is what the check is about."""
    found: dict[str, Case] = {}
    for gpus, group, prompts in ((1, 8, 8), (2, 4, 32), (3, 6, 16), (6, 8, 32), (7, 8, 32), (8, 16, 64)):
        for plan in plans(wanted(trainer, gpus, version=version, group=group, prompts=prompts, vllm="none")):
            keys = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations")
            case = (plan.processes, {key: plan.config[key] for key in keys})
            found[json.dumps(case)] = case
    return random.Random(seed).sample([found[key] for key in sorted(found)], count)


def _trl(draw: random.Random, version: Version, trainer: str, valid: bool) -> Made:
    processes, per_device = draw.choice((1, 2, 3, 4, 6, 7, 8, 15, 16)), draw.choice((1, 2, 3, 4, 6, 8, 16))
    steps = draw.choice((1, 2, 3, 4, 7, 8, 16))
    config: dict[str, Any] = {"per_device_train_batch_size": per_device, "gradient_accumulation_steps": steps}
    batch = processes * per_device * (steps if version >= (0, 17, 0) else 1)
    if version >= (0, 18, 0):
        kind = draw.choice(("default", "default", "steps", "batch") + (() if valid else ("both",)))
        if kind in ("steps", "both"):
            config["steps_per_generation"] = draw.choice((1, 2, 3, 4, 8))
            batch = processes * per_device * config["steps_per_generation"]
        if kind in ("batch", "both") and (kind == "batch" or draw.random() < 0.2):
            batch = processes * per_device * draw.choice((1, 2, 3, 4, 8))
            config["generation_batch_size"] = batch
    if batch == 1:
        batch = config["per_device_train_batch_size"] = 2
        config.pop("generation_batch_size", None)
    config["num_generations"] = draw.choice(divisors(batch, 2))
    movable = list(config)
    if draw.random() < 0.5:
        config["eval_strategy"] = "steps"
        group = config["num_generations"]
        if version >= (0, 26, 1) and draw.random() < 0.5:
            group = config["num_generations_eval"] = draw.choice((1, 2, 3, 4, 6))
        unit = group // math.gcd(group, processes)
        config["per_device_eval_batch_size"] = unit * draw.choice((1, 2, 3))
        movable = [key for key in config if key != "eval_strategy"]
    if not valid and draw.random() < 0.2:
        _trl_switch(draw, version, trainer, config)
    return processes, config, movable


def _trl_switch(draw: random.Random, version: Version, trainer: str, config: dict[str, Any]) -> None:
    options: list[dict[str, Any]] = [{"num_generations": draw.choice((0, 1))}]
    if version >= (1, 9, 0):
        options.append({"auto_find_batch_size": True})
    if trainer == "trl":
        if version >= (0, 28, 0):
            options += [{"log_completions_hub_repo": "me/it"}, {"sync_ref_model": True, "beta": 0.0}]
            options.append({"log_completions_hub_repo": "me/it", "log_completions": True})
        if version >= (1, 6, 0):
            prefix = "vllm_importance_sampling"
            options += [{f"{prefix}_clip_min": low, f"{prefix}_clip_max": 3.0} for low in (2.0, 3.0, 4.0)]
            modes = ("token_truncate", "sequence_truncate", "token_mask")
            options += [{f"{prefix}_mode": mode, f"{prefix}_clip_max": None} for mode in modes]
    config.update(draw.choice(options))


_MICRO_KINDS = ("total", "both", "none")


def _verl(draw: random.Random, version: Version, trainer: str, valid: bool) -> Made:
    actor, rollout, ref = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout", "ref"))
    gpus, n = draw.choice((1, 2, 4, 6, 7, 8, 16)), draw.choice((1, 2, 4, 5, 8))
    mini = gpus * draw.choice((1, 2, 4, 8))
    config: dict[str, Any] = {
        "data.train_batch_size": mini * draw.choice((1, 2, 4)),
        f"{actor}.ppo_mini_batch_size": mini,
        f"{rollout}.n": n,
        f"{rollout}.tensor_model_parallel_size": draw.choice(divisors(gpus)),
        "algorithm.adv_estimator": draw.choice(("gae", "grpo", "grpo", "rloo")),
    }
    movable = ["data.train_batch_size", f"{actor}.ppo_mini_batch_size", f"{rollout}.n"]
    micro, kind = (
        draw.choice(divisors(mini * n // gpus)),
        "per_gpu" if valid else draw.choice(("per_gpu",) * 3 + _MICRO_KINDS),
    )
    if kind in ("per_gpu", "both"):
        config[f"{actor}.ppo_micro_batch_size_per_gpu"] = micro
    if kind in ("total", "both"):
        config[f"{actor}.ppo_micro_batch_size"] = draw.choice(divisors(mini))
        movable.append(f"{actor}.ppo_micro_batch_size")
    if valid or draw.random() < 0.9:
        config[f"{rollout}.log_prob_micro_batch_size_per_gpu"] = micro
    if draw.random() < 0.3:
        config[draw.choice(("algorithm.use_kl_in_reward", f"{actor}.use_kl_loss"))] = True
        if valid or draw.random() < 0.7:
            config[f"{ref}.log_prob_micro_batch_size_per_gpu"] = micro
    if config["algorithm.adv_estimator"] == "gae" and (valid or draw.random() < 0.8):
        total = not valid and draw.random() < 0.2
        config[f"critic.ppo_micro_batch_size{'' if total else '_per_gpu'}"] = micro
    if valid:
        return gpus, config, movable
    if draw.random() < 0.1:
        config[f"{actor}.use_dynamic_bsz"] = True
    if draw.random() < 0.05:
        config[f"{actor}.loss_agg_mode"] = draw.choice(("token-sum", "seq-mean-token-sum", "mean"))
    if draw.random() < 0.05 and gpus % 2 == 0:
        config[f"{actor}.ulysses_sequence_parallel_size"] = 2
        config["actor_rollout_ref.model.use_remove_padding"] = draw.random() < 0.5
    return gpus, config, movable


def _openrlhf(draw: random.Random, version: Version, trainer: str, valid: bool) -> Made:
    gpus, n = draw.choice((1, 2, 4, 6, 7, 8)), draw.choice((2, 4, 8) if valid else (1, 2, 4, 8))
    ring = draw.choice((1, 1, 1, 2)) if gpus % 2 == 0 else 1
    rollout = draw.choice((8, 16, 64) if valid else (1, 2, 4, 8, 16, 64))
    config: dict[str, Any] = {
        "rollout.batch_size": rollout,
        "rollout.n_samples_per_prompt": n,
        "rollout.micro_batch_size": max(rollout * n // (gpus // ring), 1),
        "train.batch_size": gpus * draw.choice((2, 4) if valid else (1, 2, 4)),
        "train.micro_batch_size": draw.choice((1, 2)),
        "ds.ring_attn_size": ring,
        "algo.advantage.estimator": draw.choice(
            ("gae", "reinforce", "rloo", "reinforce_baseline", "group_norm", "dr_grpo")
        ),
    }
    movable = ["rollout.batch_size", "rollout.n_samples_per_prompt", "rollout.micro_batch_size"]
    config["vllm.num_engines"] = draw.choice((1, gpus) if valid else (0, 1, gpus))
    switches: tuple[dict[str, Any], ...] = (
        {"train.colocate_all": True},
        {"train.colocate_all": True, "vllm.enable_sleep": True, "train.async_enable": True},
        {"train.async_enable": True, "vllm.enable_sleep": True},
        {"train.partial_rollout_enable": True},
        {"train.partial_rollout_enable": True, "train.async_enable": True},
        {"rollout.vllm_generate_batch_size": rollout + draw.choice((0, 1))},
        {"rollout.vllm_generate_batch_size": rollout + 1, "train.async_enable": True},
        {"algo.dynamic_filtering_enable": True},
        {"ds.packing_samples": True},
        {"train.dynamic_batch_enable": True},
    )
    if not valid and draw.random() < 0.7:
        config.update(draw.choice(switches))
    return gpus, config, movable


# --- the two answers ------------------------------------------------------------------------------------------------


def ours(trainer: str, version: str, asked: list[Case]) -> list[list[str]]:
    """The rules of ours that each configuration breaks."""
    remote = {"reward.remote_url": "http://r"} if trainer == "openrlhf" else {}
    return [
        [v.rule for v in violations(trainer, version, {**remote, **config}, processes=processes, gpus=processes)]
        for processes, config in asked
    ]


def theirs(trainer: str, version: str, asked: list[Case], env: Path) -> list[str]:
    """The trainer's own answers, empty where it accepts: asked in its environment."""
    done = subprocess.run(
        [str(env / "bin/python"), str(HERE / ASK[trainer])],
        input=json.dumps({"trainer": trainer, "version": version, "configs": asked}),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answers = json.loads(done.stdout[done.stdout.rindex("\n") + 1 if "\n" in done.stdout else 0 :])
    assert len(answers) == len(asked)
    return answers


def disagreements(found: list[list[str]], accepted: list[bool]) -> list[int]:
    """Where the verdicts differ and no rule applied later than the check explains it."""
    judged = ([rule for rule in rules if rule not in ELSEWHERE] for rules in found)
    return [
        index
        for index, (rules, all_rules, ok) in enumerate(zip(judged, found, accepted, strict=True))
        if bool(rules) == ok and not (ok is False and all_rules)
    ]


def digest(asked: list[Case]) -> str:
    """A fingerprint of the configurations, so that a change of the generator can't pass for agreement."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def pack(verdicts: list[bool]) -> str:
    """One bit each, as text."""
    return base64.b64encode(
        int("1" + "".join("01"[ok] for ok in verdicts), 2).to_bytes(len(verdicts) // 8 + 1)
    ).decode()


def unpack(text: str) -> list[bool]:
    """The verdicts again."""
    return [bit == "1" for bit in bin(int.from_bytes(base64.b64decode(text)))[3:]]


# --- the environment ------------------------------------------------------------------------------------------------


def environment(trainer: str, version: str, where: Path | None = None) -> Path:
    """The environment with that trainer, made when it is missing; torch first, so that nothing else chooses it."""
    package = trainer.split("-")[0]
    env = where or HERE.parents[1] / f".venv-{package}-{version}"
    if not (env / "bin/python").exists():
        print(f"setting up {env} (once; some minutes)", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
        for words in _packages(package, version):
            pip = [str(env / "bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            subprocess.run([*pip, *words], check=True, stdout=sys.stderr)
    return env


def _packages(package: str, version: str) -> list[list[str]]:
    if package == "verl":  # only what its configuration and its checks import
        needs = ["hydra-core", "tensordict<=0.10.0", "transformers>=5.5.3,<5.11", "ray", "codetiming", "cachetools"]
        needs += ["pandas", "accelerate", "datasets", "dill", "peft", "pyarrow", "pillow"]
        return [["torch==2.13.0"], ["--no-deps", f"verl=={version}"], needs]
    if package == "openrlhf":
        return [["--no-deps", f"openrlhf=={version}"]]
    number = parse_version(version)
    newest = ((0, 16, 0), "<4.50"), ((0, 18, 0), "<4.53"), ((0, 19, 0), "==4.52.3"), ((1, 0, 0), "<5")
    limit = next((limit for below, limit in newest if number < below), "")
    return [["torch==2.13.0"], [f"trl=={version}", f"transformers{limit}"]]


# --- the run --------------------------------------------------------------------------------------------------------


def compare(trainer: str, version: str, env: Path, count: int = COUNT) -> dict[str, Any]:
    """Ask both and say how they compare: what `recorded/` holds."""
    asked = cases(trainer, version, count)
    answers, found = theirs(trainer, version, asked, env), ours(trainer, version, asked)
    accepted = [not answer for answer in answers]
    for index in disagreements(found, accepted)[:20]:
        print(
            f"{asked[index]}\n  trainer: {answers[index] or 'accepts'}\n  ours: {found[index] or 'accepts'}",
            file=sys.stderr,
        )
    planned = plan_cases(trainer, version) if ASK[trainer] == "ask_trl.py" else []
    refused = [answer for answer in (theirs(trainer, version, planned, env) if planned else []) if answer]
    later = Counter(
        rule for rules, ok in zip(found, accepted, strict=True) if ok for rule in rules if rule in ELSEWHERE
    )
    return {
        "trainer": trainer,
        "version": version,
        "seed": SEED,
        "configs": len(asked),
        "digest": digest(asked),
        "accepted": sum(accepted),
        "disagreements": len(disagreements(found, accepted)),
        "checked_elsewhere": dict(sorted(later.items())),
        "plans": len(planned),
        "plans_digest": digest(planned),
        "plans_refused": len(refused),
        "verdicts": pack(accepted),
    }


def main() -> int:
    """Compare one trainer and version; exit 1 when they disagree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", choices=sorted(ASK), default="trl")
    parser.add_argument("--version", required=True)
    parser.add_argument("--env", type=Path, help="an environment that already has the trainer")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--record", action="store_true", help="write the verdicts to recorded/")
    args = parser.parse_args()
    result = compare(args.trainer, args.version, environment(args.trainer, args.version, args.env), args.count)
    print(json.dumps({key: value for key, value in result.items() if key != "verdicts"}, indent=2))
    if args.record:
        RECORDED.mkdir(exist_ok=True)
        path = RECORDED / f"{args.trainer}-{args.version}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
    return int(result["disagreements"] + result["plans_refused"] > 0)


if __name__ == "__main__":
    sys.exit(main())
