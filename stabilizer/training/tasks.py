"""The definition of a task, and the built-in tasks: endless problems, a held-out set never trained on, and a score.

A problem is a number below `size`; a hash of (seed, salt, position) selects the next one. So the stream has no state: a
checkpoint stores integers. Any position can be visited again or, with another salt, avoided.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from stabilizer.training.environments import Environment
from stabilizer.training.environments.search import TAGS, SearchConfig, answer_of, environment

HELD_OUT = 512
"""Problems set aside in each task. Fixed across seeds and versions, so that validation accuracies can be compared."""


Tokenizer = Callable[..., Any]
"""A tokenizer of `transformers`, which this module does not import."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The prompt, and the known facts about its solution."""

    index: int
    prompt: str
    answer: Any
    """A text that solves it ('' where many do); for a data set, the value of its answer column."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The row of the data set, for reward functions."""
    messages: Sequence[Mapping[str, Any]] = ()
    """The prompt as chat messages, if it is a chat."""
    generated: Mapping[str, Any] = field(default_factory=dict)
    """Facts about a completion, for reward functions, where the task asks for them."""


@dataclass(frozen=True, slots=True)
class Score:
    """The reward of a completion, whether it solved its problem, and the components of the reward."""

    reward: float
    solved: bool
    components: Mapping[str, float]
    """By name, before weights; NaN for a failed one, left out for one that does not apply."""
    failed: str = ""
    """Why a reward function or an environment failed; then the reward is NaN and nothing is learned from it."""
    extra: Mapping[str, float] = field(default_factory=dict)
    """Further numbers that a reward function returned, by name."""
    summed: bool = False
    """Whether the reward is a weighted sum: of several functions, or of one that has a weight."""


class Task:
    """One kind of problem. A new task defines the number of problems, writes them, and scores a completion."""

    name: str
    size: int
    columns: tuple[str, ...] = ()
    """The keys of `Problem.columns`, the same for every problem."""
    notes: tuple[str, ...] = ()
    """Notes on this task for the user, shown before the run starts."""
    reads_generated: bool = False
    """Whether scoring uses `Problem.generated`."""
    failures: Mapping[str, int] = {}
    """Completions whose reward failed so far, by reason."""
    held_out_count: int = HELD_OUT
    """Problems set aside. A smaller number takes the first ones of a larger."""
    symbols: tuple[str, ...] = ()
    """Tokens the built-in model needs for this task besides the characters of `model.CHARACTERS`."""

    def problem(self, index: int) -> Problem:
        """The problem with this number."""
        raise NotImplementedError

    def score(self, problem: Problem, completion: str) -> Score:
        """The score of a completion (its end token removed)."""
        raise NotImplementedError

    def score_all(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Score]:
        """The scores of a step's completions, in order."""
        return [self.score(problem, text) for problem, text in zip(problems, completions, strict=True)]

    def encode(self, problems: Sequence[Problem], tokenizer: Tokenizer) -> list[list[int]]:
        """The prompts of problems as the policy reads them."""
        return tokenizer([problem.prompt for problem in problems])["input_ids"] if problems else []

    def environment(self, config: SearchConfig) -> Environment | None:
        """The environment that answers the policy's calls; None for a task of one turn."""
        return None

    def demonstration(self, problem: Problem, draw: int) -> str:
        """A completion for the warm start to imitate; `draw` is a random number for tasks with many answers."""
        return str(problem.answer)

    def own_parts(self, demonstration: str) -> list[tuple[str, bool]]:
        """A demonstration in pieces, each with whether the policy writes it; an environment writes the others."""
        return [(demonstration, True)]

    @cached_property
    def held_out_indices(self) -> tuple[int, ...]:
        """The held-out problems, in a fixed order."""
        chosen: dict[int, None] = {}
        k = 0
        while len(chosen) < self.held_out_count:
            chosen[random_bits("held-out", self.name, k) % self.size] = None
            k += 1
        return tuple(chosen)

    def held_out(self, count: int) -> list[Problem]:
        """The first `count` held-out problems."""
        return [self.problem(index) for index in self.held_out_indices[:count]]

    def training(self, count: int, *, seed: int, salt: int, cursor: int) -> list[Problem]:
        """Problems `cursor` to `cursor + count` of the stream of this seed and salt; none is held out."""
        return [self.problem(self._training_index(seed, salt, position)) for position in range(cursor, cursor + count)]

    def _training_index(self, seed: int, salt: int, position: int) -> int:
        attempt = 0
        while (index := random_bits(seed, salt, position, attempt) % self.size) in self._held_out:
            attempt += 1
        return index

    @cached_property
    def _held_out(self) -> frozenset[int]:
        return frozenset(self.held_out_indices)


class DerivedTask(Task):
    """The problems of another task, scored in another way."""

    def __init__(self, problems: Task):
        self._problems = problems
        self.name = problems.name
        self.size = problems.size
        self.columns = problems.columns
        self.notes = problems.notes

    def problem(self, index: int) -> Problem:
        return self._problems.problem(index)

    def held_out(self, count: int) -> list[Problem]:
        return self._problems.held_out(count)

    def training(self, count: int, *, seed: int, salt: int, cursor: int) -> list[Problem]:
        return self._problems.training(count, seed=seed, salt=salt, cursor=cursor)

    def encode(self, problems: Sequence[Problem], tokenizer: Tokenizer) -> list[list[int]]:
        return self._problems.encode(problems, tokenizer)

    def demonstration(self, problem: Problem, draw: int) -> str:
        return self._problems.demonstration(problem, draw)

    def own_parts(self, demonstration: str) -> list[tuple[str, bool]]:
        return self._problems.own_parts(demonstration)


