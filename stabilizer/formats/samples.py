"""Dumps of completions: statistics of groups that no log holds, and the texts.

A dump has a row for every completion, with its prompt and its reward. It yields numbers that veRL does not log (groups
without a difference in reward, groups that are all right or all wrong) and that TRL logs as means over a window. Only
one step's rows are in memory at a time; the texts are read again when they are shown.

- Rows of one prompt are one group, wherever they are: trainers reorder a batch to balance its lengths.
- Texts have no token counts. Lengths are in characters, under their own names; repetition counts words.
- An answer is right if the reward function says so, or if rewards are only 0 and 1 and it has 1. Otherwise it is
  unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stabilizer.core.records import Sample

MAX_SAMPLES = 256
"""Completions of a step that are shown; statistics are over all of them."""
READ_FOR_REPETITION = 32
"""Completions of a step whose words are counted, evenly spread over it."""
MAX_WORDS = 4_000
LEFT_BEHIND_S = 60.0
"""Seconds by which a step's file of an earlier attempt is older than the files of earlier steps."""

NAMES = {
    # computed                     ours
    "reward/mean":                "reward/mean",
    "reward/std":                 "reward/std",
    "reward/std_group":           "reward/std_group",
    "reward/zero_std_frac":       "reward/zero_std_frac",
    "reward/all_fail_frac":       "reward/all_fail_frac",
    "reward/all_pass_frac":       "reward/all_pass_frac",
    "solved/mean":                "accuracy/train",
    "characters/reward_corr":     "rollout/length_reward_corr",
    "words/repetition":           "rollout/repetition",
    "completions/distinct":       "rollout/distinct",
    "groups":                     "batch/prompts",
    "group_size":                 "batch/group_size",
}  # fmt: skip
"""Beside these `characters/mean` and `characters/max`, which are no tokens and so keep their names."""

_DUMP = {"aggregation": "one value a step, over the completions in the dump"}
DIFFERS: dict[str, dict[str, str]] = {
    **{key: _DUMP for key in NAMES},
    "characters/reward_corr": {
        "estimator": "Pearson correlation of a completion's characters (not tokens) and its reward", **_DUMP,
    },
    "words/repetition": {
        "estimator": "1 - distinct / all pairs of words within a completion, mean over up to "
        f"{READ_FOR_REPETITION} completions a step",
        **_DUMP,
    },
    "groups": {"estimator": "different prompts in the dump", **_DUMP},
}  # fmt: skip

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\s\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
"""What is between spaces, and each character of scripts that are written without them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One row of a dump. `reward` is NaN where it is not known; `group` is the same for answers to one prompt."""

    prompt: str
    completion: str
    reward: float
    group: Hashable
    advantage: float = math.nan
    solved: bool | None = None
    rewards: Mapping[str, float] = field(default_factory=dict)
    expected: str = ""
    """The right answer, where the dump holds it."""


def statistics(answers: Sequence[Answer]) -> dict[str, float]:
    """A step's numbers under the names of `NAMES`; what can't be known of these answers is left out."""
    numbers: dict[Hashable, int] = {}
    group_N = np.array([numbers.setdefault(answer.group, len(numbers)) for answer in answers])
    reward_N = np.array([answer.reward for answer in answers], float)
    length_N = np.array([len(answer.completion) for answer in answers], float)
    size_G = np.bincount(group_N)
    found = {
        "characters/mean": float(length_N.mean()),
        "characters/max": float(length_N.max()),
        "words/repetition": _repetition([answer.completion for answer in answers]),
        "groups": float(len(size_G)),
    }
    if len(set(size_G.tolist())) == 1:
        found["group_size"] = float(size_G[0])
    if not np.isnan(reward_N).all():
        with np.errstate(all="ignore"):  # rewards may be infinite, or too large to be squared
            found |= _of_rewards(reward_N, group_N, length_N)
    if size_G.max() > 1:
        several = [group for group, size in enumerate(size_G) if size > 1]
        texts: dict[int, set[str]] = {group: set() for group in several}
        for group, answer in zip(group_N.tolist(), answers, strict=True):
            if group in texts:
                texts[group].add(answer.completion)
        found["completions/distinct"] = float(np.mean([len(texts[group]) / size_G[group] for group in several]))
    if all(answer.solved is not None for answer in answers):
        found |= _of_solved(np.array([answer.solved for answer in answers], float), group_N, size_G)
    return found


