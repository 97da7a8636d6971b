"""Names and numbers as anybody's program prints them, recognised by their shape.

It reads lines such as `step 12 | loss 0.3 | reward 0.5`, `[12/500] loss=0.3, kl: 0.01`, `'loss': 0.0, 'reward': 0.5`
without braces, one `name: value` per line, and tables: Markdown, boxes of two columns (stable-baselines3), columns
separated by blanks or tabs, and HTML as a notebook keeps it. A row ends where a name comes again.

A text with numbers in it is not a log of metrics: a row counts only if it has a measured quantity among its names
(`MEASURED`), and settings printed one per line are left out.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stabilizer.core.records import Event
from stabilizer.formats.console import DOCUMENTS, SOURCES, Failures, Line, head, pieces
from stabilizer.formats.console import lines as lines_of
from stabilizer.formats.number_log import NumberLog
from stabilizer.formats.rows import number
from stabilizer.formats.steps import STEP_KEYS, rows_of, statistics

NAME = "printed"
WHAT = "printed names and numbers: `step 12 | loss 0.3 | reward 0.5`, `key=value`, `key: value`, or a table"

MEASURED = re.compile(
    r"(?:^|[\W_])(?:loss|rewards?|kl|kld|entropy|grad(?:ient)?[_ ]?norm|scores?|acc|accuracy|returns?|clip[_ ]?frac|"
    r"advantages?|completion[_ ]length|response[_ ]length|ppl|perplexity|rew)(?:$|[\W_])",
    re.I,
)
"""Words in the name of a quantity that training measures."""
SETTING = re.compile(
    r"coef|weight|target|max_|min_|num_|size|batch|func|model|path|seed|range|schedule|type|scale|init|threshold|warmup"
    r"|penalty|ratio_clip|clip_ratio_(?:low|high|c$)",
    re.I,
)
"""Words in the name of a setting. They count only where each name stands on a line of its own."""
CONFIGURED = re.compile(r"^(?:max|min|num)_|_(?:coeff?|coefficient|weights?|target|scale|range|threshold|func)$", re.I)
"""How the name of a setting begins or ends that has a measured quantity in it, as `max_completion_length`."""
_PRESENT = re.compile(r"curr?_")
"""How names of values begin that training adapts, as RLlib's `cur_kl_coeff`."""
LONGEST_HEAD = 2_000_000
"""Bytes of a text that are looked at to recognise it."""
HEAD_LINES = 5_000
"""Lines in which the first row must appear for a text to be recognised."""
MAX_CELLS = 400
"""Cells of a line that are read."""
LONGEST_NAME = 80
"""Characters of a column's name."""
MAX_CHARACTERS = 20_000
"""Characters of a line that are read; a line of metrics has some thousands."""

_NUMBER = r"[+-]?(?:\d{1,25}(?:,\d{3}){0,6}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,4})?|\.\d{1,30}|[Nn]a[Nn]|\.?[Ii]nf)"
_PLAIN = r"[+-]?\d{1,9}(?:\.\d{0,20})?"
_VALUE = re.compile(rf"[\s:=\"'\[(]{_NUMBER}")
"""A number that a name may have; a line without one is none of metrics."""
_PAIR = re.compile(
    rf"([A-Za-z_][\w@./-]{{0,80}}(?: [A-Za-z_(][\w@./()-]{{0,40}}){{0,3}})[\"']?\s{{0,3}}[:=]\s{{0,8}}[\"'\[(]?"
    rf"({_NUMBER})(?:\s?%|[a-z]{{1,2}}\b)?(?=[\s,;|)\]}}'\"]|$)"
)
_ASSIGNED = re.compile(rf"[:=]\s{{0,8}}[\"'\[(]?{_NUMBER}")
"""A number after a colon or an equals sign: without one no name can have it, and names are dear to look for."""
_BARE = re.compile(rf"(?:^|(?<=[\s|,;\[(]))([A-Za-z_][\w@/.-]{{0,60}})\s{{1,8}}({_NUMBER})%?(?=[\s,;|)\]:/]|$)")
_REWARDS = re.compile(rf"\b(rewards?)\s?[:=]\s?\[\s?({_PLAIN}(?:, ?{_PLAIN}){{1,63}})\s?\]", re.I)
"""The rewards of the answers of a step."""
_COUNT = re.compile(r"(?:^|(?<=[\s\[(]))(\d{1,12})/(\d{1,12})(?=[\s\]):,|]|$)")
_RULE = re.compile(r"[\s|+:=_─━│┼-]*$")
_CELL = re.compile(r"<t[dh]\b[^>]{0,300}>([^<]{0,300})", re.I)
_GAP = re.compile(r"\t+| {2,}")
_COVERED = 0.6
"""Share of a line's words that must be names with numbers for a name and a number side by side to count as a pair."""


