"""What was different: configuration, batch, hardware, versions; one name for what trainers spell differently.

A known setting (`SETTINGS`) is looked up under every spelling, the measured value first: what a run did counts more
than what it was told. Settings a source does not state are listed as unknown; they are not the same as equal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from stabilizer.compare.align import per_step
from stabilizer.compare.sides import Member, Side, flat
from stabilizer.formats.rows import number

Area = Literal["reward", "batch", "optimizer", "policy", "rollout", "model", "hardware", "version", "logging", "other"]


@dataclass(frozen=True)
class Setting:
    """One thing that can be set, where it was measured, and how trainers spell it."""

    id: str
    label: str
    area: Area
    keys: tuple[str, ...]
    measured: str = ""
    logged: str = ""
    """A metric whose largest value is what was set, for a source that states nothing: a schedule's peak."""


SETTINGS: tuple[Setting, ...] = (
    Setting("task", "task or data", "reward",
            ("task", "dataset_name", "dataset", "data.train_files", "data.data_name", "train_dataset")),
    Setting("reward", "reward functions", "reward",
            ("reward_funcs", "reward_functions", "reward_model", "worker.reward.reward_function",
             "custom_reward_function.name", "reward")),
    Setting("reward_weights", "reward weights", "reward", ("reward_weights",)),
    Setting("model", "model", "model",
            ("model", "model_name_or_path", "actor_rollout_ref.model.path", "worker.actor.model.model_path",
             "pretrain")),
    Setting("prompts", "prompts per step", "batch",
            ("rollout.prompts", "data.train_batch_size", "data.rollout_batch_size", "prompts_per_step"),
            "batch/prompts"),
    Setting("group_size", "completions per prompt", "batch",
            ("rollout.group_size", "num_generations", "actor_rollout_ref.rollout.n", "worker.rollout.n",
             "n_samples_per_prompt"), "batch/group_size"),
    Setting("updates", "updates per step", "batch", (), "batch/updates"),
    Setting("inner_epochs", "passes over a batch", "batch",
            ("policy.inner_epochs", "num_iterations", "actor_rollout_ref.actor.ppo_epochs"), "control/inner_epochs"),
    Setting("minibatches", "minibatches", "batch", ("policy.minibatches",), "control/minibatches"),
    Setting("per_device", "completions per device", "batch", ("per_device_train_batch_size",)),
    Setting("accumulation", "gradient accumulation", "batch", ("gradient_accumulation_steps",)),
    Setting("lr", "learning rate", "optimizer",
            ("optim.lr", "learning_rate", "actor_rollout_ref.actor.optim.lr", "worker.actor.optim.lr",
             "actor_learning_rate"), logged="optim/lr"),
    Setting("schedule", "learning-rate schedule", "optimizer",
            ("optim.schedule", "lr_scheduler_type", "worker.actor.optim.lr_scheduler_type")),
    Setting("warmup", "warm-up", "optimizer",
            ("optim.warmup_steps", "warmup_steps", "warmup_ratio", "worker.actor.optim.lr_warmup_ratio")),
    Setting("max_grad_norm", "gradient clip", "optimizer",
            ("optim.max_grad_norm", "max_grad_norm", "worker.actor.max_grad_norm"), "control/max_grad_norm"),
    Setting("beta", "KL weight", "policy",
            ("policy.beta", "beta", "actor_rollout_ref.actor.kl_loss_coef", "algorithm.kl_coef"), "control/beta"),
    Setting("entropy_coef", "entropy bonus", "policy",
            ("policy.entropy_coef", "entropy_coef", "actor_rollout_ref.actor.entropy_coeff"), "control/entropy_coef"),
    Setting("temperature", "temperature", "rollout",
            ("rollout.temperature", "temperature", "actor_rollout_ref.rollout.temperature",
             "worker.rollout.temperature"), "control/temperature"),
    Setting("max_completion", "length limit", "rollout",
            ("rollout.max_completion", "max_completion_length", "data.max_response_length", "max_new_tokens"),
            "control/max_completion"),
    Setting("engine", "generation engine", "rollout", ("rollout.engine", "use_vllm", "engine")),
    Setting("vllm_mode", "vLLM mode", "rollout", ("vllm_mode", "rollout.vllm_mode")),
    Setting("steps", "planned steps", "optimizer", ("steps", "max_steps", "trainer.total_training_steps")),
    Setting("logging", "steps per logged row", "logging", ("logging_steps",)),
    Setting("processes", "processes", "hardware",
            ("hardware.processes", "hardware.gpus", "hardware.num_gpus", "num_processes", "trainer.n_gpus_per_node")),
    Setting("device", "device", "hardware", ("hardware.gpu", "hardware.device", "device")),
)  # fmt: skip
_BY_ID = {setting.id: setting for setting in SETTINGS}
_NAMED = frozenset(key for setting in SETTINGS for key in setting.keys)
_AREAS: Mapping[str, Area] = {"versions": "version", "hardware": "hardware"}
_IGNORED = frozenset({"seed", "data_seed", "random_seed", "output_dir", "run_name", "logging_dir", "name", "runs"})


@dataclass(frozen=True)
class Difference:
    """One setting whose values differ. `setting` is the known setting it is about, or ""."""

    key: str
    label: str
    area: Area
    run: Any
    reference: Any
    setting: str = ""


