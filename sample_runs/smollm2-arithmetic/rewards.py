"""Three reward functions in TRL's form; chats come as lists of messages."""

import re

ANSWER = re.compile(r"<answer>(\d{1,4})</answer>")
FAR = 20
"""Distance from the sum, from which on an answer earns nothing for being close."""


def _number(completion):
    found = ANSWER.fullmatch(completion[0]["content"].strip())
    return int(found[1]) if found else None


def form(completions, **kwargs):
    """1 for nothing but a number in tags."""
    return [float(_number(completion) is not None) for completion in completions]


def close(completions, answer, **kwargs):
    """From 1 for the sum down to 0 for a number that is 20 or more away."""
    numbers = map(_number, completions)
    return [0.0 if n is None else max(0.0, 1 - abs(n - a) / FAR) for n, a in zip(numbers, answer, strict=True)]


def correct(completions, answer, **kwargs):
    """1 for the sum."""
    return [float(_number(completion) == a) for completion, a in zip(completions, answer, strict=True)]
