"""TRL: `trainer_state.json`, which transformers' Trainer writes into every checkpoint and at the end of a run.

Written by GRPOTrainer and RLOOTrainer (Open-R1, Unsloth and others that inherit from them) and by the experimental
PPOTrainer (0.12-1.12). The numbers are the flat list `log_history`; the last checkpoint holds all of them. Traps:

- NaN and Infinity are written as such. `null` is the mean of a window of only NaN, except for a reward function, where
  it means that the function applied to no completion of the window.
- `grad_norm` and `learning_rate` belong to the last optimizer step of the logging window, the rest are means over
  the window. `step` counts optimizer steps; one batch of completions may serve several.
- `reward_std` is the mean of the groups' deviations up to 0.26 and that of the whole batch from 0.27 on.
- `kl` exists only with beta > 0 (before 0.16 always); it is k3 for GRPO and k1, signed, for RLOO.
- The final summary (`train_runtime`, ...) has a step but is not a row of training. SFT, DPO, KTO and reward-model
  trainers write such files too; DPO's `rewards/chosen` is not a reward function.
- `training_args.bin` beside it is a pickle and is never opened; the configuration comes from `--config` or a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stabilizer.configs.config import parse_version
from stabilizer.core.records import Event
from stabilizer.formats.console import head
from stabilizer.formats.files import config_file, json_value
from stabilizer.formats.rows import assemble, check_mapping, check_names, definition, number, step_number
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError
from stabilizer.trainers.versions import version_in

SUMMARY = "train_runtime"
"""Key of the final summary, which has a step but is not a row of training."""
NAME = "trl_trainer_state"
WHAT = "trainer_state.json of TRL, or the folder that holds it or its checkpoint-N"

NAMES = {
    # TRL 0.17 and later               ours
    "loss":                            "policy/loss",
    "grad_norm":                       "optim/grad_norm",
    "learning_rate":                   "optim/lr",
    "reward":                          "reward/mean",
    "reward_std":                      "reward/std",  # up to 0.26: reward/std_group
    "frac_reward_zero_std":            "reward/zero_std_frac",
    "kl":                              "policy/kl_ref",
    "entropy":                         "policy/entropy",
    "clip_ratio/region_mean":          "policy/clip_frac",
    "clip_ratio/low_mean":             "policy/clip_frac_low",
    "clip_ratio/high_mean":            "policy/clip_frac_high",
    "completions/mean_length":         "rollout/length_mean",
    "completions/max_length":          "rollout/length_max",
    "completions/clipped_ratio":       "rollout/truncated_frac",
    "num_tokens":                      "tokens/total",
    "step_time":                       "time/step_s",
}  # fmt: skip
"""Beside these `rewards/<f>/mean` and `/std` become `reward/<f>/mean` and `/std`; others keep their name: `trl/...`."""

PPO = "trl-ppo"
"""The experimental PPOTrainer as a trainer of its own: its settings are others than GRPOTrainer's."""

OLD_NAMES = {
    # TRL 0.14-0.16                    ours
    "completion_length":               "rollout/length_mean",
    "clip_ratio":                      "policy/clip_frac",
}  # fmt: skip
"""Beside these `rewards/<f>` becomes `reward/<f>/mean`. Where a log has the new name too, the old one stays `trl/`."""

_OF_SWIFT = {"entropy/mean": "policy/entropy"}
"""What ms-swift calls otherwise."""

PPO_NAMES = {
    # TRL's experimental PPO           ours
    "loss/policy_avg":                 "policy/loss",
    "loss/value_avg":                  "value/loss",
    "lr":                              "optim/lr",
    "objective/scores":                "reward/mean",
    "policy/approxkl_avg":             "policy/kl_old",
    "policy/clipfrac_avg":             "policy/clip_frac",
    "policy/entropy_avg":              "policy/entropy",
    "val/clipfrac_avg":                "value/clip_frac",
}  # fmt: skip
"""Its `objective/kl` and `objective/entropy` are sums over a sequence, not per token, and so keep their names."""

_WINDOW = "mean over the logging window"
_LAST = "last optimizer step of the logging window"

