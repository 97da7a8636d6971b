"""TRL: the dictionaries that transformers' Trainer prints, `{'loss': 0.01, 'grad_norm': 0.2, 'reward': 0.6, ...}`.

The kept output of GRPOTrainer, RLOOTrainer or a trainer that inherits from them (Open-R1, Unsloth, ms-swift): a
redirected console, W&B's `output.log`, or a service's JSON of it. Names and meanings are those of `trl_state`. Traps:

- No step is printed. It is taken from the progress bar, ` 10/300 [07:58<3:37:31, 45.01s/it]`, on the same line or
  shortly before; other bars (loading shards, mapping data) have another total. Without a bar the step is the number of
  the printed line, times `logging_steps` where the configuration has it. A bar is drawn at most ten times a second, and
  once more behind every printed line; the latter separates quicker steps.
- transformers 5 prints numbers as text with four digits, `'0.01234'`; 4 prints them bare, `nan` included, and rounds
  the loss to four decimals.
- Progress bars and warnings share lines with the numbers; a line may end in the middle of a dictionary.
- Text copied out of a terminal is broken at its width, inside of names and numbers too.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Self

from stabilizer.core.records import Event
from stabilizer.formats.console import ConsoleParser, Line, head, python_dict
from stabilizer.formats.rows import number, step_number
from stabilizer.formats.tailing import gather
from stabilizer.runs.loaded import LoadedRun
from stabilizer.trainers.trl import state

NAME = "trl_console"
WHAT = "the console output of TRL, with lines like {'loss': 0.01, 'grad_norm': 0.2, 'reward': 0.6, ...}"

_SIGN = re.compile(rb"\{'[\w/]{1,100}': '?[-+\dni][^{}]{0,20000}\}")
_CANDIDATES = 20_000
_DICT = re.compile(r"\{'[A-Za-z_][^{}]*\}")
_PACE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)s/it\b")
_BAR = re.compile(r"(?:\||\s|^)(\d{1,12})/(\d{1,12}) \[[^\]\n]{0,80}?(?:it|s)?")
_OURS = ("loss", "reward", "grad_norm", "learning_rate", "kl", "objective/", "eval_", "train_runtime")
_TORN = re.compile(r"\{'(?:loss|eval_|objective/|num_tokens|reward)[^'{}]*': '?[-+\dni]")
_MORE = re.compile(r"[\w/.+\-:,'@ ]{1,2000}(?:\}|$)|\}")
"""The rest of a dictionary that a terminal's width broke off, or a part of it ..."""
_ENDS = ("'", "}")
"""... which holds one of these."""
_LONGEST = 20_000
"""Characters of a dictionary."""

_INSIDE = (
    (re.compile(rb"\[INFO:swift\]|\[INFO\|[^\]\n]{0,40}\] swift[. ]|run sh: `[^`\n]{0,400}swift/cli/"), "ms-swift"),
    (re.compile(rb"\] llamafactory\.|Welcome to LLaMA Factory|llamafactory/launcher"), "llama-factory"),
)
"""What the trainers that run on transformers' Trainer print beside its dictionaries."""

ALWAYS = {"epoch", "episode"}
"""One of these is in whatever Trainer prints."""


def recognises(path: Path) -> bool:
    """By a printed dictionary with a trainer's keys near its start."""
    candidates = islice(_SIGN.finditer(head(path)), _CANDIDATES)
    return any(
        b"'e" in match[0] and _record(_whole(match[0].decode("utf-8", "replace").splitlines())) for match in candidates
    )


def read(path: Path, *, mapping: dict[str, str], config: Mapping[str, Any] | None) -> LoadedRun:
    """The run in a console log."""
    parser = gather(path, _Parser)
    entries, notes = parser.ended()
    torn = parser.torn
    if before := _of_another(parser.printed):
        del parser.printed[:before], parser.behind[:before]
        lines = [place for place, entry in enumerate(entries) if not isinstance(entry, Event)]
        del entries[: lines[before - 1] + 1]
        notes.append(f"{before} lines of a training without rewards, which ended before this one, are left out")
    steps, planned = _steps([bars for _, bars in parser.printed])
    if steps is not None and planned is not None:
        steps = _redrawn(steps, [record for record, _ in parser.printed], [bar.get(planned) for bar in parser.behind])
    else:
        printed = [record for record, _ in parser.printed]
        every = _every(config, printed)
        steps = _counted(printed, every)
        notes.append(
            f"no step and no progress bar in the log: steps are counted in printed lines, {every} a line"
            + ("" if every > 1 else "; with --config FILE its logging_steps is used")
        )
    numbered = iter(steps)
    records = [entry if isinstance(entry, Event) else {**entry, "step": next(numbered)} for entry in entries]
    if torn:
        notes.append(f"{torn} printed dictionaries end too early and are left out")
    run = state.run_of(
        records, path, format=NAME, mapping=mapping, config=config, planned=planned, skipped=torn, notes=notes,
        trainer=next((trainer for sign, trainer in _INSIDE if sign.search(head(path))), "trl"),
    )  # fmt: skip
    if parser.pace:
        run.history.about = {**run.history.about, "pace_s": parser.pace}
    return run