class Addition(Task):
    """Two-digit addition with the digits of the sum reversed, right or wrong: '37+58=' is solved by '59'.

    The digits are reversed because carries run from the last digit: each digit then depends only on earlier ones.
    """

    name = "addition"
    size = 90 * 90

    def problem(self, index: int) -> Problem:
        a, b = divmod(index, 90)
        a, b = a + 10, b + 10
        return Problem(index, f"{a}+{b}=", str(a + b)[::-1])

    def score(self, problem: Problem, completion: str) -> Score:
        solved = completion == problem.answer
        return Score(float(solved), solved, {"exact": float(solved)})


class Sorting(Task):
    """Sort five digits; the reward is the share of positions that are right: '31524>' is solved by '12345'.

    Positions beyond the five count as wrong, so that extra text is not rewarded.
    """

    name = "sorting"
    size = 10**5

    def problem(self, index: int) -> Problem:
        digits = f"{index:05d}"
        return Problem(index, f"{digits}>", "".join(sorted(digits)))

    def score(self, problem: Problem, completion: str) -> Score:
        right = sum(given == wanted for given, wanted in zip(completion, problem.answer, strict=False))
        share = right / max(len(completion), len(problem.answer))
        return Score(share, share == 1.0, {"positions": share})


class Length(Task):
    """Write about twenty characters, whatever they are: the reward is minus the distance from the target.

    A small counterpart of the length reward in the TL;DR example of TRL's documentation: rewards are negative and
    dense, and do not depend on the content.
    """

    name = "length"
    size = 26**4
    target = 20
    """Characters of a perfect completion."""

    def problem(self, index: int) -> Problem:
        letters = "".join(chr(ord("a") + index // 26**place % 26) for place in range(4))
        return Problem(index, f"{letters}:", "")

    def score(self, problem: Problem, completion: str) -> Score:
        distance = abs(self.target - len(completion))
        return Score(-float(distance), distance <= 1, {"length": -float(distance)})

    def demonstration(self, problem: Problem, draw: int) -> str:
        """The letters of the prompt repeated, 4 to 36 of them: at first every length is about equally likely."""
        letters = problem.prompt[:-1]
        return (letters * 9)[: 4 + draw % 33]


class Search(Task):
    """Look up a number: 'bak room?' is solved by '<search>bak room</search>', reading, and '<answer>47</answer>'.

    Every fact is a separate document, and its number is a hash: only the document contains it. A query without the name
    finds someone else's number, one without the thing finds another number of the same name.
    """

    name = "search"
    consonants, vowels = "bcdfghjklmnpqrstvwxyz", "aeiou"
    things = ("desk", "gate", "room", "seat")
    size = len(consonants) * len(vowels) * len(consonants) * len(things)
    symbols = (" ", "?", "\n", *TAGS)

    def problem(self, index: int) -> Problem:
        subject, number = self._fact(index)
        return Problem(index, f"{subject}?", number)

    def score(self, problem: Problem, completion: str) -> Score:
        solved = answer_of(completion) == problem.answer
        return Score(float(solved), solved, {"exact": float(solved)})

    def environment(self, config: SearchConfig) -> Environment:
        return environment(self.documents, config)

    @cached_property
    def documents(self) -> list[str]:
        """The corpus: one document per fact."""
        return [" ".join(self._fact(index)) for index in range(self.size)]

    def demonstration(self, problem: Problem, draw: int) -> str:
        """Search, read, answer; one time in four a guess without a search."""
        if draw % 4 == 3:
            return f"<answer>{draw // 4 % 90 + 10}</answer>"
        subject = problem.prompt.removesuffix("?")
        found = f"<information>{subject} {problem.answer}</information>"
        return f"<search>{subject}</search>{found}<answer>{problem.answer}</answer>"

    def own_parts(self, demonstration: str) -> list[tuple[str, bool]]:
        call, opened, rest = demonstration.partition("<information>")
        found, closed, answer = rest.partition("</information>")
        return [(call, True), (opened + found + closed, False), (answer, True)]

    def _fact(self, index: int) -> tuple[str, str]:
        """('bak room', '47')"""
        rest, thing = divmod(index, len(self.things))
        rest, last = divmod(rest, len(self.consonants))
        first, vowel = divmod(rest, len(self.vowels))
        name = self.consonants[first] + self.vowels[vowel] + self.consonants[last]
        number = random_bits("fact", self.name, index) % 90 + 10
        return f"{name} {self.things[thing]}", str(number)


TASKS: dict[str, Task] = {task.name: task for task in (Addition(), Sorting(), Length(), Search())}


DATA = "data"
"""The task whose problems come from a data set."""


def random_bits(*key: int | str) -> int:
    """64 random bits that depend only on `key`: the same on every machine and in every version of every library."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "little")