@dataclass(frozen=True)
class Facts:
    """Known settings of one side, by setting id; what is missing is not known."""

    known: Mapping[str, Any]
    keys: Mapping[str, str]
    per_step: float | None

    def number(self, setting: str) -> float | None:
        """A setting as a number, or None."""
        value = self.known.get(setting)
        return None if isinstance(value, bool) else number(value)


def facts(side: Side) -> Facts:
    """What a side is known to have used."""
    member = side.first
    stated = _stated(member)
    found = {setting.id: pair for setting in SETTINGS if (pair := _known(setting, member, stated))}
    return Facts(
        known={id: value for id, (_, value) in found.items()},
        keys={id: key for id, (key, _) in found.items()},
        per_step=per_step(side) or number(member.about.get("completions_per_step")),
    )


def _known(setting: Setting, member: Member, stated: Mapping[str, Any]) -> tuple[str, Any] | None:
    """A setting's key or metric and its value: as measured, else as stated, else as read off a metric."""
    if (value := _level(member, setting.measured)) is not None:
        return next((key for key in setting.keys if key in stated), setting.measured), value
    for key in setting.keys:
        if stated.get(key) is not None:
            return key, stated[key]
    if (value := _peak(member, setting.logged)) is not None:
        return setting.logged, value
    return None


def differences(run: Side, reference: Side) -> list[Difference]:
    """Settings both sides state and that differ: the known ones first, then other keys, hardware and versions."""
    mine, theirs = facts(run), facts(reference)
    found = list(_known_differences(mine, theirs))
    a, b = mine.per_step, theirs.per_step
    if a and b and not {"prompts", "group_size"} & {d.setting for d in found} and not _equal(a, b):
        found.append(Difference("completions per step", "completions per step", "batch", a, b, "per_step"))
    return [*found, *_other_differences(_stated(run.first), _stated(reference.first))]


def _known_differences(mine: Facts, theirs: Facts) -> Iterator[Difference]:
    for setting in SETTINGS:
        if setting.id not in mine.known or setting.id not in theirs.known:
            continue
        a, b = mine.known[setting.id], theirs.known[setting.id]
        read_off = setting.logged and setting.logged in (mine.keys[setting.id], theirs.keys[setting.id])
        if not _equal(a, b, 0.02 if read_off else 1e-9):  # a schedule's first row is a little off its peak
            yield Difference(mine.keys[setting.id], setting.label, setting.area, a, b, setting.id)


def _other_differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[Difference]:
    for key in sorted({*left, *right} - _NAMED):
        a, b = left.get(key), right.get(key)
        if a is None or b is None or key.rpartition(".")[2] in _IGNORED or _equal(a, b):
            continue
        part, _, name = key.partition(".")
        area = _AREAS.get(part, "other") if name else "other"
        yield Difference(key, key if area == "other" else name, area, a, b)


def one_sided(run: Side, reference: Side) -> list[tuple[str, Any, Any]]:
    """Configuration, hardware and version keys that one side states and the other does not: (key, run's, reference's).

    Between different trainers nearly every key is one-sided and says nothing; then only known settings are listed.
    """
    mine, theirs = facts(run), facts(reference)
    rows = [
        (setting.label, mine.known.get(setting.id), theirs.known.get(setting.id))
        for setting in SETTINGS
        if (setting.id in mine.known) != (setting.id in theirs.known)
    ]
    if run.first.kind == reference.first.kind and run.first.about.get("trainer") == reference.first.about.get(
        "trainer"
    ):
        left, right = _stated(run.first), _stated(reference.first)
        rows += [
            (key, left.get(key), right.get(key))
            for key in sorted({*left, *right} - _NAMED)
            if (left.get(key) is None) != (right.get(key) is None) and key.rpartition(".")[2] not in _IGNORED
        ]
    return rows


def label(setting: str) -> str:
    """A setting's name in words."""
    return _BY_ID[setting].label if setting in _BY_ID else setting


def _stated(member: Member) -> dict[str, Any]:
    about = member.about
    out = flat(about.get("config") or {})
    for key in ("task", "trainer"):
        if about.get(key) not in (None, "unknown"):
            out.setdefault(key, about[key])
    if member.kind != "curve" and isinstance(about.get("steps"), int):
        out.setdefault("steps", about["steps"])
    for part in ("hardware", "versions"):
        if isinstance(about.get(part), Mapping):
            out |= flat(about[part], f"{part}.")
    if member.kind == "stabilizer":  # our trainer's own defaults, where its configuration has no key for them
        out = {"rollout.engine": "built-in", **out}
        if not set(_BY_ID["processes"].keys) & set(out):
            out["hardware.processes"] = 1
    return out


def _level(member: Member, metric: str) -> float | None:
    """What a knob stood at for most of the run."""
    series = member.series.get(metric)
    if series is None or not len(finite := series.finite().values):
        return None
    return float(np.median(finite))


def _peak(member: Member, metric: str) -> float | None:
    """The most a setting reached; None where it was logged as nothing but 0, which is what rounding leaves of it."""
    series = member.series.get(metric)
    finite = series.finite().values if series is not None else ()
    return float(max(finite)) if len(finite) and max(finite) > 0 else None


def _equal(a: Any, b: Any, tolerance: float = 1e-9) -> bool:
    left, right = (None if isinstance(v, bool) else number(v) for v in (a, b))
    if left is not None and right is not None:
        return math.isclose(left, right, rel_tol=tolerance)
    if isinstance(a, str) and isinstance(b, str):
        return a.strip().lower() == b.strip().lower()
    return json.dumps(a, default=str, sort_keys=True) == json.dumps(b, default=str, sort_keys=True)