def recognises(path: Path) -> bool:
    """By a row with a measured quantity near its start."""
    start = head(path)[:LONGEST_HEAD]
    if start and path.open("rb").read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return False  # the message about it says how to convert it
    if not start or b"\0" in start[:4096] or path.suffix.lower() in SOURCES | DOCUMENTS - {".html", ".htm", ".md"}:
        return False
    reading = _Reading()
    for place, text in enumerate(start.decode("utf-8", "replace").splitlines()[:HEAD_LINES], 1):
        for line in pieces(Line(place, text, True)):
            reading.see(line)
        if reading.records:
            return True
    reading.flush()
    return bool(reading.records)


def read(path: Path) -> NumberLog:
    """The rows of a text, and the failures in it."""
    reading = _Reading()
    for line in lines_of(path):
        reading.see(line)
    reading.flush()
    reading.note(reading.failures.close())
    rows, skipped, notes = rows_of(reading.records, path)
    steps = [0, *(step for step, _ in rows)]
    events = [
        Event(event.step, event.kind, event.text, data={**event.data, "after_step": steps[min(after, len(rows))]})
        for after, event in reading.events
    ]
    return NumberLog(
        name=path.stem, rows=rows, format=NAME, files=[path], skipped=skipped, events=events,
        notes=[*notes, *reading.failures.notes()],
    )  # fmt: skip


class _Reading:
    """The records so far, and the one being read."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.events: list[tuple[int, Event]] = []
        """Each failure with the number of records before it."""
        self.failures = Failures()
        self._open: dict[str, Any] = {}
        self._alone = True
        """Whether every name of the open record stood on a line of its own."""
        self._header: list[str] = []
        self._cells: list[str] = []

    def see(self, line: Line) -> None:
        """The next line."""
        text = line.text[:MAX_CHARACTERS]
        failed = self.failures.takes(text)
        if not failed and (self._html(text) or self._table(text)):
            return
        found = {} if failed else _pairs(text)
        if not found:
            self.note(self.failures.see(line))
            return
        again = found.keys() & self._open.keys()
        if again or (len(found) > 1 and not self._alone):
            self.flush()
        if len(found) > 1 and self._alone:  # a line of many names ends what stood alone, but for its step
            self._open = {name: value for name, value in self._open.items() if name.lower() in STEP_KEYS}
            self._alone = False
        self._open |= found

    def flush(self) -> None:
        """Close the open record."""
        record, alone = self._open, self._alone
        self._open, self._alone = {}, True
        record = _tested(_without_settings(record) if alone else record)
        measured = any(MEASURED.search(name) and not CONFIGURED.search(name) for name in record)
        if measured and (len(record) > 1 or "eval/episodic_return" in record):
            self.records.append(record)

    def note(self, event: Event | None) -> None:
        """Keep a failure at its place among the records."""
        if event:
            self.flush()
            self.events.append((len(self.records), event))

    def _html(self, text: str) -> bool:
        lower = text.lower()
        if "<t" not in lower and "</t" not in lower:
            return False
        for part in re.split(r"(?i)(?=<tr\b)|(?<=</tr>)", text):
            if part[:3].lower() == "<tr":
                self._cells = []
            self._cells += [cell.strip() for cell in _CELL.findall(part)]
            if "</tr>" in part.lower():
                self._row(self._cells[:MAX_CELLS])
                self._cells = []
        return True

    def _table(self, text: str) -> bool:
        """Take a line of a table."""
        stripped = text.strip()
        if _RULE.match(stripped):
            return len(stripped) > 2
        if stripped[:1] in ("|", "│") and stripped[-1:] in ("|", "│"):
            cells = [cell.strip().strip("`*") for cell in re.split(r"[|│]", stripped[1:-1])][:MAX_CELLS]
            return self._box(*cells) if len(cells) == 2 else self._row(cells)
        if stripped.count("|") > 1 and (taken := self._piped(stripped)) is not None:
            return taken
        return any(
            self._row(cells) for cells in (_GAP.split(stripped), stripped.split()) if 2 <= len(cells) <= MAX_CELLS
        )

    def _piped(self, line: str) -> bool | None:
        """Take a row of a Markdown table without outer lines; None for a line of another kind."""
        cells = [cell.strip() for cell in line.split("|")][:MAX_CELLS]
        if self._row(cells):
            return True
        return False if self._header is cells else None

    def _box(self, name: str, value: str) -> bool:
        """A row of a table with a name and a number."""
        if number(value) is None:
            return self._row([name, value])
        if name in self._open:
            self.flush()
        self._open[name], self._alone = value, False
        return True

    def _row(self, cells: list[str]) -> bool:
        """Take a row of a table whose head is known, or remember a head; a head may be a sentence, so it is not"
        " taken."""
        values = [_value(cell) for cell in cells]
        if len(values) == len(self._header) and _mostly(values):
            self.flush()
            row = zip(map(spelled, self._header), values, strict=True)
            self._open = {name: value for name, value in row if name and value is not None}
            self._alone = False
            return True
        if _is_head(cells, values):
            self._header = cells
        return False


