"""Text on standard input: a pasted log, traceback, table or configuration."""

from __future__ import annotations

import argparse
import codecs
import json
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from stabilizer.configs.config import ConfigError, Unresolved
from stabilizer.configs.reading import parsed
from stabilizer.core.records import SEVERITIES, Event
from stabilizer.core.severity import reached
from stabilizer.formats.console import lines
from stabilizer.formats.rows import assemble
from stabilizer.preflight.check import Options, Preflight, as_json, in_text, judge
from stabilizer.runs.loaded import PASTED, LoadedRun, NoMetrics
from stabilizer.runs.reader import RunError
from stabilizer.troubles.linux import ENDS_WITH
from stabilizer.troubles.search import Found, by_id, in_line
from stabilizer.troubles.texts import LINE

HEAD = 2**20
"""Bytes of the beginning that are kept of a long text: the command, the settings, the versions."""
TAIL = 2 * 2**20
"""Bytes of the end that are kept: the newest rows and what ended the run. `diagnose FILE` reads a log whole."""
LONGEST = 2**28
"""Bytes after which a text on standard input is not read on: it may be endless."""
MOST_KEPT = 24_000
"""Lines that are kept of a long text, a third of them from its beginning. Reading a row takes 40 to 80 microseconds
(measured, 61,680 rows of three metrics), so a text of short rows takes two seconds at most."""
MOST_ASKED = 600
"""Rows at which the detectors are asked about a pasted text, of all that it holds: about a second (measured)."""
NAME = "pasted"
MOST_LINES = 2_000
"""Lines in which it is looked for what a text without metrics and errors is."""
_SHOWN = 200
"""Characters of a line that are quoted."""
LEAST_LOG_LINES = 2
"""Lines that look printed by a program, from which a text counts as a log."""
_OF_A_LOG = re.compile(
    r"(?<!\d)\d\d:\d\d:\d\d|\b(?:INFO|DEBUG|WARNING)\b|\[rank ?\d|\d{1,3}%\||\bit/s|s/it\]|^\[?\d{4}-\d\d-\d\d|pid=\d"
    r"|'train_runtime'"
)
REFUSED = "trainer/rejects"
"""The rule about what the trainer itself refuses; a missing value is one such reason."""
_BEFORE = re.compile(rb"^[ \t]{0,8}(?:wandb:|>)[ \t]{1,8}", re.MULTILINE)
"""The prefix of every line of a summary of W&B, and of a quotation."""
_OF_SUMMARY = re.compile(rb"^wandb:[ \t]{1,200}(\S{1,100})[ \t]{1,8}(-?\d[\d.e+-]{0,24}|nan)[ \t\r]*$", re.MULTILINE)
"""A line of it: a metric, set to the right, and its last value."""
_SUMMARY = "'train_runtime'"
"""What the last row of transformers' trainers holds; a progress bar may follow it."""
CONFIGURATION = "args"
"""The argument by which a trainer on transformers gets its configuration: a setting where the text only names it."""
MOST_SETTINGS = 1 << 18
"""Bytes of the beginning in which settings are looked for."""