DIFFERS = {
    "loss": {"estimator": "policy loss + beta x KL - entropy bonus; about 0 by construction while on-policy"},
    "grad_norm": {"aggregation": _LAST},
    "learning_rate": {"aggregation": _LAST},
    "reward": {"estimator": "weighted sum of the reward functions, mean over completions"},
    "frac_reward_zero_std": {"estimator": "completions in groups whose rewards are all the same"},
    "completions/clipped_ratio": {"estimator": "completions that do not end in an end or padding token"},
    "num_tokens": {"aggregation": "running total"},
    "policy/approxkl_avg": {"estimator": "k2 estimate: half the mean squared log-ratio, mean over completion tokens"},
    "policy/clipfrac_avg": {"estimator": "tokens whose clipped loss exceeds the unclipped one"},
    "clip_ratio": {"estimator": "tokens outside the clip range on either side"},
}
"""Where TRL's quantity is not quite the one `vocabulary.py` defines: what it is instead."""

NULL_IS_NAN = frozenset({"loss", "kl", "entropy", "reward", "reward_std"})

SIGNS = (
    ("step_time", "0.26"), ("sampling/", "0.23"), ("entropy", "0.20"), ("frac_reward_zero_std", "0.18"),
    ("completions/", "0.17"), ("num_tokens", "0.16"), ("reward", "0.14"),
)  # fmt: skip
"""Keys that exist from a version on, newest first: the oldest TRL that can have written the log."""

ONLINE = ("reward", "reward_std", "frac_reward_zero_std", "objective/scores", "completion_length")
OFFLINE = ("rewards/chosen", "logps/chosen")

CONFIG_NAMES = ("grpo_config", "training_args", "training_config", "config", "recipe", "args")
CONFIG_KEYS = frozenset({"num_generations", "per_device_train_batch_size", "max_completion_length", "num_iterations"})
INSIDE = {"rlhf_type": "ms-swift", "finetuning_type": "llama-factory"}
"""Settings by which a configuration tells the trainer that runs transformers' Trainer inside."""

_CHECKPOINT = re.compile(r"checkpoint-(\d+)\Z")
_PRINTED = 65_536
"""Bytes of a log in which `trl env` or `pip freeze` pasted before it is looked for."""
_CARD_VERSION = re.compile(r"^\s*[-*]\s*TRL:\s*v?(\d+)\.(\d+)", re.MULTILINE)


def recognises(path: Path) -> bool:
    """By the file's exact name, or by an object with a `log_history` near its start."""
    if path.is_dir():
        return bool(_states(path))
    if path.name == "trainer_state.json":
        return True
    try:
        with path.open("rb") as file:
            head = file.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    except OSError:
        return False
    return head.startswith(b"{") and b'"log_history"' in head and b'"global_step"' in head


