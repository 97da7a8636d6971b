"""Turns TRL's own error message about groups, as found in a log, into settings that it would have accepted.

`rules/rejected.py` checks a whole configuration before the run; here there is only the error message. It holds the
numbers that matter, so the same checks (`validity`) can find other values that would do. The messages of other trainers
are in the catalogue of troubles.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from stabilizer.trainers.constraints import divisors, nearest
from stabilizer.trainers.validity import violations


class Accepted(NamedTuple):
    """What to write instead. `settings` holds every single change, nearest to what was asked for first."""

    settings: dict[str, list[int]]
    how: str


MAX_MESSAGE = 4000
"""Longest message in characters; the trainers' own messages are shorter."""
_WHOLE_GROUPS = re.compile(
    r"The (global|effective) (train|eval) batch size \((\d+(?: (?:x|\*) \d+){1,2})\) must be (?:evenly )?divisible by "
    r"the number of generations (?:per prompt|used for evaluation) \((\d+)\)"
)
_MOST = 6
"""Most values that are suggested for one key."""
NOT_KNOWN = Accepted(
    {},
    "change the setting that the message names; `stabilizer preflight CONFIG` lists everything this trainer would"
    " refuse in the configuration, each with the nearest value it accepts",
)


def accepted(message: str) -> Accepted:
    """The settings that would do instead of those that TRL's message refuses, or a way to find them."""
    found = _WHOLE_GROUPS.search(message[:MAX_MESSAGE])
    return _whole_groups(found) if found else NOT_KNOWN


def _whole_groups(found: re.Match[str]) -> Accepted:
    """TRL up to 0.19: the factors are processes, completions per device and, from 0.17 on, passes."""
    word, part, product, asked = found.groups()
    factors = [int(factor) for factor in re.findall(r"\d+", product)]
    processes, per_device, *passes = reversed(factors) if "*" in product else factors  # it was turned round once
    version = "0.17.0" if word == "effective" else "0.18.0" if passes else "0.16.0"
    third = "gradient_accumulation_steps" if version == "0.17.0" else "steps_per_generation"
    if part == "eval":
        batch = processes * per_device
        settings = {
            "num_generations": _by_nearness(int(asked), divisors(batch, 2)),
            "per_device_eval_batch_size": _tried(per_device, lambda value: value * processes % int(asked) == 0),
        }
        return Accepted(settings, _in_words(settings))
    config = {"per_device_train_batch_size": per_device, "num_generations": int(asked)}
    config |= {third: passes[0]} if passes else {}
    batch = processes * per_device * (passes[0] if passes else 1)

    def good(key: str) -> Callable[[int], bool]:
        return lambda value: not violations("trl", version, {**config, key: value}, processes=processes)

    settings = {
        "num_generations": [g for g in _by_nearness(int(asked), divisors(batch, 2)) if good("num_generations")(g)],
        **{key: _tried(config[key], good(key)) for key in config if key != "num_generations"},
    }
    how = _in_words(settings)
    gpus = processes
    if processes > 1 and processes & (processes + 1) == 0:  # 3, 7, 15: one short of a whole machine
        gpus += 1
        how += f". On a machine of {gpus} GPUs vLLM takes one, so the batch is a multiple of {processes}"
    vllm = "" if gpus > processes else " --vllm none"
    how += f". `stabilizer plan --trainer trl --version {version} --gpus {gpus}{vllm}` lists every way to cut the batch"
    return Accepted(settings, how)


_NEVER_ONE = " (1 is never valid: a single answer has nothing to be compared with)"


def _by_nearness(wanted: int, choices: list[int]) -> list[int]:
    return sorted(choices, key=lambda choice: (abs(choice - wanted), choice))


def _tried(now: int, good: Callable[[int], bool]) -> list[int]:
    """The nearest values that would do."""
    return list(islice((n for n in _by_nearness(now, list(range(1, 8 * now + 65))) if good(n)), _MOST))


def _in_words(settings: dict[str, list[int]]) -> str:
    """Each change that suffices alone, as text, nearest value first."""
    told = [f"{key} {nearest(values[0], values, len(values))}" for key, values in settings.items() if values]
    words = ", or ".join(told) or "no single change does"
    return words + (_NEVER_ONE if "num_generations" in settings else "")