def answer(args: argparse.Namespace, diagnose: Callable[[Path], int], diagnose_run: Callable[[LoadedRun], int]) -> int:
    """Diagnose the text, or check it as a configuration if there is nothing else in it."""
    data, left_out = _read(sys.stdin.buffer)
    data, more = _fewer(data)
    left_out += more
    if not data.strip():
        raise RunError("nothing on standard input; paste a log, a traceback, a table or a configuration, then Ctrl-D")
    if left_out:
        print(
            f"stabilizer diagnose: left out {left_out / 2**20:.1f} MB in the middle of a long text, so steps that are"
            " counted by rows are too low after it; give a longer log as a file",
            file=sys.stderr,
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{NAME}.txt"
        path.write_bytes(data)
        try:
            return diagnose(path)
        except RunError as error:
            if (code := _as_configuration(path, args)) is not None:
                return code
            if (silent := _ends_silently(path)) and b"\0" not in data[:4096]:
                return diagnose_run(silent)
            if plain := _unquoted(data):
                path.write_bytes(plain)
                with suppress(RunError):
                    return diagnose(path)
            if does := _does(path):
                raise RunError(_trains_nothing(does)) from None
            if b"\0" in data[:4096] or not (words := _words(path)):
                raise RunError(_nothing_in(data, error, path)) from None
            return diagnose_run(words)


def _read(stream: BinaryIO) -> tuple[bytes, int]:
    """Beginning and end of a text, in whole lines, and how many bytes between them were left out."""
    data = stream.read(HEAD + TAIL)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # as a Windows shell redirects
        data = data.decode("utf-16", "replace").encode()
    size, head, tail = len(data), data[:HEAD], data[HEAD:]
    while size < LONGEST and (chunk := stream.read(TAIL)):
        size, tail = size + len(chunk), (tail + chunk)[-TAIL:]
    if size == len(data):
        return data, 0
    kept = head[: head.rfind(b"\n") + 1] + tail[tail.find(b"\n") + 1 :]
    return kept, size - len(kept)


def _fewer(data: bytes) -> tuple[bytes, int]:
    """Beginning and end of a text of very many lines, and how many bytes between them were left out."""
    if data.count(b"\n") <= MOST_KEPT:
        return data, 0
    rows, head = data.splitlines(keepends=True), MOST_KEPT // 3
    kept = b"".join([*rows[:head], *rows[head - MOST_KEPT :]])
    return kept, len(data) - len(kept)


def _thinned(run: LoadedRun) -> LoadedRun:
    """The run whose detectors are asked at some of its rows only, evenly, the last among them; they see all rows."""
    every = -(-len(run.ticks) // MOST_ASKED)
    if every <= 1:
        return run
    told = (
        f"the detectors were asked at every {every}th of {len(run.ticks):,} rows, so a detection may come up to"
        f" {every - 1} rows late; a log given as a file is asked about at each"
    )
    return replace(run, ticks=list(run.ticks)[::-1][::every][::-1]).noted([told])


def renamed(run: LoadedRun) -> LoadedRun:
    """The run under a name that says where it comes from, without the file the text was kept in."""
    return _thinned(replace(run.read_from(PASTED), name=PASTED))


def _as_configuration(path: Path, args: argparse.Namespace) -> int | None:
    """Print what preflight says of the text; None where it holds no settings of a trainer."""
    from stabilizer.commands.preflight import print_result

    result = settings_in(path)
    if result is None:
        return None
    print_result(result, as_json(result) if args.json else None)
    return int(reached(result.verdict, args.fail_on))


def settings_in(path: Path) -> Preflight | None:
    """What preflight says of the settings in the text, which need not be all; None without settings of a trainer."""
    with path.open("rb") as file:
        return _settings_of(path, file.read(MOST_SETTINGS).decode("utf-8", "replace"))


@lru_cache(maxsize=1)
def _settings_of(path: Path, text: str) -> Preflight | None:
    """Asked twice of a text that holds settings alone: beside a log first, then as a configuration."""
    config = in_text(path, text, Options(alone=True))
    return _excerpt(judge(config)) if config and not config.guessed else None


def _trains_nothing(does: str) -> str:
    return f"standard input: {does} and trains nothing; paste what it printed, or the command that trains"


def _does(path: Path) -> str:
    """What the command in the text does where it trains nothing; "" without such a command."""
    with path.open("rb") as file, suppress(ConfigError):
        return parsed(path, file.read(MOST_SETTINGS).decode("utf-8", "replace"), alone=True).does
    return ""


def saved(settings: Preflight, folder: Path) -> Path:
    """The settings as a file beside the text, under the trainer's own names."""
    path = folder / "settings.json"
    values = {key: setting.value for key, setting in settings.config.settings.items()}
    path.write_text(json.dumps({key: value for key, value in values.items() if not isinstance(value, Unresolved)}))
    return path


def _unquoted(data: bytes) -> bytes:
    """The text without what a mail, a forum or W&B puts before its lines; empty where there is nothing of that."""
    plain = _BEFORE.sub(b"", _OF_SUMMARY.sub(rb"\1: \2", data))
    return plain if plain != data else b""


def _excerpt(result: Preflight) -> Preflight:
    """What was found in a text that may be a part of the settings: a value that it lacks may be set elsewhere."""
    text = replace(result.config.parsed, path=Path(PASTED))
    found = [replace(finding, file=PASTED) for finding in result.findings]
    if CONFIGURATION in result.config.settings:  # the text has no more than its name: what it sets is not known
        found = [finding for finding in found if finding.line is not None]
    found = [
        replace(finding, severity="info", summary=f"if the text is complete: {finding.summary}")
        if finding.id == REFUSED and finding.line is None
        else finding
        for finding in found
    ]
    found.sort(key=lambda finding: -SEVERITIES.index(finding.severity))
    return replace(result, config=replace(result.config, parsed=text), findings=tuple(found))


def not_refused(result: Preflight) -> Preflight:
    """What was found in the settings of a run that has trained, so that its trainer did not refuse them."""
    return replace(result, findings=tuple(finding for finding in result.findings if finding.id != REFUSED))


def _ends_silently(path: Path) -> LoadedRun | None:
    """The run of a log that holds neither metrics nor an error; None for a text that is no log."""
    texts = [line.text.strip() for line in lines(path) if line.text.strip()]
    if sum(bool(_OF_A_LOG.search(text)) for text in texts) < LEAST_LOG_LINES:
        return None
    printed = [text for text in texts if _OF_A_LOG.search(text)]
    last = next((text for text in printed if _SUMMARY in text), printed[-1])[:_SHOWN]
    return _remarked(path, len(texts), last, in_line(f"{ENDS_WITH.removesuffix('...')}{last}"))


def _words(path: Path) -> LoadedRun | None:
    """The run of a text that holds nothing to judge: what a line of it shows, the first kind in the catalogue."""
    told = [(line.number, line.text.strip()[:_SHOWN]) for line in islice(lines(path), MOST_LINES) if line.text.strip()]
    looked_up = ((place, text, in_line(f"{LINE.removesuffix('...')}{text}")) for place, text in told)
    known = [(place, text, found) for place, text, found in looked_up if found]
    return _remarked(path, *min(known, key=lambda one: list(by_id()).index(one[2].trouble.id))) if known else None


def _remarked(path: Path, place: int, text: str, found: Found | None) -> LoadedRun:
    """A run without rows, of which a line says this."""
    data: dict[str, Any] = {"line": place, "message": text}
    data |= {"trouble": found.trouble.id, "values": found.values} if found else {}
    event = Event(step=0, kind="note", text=text, data=data)
    try:
        return assemble(NAME, format="console", trainer="unknown", files=[path], rows=[event], about={})
    except NoMetrics as said:
        return said.run


def _nothing_in(data: bytes, error: RunError, path: Path) -> str:
    if b"\0" in data[:4096]:
        return "standard input: binary data; give the file's path instead"
    lines = data.count(b"\n") + 1
    if str(path) in str(error) and "not a log in a known format" not in str(error):
        return str(error).replace(str(path), "standard input")
    return (
        f"standard input: no metrics, no error message and no settings of a known trainer in {lines:,} lines; paste"
        " rows of metrics with their names, a traceback or a warning as it was printed, or the command that started"
        " the training"
    )
