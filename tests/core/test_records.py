"""The schema: what goes in comes out, and what is no record is refused in words."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stabilizer.core.records import (
    Action,
    Cause,
    Event,
    Finding,
    Metrics,
    RecordError,
    RemedyAdvice,
    Sample,
    as_json,
    decode,
    decode_metrics,
    encode,
    encode_metrics,
    worst,
)

FINDING = Finding(
    id="optim/grad-explosion", severity="critical", summary="gradient norm is 38.2", onset_step=310, detected_step=322,
    last_step=812, evidence={"metric": "optim/grad_norm", "baseline": 0.41, "now": math.inf, "list": [1, math.nan]},
    state="open", incident=1, causes=(Cause("no-kl-anchor", 0.7, "beta = 0"),),
    remedies=(RemedyAdvice("raise-beta", "soft", {"control/beta": (0.0, 0.001)}, "drift costs", "beta=0.001"),),
)  # fmt: skip
EVENT = Event(step=4, kind="rollback", text="back to 2", attempt=1, data={"checkpoint": 2})
ACTION = Action(action="t1", entry="applied", remedy="lower-lr", step=9, change={"control/lr_scale": (1.0, 0.5)})
SAMPLE = Sample(step=1, group=0, prompt="1+1=", completion="2", reward=1.0, advantage=0.5, rewards={"right": 1.0})


def _finding(**changes: object) -> bytes:
    plain = {"id": "a", "severity": "warn", "summary": "", "onset_step": 1, "detected_step": 1, "last_step": 1}
    return json.dumps({**plain, **changes}).encode()


number = st.one_of(st.floats(), st.integers(-(2**70), 2**70), st.integers(2**53 - 2, 2**53 + 2))


def same(a: float, b: float) -> bool:
    """Bit for bit, except that any NaN is as good as another."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or struct.pack("d", a) == struct.pack("d", b)
    return a == b and type(a) is type(b)


@pytest.mark.parametrize(
    "value",
    [0.0, -0.0, 1e308, -1e308, 5e-324, 2.2250738585072014e-308, math.inf, -math.inf, math.nan, 0.1 + 0.2, 2**53 + 1,
     -(2**63), 2**64 - 1, 1],
)  # fmt: skip
def test_a_number_survives_exactly(value):
    back = decode_metrics(encode_metrics(Metrics(step=3, values={"a/b": value}))).values["a/b"]
    assert same(value, back), (value, back)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**300])
def test_an_integer_beyond_64_bits_survives_as_a_float(value):
    assert decode_metrics(encode_metrics(Metrics(step=3, values={"a/b": value}))).values["a/b"] == float(value)


def test_true_is_one():
    assert decode_metrics(encode_metrics(Metrics(step=0, values={"a": True}))).values == {"a": 1}


def test_an_integer_beyond_a_float_is_recorded_as_infinity():
    """An integer past 1e308 is not finite as a float: it is kept as Inf, the nearest evidence there is."""
    back = decode_metrics(encode_metrics(Metrics(step=0, values={"a": 10**400, "b": -(10**400)})))
    assert back.values == {"a": math.inf, "b": -math.inf}


@given(
    step=st.integers(0, 2**53),
    values=st.dictionaries(st.text(max_size=20).filter(lambda t: t.encode("utf-8", "ignore").decode() == t), number),
    t=st.floats(0, 4e9),
    n=st.integers(0, 2**40),
)
def test_metrics_round_trip(step, values, t, n):
    line = encode_metrics(Metrics(step=step, values=values, t=t, n=n))
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    back = decode_metrics(line)
    assert (back.step, back.n, back.t) == (step, n, t) and set(back.values) == set(values)
    for name, value in values.items():
        wide = isinstance(value, int) and not -(2**63) <= value < 2**64
        assert same(float(value) if wide else value, back.values[name])


def test_unknown_metric_names_are_kept():
    values = {"trl/some thing": 1.5, "": 2.0, "Ünïcode/✓": 3.0, "a\nb\x00": 4.0, "nf": 5.0}
    assert decode_metrics(encode_metrics(Metrics(step=1, values=values))).values == values


def test_a_name_that_utf8_cannot_hold_loses_only_those_characters():
    assert decode_metrics(encode_metrics(Metrics(step=1, values={"bad\ud800": 1.0}))).values == {"bad?": 1.0}


def test_null_without_an_entry_in_nf_reads_as_not_measured():
    assert decode_metrics(b'{"step": 1, "m": {"a": null, "b": 2.0}, "nf": {"c": "nan"}}').values == {"b": 2.0}


@pytest.mark.parametrize("record", [FINDING, EVENT, ACTION, SAMPLE], ids=lambda r: type(r).__name__)
def test_other_records_round_trip(record):
    back = decode(type(record), encode(record))
    assert repr(back) == repr(record)  # repr, because NaN differs from itself


