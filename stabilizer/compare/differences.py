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
from stabilizer.compare.sides import NAMES, SEEDS, Member, Side
from stabilizer.formats.rows import number
from stabilizer.trainers.settings import keys_of

Area = Literal["reward", "batch", "optimizer", "policy", "rollout", "model", "hardware", "version", "logging", "other"]


@dataclass(frozen=True)
class Setting:
    """One thing that can be set, where it was measured, and how trainers spell it."""

    id: str
    label: str
    area: Area
    others: tuple[str, ...] = ()
    """Words of logs that no trainer of ours writes."""
    measured: str = ""
    logged: str = ""
    """A metric whose largest value is what was set, for a source that states nothing: a schedule's peak."""

    def keys(self, trainer: str = "") -> tuple[str, ...]:
        """Configuration keys that hold it; the first that is there counts."""
        return (*keys_of(self.id, trainer), *self.others)


SETTINGS: tuple[Setting, ...] = (
    Setting("task", "task or data", "reward", ("dataset", "train_dataset")),
    Setting("reward", "reward functions", "reward", ("reward_functions", "reward_model", "reward")),
    Setting("reward_weights", "reward weights", "reward"),
    Setting("model", "model", "model"),
    Setting("prompts", "prompts per step", "batch", ("prompts_per_step",), "batch/prompts"),
    Setting("group_size", "completions per prompt", "batch", measured="batch/group_size"),
    Setting("updates", "updates per step", "batch", measured="batch/updates"),
    Setting("inner_epochs", "passes over a batch", "batch", measured="control/inner_epochs"),
    Setting("minibatches", "minibatches", "batch", measured="control/minibatches"),
    Setting("per_device", "completions per device", "batch"),
    Setting("accumulation", "gradient accumulation", "batch"),
    Setting("lr", "learning rate", "optimizer", logged="optim/lr"),
    Setting("schedule", "learning-rate schedule", "optimizer"),
    Setting("warmup", "warm-up", "optimizer"),
    Setting("max_grad_norm", "gradient clip", "optimizer", measured="control/max_grad_norm"),
    Setting("beta", "KL weight", "policy", measured="control/beta"),
    Setting("epsilon_low", "lower clip bound", "policy", measured="control/epsilon_low"),
    Setting("epsilon_high", "upper clip bound", "policy", measured="control/epsilon_high"),
    Setting("entropy_coef", "entropy bonus", "policy", measured="control/entropy_coef"),
    Setting("temperature", "temperature", "rollout", measured="control/temperature"),
    Setting("max_completion", "length limit", "rollout", ("max_new_tokens",), "control/max_completion"),
    Setting("engine", "generation engine", "rollout", ("engine",)),
    Setting("vllm_mode", "vLLM mode", "rollout"),
    Setting("steps", "planned steps", "optimizer"),
    Setting("validate_every", "steps between validations", "logging", measured="control/validate_every"),
    Setting("logging", "steps per logged row", "logging"),
    Setting("processes", "processes", "hardware", ("hardware.processes", "hardware.gpus", "hardware.num_gpus")),
    Setting("device", "device", "hardware", ("hardware.gpu", "hardware.device", "device")),
)
_BY_ID = {setting.id: setting for setting in SETTINGS}
_NAMED = frozenset(key for setting in SETTINGS for key in setting.keys())
_AREAS: Mapping[str, Area] = {"versions": "version", "hardware": "hardware"}


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
    trainer = str(member.about.get("trainer"))
    found = {setting.id: pair for setting in SETTINGS if (pair := _known(setting, member, stated, trainer))}
    return Facts(
        known={id: value for id, (_, value) in found.items()},
        keys={id: key for id, (key, _) in found.items()},
        per_step=per_step(side) or number(member.about.get("completions_per_step")),
    )


def _known(setting: Setting, member: Member, stated: Mapping[str, Any], trainer: str) -> tuple[str, Any] | None:
    """A setting's key or metric and its value: as measured, else as stated, else as read off a metric."""
    if (value := _level(member, setting.measured)) is not None:
        return next((key for key in setting.keys(trainer) if key in stated), setting.measured), value
    for key in setting.keys(trainer):
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
        if a is None or b is None or key.rpartition(".")[2] in SEEDS | NAMES or _equal(a, b):
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
            if (left.get(key) is None) != (right.get(key) is None) and key.rpartition(".")[2] not in SEEDS | NAMES
        ]
    return rows


def label(setting: str) -> str:
    """A setting's name in words."""
    return _BY_ID[setting].label if setting in _BY_ID else setting


def _stated(member: Member) -> dict[str, Any]:
    stated = member.stated
    if member.kind != "curve" and isinstance(member.about.get("steps"), int):
        stated.setdefault("steps", member.about["steps"])
    if member.kind == "stabilizer":  # our trainer's own defaults, where its configuration has no key for them
        stated = {"rollout.engine": "built-in", **stated}
        if not set(_BY_ID["processes"].keys()) & set(stated):
            stated["hardware.processes"] = 1
    return stated


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
