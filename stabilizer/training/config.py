"""Read a configuration. `settings.py` lists the settings.

The name of a built-in task is a full configuration; a YAML file and then `key=value` overrides change single keys.
Nothing is guessed: an unknown key or an impossible value is a `ValueError` that names the place and the allowed values.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from stabilizer.configs import yaml_keys
from stabilizer.configs.bounds import MAX_BYTES, TooMuch
from stabilizer.core.algorithms import ALGORITHMS
from stabilizer.core.nearest import nearest_key
from stabilizer.training.presets import SFT, SFT_RATES, TASK_DEFAULTS, VARIANTS
from stabilizer.training.settings import TrainConfig
from stabilizer.training.tasks import DATA, TASKS


def load_config(
    source: str | Path | None = None,
    overrides: Sequence[str] = (),
    task: str | None = None,
    *,
    variant: str | None = None,
    steps: int | None = None,
    seed: int | None = None,
    stage: str | None = None,
) -> TrainConfig:
    """The configuration of `source` (a task name, a YAML file, or None for the defaults), changed by the other
    arguments.

    Later wins: the task's defaults, the file, the named `variant`, `overrides` ("optim.lr=1e-3"), then `task`, `steps`,
    `seed` and `stage`. Raises ValueError for anything unknown or impossible.
    """
    layers = _layers(source, variant, overrides, {"task": task, "steps": steps, "seed": seed, "stage": stage})
    implied = DATA if any("data.path" in layer for _, layer in layers) else "addition"
    name = _chosen("task", layers, implied, TASK_DEFAULTS)
    recipe = _chosen("algorithm", layers, TASK_DEFAULTS[name].get("algorithm", "grpo"), ALGORITHMS)
    stage = _chosen("stage", layers, "rl", ("rl", "sft"))
    defaults = [(f"defaults of {name}", dict(TASK_DEFAULTS[name])), (f"algorithm {recipe}", dict(ALGORITHMS[recipe]))]
    if stage == "sft":
        defaults.append(("stage sft", SFT | ({"optim.lr": SFT_RATES[name]} if name in SFT_RATES else {})))
    merged = _merged(defaults + layers)
    given = {key for _, layer in layers for key in layer}
    merged |= {key: value for key, value in _implied(merged).items() if key not in given}
    try:
        config: TrainConfig = _build(TrainConfig, merged)
        _refuse_infinities(merged)
        return config
    except ValueError as error:
        key = str(error).split(" = ")[0]
        place = next((where for where, layer in reversed(defaults + layers) if key in layer), None)
        raise ValueError(f"{place}: {error}" if place else str(error)) from None


def _merged(layers: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """The keys of all layers, checked; later wins. A group whose lines are all commented out sets nothing."""
    return {
        key: _typed(where, key, value)
        for where, layer in layers
        for key, value in layer.items()
        if value is not None or key not in GROUPS
    }


def _implied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults that depend on other settings."""
    implied: dict[str, Any] = {}
    if values.get("policy.kl_in") == "reward":
        implied["policy.kl_kind"] = "k1"  # the default estimator is for use in the loss
    every = {"rollout.top_p": 1.0, "rollout.top_k": 0, "rollout.min_p": 0.0}
    truncated = any(values.get(key, full) != full for key, full in every.items())
    if values.get("rollout.engine", "builtin") != "builtin" and not truncated:
        implied |= {"policy.mismatch": "mask_sequence", "policy.mismatch_cap": 3.0}  # as TRL 1.16 with vLLM
    if values.get("rollout.asynchronous"):
        implied |= {"policy.mismatch": "tis_token", "policy.mismatch_cap": 2.0}
    return implied


def _layers(
    source: str | Path | None, variant: str | None, overrides: Sequence[str], arguments: Mapping[str, Any]
) -> list[tuple[str, dict[str, Any]]]:
    """(place, keys) of all user settings; later wins."""
    if variant is not None and variant not in VARIANTS:
        raise ValueError(f"no variant named {variant!r}; choose one of {', '.join(VARIANTS)}")
    layers: list[tuple[str, dict[str, Any]]] = []
    if source is not None and str(source) in TASKS:
        layers.append(("task", {"task": str(source)}))
    elif source is not None:
        layers.append((str(source), _beside(Path(source).parent, _flat(_read_yaml(Path(source))))))
    layers += [_override(text, f"variant {variant}") for text in VARIANTS.get(variant or "", ())]
    layers += [_override(text, "override") for text in overrides]
    return [*layers, ("argument", _given(arguments))]


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in arguments.items() if value is not None}


def _refuse_infinities(values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, float) and not math.isfinite(value) and key != "optim.max_grad_norm":
            raise ValueError(f"{key} = {value}: must be a finite number")


def _chosen(key: str, layers: list[tuple[str, dict[str, Any]]], default: str, known: Collection[str]) -> str:
    where, name = next(((where, layer[key]) for where, layer in reversed(layers) if key in layer), ("", default))
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"{where}: {key} = {name!r}: must be one of {', '.join(known)}")
    return name


def config_dict(config: TrainConfig) -> dict[str, Any]:
    """The whole configuration as JSON types, for run.json; `config_from_dict` is its inverse."""
    return {key: _plain(value) for key, value in asdict(config).items()}