@pytest.mark.parametrize("record", [FINDING, EVENT, ACTION, SAMPLE], ids=lambda r: type(r).__name__)
def test_an_unknown_field_of_our_own_records_is_refused(record):
    line = encode(record).rstrip()[:-1] + b',"surprise":1}'
    with pytest.raises(RecordError, match="surprise"):
        decode(type(record), line)


def test_a_missing_field_is_refused():
    with pytest.raises(RecordError, match="Event"):
        decode(Event, b'{"step": 1}')


@pytest.mark.parametrize(
    "line",
    [b"", b"\xff\xfe", b"nope", b"[1]", b"1", b'{"step": 1}', b'{"m": {}}', b'{"step": 1.5, "m": {}}',
     b'{"step": true, "m": {}}', b'{"step": "1", "m": {}}', b'{"step": 1, "m": []}', b'{"step": 1, "m": {"a": "x"}}',
     b'{"step": 1, "m": {"a": [1]}}', b'{"step": 1, "m": {"a": true}}', b'{"step": 1, "m": {}, "t": "now"}',
     b'{"step": 1, "m": {}, "n": "1"}', b"[" * 5000],
)  # fmt: skip
def test_a_line_that_is_not_a_metrics_record_is_refused(line):
    with pytest.raises(RecordError):
        decode_metrics(line)


@pytest.mark.parametrize(
    "kind,line",
    [
        (Finding, _finding(causes=5)),
        (Finding, _finding(causes=[{"x": 1}])),
        (Finding, _finding(remedies=[{}])),
        (Finding, _finding(severity="terrible")),
        (Finding, _finding(state=3)),
        (Finding, _finding(onset_step="soon")),
        (Finding, _finding(evidence=[])),
        (Finding, _finding(evidence={"a": {"nf": []}}, severity=None)),
        (Event, b'{"step": null, "kind": "note", "text": ""}'),
        (Action, b'{"action": "a", "entry": "wished", "remedy": "r", "step": 1}'),
        (Action, b'{"action": "a", "entry": "applied", "remedy": "r", "step": 1, "change": {"k": [1]}}'),
        (Action, b'{"action": "a", "entry": "applied", "remedy": "r", "step": 1, "change": 7}'),
    ],
)  # fmt: skip
def test_a_record_with_a_field_of_a_wrong_type_is_refused(kind, line):
    with pytest.raises(RecordError):
        decode(kind, line)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_record_error(line):
    for read in (decode_metrics, lambda b: decode(Finding, b), lambda b: decode(Action, b)):
        try:
            read(line)
        except RecordError:
            pass


def test_writing_a_metric_that_is_not_a_number_raises():
    with pytest.raises(TypeError, match="'a'.*str"):
        encode_metrics(Metrics(step=0, values={"a": "high"}))


def test_nan_and_infinity_have_names_in_json_output():
    assert as_json({"a": math.nan, "b": (math.inf, "x")}) == {"a": {"nf": "nan"}, "b": [{"nf": "inf"}, "x"]}


def test_the_worst_severity_wins():
    assert worst(["info", "critical", "warn"]) == "critical" and worst([]) is None


def test_a_sample_leaves_out_unknown_fields_and_keeps_the_known_ones():
    assert b"tokens" not in encode(SAMPLE) and b"solved" not in encode(SAMPLE)
    told = replace(SAMPLE, solved=False, tokens=("1", "2"), logps=(-0.5, None))
    assert decode(Sample, encode(told)) == told


def test_a_knob_of_the_journal_is_at_a_number_or_nowhere() -> None:
    line = b'{"action":"a1","entry":"applied","remedy":"r","step":1,"change":{"control/beta":[%s,{"nf":"inf"}]}}'
    before, after = decode(Action, line % b"null").change["control/beta"]
    assert before is None and after == float("inf")
    for wrong in (b'"a"', b"[1]", b"{}"):
        with pytest.raises(RecordError):
            decode(Action, line % wrong)


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.floats() | st.booleans(), max_size=4))
def test_the_quick_encoding_of_a_plain_row_equals_the_general_one(values: dict[str, float]) -> None:
    assert encode_metrics(Metrics(step=1, values=values)) == encode_metrics(Metrics(step=1, values=Odd(values)))


class Odd(dict):
    """Values that are looked at one by one."""


@pytest.mark.parametrize(
    ("why", "rest"),
    [
        ("the norm rose; the rate is high", "the rate is high"),
        ("the rate is high; the norm rose", "the rate is high"),
        ("the norm rose", ""),
        ("possibly the norm rose", ""),
        ("the rate is high", "the rate is high"),
    ],
)
def test_a_cause_repeats_no_words_of_its_finding(why, rest):
    assert Cause("x", 0.5, why).beyond("the norm rose") == rest
