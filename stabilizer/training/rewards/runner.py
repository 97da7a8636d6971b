"""Call all reward functions on a step's completions, in parallel and with retries, and sum them into one score per
sample.

When a call fails as a whole, the samples are retried one by one, so that only those that break the function are lost.
(A function that compares the samples of a step then sees only one of them.) These retries are limited: they may take as
long as the call did, and end after `MAX_LOST` hangs or crashes. The remaining samples are then reported as failed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, Literal

from stabilizer.core.nearest import nearest
from stabilizer.training.rewards.boxed import has_math_verify
from stabilizer.training.rewards.config import RewardConfig, RewardSpec, read_specs
from stabilizer.training.rewards.process import CallFailed, RewardProcess
from stabilizer.training.rewards.worker import BATCH, LARGEST, SAMPLE
from stabilizer.training.tasks import Problem, Score

MAX_LOST = 8
"""Hangs or crashes in one step after which the remaining samples are given up: each costs a new process."""
STRIDE = 8
"""Retries visit every 8th sample first, so that the group of one bad prompt does not use up all of them."""
MAX_REASONS = 100
"""Distinct failure reasons that are counted separately."""

GENERATED = ("completion_ids", "finish_reason")
"""Facts about a completion that a function gets if it names them: its tokens, and `stop` or `length`."""
Form = Literal["text", "chat"]
"""How a function gets prompts and completions of a chat: as text, or as lists of messages, as in TRL."""

Outcome = tuple[float | None, str]
"""(value, reason for no value). No value and no reason: the function does not apply."""


class RewardRunner:
    """The functions of a configuration, each started and checked in a separate process."""

    def __init__(self, config: RewardConfig, columns: Collection[str]):
        self.config = config
        self.specs = read_specs(config)
        self._summed = [spec.weight for spec in self.specs] != [1]
        self.failures: Counter[str] = Counter()
        """Samples lost so far, by function and reason; and the number of retries, by reason."""
        self.notes: list[str] = []
        self._processes = [
            RewardProcess(spec.load_request(config.memory_gb), config.import_timeout_s) for spec in self.specs
        ]
        self._threads = ThreadPoolExecutor(len(self.specs), thread_name_prefix="reward")
        try:
            abouts = list(self._threads.map(_start, self.specs, self._processes))
        except BaseException:  # Ctrl-C, or an unusable function: do not wait for the other imports
            for process in self._processes:
                process.kill()
            raise
        self._columns = [_columns(spec, about, columns) for spec, about in zip(self.specs, abouts, strict=True)]
        self._forms: list[tuple[Form, ...]] = [
            ("chat", "text") if about["trl"] else ("text", "chat") if about["batched"] else ("text",)
            for about in abouts
        ]
        """Of each function, the forms in which it may want a chat; one of them, once a call has succeeded."""
        if any(spec.use == "boxed_math" for spec in self.specs) and not has_math_verify():
            self.notes.append("boxed_math compares spelling, not mathematical value: for that, pip install math-verify")

    def __call__(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Score]:
        """The scores of a step's completions, in order."""
        chat = all(problem.messages for problem in problems)

        def one(function: int) -> tuple[list[Outcome], str]:
            facts = {
                name: [p.columns.get(name, p.generated.get(name)) for p in problems] for name in self._columns[function]
            }
            lists = {form: facts | _lists(problems, completions, form) for form in self._forms[function]}
            if not chat:
                return self._outcomes(self._processes[function], lists["text"])
            if len(lists) > 1 and (found := self._tried(function, lists)) is not None:
                return found, ""
            return self._outcomes(self._processes[function], lists[self._forms[function][0]])

        outcomes, asked_again = zip(*self._threads.map(one, range(len(self.specs))), strict=True)
        for spec, why in zip(self.specs, asked_again, strict=True):
            if why:
                self._count(f"{spec.name}: {why}, so it was asked for one sample at a time")
        return [
            self._score(sample, {name: value for name, values in extra.items() if (value := values[row]) is not None})
            for extra in [self._extra(len(problems))]
            for row, sample in enumerate(zip(*outcomes, strict=True))
        ]

    def close(self) -> None:
        """End the processes."""
        self._threads.shutdown()
        for process in self._processes:
            process.close()

    def _tried(self, function: int, lists: Mapping[Form, dict[str, list[Any]]]) -> list[Outcome] | None:
        """The outcomes of the first form that the function accepts, which it gets from then on; None if it accepts
        none."""
        for form, arguments in lists.items():
            try:
                outcomes = self._processes[function].score(arguments, self.config.timeout_s)
            except CallFailed as error:
                if error.lost:
                    return None
                continue
            self._forms[function] = (form,)
            return outcomes
        return None

    def _extra(self, count: int) -> dict[str, list[float | None]]:
        """The further numbers of the last call, under names that a metric may have."""
        extra: dict[str, list[float | None]] = {}
        for process in self._processes:
            for name, values in process.extra.items():
                if len(values) == count:
                    extra["".join(c if c.isalnum() or c in "-_" else "_" for c in name)] = values
        return extra

    def _score(self, sample: Sequence[Outcome], extra: Mapping[str, float]) -> Score:
        """The weighted sum of the functions that apply. One failed function fails the sample, because a partial sum is
        not comparable."""
        components: dict[str, float] = {}
        total, solved, failed = 0.0, None, ""
        for spec, (value, why) in zip(self.specs, sample, strict=True):
            if why:
                components[spec.name] = math.nan
                failed = failed or f"{spec.name}: {why}"
                self._count(f"{spec.name}: {why}")
            elif value is not None:
                components[spec.name] = value
                total += spec.weight * value
                if spec.name == self.config.solved_by or (solved is None and not self.config.solved_by):
                    solved = value >= self.config.solved_at
        if not components:
            failed = "no reward function applies to this sample"
            self._count(failed)
        if not failed and not abs(total) <= LARGEST:
            failed = f"the weighted sum of the rewards is {total:g}"
            self._count(failed)
        if failed:
            return Score(math.nan, False, components, failed, extra, self._summed)
        return Score(total, bool(solved), components, "", extra, self._summed)

    def _count(self, reason: str) -> None:
        known = reason in self.failures or len(self.failures) < MAX_REASONS
        self.failures[reason if known else "other reasons"] += 1

    def _outcomes(self, process: RewardProcess, lists: Mapping[str, list[Any]]) -> tuple[list[Outcome], str]:
        """The function's value for each sample, and why it was called for single samples if no sample shows the
        reason."""
        count = len(lists["completions"])
        try:
            return process.score(dict(lists), self.config.timeout_s), ""
        except CallFailed as error:
            if count == 1:
                return [(None, str(error))], ""
            outcomes = self._one_by_one(process, lists, count)
            if any(why for _, why in outcomes):
                return outcomes, ""
            if error.no_list:  # not caused by a sample: values can never be assigned to samples
                return [(None, str(error))] * count, ""
            return outcomes, str(error)

    def _one_by_one(self, process: RewardProcess, lists: Mapping[str, list[Any]], count: int) -> list[Outcome]:
        outcomes: list[Outcome] = [(None, "")] * count
        deadline = monotonic() + self.config.timeout_s
        lost = 0
        for i in (i for first in range(STRIDE) for i in range(first, count, STRIDE)):
            left = deadline - monotonic()
            if lost >= MAX_LOST or left <= 0:
                why = f"{lost} others crashed it" if lost >= MAX_LOST else "no time left after the call failed"
                outcomes[i] = (None, f"not tried: {why}")
                continue
            try:
                alone = {name: [values[i]] for name, values in lists.items()}
                (outcomes[i],) = process.score(alone, min(left, self.config.timeout_s / MAX_LOST))
            except CallFailed as error:
                outcomes[i] = (None, str(error))
                lost += error.lost
        return outcomes


