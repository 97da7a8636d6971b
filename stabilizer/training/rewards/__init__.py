"""Reward functions: built-in ones, and the user's own.

A reward is a function, called with keyword arguments. A singular or plural parameter decides between two forms:

    def reward(completion, answer): ...                       one sample in, one number out
    def reward(completions, answers, **columns): ...          the step's lists in, a list of numbers out

Either form may take `prompt`/`prompts` (the text the policy read), `answer`/`answers` (the data's answer column) and
any other column of the data by its name (a list of values in the second form). It gets the columns it names, or all of
them if it takes `**columns`. It may also name `completion_ids` and `finish_reason` (`stop` or `length`). Either form
may be `async def`: the samples of the first form then run concurrently. Further parameters with a default are options,
set in the configuration. A number is the reward; `None` means that this function does not apply to the sample, which
leaves it out of the weighted sum. A mapping holds the number as `reward`, beside further numbers to log. Everything
else (an exception, NaN, text, a list of another length, a hang, the end of the process) is a failure: the sample gets
no reward and teaches nothing.

A function in TRL's form (`completions` and `**kwargs`, without `answers`) gets a chat as lists of messages, and the
functions `log_metric` and `log_extra`. If it accepts only the other form of a chat, it gets that one.

    text.py      built-in: exact, numeric, regex, format, length, code_free
    boxed.py     built-in: boxed_math
    config.py    the settings, and how an entry of `reward.functions` is read
    worker.py    the process in which a function runs (standard library only)
    process.py   the trainer's end of that process: calls with a deadline, restarts
    runner.py    all functions on a step's completions: retries, weights, scores

To add a built-in, write a function in `text.py` and a line in `BUILTIN`. Other packages provide reward functions by an
entry point in the group `stabilizer.rewards`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stabilizer.training.rewards.boxed import boxed_math
from stabilizer.training.rewards.text import code_free, exact, format_tags, length, numeric, regex

BUILTIN: dict[str, Callable[..., Any]] = {
    "exact": exact,
    "numeric": numeric,
    "regex": regex,
    "format": format_tags,
    "boxed_math": boxed_math,
    "length": length,
    "code_free": code_free,
}

ENTRY_POINTS = "stabilizer.rewards"
"""The entry-point group through which installed packages provide reward functions."""
