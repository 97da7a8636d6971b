"""What a name of a number comes down to, however it is spelled.

`train/mean_response_length`, `response_length/mean` and `Avg Response Lengths` are one quantity: the section it was
logged under and the word for "on average" say nothing of what it is, nor do the order of words, case, separators or a
plural. A word for another statistic does (`reward_std` is no reward), so it stays.
"""

from __future__ import annotations

import re
from functools import lru_cache

_SECTION = re.compile(
    r"^(?:train|training|trainer|rollouts?|actor|policy|metrics?|logs?|optim|env|envs|all|grpo|ppo|rl|stats|batch|objective|opt|[a-z]+_loss)[/.]+"
)
_TRAINING = re.compile(r"^(?:train|training)[_ ](?=.)")
_WORD = re.compile(r"[a-z0-9@]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z][a-z])")
_AVERAGE = frozenset({"mean", "avg", "average", "per", "running", "moving", "ema", "smoothed"})
_FILLING = frozenset(
    {"batch", "group", "raw", "total", "overall", "final", "rollout", "train", "step", "global", "task"}
)
"""Words that narrow down where a number comes from. They are passed over only where no name is known without them."""
_SAME = {
    "rewards": "reward", "scores": "score", "returns": "return", "lengths": "length", "len": "length",
    "responses": "response", "completions": "completion", "gen": "generation", "generations": "generation",
    "outputs": "output", "div": "divergence", "ratio": "frac", "fraction": "frac", "rate": "frac", "share": "frac",
    "proportion": "frac", "reference": "ref", "acc": "accuracy", "adv": "advantage", "var": "variance",
    "groups": "group", "tokens": "token", "gradient": "grad", "rew": "reward", "rwd": "reward", "ret": "return",
    "episodic": "episode", "ep": "episode", "pct": "frac", "percent": "frac", "stdev": "std", "clipped": "clip",
}  # fmt: skip
"""Words that mean the same in the name of a number of a training."""


@lru_cache(maxsize=4096)
def plainly(name: str, *, loosely: bool = False) -> str:
    """The words of a name that say what it is, in alphabetical order; `loosely` without those that narrow it down."""
    rest = _CAMEL.sub("_", name.strip()).lower()
    while (cut := _SECTION.sub("", rest)) != rest:
        rest = cut
    rest = _TRAINING.sub("", rest)
    words = [_SAME.get(word, word) for word in _WORD.findall(rest)]
    passed_over = _AVERAGE | _FILLING if loosely else _AVERAGE
    return " ".join(sorted(word for word in words if word not in passed_over))
