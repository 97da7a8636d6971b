"""Turns a trainer's own error message, as found in a log, into settings that it would have accepted.

`rules/rejected.py` checks a whole configuration before the run; here there is only the error message. It holds the
numbers that matter, so the same checks (`validity`) can find other values that would do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple

from stabilizer.trainers.constraints import divisors, near_multiple, nearest
from stabilizer.trainers.validity import newest_version, violations


class Accepted(NamedTuple):
    """What to write instead. `settings` holds every single change, nearest to what was asked for first."""

    settings: dict[str, list[int]]
    how: str


MAX_MESSAGE = 4000
"""Longest message in characters; the trainers' own messages are shorter."""
_TRL_WHOLE_GROUPS = re.compile(
    r"The (global|effective) (train|eval) batch size \((\d+(?: (?:x|\*) \d+){1,2})\) must be (?:evenly )?divisible by "
    r"the number of generations (?:per prompt|used for evaluation) \((\d+)\)"
)
_TRL_GENERATION_BATCH = re.compile(r"generation_batch_size \((\d+)\) must be divisible by num_generations \((\d+)\)")
_TRL_ONE_ANSWER = re.compile(r"requires at least 2 generations|need `config\.worker\.rollout\.n > 1`")
_DIVISIBLE = re.compile(
    r"([\w.]+(?: \w+)*?) \(?(\d+)\)? (?:must|should) be divisible by ([\w.]+(?: \w+)*?) \(?(\d+)\)?(?!\d)"
)
_AT_LEAST = re.compile(r"([\w.]+) \((\d+)\) must be >= ([\w.]+) \((\d+)\)")
_ONE_OF = re.compile(r"Please set at least one of '([\w.]+)' or '([\w.]+)'")
_MOST = 6
"""Most values that are suggested for one key."""
_SENTENCES = {
    "Rollout batch size must be divisible by actor global batch size":
        "make data.rollout_batch_size a multiple of worker.actor.global_batch_size",
    "Rollout batch size * rollout.n must be divisible by actor micro batch size for experience":
        "let worker.actor.micro_batch_size_per_device_for_experience divide data.rollout_batch_size x worker.rollout.n",
    "global batch size per device must be divisible by the micro batch size":
        "let worker.actor.micro_batch_size_per_device_for_update divide worker.actor.global_batch_size x"
        " worker.rollout.n / GPUs",
    "global batch size * ulysses size must be larger than num gpus":
        "raise worker.actor.global_batch_size to at least the number of GPUs",
}  # fmt: skip
"""EasyR1's messages name neither numbers nor keys; these are the keys."""


def accepted(message: str) -> Accepted:
    """The settings that would do instead of those that a trainer's message refuses, or a way to find them."""
    message = message[:MAX_MESSAGE]
    for sign, answer in _ANSWERS:
        if found := sign.search(message):
            return answer(found)
    for sentence, how in _SENTENCES.items():
        if sentence in message:
            return Accepted({}, how)
    return Accepted(
        {},
        "change the setting that the message names; `stabilizer preflight CONFIG` lists everything this trainer would"
        " refuse in the configuration, each with the nearest value it accepts",
    )


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
        how += (
            f". {processes} processes on a machine of {gpus} GPUs: vLLM has taken one, so the batch is a multiple of"
            f" {processes}"
        )
    vllm = "" if gpus > processes else " --vllm none"
    how += f". `stabilizer plan --trainer trl --version {version} --gpus {gpus}{vllm}` lists every way to cut the batch"
    return Accepted(settings, how)


def _generation_batch(found: re.Match[str]) -> Accepted:
    """TRL from 0.20 on states only the product."""
    batch, group = int(found[1]), int(found[2])
    version = newest_version("trl")

    def good(**change: int) -> bool:
        config: dict[str, Any] = {"generation_batch_size": batch, "num_generations": group}
        return not violations("trl", version, {**config, "per_device_train_batch_size": 1, **change}, processes=1)

    settings = {
        "num_generations": [g for g in _by_nearness(group, divisors(batch, 2)) if good(num_generations=g)],
        "generation_batch_size": _tried(batch, lambda value: good(generation_batch_size=value)),
    }
    return Accepted(
        settings,
        _in_words(settings) + ". generation_batch_size is processes x per_device_train_batch_size x"
        " steps_per_generation (by default gradient_accumulation_steps), and must stay a multiple of the first two",
    )


def _one_answer(found: re.Match[str]) -> Accepted:
    key = "worker.rollout.n" if "rollout" in found[0] else "num_generations"
    return Accepted({key: [8, 4, 2]}, f"{key} 8, or any from 2 on that divides the batch{_NEVER_ONE}")


def _divisible(found: re.Match[str]) -> Accepted:
    whole, part = int(found[2]), int(found[4])
    if part < 1:
        return Accepted({}, f"{found[3]} must be at least 1")
    step = near_multiple(whole, part)
    settings = {
        found[1]: _by_nearness(whole, [n for n in (step - part, step, step + part) if n > 0]),
        found[3]: _by_nearness(part, divisors(whole)),
    }
    return Accepted(settings, _in_words(settings))


def _at_least(found: re.Match[str]) -> Accepted:
    settings = {found[1]: [int(found[4])], found[3]: [int(found[2])]}
    return Accepted(settings, f"{found[1]} {found[4]} or more, or {found[3]} {found[2]} or less")


def _one_of(found: re.Match[str]) -> Accepted:
    key = next((name for name in (found[2], found[1]) if name.endswith("_per_gpu")), found[1])
    return Accepted({}, f"set {key}, e.g. to 1: it changes memory and speed alone; the other is its old name")


_ANSWERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Accepted]], ...] = (
    (_TRL_WHOLE_GROUPS, _whole_groups),
    (_TRL_GENERATION_BATCH, _generation_batch),
    (_TRL_ONE_ANSWER, _one_answer),
    (_DIVISIBLE, _divisible),
    (_AT_LEAST, _at_least),
    (_ONE_OF, _one_of),
)
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
