"""The completions page of one step: which completions, in which order, and statistics of each group.

`CompletionsQuery` is the page's address as values; `view_of_step` turns it into a `StepView`, plain data for the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from dashboards.data.completions_store import CompletionsStore, LoggedCompletion, LoggedStep
from dashboards.data.distributions import QUANTITIES, spread_of
from dashboards.data.model_text import Excerpt, Piece, excerpt, one_line, pieces, word_diff
from dashboards.data.text_search import Hits, PatternError, find
from stabilizer.core.text import rounded
from stabilizer.figures.completions import GroupRewards
from stabilizer.figures.spread import Spread

PER_PAGE = 40
SHOWN = 700
"""Characters of a completion shown at first; the rest follows on demand."""
SHOWN_EXPECTED = 300
"""Characters of a right answer that are shown."""
SHOWN_WHOLE = 20_000
PAGE_CHARACTERS = 400_000
"""Of all texts of a page together, when they are wanted whole."""
SORTS = {
    "group": "by prompt",
    "reward": "highest reward",
    "-reward": "lowest reward",
    "advantage": "highest advantage",
    "-advantage": "lowest advantage",
    "length": "longest",
    "-length": "shortest",
}
JUDGED = {"": "all", "right": "correct", "wrong": "wrong"}
TOKEN_CLASSES = ((0.9, "t0"), (0.5, "t1"), (0.2, "t2"), (0.05, "t3"), (0.0, "t4"))
"""Least probability of each colour of a token."""


@dataclass(frozen=True)
class CompletionsQuery:
    """How a step is shown. Every field has a word in the address; defaults are left out."""

    q: str = ""
    regex: bool = False
    low: float | None = None
    high: float | None = None
    only: str = ""
    cut: bool = False
    by: str = ""
    sort: str = "group"
    page: int = 1
    take: int | None = None
    vs: int | None = None
    tokens: bool = False
    whole: bool = False
    format: bool = False
    """Draw Markdown and LaTeX."""
    over: str = ""
    """A quantity of `QUANTITIES`, whose spread over all steps is drawn instead of this step's groups."""

    @classmethod
    def of(cls, query: Mapping[str, Any]) -> CompletionsQuery:
        """From an address or from a page's controls; invalid values are ignored."""
        made: dict[str, Any] = {}
        for field in fields(cls):
            value = query.get(field.name)
            if value in (None, "", False):
                continue
            kind = str(field.type)
            if kind == "bool":
                made[field.name] = value is True or str(value) in ("1", "true")
            elif kind.startswith(("int", "float")):
                number = _number(value)
                if number is not None:
                    made[field.name] = int(number) if kind.startswith("int") else number
            else:
                made[field.name] = str(value)[:1000]
        wanted = cls(**made)
        return replace(
            wanted,
            sort=wanted.sort if wanted.sort in SORTS else "group",
            only=wanted.only if wanted.only in JUDGED else "",
            over=wanted.over if wanted.over in QUANTITIES else "",
            page=max(1, wanted.page),
        )

    def query(self) -> dict[str, str]:
        """For the address."""
        usual, out = CompletionsQuery(), {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != getattr(usual, field.name):
                out[field.name] = "1" if value is True else f"{value:g}" if isinstance(value, float) else str(value)
        return out


@dataclass(frozen=True)
class CompletionItem:
    """One completion as it is shown."""

    index: int
    text: Excerpt
    tokens: tuple[tuple[str, str, str], ...]
    """(text, class, hover text) of each token, where wanted and logged."""
    diff: tuple[Piece, ...] | None
    diff_note: str
    reward: float
    parts: tuple[tuple[str, float], ...]
    advantage: float
    length: str
    """With its unit: tokens, or characters where a log kept texts alone."""
    cut: bool
    right: bool | None
    raw: str = ""
    """The shown part as it was written, where it is to be formatted."""


@dataclass(frozen=True)
class PromptGroup:
    """Completions of one prompt that follow one another on the page, and what the whole group got."""

    prompt: Excerpt
    label: str
    count: int
    mean: float | None
    std: float | None
    outcome: str
    """`right`, `wrong` or `same` when all completions are; "" otherwise."""
    items: tuple[CompletionItem, ...]
    first: int
    vs_note: str = ""
    expected: Excerpt = Excerpt((), 0, 0)
    """The right answer, where it was logged."""


@dataclass(frozen=True)
class StepView:
    """A step as the query asks for it."""

    steps: tuple[int, ...]
    step: int
    position: int
    groups: tuple[PromptGroup, ...] = ()
    found: int = 0
    total: int = 0
    pages: int = 1
    page: int = 1
    notes: tuple[str, ...] = ()
    problem: str = ""
    judged: str = ""
    components: tuple[str, ...] = ()
    takes: int = 1
    take: int = 1
    has_tokens: bool = False
    summary: tuple[tuple[str, str], ...] = ()
    picture: tuple[GroupRewards, ...] = ()
    spread: Spread | None = None
    """How a quantity is spread over all steps, where that was asked for."""


def view_of_step(store: CompletionsStore, run: Path, step: int | None, wanted: CompletionsQuery) -> StepView | None:
    """The newest step when none is named, the nearest when that one logged nothing; None without any step."""
    steps = store.steps(run)
    if not steps:
        return None
    at = nearest(steps, step)
    notes = []
    if step is not None and at != step:
        notes.append(f"step {step:,} logged no completions; showing the nearest step that did")
    held = store.step(run, at)
    notes += _step_notes(held)
    take = min(max(wanted.take or held.takes, 1), held.takes)
    rows = [row for row in held.rows if row.take == take - 1]
    judge = _Judge(rows)
    by = wanted.by if wanted.by in held.components else ""
    problem = ""
    hits: dict[int, Hits] = {}
    try:
        kept, hits = _filtered(rows, replace(wanted, by=by), judge)
    except PatternError as error:
        kept, problem = [], str(error)
    kept = _sorted(kept, wanted.sort, by)
    pages = max(1, math.ceil(len(kept) / PER_PAGE))
    page = min(wanted.page, pages)
    shown = kept[(page - 1) * PER_PAGE : page * PER_PAGE]
    other = store.step(run, wanted.vs) if wanted.vs in steps else None
    return StepView(
        steps=tuple(steps),
        step=at,
        position=steps.index(at),
        groups=_groups(shown, rows, hits, wanted, judge, other, by),
        found=len(kept),
        total=len(rows),
        pages=pages,
        page=page,
        notes=tuple(notes),
        problem=problem,
        judged=judge.words,
        components=tuple(held.components),
        takes=held.takes,
        take=take,
        has_tokens=held.has_tokens,
        summary=_summary(rows, judge, by),
        picture=tuple(_picture(rows, judge, by)),
        spread=spread_of(store, run, wanted.over, by) if wanted.over else None,
    )


def whole_text(store: CompletionsStore, run: Path, step: int, index: int) -> str | None:
    """A completion as it was logged; None when there is none of that number."""
    rows = store.step(run, step).rows
    return rows[index].sample.completion if 0 <= index < len(rows) else None


def whole_prompt(store: CompletionsStore, run: Path, step: int, index: int) -> str | None:
    """The prompt of a completion."""
    rows = store.step(run, step).rows
    return rows[index].sample.prompt if 0 <= index < len(rows) else None


def nearest(steps: Sequence[int], step: int | None) -> int:
    """The newest of `steps`, or the last one up to `step`, or the first."""
    if step is None:
        return steps[-1]
    return max((known for known in steps if known <= step), default=steps[0])


class _Judge:
    """Which completions are correct: by the task's own verdict where logged, else by the middle of the rewards."""

    def __init__(self, rows: Sequence[LoggedCompletion]):
        rewards = [row.sample.reward for row in rows if math.isfinite(row.sample.reward)]
        low, high = (min(rewards), max(rewards)) if rewards else (0.0, 0.0)
        self.bar = (low + high) / 2 if high > low else 0.0
        known = [row.sample.solved is not None for row in rows]
        self.words = (
            "correct or wrong as logged by the task"
            if known and all(known)
            else f"correct: reward above {self.bar:g}, halfway between this step's lowest and highest "
            "(the task logged no verdict)"
        )

    def __call__(self, row: LoggedCompletion) -> bool | None:
        if row.sample.solved is not None:
            return row.sample.solved
        return row.sample.reward > self.bar if math.isfinite(row.sample.reward) else None


def _filtered(
    rows: list[LoggedCompletion], wanted: CompletionsQuery, judge: _Judge
) -> tuple[list[LoggedCompletion], dict[int, Hits]]:
    conditions: list[Callable[[LoggedCompletion], bool]] = []
    low, high = wanted.low, wanted.high
    if wanted.only:
        conditions.append(lambda row: judge(row) is (wanted.only == "right"))
    if wanted.cut:
        conditions.append(lambda row: row.sample.truncated)
    if low is not None:
        conditions.append(lambda row: _value(row, wanted.by) >= low)
    if high is not None:
        conditions.append(lambda row: _value(row, wanted.by) <= high)
    kept = [row for row in rows if all(holds(row) for holds in conditions)]
    if not wanted.q:
        return kept, {}
    found = find(wanted.q, [row.sample.completion for row in kept], regex=wanted.regex)
    in_prompt = _prompts(kept, wanted)
    hits = {row.index: hit or [] for row, hit in zip(kept, found, strict=True) if hit or row.sample.prompt in in_prompt}
    return [row for row in kept if row.index in hits], hits


def _prompts(rows: list[LoggedCompletion], wanted: CompletionsQuery) -> set[str]:
    prompts = list({row.sample.prompt for row in rows})
    return {p for p, hit in zip(prompts, find(wanted.q, prompts, regex=wanted.regex), strict=True) if hit}


def _sorted(rows: list[LoggedCompletion], sort: str, by: str) -> list[LoggedCompletion]:
    if sort == "group":
        return sorted(rows, key=lambda row: (*row.key, row.index))
    sign = 1 if sort.startswith("-") else -1
    asks: dict[str, Callable[[LoggedCompletion], float]] = {
        "reward": lambda row: _value(row, by),
        "advantage": lambda row: row.sample.advantage,
        "length": _length,
    }
    ask = asks[sort.lstrip("-")]
    return sorted(rows, key=lambda row: (not math.isfinite(ask(row)), sign * ask(row), row.index))


def _value(row: LoggedCompletion, by: str) -> float:
    return row.sample.rewards.get(by, math.nan) if by else row.sample.reward


def _groups(
    shown: list[LoggedCompletion],
    rows: list[LoggedCompletion],
    hits: dict[int, Hits],
    wanted: CompletionsQuery,
    judge: _Judge,
    other: LoggedStep | None,
    by: str,
) -> tuple[PromptGroup, ...]:
    members: dict[Any, list[LoggedCompletion]] = {}
    for row in rows:
        members.setdefault(row.key, []).append(row)
    several_ranks = len({row.rank for row in rows}) > 1
    there = _by_prompt(other)
    most = min(SHOWN_WHOLE, PAGE_CHARACTERS // max(1, len(shown))) if wanted.whole else SHOWN
    groups: list[PromptGroup] = []
    for run in _runs_of_one_group(shown):
        first = run[0]
        group = members[first.key]
        rewards = [v for row in group if math.isfinite(v := _value(row, by))]
        note, partner = "", {}
        if other is not None:
            matches = there.get(first.sample.prompt, [])
            partner = _partners(group, matches)
            note = (
                f"{len(matches)} completions of this prompt at step {other.step:,}, mean reward "
                f"{rounded(_of(fmean, [r.sample.reward for r in matches]))}"
                if matches
                else f"step {other.step:,} did not log this prompt"
            )
        groups.append(
            PromptGroup(
                prompt=excerpt(first.sample.prompt, most),
                label=f"rank {first.rank}, group {first.sample.group}"
                if several_ranks
                else f"group {first.sample.group}",
                count=len(group),
                mean=_of(fmean, rewards) if rewards else None,
                std=_of(stdev, rewards) if len(rewards) > 1 else None,
                outcome=_outcome(group, judge),
                items=tuple(
                    _item(row, most, hits.get(row.index, []), wanted, judge, partner.get(row.index)) for row in run
                ),
                first=first.index,
                vs_note=note,
                expected=excerpt(first.sample.expected, SHOWN_EXPECTED),
            )
        )
    return tuple(groups)


def _runs_of_one_group(rows: list[LoggedCompletion]) -> list[list[LoggedCompletion]]:
    runs: list[list[LoggedCompletion]] = []
    for row in rows:
        if runs and runs[-1][-1].key == row.key:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _of(measure: Callable[[Sequence[float]], float], values: Sequence[float]) -> float:
    """A measure of some numbers; NaN where they are too large for it."""
    try:
        return measure(values)
    except OverflowError:
        return math.nan


def _outcome(group: list[LoggedCompletion], judge: _Judge) -> str:
    told = [judge(row) for row in group]
    if all(told):
        return "right"
    if all(answer is False for answer in told):
        return "wrong"
    return "same" if len({row.sample.reward for row in group}) == 1 else ""


def _by_prompt(step: LoggedStep | None) -> dict[str, list[LoggedCompletion]]:
    found: dict[str, list[LoggedCompletion]] = {}
    for row in step.newest_rows if step else ():
        found.setdefault(row.sample.prompt, []).append(row)
    return found


def _partners(here: list[LoggedCompletion], there: list[LoggedCompletion]) -> dict[int, LoggedCompletion]:
    """Pairs of completions to compare: the best with the best, and so on."""
    ranked = [sorted(side, key=lambda row: (-row.sample.reward, row.index)) for side in (here, there)]
    return {row.index: other for row, other in zip(*ranked, strict=False)}


def _item(
    row: LoggedCompletion,
    most: int,
    hits: Hits,
    wanted: CompletionsQuery,
    judge: _Judge,
    other: LoggedCompletion | None,
) -> CompletionItem:
    sample = row.sample
    diff, note = None, ""
    if other is not None:
        note = f"compared with the completion of reward {rounded(other.sample.reward)}"
        if other.sample.completion == sample.completion:
            note += ": same text"
        else:
            diff = word_diff(other.sample.completion, sample.completion)
            note = "too long for a word-by-word diff" if diff is None else note
    return CompletionItem(
        index=row.index,
        text=excerpt(sample.completion, most, hits),
        tokens=tokens_of(row, most) if wanted.tokens else (),
        diff=diff,
        diff_note=note,
        reward=sample.reward,
        parts=tuple(sample.rewards.items())[:12],
        advantage=sample.advantage,
        length=f"{_length(row):,} {_unit(row)}",
        cut=sample.truncated,
        right=judge(row),
        raw=sample.completion[:most] if wanted.format and not hits else "",
    )


def _counted(row: LoggedCompletion) -> bool:
    return row.sample.length > 0 or not row.sample.completion


def _length(row: LoggedCompletion) -> int:
    """In tokens; in characters where nobody counted those."""
    return row.sample.length if _counted(row) else len(row.sample.completion)


def _unit(*rows: LoggedCompletion) -> str:
    return "tokens" if all(map(_counted, rows)) else "characters"


def tokens_of(row: LoggedCompletion, most: int) -> tuple[tuple[str, str, str], ...]:
    """The beginning of a completion token by token: text, colour class and hover text."""
    out: list[tuple[str, str, str]] = []
    length = 0
    for token, logp in zip(row.sample.tokens, row.sample.logps, strict=True):
        length += len(token)
        if length > most or len(out) >= 1500:
            break
        text = "".join(piece.text for piece in pieces(token)) or "∅"
        if logp is None or math.isnan(logp):
            out.append((text, "tn", "inserted by the environment"))
            continue
        chance = math.exp(min(0.0, logp))
        shade = next(name for least, name in TOKEN_CLASSES if chance >= least)
        out.append((text, shade, f"probability {chance:.3g}, log-probability {logp:.3g}"))
    return tuple(out)


def _summary(rows: list[LoggedCompletion], judge: _Judge, by: str) -> tuple[tuple[str, str], ...]:
    if not rows:
        return ()
    rewards = [v for row in rows if math.isfinite(v := _value(row, by))]
    told = [judge(row) for row in rows]
    known = [answer for answer in told if answer is not None]
    groups: dict[Any, list[LoggedCompletion]] = {}
    for row in rows:
        groups.setdefault(row.key, []).append(row)
    outcomes = [_outcome(group, judge) for group in groups.values()]
    teaching = sum(len({row.sample.reward for row in group}) > 1 for group in groups.values())
    lengths, unit = [_length(row) for row in rows], _unit(*rows)
    facts = [("completions", f"{len(rows):,} in {len(groups):,} groups")]
    if rewards:
        spread = f" ± {rounded(_of(stdev, rewards))}" if len(rewards) > 1 else ""
        facts.append((f"{by or 'reward'}, mean ± sd", f"{rounded(_of(fmean, rewards))}{spread}"))
    if known:
        facts.append(("correct", f"{sum(known) / len(known):.0%}"))
    facts += [
        ("groups with differing rewards", f"{teaching:,} of {len(groups):,}"),
        ("all correct / all wrong", f"{outcomes.count('right'):,} / {outcomes.count('wrong'):,} groups"),
        ("length, mean and max", f"{fmean(lengths):,.1f}, {max(lengths):,} {unit}"),
    ]
    if unit == "tokens":  # a log without token counts has no limit either
        facts.append(("cut off", f"{sum(row.sample.truncated for row in rows) / len(rows):.0%}"))
    return tuple(facts)


def _picture(rows: list[LoggedCompletion], judge: _Judge, by: str) -> list[GroupRewards]:
    groups: dict[Any, list[LoggedCompletion]] = {}
    for row in rows:
        groups.setdefault(row.key, []).append(row)
    return [
        GroupRewards(one_line(group[0].sample.prompt, 60), tuple(_value(row, by) for row in group))
        for group in groups.values()
    ]


def _step_notes(held: LoggedStep) -> list[str]:
    notes = []
    if held.cut:
        notes.append(f"this step is larger than a page can hold: the first {len(held.rows):,} completions are shown")
    if held.skipped:
        notes.append(f"{held.skipped:,} unreadable lines of this step were skipped")
    if held.takes > 1:
        notes.append(
            f"this step ran {held.takes} times because of a rollback or resume; the newest pass is shown first"
        )
    return notes


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and abs(number) < 1e15 else None