def _lists(problems: Sequence[Problem], completions: Sequence[str], form: Form) -> dict[str, list[Any]]:
    """The arguments that every function gets."""
    chat = form == "chat"
    return {
        "prompts": [[*problem.messages] if chat else problem.prompt for problem in problems],
        "completions": [[{"role": "assistant", "content": text}] if chat else text for text in completions],
        "answers": [problem.answer for problem in problems],
    }


def _start(spec: RewardSpec, process: RewardProcess) -> dict[str, Any]:
    try:
        return process.start()
    except CallFailed as error:
        raise ValueError(f"reward function {spec.use!r} can't be used: {error}") from None


def _columns(spec: RewardSpec, about: Mapping[str, Any], columns: Collection[str]) -> list[str]:
    """Columns of the data that this function gets."""
    named = [name for name in GENERATED if name in about["columns"] or about["trl"]]
    columns = [*columns, *(name for name in named if name not in columns)]
    absent = next((name for name in about["needed"] if name not in columns), None)
    if absent is not None:
        hint = nearest(absent, columns)
        raise ValueError(
            f"reward function {spec.use!r} needs {absent!r}, which is neither a column of the data nor set under its"
            f" options; {f'nearest is {hint!r}; ' if hint else ''}columns: {', '.join(columns) or 'none'}"
        )
    reserved = BATCH if about["batched"] else BATCH | SAMPLE
    wanted = columns if about["rest"] else about["columns"]
    return [name for name in wanted if name in columns and name not in reserved]
