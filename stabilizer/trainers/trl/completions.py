"""TRL: the completions it saves with `log_completions=True`, a folder of `completions_00010.parquet`, ...

GRPOTrainer and RLOOTrainer write one file each time they log, since 0.28, to `<output_dir>/completions`: columns
`step`, `prompt`, `completion`, one a reward function, any the script logged besides, and `advantage`. A step is an
optimizer step. Needs pyarrow.

- A file holds the newest batch of completions, whereas the log's own numbers are means over the logging window. Where
  several optimizer steps learn from one batch it is written again; the repetition counts once.
- The reward is the weighted sum of the functions, and the file knows neither the weights nor which columns are
  functions (they come first). The sum that the advantages follow is used; where they follow none, the reward is left
  out and only the advantages show which groups have no signal.
- A function that does not apply to a completion leaves it empty; this is not NaN.
- An evaluation at a step replaces the file of that step by its own completions.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stabilizer.core import parquet
from stabilizer.core.records import Sample
from stabilizer.formats import samples as rollouts
from stabilizer.formats.files import MAX_BYTES
from stabilizer.formats.rows import Row, number, step_number
from stabilizer.formats.samples import DIFFERS, Answer, is_binary, samples, statistics, without_abandoned
from stabilizer.runs.loaded import LoadedRun, Texts
from stabilizer.runs.reader import RunError
from stabilizer.trainers.naming import Naming, named_run

NAME = "trl_completions"
WHAT = "the folder of completions_N.parquet that TRL saves with log_completions=True"

STEP_FILE = re.compile(r"completions_(\d{1,12})\.parquet")
MAX_ROWS = 200_000
"""Of one file: a few kilobytes can hold billions of equal rows."""
TRIED = 8
"""Files that are used to find the parts of the reward."""

_OWN = frozenset({"step", "prompt", "completion", "advantage"})
_RIGHT = re.compile(r"accuracy|correct|solve|exact_match", re.I)
_MAGIC = b"PAR1"
_NO_PYARROW = "reading Parquet needs pyarrow; run: pip install 'stabilizer[data]'"


class _Table(NamedTuple):
    """One file: its step, its rows as text, and the columns of numbers in their order."""

    step: int
    prompts: list[str]
    completions: list[str]
    advantages: np.ndarray
    columns: dict[str, np.ndarray]


class _Reward(NamedTuple):
    """The columns whose weighted sum the advantages follow; without any, the reward is not known."""

    weights: dict[str, float]
    right: str
    """The column that says whether an answer is right; empty for none."""


def recognises(path: Path) -> bool:
    """By the names TRL gives and Parquet's first bytes."""
    try:
        files = _files(path) if path.is_dir() else [path] if STEP_FILE.fullmatch(path.name) else []
        return bool(files) and files[0].is_file() and _parquet(files[0])
    except OSError:
        return False