def _without_settings(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if not SETTING.search(name) or _PRESENT.match(name)}


def _tested(record: dict[str, Any]) -> dict[str, Any]:
    """A row of CleanRL's evaluation after training, under names of its own."""
    if "eval_episode" not in record:
        return record
    return {f"eval/{name}": value for name, value in record.items() if name != "eval_episode"}


SPOKEN = {"Training Loss": "loss", "Validation Loss": "eval_loss"}
"""Columns that a notebook's table renames."""


def spelled(name: str) -> str:
    """A column's name as the trainer logs it elsewhere: `rewards / right` is `rewards/right`."""
    return SPOKEN.get(name, name.replace(" / ", "/"))


def _is_head(cells: list[str], values: list[float | None]) -> bool:
    """Whether cells can be the names of columns: words without repetition, a quantity among them."""
    if any(value is not None for value in values) or len(cells) > len({*cells}):
        return False
    if any(len(cell) > LONGEST_NAME or "=" in cell or ":" in cell for cell in cells):
        return False
    return any(MEASURED.search(cell) or cell.strip().lower() in STEP_KEYS for cell in cells)


_OF_NUMBERS = frozenset("0123456789+-.nNiI'\" ")
"""How the text of a number may begin."""


def _value(cell: str) -> float | None:
    return number(cell.rstrip("%").replace(",", "")) if cell[:1] in _OF_NUMBERS else None


def _mostly(values: list[float | None]) -> bool:
    """A row of a table may have empty cells and words in some."""
    return 2 * sum(value is not None for value in values) > len(values)


def _pairs(text: str) -> dict[str, Any]:
    """The names and numbers of a line."""
    if not _VALUE.search(text):
        return {}
    text = _REWARDS.sub(_as_statistics, text) if "[" in text else text
    assigned = _PAIR.findall(text) if _ASSIGNED.search(text) else []
    found: dict[str, Any] = dict(_side_by_side(text, len(assigned)))
    for name, value in assigned:
        found[name.strip()] = value.replace(",", "") if value.count(",") else value
    return found | _counted(text, found)


def _counted(text: str, found: dict[str, Any]) -> dict[str, Any]:
    """The step in `[12/500]`, beside a measured quantity: examples of an evaluation are counted so too. The count
    right behind that of an epoch, as in `Epoch:[2/3](12/500)`, begins again with each epoch."""
    if not any(map(MEASURED.search, found)) or {name.lower() for name in found} & set(STEP_KEYS):
        return {}
    epoch: re.Match[str] | None = None
    for match in _COUNT.finditer(text):
        if text[: match.start()].rstrip(" [(").rpartition(" ")[2].strip(":[(").lower() == "epoch":
            epoch = match
        elif epoch and not text[epoch.end() : match.start()].strip(" ])[(,"):
            return {"step": (int(epoch[1]) - 1) * int(match[2]) + int(match[1])}
        else:
            return {"step": match[1]}
    return {"epoch": epoch[1]} if epoch else {}


def _as_statistics(match: re.Match[str]) -> str:
    """`rewards=[0, 1]` as a mean and a deviation, apart from the words before it."""
    name = match[1]
    return "".join(f", {key}={value:.6g}" for key, value in statistics(name, list(map(float, match[2].split(",")))))


def _side_by_side(text: str, assigned: int) -> Iterator[tuple[str, Any]]:
    """`step 12 loss 0.3`: a name and a number with nothing between them, if the line holds little else but pairs that
    are assigned."""
    pairs = _BARE.findall(text)
    steps = [(name, value) for name, value in pairs if name.lower() in STEP_KEYS]
    words = [word for word in re.split(r"[\s|,;:=]+", text) if any(map(str.isalnum, word))]
    covered = 2 * len(pairs) + 2 * assigned
    yield from pairs if len(pairs) > 1 and covered >= _COVERED * len(words) else steps