def _of_rewards(reward_N: np.ndarray, group_N: np.ndarray, length_N: np.ndarray) -> dict[str, float]:
    found = {"reward/mean": float(reward_N.mean())}
    if len(reward_N) > 1:
        found["reward/std"] = float(reward_N.std(ddof=1))
        if np.ptp(length_N) > 0 and np.ptp(reward_N) > 0 and np.isfinite(reward_N).all():
            correlation = float(np.corrcoef(length_N, reward_N)[0, 1])
            found |= {"characters/reward_corr": correlation} if math.isfinite(correlation) else {}
    order = np.argsort(group_N, kind="stable")
    groups = [part for part in np.split(reward_N[order], np.flatnonzero(np.diff(group_N[order])) + 1) if len(part) > 1]
    groups = [part for part in groups if np.isfinite(part).all()]
    if groups:
        found["reward/std_group"] = float(np.mean([part.std(ddof=1) for part in groups]))
        found["reward/zero_std_frac"] = float(np.mean([np.ptp(part) == 0 for part in groups]))
    return found


def _of_solved(solved_N: np.ndarray, group_N: np.ndarray, size_G: np.ndarray) -> dict[str, float]:
    share_G = (np.bincount(group_N, weights=solved_N) / size_G)[size_G > 1]
    found = {"solved/mean": float(solved_N.mean())}
    if len(share_G):
        found["reward/all_fail_frac"] = float(np.mean(share_G == 0))
        found["reward/all_pass_frac"] = float(np.mean(share_G == 1))
    return found


def _repetition(texts: Sequence[str]) -> float:
    """Mean over some completions of the share of word pairs that were there before; 0 for one without a pair."""
    shares = []
    for text in texts[:: math.ceil(len(texts) / READ_FOR_REPETITION)]:
        words = [match[0] for match, _ in zip(_WORD.finditer(text), range(MAX_WORDS), strict=False)]
        pairs = list(zip(words, words[1:], strict=False))
        shares.append(1 - len(set(pairs)) / len(pairs) if pairs else 0.0)
    return float(np.mean(shares))


def is_binary(rewards: Iterable[float]) -> bool:
    """Whether rewards are nothing but 0 and 1, so that the larger means a right answer."""
    return all(reward in (0.0, 1.0) for reward in rewards)


def samples(step: int, answers: Sequence[Answer]) -> list[Sample]:
    """The answers to show: group by group, at most `MAX_SAMPLES` in whole groups."""
    groups: dict[Hashable, list[Answer]] = {}
    for answer in answers:
        groups.setdefault(answer.group, []).append(answer)
    found: list[Sample] = []
    for number, members in enumerate(groups.values()):
        if found and len(found) + len(members) > MAX_SAMPLES:
            break
        found += [
            Sample(
                step=step, group=number, prompt=answer.prompt, completion=answer.completion, reward=answer.reward,
                advantage=answer.advantage, rewards=answer.rewards, solved=answer.solved, expected=answer.expected,
            )
            for answer in members[:MAX_SAMPLES]
        ]  # fmt: skip
    return found


def without_abandoned(files: list[Path], notes: list[str]) -> list[Path]:
    """Files up to where the newest attempt reached; later ones are older than those before them."""
    written = [file.stat().st_mtime for file in files]
    falls = [place for place in range(1, len(files)) if written[place] < written[place - 1]]
    if len(falls) != 1 or written[falls[0] - 1] - max(written[falls[0] :]) < LEFT_BEHIND_S:
        return files  # in order, or copied in some other order
    kept, left = files[: falls[0]], files[falls[0] :]
    notes.append(
        f"{len(left)} files from {left[0].name} on are older than {kept[-1].name}: left behind by an attempt before a "
        "restart, and left out"
    )
    return kept
