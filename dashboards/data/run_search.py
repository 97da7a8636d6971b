"""What is typed above the list of runs, understood: words, `key=value`, `optim.lr>1e-5`, and `-` before either.

A key is a column (`state`, `reward`, ...) or a setting by its dotted name or the end of one (`lr` finds `optim.lr`).
Nothing typed is ever run, and nothing raises: what can't be understood is said in words and matches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stabilizer.runs.listing import RunLine

MAX_LENGTH, MAX_TERMS = 500, 20
COLUMNS = ("archived", "name", "state", "verdict", "worst", "task", "trainer", "step", "steps", "source")
NUMBERS = ("reward", "accuracy", "kl", "grad_norm")
HELP = "words, key=value, optim.lr>1e-5, reward<0.2, -word to exclude"

_TERM = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
_CONDITION = re.compile(r"([A-Za-z_][\w.\-/]*)(>=|<=|!=|=|>|<)(.*)", re.DOTALL)


@dataclass(frozen=True)
class Term:
    """One condition, or with no `key` a piece of text to be found."""

    value: str
    key: str = ""
    sign: str = ""
    number: float | None = None
    excluded: bool = False

    def matches(self, line: RunLine) -> bool:
        """Whether a run meets it."""
        met = self._condition(line) if self.key else self.value in text_of(line)
        return met != self.excluded

    def _condition(self, line: RunLine) -> bool:
        found = list(values(line, self.key))
        if self.sign == "!=":
            return not any(self._equal(value) for value in found)
        if self.sign == "=":
            return any(self._equal(value) for value in found)
        numbers = [number for value in found if (number := as_number(value)) is not None]
        return self.number is not None and any(_compare(number, self.sign, self.number) for number in numbers)

    def _equal(self, value: Any) -> bool:
        number = as_number(value)
        if number is not None and self.number is not None:
            return number == self.number
        return said(value).casefold() == self.value


@dataclass(frozen=True)
class Query:
    """All terms, which must all be met, and what could not be understood."""

    terms: tuple[Term, ...] = ()
    problem: str = ""

    def matches(self, line: RunLine) -> bool:
        """Whether a run meets them all."""
        return not self.problem and all(term.matches(line) for term in self.terms)

    def names(self, key: str) -> bool:
        """Whether a term asks about a key."""
        return any(term.key == key for term in self.terms)


def parse(text: str) -> Query:
    """Parse a search."""
    if len(text) > MAX_LENGTH:
        return Query(problem=f"a search has at most {MAX_LENGTH} characters")
    words = _TERM.findall(text)
    if len(words) > MAX_TERMS:
        return Query(problem=f"a search has at most {MAX_TERMS} conditions")
    terms = [_term(word) for word in words]
    for term in terms:
        if term.sign in (">", "<", ">=", "<=") and term.number is None:
            return Query(problem=f"{term.key}{term.sign}{term.value}: compare with a number, as in optim.lr>1e-5")
    return Query(tuple(term for term in terms if term.key or term.value))


def _term(word: str) -> Term:
    excluded = len(word) > 1 and word.startswith("-") and as_number(word) is None
    word = word[1:] if excluded else word
    match = _CONDITION.fullmatch(word)
    if match is None:
        return Term(word.replace('"', "").casefold(), excluded=excluded)
    value = match[3].replace('"', "").casefold()
    return Term(value, match[1], match[2], as_number(value), excluded)


def values(line: RunLine, key: str) -> Iterator[Any]:
    """The values of a run under a key: a column, and settings of that name or ending in it."""
    if key == "name":
        yield line.id
        if line.label:
            yield line.label
    elif key == "tag":
        yield from line.tags
    elif key in COLUMNS:
        yield getattr(line, key)
    elif key in NUMBERS and key in line.numbers:
        yield line.numbers[key].last
    if key in line.settings:
        yield line.settings[key]
    else:
        ending = f".{key}"
        yield from (value for name, value in line.settings.items() if name.endswith(ending))


def text_of(line: RunLine) -> str:
    """The text that words are searched in: name, text columns, and settings that are text (a model, a data set)."""
    words = [value for value in line.settings.values() if isinstance(value, str)]
    parts = (line.id, line.label, *line.tags, line.state, line.verdict, line.task, line.trainer, line.source, *words)
    return "\n".join(parts).casefold()


def said(value: Any) -> str:
    """A setting's value as one would type it."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_number(value: Any) -> float | None:
    """A value as a number, None when it is none; yes and no are none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _compare(left: float, sign: str, right: float) -> bool:
    return {">": left > right, "<": left < right, ">=": left >= right, "<=": left <= right}[sign]


def choices(lines: Sequence[RunLine], limit: int = 60) -> list[str]:
    """Settings worth grouping by: those in which the runs differ, in few values."""
    found: dict[str, set[str]] = {}
    for line in lines[:2000]:
        for key, value in line.settings.items():
            seen = found.setdefault(key, set())
            if len(seen) <= 20:
                seen.add(said(value))
    return sorted(key for key, seen in found.items() if 2 <= len(seen) <= 20)[:limit]