def read(path: Path, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
    """The run in a state file, or in the newest readable one of a folder."""
    file, state, notes = _newest(path) if path.is_dir() else (path, _state(path), [])
    return run_of(
        state["log_history"], file, format=NAME, mapping=mapping, config=config,
        planned=step_number(state.get("max_steps")) or None, notes=notes,
    )  # fmt: skip


def run_of(
    records: Iterable[Any],
    file: Path,
    *,
    format: str,
    mapping: Mapping[str, str],
    config: Mapping[str, Any] | None,
    planned: int | None = None,
    skipped: int = 0,
    notes: list[str] | None = None,
    trainer: str = "trl",
    settings: Mapping[str, Any] | None = None,
    name: str = "",
) -> LoadedRun:
    """The run in records as TRL logs them, each with its `step`, wherever they were found.

    An `Event` among the records is declared at the step reached so far. `trainer` is whose settings advice speaks of.
    """
    notes = notes if notes is not None else []
    parts = list(records)
    seen = {key for part in parts if isinstance(part, dict) for key in part}
    check_names(len(seen), file)
    check_mapping(mapping, seen, file)
    settings, said = (dict(settings), []) if settings and config is None else _config(file, config)
    notes += said
    version, exact = _version(file, seen)
    online = _online(seen)
    names = _names(seen, parts, online, version, exact, settings, notes)
    names.update({theirs: ours for ours, theirs in mapping.items()})
    _disambiguate(names, mapping)
    if "beta" not in settings and _no_reference(names, seen, version):
        settings = {**settings, "beta": 0.0}
        notes.append("no KL in the log, so beta = 0 is taken for granted")
    entries, left_out = _rows(parts, names, notes)
    ppo = "objective/scores" in seen
    if online and not ppo:
        _window_note(entries, notes)
    about = {
        "clock": "rollout_batch" if ppo else "optimizer_step",
        "steps": planned,
        **({"ended": f"its summary ({SUMMARY}) is the last line"} if _summed_up(parts) else {}),
        "config": settings,
        "versions": {"trl": ".".join(map(str, version)) if exact else f">={version[0]}.{version[1]}"} if online else {},
        "metrics": {ours: _definition(ours, theirs, entries) for theirs, ours in names.items()},
    }
    return assemble(
        name or _run_name(file),
        format=format,
        trainer=_trainer(trainer, settings, ppo) if online else "transformers",
        files=[file],
        rows=entries,
        about=about,
        skipped=skipped + left_out,
        notes=notes,
    )


def _trainer(named: str, settings: Mapping[str, Any], ppo: bool) -> str:
    """Whose settings advice speaks of: the trainer that the format or the configuration tells, else TRL's own."""
    if named != "trl":
        return named
    inside = next((trainer for key, trainer in INSIDE.items() if key in settings), "")
    return inside or (PPO if ppo else named)


# --- which file ----------------------------------------------------------------------------------------------------


def _states(folder: Path) -> list[Path]:
    """State files of a folder, the one of the largest checkpoint first; that of the folder itself before them."""
    try:
        found = [
            (int(match[1]), child / "trainer_state.json")
            for child in folder.iterdir()
            if len(child.name) < 32 and (match := _CHECKPOINT.match(child.name))
        ]
    except OSError:
        return []
    states = [file for _, file in sorted(found, reverse=True) if file.is_file()]
    own = folder / "trainer_state.json"
    return [own, *states] if own.is_file() else states


def _newest(folder: Path) -> tuple[Path, dict[str, Any], list[str]]:
    """The state that reaches furthest. A damaged one is skipped with a note, for the checkpoint before it."""
    notes: list[str] = []
    states = _states(folder)
    if not states:
        raise RunError(
            f"{folder}: no trainer_state.json in it or in a checkpoint-N below; give the trainer's output_dir"
        )
    first_error: RunError | None = None
    best: tuple[Path, dict[str, Any]] | None = None
    for file in states:
        checkpoint = _CHECKPOINT.match(file.parent.name) if file.parent != folder else None
        if best and (not checkpoint or int(checkpoint[1]) <= _reached(best[1])):
            break
        try:
            best = file, _state(file)
        except RunError as error:
            first_error = first_error or error
            notes.append(f"skipped: {error}")
            continue
        if checkpoint:
            break
    if best is None:
        raise first_error or RunError(f"{folder}: no readable trainer_state.json")
    return *best, notes


def _reached(state: Mapping[str, Any]) -> int:
    return step_number(state.get("global_step")) or 0


def _state(file: Path) -> dict[str, Any]:
    state = json_value(file, walked=False)  # of its rows, `rows_of` takes so many levels
    if not isinstance(state, dict) or "log_history" not in state:
        raise RunError(f"{file}: no 'log_history' in it, so not a trainer_state.json; give the one in checkpoint-N")
    history = state["log_history"]
    if not isinstance(history, list):
        raise RunError(f"{file}: 'log_history' is a {type(history).__name__}, not a list; was the file edited?")
    if not history:
        raise RunError(f"{file}: 'log_history' is empty: nothing was logged before this checkpoint (see logging_steps)")
    return state


def _run_name(file: Path) -> str:
    folder = file.resolve().parent
    folder = folder.parent if _CHECKPOINT.match(folder.name) else folder
    return (folder.name or "run") if file.name == "trainer_state.json" else file.stem


def _config(file: Path, given: Mapping[str, Any] | None) -> tuple[dict[str, Any], list[str]]:
    """The configuration, as given or from a file beside the state that holds a trainer's keys (not a model's)."""
    if given is not None:
        return dict(given), []
    notes = []
    folders = [file.parent, *([file.parent.parent] if _CHECKPOINT.match(file.parent.name) else [])]
    for beside in (
        folder / (name + end) for folder in folders for name in CONFIG_NAMES for end in (".json", ".yaml", ".yml")
    ):
        if not beside.is_file():
            continue
        try:
            settings = config_file(beside)
        except RunError as error:
            notes.append(f"configuration not read: {error}")
            continue
        if CONFIG_KEYS & set(settings):
            return settings, [*notes, f"configuration taken from {beside.name} beside the log"]
    return {}, notes


# --- what the names mean -------------------------------------------------------------------------------------------


def _online(seen: Iterable[str]) -> bool:
    """Whether this trainer generates and gets rewards: SFT and preference trainers write the same kind of file."""
    keys = set(seen)
    if keys.intersection(OFFLINE):
        return False
    return bool(keys.intersection(ONLINE)) or "kl" in keys or any(key.startswith("completions/") for key in keys)


def _version(file: Path, seen: set[str]) -> tuple[tuple[int, int], bool]:
    """TRL's version: exact from the model card or what the log says of it, else the oldest that has all these keys."""
    for card in (file.parent / "README.md", file.parent.parent / "README.md"):
        try:
            with card.open(encoding="utf-8", errors="replace") as text:
                if match := _CARD_VERSION.search(text.read(20_000)):
                    return (int(match[1]), int(match[2])), True
        except OSError:
            continue
    if printed := version_in(head(file)[:_PRINTED].decode("utf-8", "replace"), "trl"):
        return parse_version(printed)[:2], True
    for sign, version in SIGNS:
        if any(key == sign or (sign.endswith("/") and key.startswith(sign)) for key in seen):
            major, minor = version.split(".")
            return (int(major), int(minor)), False
    return (0, 14), False


def _names(
    seen: set[str],
    parts: list[Any],
    online: bool,
    version: tuple[int, int],
    exact: bool,
    settings: Mapping[str, Any],
    notes: list[str],
) -> dict[str, str]:
    """Our name for every key of this log."""
    kept = {key: f"trl/{key}" for key in seen if key not in ("step", "train_runtime")}
    if not online:
        notes.append("no rewards or completions in the log: not a run of GRPO, RLOO or PPO")
        return {**kept, **{key: NAMES[key] for key in ("grad_norm", "learning_rate") if key in seen}}
    table = PPO_NAMES if "objective/scores" in seen else NAMES
    names = {**kept, **{key: ours for key, ours in table.items() if key in seen}}
    for key, ours in (*OLD_NAMES.items(), *_OF_SWIFT.items()):
        if key in seen and ours not in names.values():
            names[key] = ours
    for key in seen:
        if key.startswith("rewards/"):
            names[key] = _component(key, seen)
    if "reward_std" in seen:
        names["reward_std"] = _std_name(seen, version, exact, settings, notes)
    if "kl" in names and table is NAMES and _all_zero(parts, "kl"):
        names["kl"] = "trl/kl"
        notes.append("kl is 0 throughout, so it was not measured: without a reference there is none")
    if any(key.startswith("eval_") for key in seen):
        notes.append("eval_* stays under trl/eval_*: a held-out reward, which is not the accuracy of accuracy/val")
    return names


def _component(key: str, seen: set[str]) -> str:
    """`rewards/<f>/mean`, `rewards/<f>/std`, or before 0.17 plainly `rewards/<f>`."""
    function = key.removeprefix("rewards/")
    stem, _, stat = function.rpartition("/")
    if stem and stat in ("mean", "std"):
        return f"reward/{stem}/{stat}"
    return f"trl/{key}" if f"{key}/mean" in seen or not function else f"reward/{function}/mean"


def _std_name(
    seen: set[str], version: tuple[int, int], exact: bool, settings: Mapping[str, Any], notes: list[str]
) -> str:
    if settings.get("scale_rewards") == "batch":
        return "reward/std"
    if exact:
        return "reward/std_group" if version < (0, 27) else "reward/std"
    if "step_time" not in seen:
        return "reward/std_group"  # 0.26 brought step_time and 0.27 the new meaning
    notes.append(
        "reward_std is read as the batch's deviation (TRL 0.27 and later); 0.26 has the same keys and means the "
        "groups'. Nothing is concluded from it about the signal within groups; frac_reward_zero_std says that"
    )
    return "reward/std"


def _no_reference(names: Mapping[str, str], seen: set[str], version: tuple[int, int]) -> bool:
    """GRPO and RLOO from 0.16 on log `kl` whenever there is a reference to compare with."""
    return version >= (0, 16) and bool({"reward", "reward_std"} & seen) and names.get("kl") in (None, "trl/kl")


def _summed_up(parts: list[Any]) -> bool:
    """Whether the final summary is the last of the records."""
    last = next((part for part in reversed(parts) if not isinstance(part, Event)), None)
    return isinstance(last, dict) and SUMMARY in last


def _all_zero(parts: list[Any], key: str) -> bool:
    values = [part[key] for part in parts if isinstance(part, dict) and key in part]
    return len(values) > 1 and all(value == 0 for value in values)


def _disambiguate(names: dict[str, str], mapping: Mapping[str, str]) -> None:
    """Resolve two keys with one of our names: `--map` wins, the other keeps its own name."""
    for theirs, ours in list(names.items()):
        if ours in mapping and mapping[ours] != theirs:
            names[theirs] = f"trl/{theirs}"


def _definition(ours: str, theirs: str, entries: list[Entry]) -> dict[str, str]:
    differs = {"aggregation": _WINDOW, **DIFFERS.get(theirs, {})}
    if theirs == "kl":
        signed = any(value < 0 for _, value in _points(entries, ours))
        differs["estimator"] = (
            "k1 estimate, signed, of KL(policy, reference), mean over completion tokens" if signed
            else "k3 estimate of KL(policy, reference); mean of the sequences' means, from TRL 1.9 on of all tokens"
        )  # fmt: skip
    return definition(ours, theirs, **differs)


# --- the numbers ---------------------------------------------------------------------------------------------------


Entry = tuple[int, dict[str, float]] | Event


def _rows(parts: list[Any], names: Mapping[str, str], notes: list[str]) -> tuple[list[Entry], int]:
    """The records as rows in our names."""
    entries: list[Entry] = []
    skipped = 0
    not_numbers: dict[str, int] = {}
    for part in parts:
        if isinstance(part, Event):
            entries.append(part)
        elif not isinstance(part, dict):
            skipped += 1
        elif SUMMARY not in part:
            if (step := step_number(part.get("step"))) is None:
                skipped += 1
            else:
                entries.append((step, _numbers(part, names, not_numbers)))
    if skipped:
        notes.append(f"{skipped} entries left out: no whole number as 'step'")
    if not_numbers:
        count, example = sum(not_numbers.values()), min(not_numbers)
        notes.append(f"{count} values left out that are no numbers, e.g. of {example!r}")
    return entries, skipped


def _numbers(record: dict[str, Any], names: Mapping[str, str], not_numbers: dict[str, int]) -> dict[str, float]:
    values: dict[str, float] = {}
    for key, value in record.items():
        if key == "step":
            continue
        if value is None:
            if key in NULL_IS_NAN:
                values[names[key]] = np.nan
        elif (as_number := number(value)) is None:
            not_numbers[key] = not_numbers.get(key, 0) + 1
        else:
            values[names[key]] = as_number
    return values


def _points(entries: list[Entry], name: str) -> Iterator[tuple[int, float]]:
    """Steps and values of one metric."""
    for entry in entries:
        if not isinstance(entry, Event) and name in entry[1]:
            yield entry[0], entry[1][name]


def _window_note(entries: list[Entry], notes: list[str]) -> None:
    steps = sorted({step for step, _ in _points(entries, "optim/grad_norm")})
    if len(steps) > 2 and (window := int(np.median(np.diff(steps)))) > 1:
        notes.append(
            f"logged every {window} steps: grad_norm is that of each window's last step, spikes in between do not show"
        )