class _Parser(ConsoleParser):
    """What was printed, with the newest count of every progress bar (by its total) at that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.printed: list[tuple[dict[str, Any], dict[int, int]]] = []
        self.behind: list[dict[int, int]] = []
        """The first count of every bar behind each of the printed."""
        self._bars: dict[int, int] = {}
        self._broken = ""
        """A dictionary whose end may follow in the next line."""
        self.pace = 0.0
        """Seconds a step as the newest progress bar has them; 0 where it shows steps a second."""

    def see(self, line: Line) -> None:
        text = self._continued(line.text)
        if "s/it" in text and (paces := _PACE.findall(text)):
            self.pace = float(paces[-1])
        if "/" in text and "[" in text:
            for match in _BAR.finditer(text):
                if len(self._bars) > 64 and int(match[2]) not in self._bars:
                    self._bars.clear()
                self._bars[int(match[2])] = int(match[1])
                if self.behind:
                    self.behind[-1].setdefault(int(match[2]), int(match[1]))
        found = False
        if "{'" in text:
            for match in _DICT.finditer(text):
                if record := _record(match[0]):
                    self._entries += [*self._failures.pending(), record]
                    self.printed.append((record, dict(self._bars)))
                    self.behind.append({})
                    found = True
            rest = text[text.rfind("{'") :]
            if not found and "}" not in rest and _TORN.match(rest):
                self.torn += 1
                self._broken = rest[:_LONGEST]
                found = True
        if not found:
            self._other(line)

    def _continued(self, text: str) -> str:
        """A line behind what was broken off before it, if it continues that."""
        broken, self._broken = self._broken, ""
        more = _MORE.match(text) if broken and len(broken) < _LONGEST else None
        if more is None or not any(sign in more[0] for sign in _ENDS):
            return text
        self.torn -= 1
        return _whole([broken, text])

    def fork(self) -> Self:
        other = super().fork()
        other.behind[-1:] = map(dict, self.behind[-1:])
        return other


def _whole(lines: list[str]) -> str:
    """Lines that were one before they were broken; a space at the end of one is lost."""
    *broken, last = lines
    return "".join(line + " " * line.endswith((",", ":")) for line in broken) + last


def _of_another(printed: list[tuple[dict[str, Any], dict[int, int]]]) -> int:
    """The first lines that are of another training: up to its summary, before any reward."""
    paid = next((place for place, (record, _) in enumerate(printed) if record.keys() & set(state.ONLINE)), 0)
    return max((place + 1 for place, (record, _) in enumerate(printed[:paid]) if "train_runtime" in record), default=0)


def _record(text: str) -> dict[str, Any] | None:
    """A dictionary that Trainer printed: nothing but numbers, an `epoch` among them. Programs print others."""
    values = python_dict(text)
    if not ALWAYS & values.keys() or not any(key.startswith(_OURS) for key in values):
        return None
    return values if all(value is None or number(value) is not None for value in values.values()) else None


def _steps(bars: list[dict[int, int]]) -> tuple[list[int] | None, int | None]:
    """The step of every record by the bar that moves with them, and that bar's total; None without such a bar."""
    advances: dict[int, int] = defaultdict(int)
    before: dict[int, int] = {}
    for bar in bars:
        for total, count in bar.items():
            advances[total] += count > before.get(total, 0)
        before = {**before, **bar}
    if not advances:
        return None, None
    total = max(advances, key=lambda key: (advances[key], key))
    if advances[total] * 2 < len(bars) and not (len(bars) <= 2 and advances[total]):
        return None, None
    steps: list[int] = []
    missing = 0  # records before the bar was first drawn: they count down from it
    for bar in bars:
        if total in bar:
            steps += [max(0, bar[total] - back) for back in range(missing, 0, -1)]
            missing = 0
            steps.append(bar[total])
        elif steps:
            steps.append(steps[-1])
        else:
            missing += 1
    return steps, total


def _redrawn(steps: list[int], printed: list[dict[str, Any]], behind: list[int | None]) -> list[int]:
    """Steps for a log whose steps were quicker than the bar, so that several lines seem to be of one step.

    The bar is always redrawn behind a line, which separates them."""
    trained = [place for place, record in enumerate(printed) if _of_training(record)]
    if len({steps[place] for place in trained}) == len(trained):
        return steps
    told = [behind[place] for place in trained]
    if told[-1] is None:  # the log ends right here
        told[-1] = steps[trained[-1]]
    known = [step for step in told if step is not None]
    if len(known) < len(told) or any(later <= step for step, later in zip(known, known[1:-1], strict=False)):
        return steps
    drawn = [step if bar is None else bar for step, bar in zip(steps, behind, strict=True)]
    found = dict(zip(trained, known, strict=True))
    return [found.get(place, step) for place, step in enumerate(drawn)]


def _of_training(record: dict[str, Any]) -> bool:
    """Whether a line is a step's, and not an evaluation's or the summary."""
    return not any(key.startswith("eval_") or key == "train_runtime" for key in record)


def _counted(printed: list[dict[str, Any]], every: int) -> list[int]:
    """Steps by counting lines of training; those of an evaluation or the summary belong to the line before."""
    steps: list[int] = []
    count = 0
    for record in printed:
        count += _of_training(record)
        steps.append(every * count)
    return steps


def _every(config: Mapping[str, Any] | None, printed: list[dict[str, Any]]) -> int:
    """Steps between two lines: as configured, else as the summary's steps per second x runtime tell, else 1."""
    if config and (every := step_number(config.get("logging_steps"))):
        return every
    summary: dict[str, Any] = next((record for record in reversed(printed) if "train_runtime" in record), {})
    rate, runtime = str(summary.get("train_steps_per_second", "")), number(summary.get("train_runtime"))
    speed = number(rate)
    count = (_counted(printed, 1) or [0])[-1]
    if not speed or not runtime or not count or not math.isfinite(speed * runtime):
        return 1
    slack = 0.5 * 10.0 ** -len(rate.partition(".")[2].partition("e")[0])  # the rate is rounded to its last digit
    least, most = (speed - slack) * runtime / count, (speed + slack) * runtime / count
    return max(1, math.floor(most)) if math.ceil(least) == math.floor(most) else 1
