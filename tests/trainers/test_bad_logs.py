"""Every trainer's log, damaged in every way: an answer or a RunError in words, with bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stabilizer.formats import console
from stabilizer.runs.loaded import LoadedRun
from stabilizer.runs.reader import RunError
from stabilizer.trainers.reading import READERS, load
from tests.trainers.console_logs import KINDS, any_log

JUNK = {
    "empty": b"", "blank": b" \n\r\n\n", "binary": bytes(range(256)) * 40, "zeros": b"\0" * 5000,
    "braces": b"{'" * 20_000, "quotes": b"{'a" + b"'" * 50_000, "a list": b"[" * 50_000,
    "deep": b'{"step": 1, "data": ' + b'{"a":' * 20_000, "no numbers": b"step:1 - a/b:x - c/d:\n",
    "one huge line": b"step:1 - a/b:1 - " + b"x" * 9_000_000, "colours": b"\x1b[36m" * 10_000,
    "returns": b"\r" * 100_000,
    "wrapped nonsense": b'[{"stream_name": 3}\n,{"stream_name":"x","data":4}\n,{"stream_name',
}  # fmt: skip


def answer(path, **options) -> LoadedRun | None:
    try:
        run = load(path, **options)
    except RunError as error:
        assert str(path) in str(error) and len(str(error)) < 1500
        return None
    assert run.source.steps > 0
    return run


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
@pytest.mark.parametrize("junk", JUNK)
def test_junk_given_to_a_reader_by_name_is_refused_or_read(tmp_path, reader, junk):
    path = tmp_path / "some.log"
    path.write_bytes(JUNK[junk])
    answer(path, format=reader.name)


@pytest.mark.parametrize("junk", JUNK)
def test_junk_is_refused_whoever_is_asked(tmp_path, junk):
    path = tmp_path / "some.log"
    path.write_bytes(JUNK[junk])
    assert answer(path) is None or junk == "one huge line"


@pytest.mark.parametrize("kind", KINDS)
def test_every_truncation_is_read_as_far_as_it_goes_or_refused(tmp_path, kind):
    text = any_log(kind).encode()
    path = tmp_path / "some.log"
    for length in range(0, len(text), max(7, len(text) // 60)):
        path.write_bytes(text[:length])
        run = answer(path)
        assert run is None or run.source.steps <= 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_redirected_by_a_windows_shell_is_read(tmp_path, kind):
    path = tmp_path / "some.log"
    for encoding in ("utf-16", "utf-8-sig"):
        path.write_text(any_log(kind).replace("\n", "\r\n"), encoding=encoding, newline="")
        run = load(path)
        assert run.source.steps == 3 and run.source.skipped_lines == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30), st.binary(max_size=12)), min_size=1, max_size=8),
)
def test_any_mutation_of_a_log_is_read_or_refused(tmp_path, kind, changes):
    raw = any_log(kind).encode()
    for place, removed, added in changes:
        at = int(place * len(raw))
        raw = raw[:at] + added + raw[at + removed :]
    path = tmp_path / "some.log"
    path.write_bytes(raw)
    answer(path)


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_line_over_the_limit_is_cut_and_the_rest_of_it_dropped(tmp_path, monkeypatch, end):
    monkeypatch.setattr(console, "MAX_LINE", 1000)
    monkeypatch.setattr(console, "_CHUNK", 300)
    path = tmp_path / "some.log"
    path.write_text("first\n" + "x" * 5000 + end + ("last\n" if end else ""))
    found = list(console.lines(path))
    assert max(len(line.text) for line in found) <= 1000
    assert [line.whole for line in found] == ([True, False, True] if end else [True, False])
    assert found[-1].text == ("last" if end else "x" * 1000)