def config_from_dict(values: Mapping[str, Any]) -> TrainConfig:
    """The configuration that `config_dict` wrote."""
    config: TrainConfig = _build(
        TrainConfig, {key: _typed("run.json", key, value) for key, value in _flat(values).items()}
    )
    return config


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _read_yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file, and no built-in task of that name; the tasks are {', '.join(TASKS)}")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path}: larger than {MAX_BYTES // 2**20} MiB, the limit; is this the right file?")
    try:
        values = yaml_keys.load(path.read_text(encoding="utf-8"))
    except (yaml_keys.KeyTwice, TooMuch) as error:
        raise ValueError(f"{path}: {error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not valid YAML: {error}") from None
    if values is None:
        raise ValueError(f"{path}: it sets no key; `task: addition` alone is a full configuration")
    if not isinstance(values, dict):
        raise ValueError(f"{path}: must be a mapping of keys to values, not a {type(values).__name__}")
    return values


def _beside(folder: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Files named in a configuration are looked up from here, and otherwise next to the configuration file."""

    def found(name: Any) -> Any:
        if not isinstance(name, str):
            return {**name, "use": found(name["use"])} if isinstance(name, dict) and "use" in name else name
        path, colon, function = name.partition(".py:")
        path += ".py" if colon else ""
        if Path(path).exists() or not (folder / path).exists():
            return name
        return f"{folder / path}{':' if colon else ''}{function}"

    for key in ("model", "data.path", "data.held_out_path", "search.corpus", "environment.use"):
        if key in values:
            values[key] = found(values[key])
    if isinstance(rewards := values.get("reward.functions"), list):
        values["reward.functions"] = [found(spec) for spec in rewards]
    return values


def _override(text: str, what: str) -> tuple[str, dict[str, Any]]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{what} {text!r}: must look like key=value, for example optim.lr=1e-3")
    key = key.strip()
    try:
        parsed = yaml_keys.load(value)
    except (yaml_keys.KeyTwice, TooMuch) as error:
        raise ValueError(f"{what} {text[:80]!r}: {error}") from None
    except yaml.YAMLError:
        parsed = value
    if SCHEMA.get(key) is str and not isinstance(parsed, str):
        parsed = value  # a shell removes quotes: {question}, 42 and an empty value are text where text is expected
    return f"{what} {text!r}", {key: parsed}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested groups as dotted keys; a group's own name remains a key when its value is not a mapping."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict) and f"{prefix}{key}" not in SCHEMA:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _schema(kind: Any = TrainConfig, prefix: str = "") -> dict[str, Any]:
    """Dotted key -> type."""
    schema: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        schema |= _schema(hint, f"{prefix}{name}.") if is_dataclass(hint) else {f"{prefix}{name}": hint}
    return schema


SCHEMA: dict[str, Any] = _schema()
GROUPS = {key[:end] for key in SCHEMA for end in range(len(key)) if key[end] == "."}


def _typed(where: str, key: str, value: Any) -> Any:
    if key in GROUPS:
        first = next(name for name in SCHEMA if name.startswith(f"{key}."))
        raise ValueError(f"{where}: {key} = {value!r}: must be a group of keys, such as {first}")
    if key not in SCHEMA:
        raise ValueError(f"{where}: no key {key!r}; nearest is {nearest_key(key, SCHEMA)!r}")
    hint = SCHEMA[key]
    try:
        if value is None and NoneType not in get_args(hint):
            raise ValueError("may not be empty")
        if value is False and "off" in get_args(hint):
            value = "off"  # YAML reads this word as a boolean
        if isinstance(value, bool) and hint is not bool:
            raise ValueError("not a boolean")  # else `true` would become 1
        if isinstance(value, int) and abs(value) >= 2**63:
            raise ValueError("too large to compute with")
        parser = ArgumentParser(exit_on_error=False)
        parser.add_argument("--value", type=hint)
        return parser.parse_object({"value": value}).value
    except (ArgumentError, ValueError, TypeError):
        raise ValueError(f"{where}: {key} = {value!r}: must be {type_words(hint)}") from None


def type_words(hint: Any) -> str:
    """How a value of this type is written, for people."""
    words = {
        int: "a whole number",
        float: "a number",
        str: "text",
        bool: "true or false",
        tuple[float, float]: "two numbers, as in [0.9, 0.99]",
    }
    if hint in words:
        return words[hint]
    if get_origin(hint) is Literal:
        return f"one of {', '.join(get_args(hint))}"
    if get_origin(hint) in (list, tuple):
        return f"a list, each item {type_words(get_args(hint)[0])}"
    if get_origin(hint) is dict:
        return "a mapping"
    options = [argument for argument in get_args(hint) if argument is not NoneType]
    empty = ", or null" if NoneType in get_args(hint) else ""
    return f"{' or '.join(type_words(option) for option in options)}{empty}" if options else str(hint)


def _build(kind: Any, flat: Mapping[str, Any], prefix: str = "") -> Any:
    values = {}
    for f in fields(kind):
        hint = get_type_hints(kind)[f.name]
        if is_dataclass(hint):
            values[f.name] = _build(hint, flat, f"{prefix}{f.name}.")
        elif f"{prefix}{f.name}" in flat:
            values[f.name] = flat[f"{prefix}{f.name}"]
    return kind(**values)
