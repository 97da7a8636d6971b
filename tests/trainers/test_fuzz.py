"""Thousands of damaged logs for every reader: an answer or an error in words, and `diagnose` can show what was read."""

from __future__ import annotations

import io
import json

import pytest

from stabilizer.analysis.analyse import analyse, as_json
from stabilizer.output.screen import console
from stabilizer.output.terminal import show
from stabilizer.runs.loaded import NoMetrics
from stabilizer.runs.reader import RunError
from stabilizer.trainers.reading import READERS, load
from tests.trainers.mutants import mutant, seeds

MANY = 10_000
SOME = 200
"""Samples per reader in the sampled test."""
SHOWN = 40
"""Of so many samples one is also diagnosed, if it was read."""


def fuzz(reader, tmp_path, count):
    for number in range(count):
        path = mutant(reader, number, tmp_path / "log")
        try:
            _try(path, reader.name if number % 2 else None, shown=number % SHOWN < 2)
        except Exception as error:
            error.add_note(f"mutants.mutant({reader.name}, {number}, ...) makes this log again")
            raise


def _try(path, format, shown):
    try:
        run = load(path, format=format)
        assert run.source.steps > 0
    except NoMetrics as told:
        run = told.run
    except RunError as error:
        assert len(str(error)) < 4000
        return
    if shown:
        analysis = analyse(run)
        json.dumps(as_json(analysis), allow_nan=False)
        show(analysis, console(io.StringIO()))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_some_damaged_logs_of_each_format_are_read_or_refused(reader, tmp_path):
    fuzz(reader, tmp_path, SOME)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_ten_thousand_damaged_logs_of_each_format_are_read_or_refused(reader, tmp_path):
    fuzz(reader, tmp_path, MANY)


def test_there_are_good_logs_to_damage_for_nearly_all_formats():
    assert len({reader.name for reader in READERS} - set(seeds())) <= len(READERS) // 4
    assert sum(len(logs) for logs in seeds().values()) >= 25