def read(path: Path, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
    """The run in a folder of completions, or the step in one file."""
    settings = dict(config or {})
    notes: list[str] = []
    files = without_abandoned(_files(path), notes) if path.is_dir() else [path]
    if not files:
        raise RunError(f"{path}: no completions_N.parquet in it; give the folder `completions` of TRL's output_dir")
    errors: list[RunError] = []
    reward = _reward(list(_tables(files[:TRIED], errors)), settings, notes)
    errors.clear()
    rows: dict[int, dict[str, float]] = {}
    where: dict[int, Path] = {}
    before: list[str] = []
    repeated, binary = 0, True
    for file, table in zip(files, _each(files, errors), strict=True):
        if table is None:
            continue
        if table.completions == before:
            repeated += 1
            continue
        before = table.completions
        binary = binary and (not reward.right or is_binary(table.columns[reward.right][_told(table, reward.right)]))
        rows[table.step] = _row(table, reward)
        where[table.step] = file
    if not rows:
        raise errors[0] if errors else RunError(f"{path}: no completions in it")
    if not binary:
        notes.append(f"{reward.right} pays more than 0 and 1: which answers are right is not known")
        reward = reward._replace(right="")
        unknown = ("solved/mean", "reward/all_fail_frac", "reward/all_pass_frac")
        rows = {step: {key: v for key, v in values.items() if key not in unknown} for step, values in rows.items()}
    if repeated:
        notes.append(f"{repeated} files left out that hold the batch of the file before: several updates learn from it")
    notes += [f"skipped: {str(error)[:200]}" for error in errors[:3]]

    def texts(step: int) -> list[Sample]:
        table = next(_tables([where[step]], []), None) if step in where else None
        return samples(step, _answers(table, reward)) if table else []

    run = _named(path, sorted(rows.items()), mapping, settings, len(errors), notes)
    run.texts = Texts(tuple(sorted(where)), texts)
    return run


def _named(
    path: Path, rows: list[Row], mapping: dict[str, str], settings: dict[str, Any], skipped: int, notes: list[str]
) -> LoadedRun:
    folder = path if path.is_dir() else path.parent
    name = folder.resolve().parent.name if folder.resolve().name == "completions" else folder.resolve().name
    naming = Naming(
        trainer="trl", prefix="trl", names=rollouts.NAMES, differs=DIFFERS, family=_component, clock="optimizer_step"
    )
    return named_run(
        name or "run", naming, rows, format=NAME, files=[path], mapping=mapping, config=settings, skipped=skipped,
        notes=notes,
    )  # fmt: skip


def _component(key: str) -> str | None:
    family, _, rest = key.partition("/")
    return f"reward/{rest}" if family == "rewards" else None


# --- files ---------------------------------------------------------------------------------------------------------


def _files(folder: Path) -> list[Path]:
    """The files of a folder, by step."""
    found = [(int(match[1]), file) for file in folder.iterdir() if (match := STEP_FILE.fullmatch(file.name))]
    return [file for _, file in sorted(found) if file.is_file()]


def _parquet(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(4) == _MAGIC


def _tables(files: Sequence[Path], errors: list[RunError]) -> Iterator[_Table]:
    return (table for table in _each(files, errors) if table is not None)


def _each(files: Sequence[Path], errors: list[RunError]) -> Iterator[_Table | None]:
    """Each file's table, None (and an error) where it can't be read."""
    for file in files:
        try:
            yield _table(file)
        except RunError as error:
            errors.append(error)
            yield None


def _table(file: Path) -> _Table:
    if not file.is_file() or not _parquet(file):
        raise RunError(f"{file}: not a Parquet file, or cut off; was the trainer stopped while it was written?")
    if file.stat().st_size > MAX_BYTES:
        raise RunError(f"{file}: more than the {MAX_BYTES // 2**30} GiB this reader takes of one step")
    try:
        import pyarrow
    except ImportError:
        raise RunError(f"{file}: {_NO_PYARROW}") from None
    try:
        columns = parquet.read(file, max_rows=MAX_ROWS, wanted=_wanted).to_pydict()
    except parquet.TooMuch as error:
        raise RunError(f"{file}: {error}") from None
    except (pyarrow.ArrowException, OSError, ValueError, RecursionError) as error:
        raise RunError(f"{file}: not readable as Parquet: {str(error).splitlines()[0][:200]}") from None
    if not {"prompt", "completion"} <= columns.keys():
        raise RunError(f"{file}: no columns `prompt` and `completion`; is this one of TRL's completions_N.parquet?")
    count = len(columns["completion"])
    steps = [step_number(number(step)) for step in columns.get("step", [])]
    match = STEP_FILE.fullmatch(file.name)
    step = steps[0] if steps and steps[0] is not None else int(match[1]) if match else None
    if step is None or not count:
        raise RunError(f"{file}: no completion with its step in it")
    return _Table(
        step,
        [_text(prompt) for prompt in columns["prompt"]],
        [_text(completion) for completion in columns["completion"]],
        _numbers(columns.get("advantage", [])) if "advantage" in columns else np.full(count, np.nan),
        {key: _numbers(values) for key, values in columns.items() if key not in _OWN and _numeric(values)},
    )


def _wanted(field: Any) -> bool:
    """Whether a column of Arrow is read: those of TRL, and any numbers."""
    from pyarrow import types

    numbers = (types.is_integer, types.is_floating, types.is_boolean)
    return field.name in _OWN or any(is_kind(field.type) for is_kind in numbers)


def _numeric(values: Sequence[Any]) -> bool:
    told = [value for value in values if value is not None]
    return bool(told) and all(isinstance(value, (bool, int, float)) for value in told)


def _numbers(values: Sequence[Any]) -> np.ndarray:
    """Numbers, NaN where there is none."""
    return np.array(
        [math.nan if not isinstance(v, (bool, int, float)) or number(v) is None else number(v) for v in values], float
    )


def _text(value: Any) -> str:
    """A prompt or completion as text: a conversation message by message."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(message, dict) for message in value):
        texts = [_content(message) for message in value]
        if len(value) == 1:
            return texts[0]
        return "\n\n".join(f"[{message.get('role', '?')}]\n{text}" for message, text in zip(value, texts, strict=True))
    return "" if value is None else _json(value)


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    calls = message.get("tool_calls")
    return (content if isinstance(content, str) else "") + (f"\n{_json(calls)}" if calls else "")


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return ""


# --- what the reward is --------------------------------------------------------------------------------------------


def _reward(tables: list[_Table], settings: dict[str, Any], notes: list[str]) -> _Reward:
    """The longest beginning of the columns whose sum the advantages follow, with the weights where they are known."""
    shared = [key for key in (tables[0].columns if tables else ()) if all(key in table.columns for table in tables)]
    weights = settings.get("reward_weights")
    given = weights if isinstance(weights, list) and all(number(w) is not None for w in weights) else []
    for count in range(len(shared), 0, -1):
        used = given if len(given) == count else [1.0] * count
        reward = dict(zip(shared[:count], map(float, used), strict=True))
        if _followed(tables, reward):
            return _Reward(reward, _right(list(reward)))
    if shared:
        notes.append(
            f"the advantages follow no plain sum of {', '.join(shared[:6])}: the reward is left out; with --config "
            "FILE its reward_weights are used"
        )
    return _Reward({}, _right(shared))


def _right(functions: list[str]) -> str:
    named = [key for key in functions if _RIGHT.search(key)]
    return named[0] if len(named) == 1 else functions[0] if len(functions) == 1 else ""


def _followed(tables: list[_Table], weights: dict[str, float]) -> bool:
    """Whether, within groups, advantages are the rewards' distances from their mean times something positive.

    A pair shows only which answer got more, so larger groups decide where there are some.
    """
    asked = [(table, members) for table in tables for members in _groups(table) if len(members) > 1]
    asked = [(table, members) for table, members in asked if len(members) > 2] or asked
    totals = {id(table): _total(table, weights) for table in tables}
    told = []
    for table, members in asked:
        reward, advantage = totals[id(table)][members], table.advantages[members]
        if not (np.isfinite(reward).all() and np.isfinite(advantage).all()):
            continue
        apart, paid = reward - reward.mean(), advantage - advantage.mean()
        sizes = float(np.linalg.norm(apart)), float(np.linalg.norm(paid))
        if min(sizes) < 1e-6:
            told.append(max(sizes) < 1e-3)
        else:
            told.append(float(apart @ paid) / (sizes[0] * sizes[1]) > 0.999)
    return sum(told) >= 0.95 * len(told)  # without such a group, the sum is used


def _total(table: _Table, weights: dict[str, float]) -> np.ndarray:
    """The weighted sum over the functions that apply; NaN where none does."""
    if not weights:
        return np.full(len(table.completions), np.nan)
    parts_FN = np.array([weight * table.columns[key] for key, weight in weights.items()])
    return np.where(np.isnan(parts_FN).all(0), np.nan, np.nansum(parts_FN, 0))


def _groups(table: _Table) -> list[list[int]]:
    found: dict[str, list[int]] = {}
    for place, prompt in enumerate(table.prompts):
        found.setdefault(prompt, []).append(place)
    return list(found.values())


def _told(table: _Table, key: str) -> np.ndarray:
    finite: np.ndarray = np.isfinite(table.columns[key])
    return finite


def _row(table: _Table, reward: _Reward) -> dict[str, float]:
    """A step's numbers."""
    found = statistics(_answers(table, reward))
    for key, values in table.columns.items():
        told = values[~np.isnan(values)]
        family = "rewards/" if key in reward.weights or not reward.weights else ""
        found |= {f"{family}{key}/mean": float(told.mean())} if len(told) else {}
    if not reward.weights:
        flat = [np.abs(table.advantages[members]).max() < 1e-6 for members in _groups(table) if len(members) > 1]
        found |= {"reward/zero_std_frac": float(np.mean(flat))} if flat else {}
    return found


def _answers(table: _Table, reward: _Reward) -> list[Answer]:
    reward_N = _total(table, reward.weights)
    right_N = table.columns.get(reward.right)
    solved: Callable[[int], bool | None] = (
        (lambda place: None) if right_N is None
        else lambda place: bool(right_N[place] == 1.0) if right_N[place] in (0.0, 1.0) else None
    )  # fmt: skip
    return [
        Answer(
            prompt=prompt,
            completion=completion,
            reward=float(reward_N[place]),
            group=prompt,
            advantage=float(table.advantages[place]),
            solved=solved(place),
            rewards={key: float(v[place]) for key, v in table.columns.items() if not math.isnan(v[place])},
        )
        for place, (prompt, completion) in enumerate(zip(table.prompts, table.completions, strict=True))
    ]
