"""JSON that anybody may have written is refused beyond a depth, whichever parser reads it, and at once."""

from __future__ import annotations

import math
import time

import pytest

from stabilizer.core.json_text import MAX_NESTING, NestedTooDeep, loads, loads_python, too_deep
from tests.deep import DEPTHS, nested

KINDS = ("object", "list")
BOTH = (loads, loads_python)


@pytest.mark.parametrize("parse", BOTH)
@pytest.mark.parametrize("kind", KINDS)
def test_the_allowed_depth_is_read_and_one_level_more_is_refused(parse, kind: str) -> None:
    assert not too_deep(parse(nested(MAX_NESTING, kind)))
    with pytest.raises(NestedTooDeep, match="more than 100 levels"):
        parse(nested(MAX_NESTING + 1, kind))


@pytest.mark.parametrize("parse", BOTH)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("levels", DEPTHS)
def test_any_depth_beyond_the_bound_is_a_value_error(parse, kind: str, levels: int) -> None:
    for text in (nested(levels, kind), nested(levels, kind).encode(), f'{{"x": [1, {{"y": {nested(levels, kind)}}}]}}'):
        with pytest.raises(ValueError, match=r"levels|limit"):
            parse(text)


@pytest.mark.parametrize("levels", DEPTHS)
def test_numbers_that_only_python_reads_do_not_bypass_the_bound(levels: int) -> None:
    with pytest.raises(NestedTooDeep):
        loads_python(f'{{"x": NaN, "y": {nested(levels)}}}')


def test_brackets_in_strings_or_side_by_side_do_not_count_as_nesting() -> None:
    assert loads('["' + "[{" * 500 + '"]') == ["[{" * 500]
    assert loads("[" + ",".join(["[{}]"] * 5000) + "]") == [[{}]] * 5000
    assert math.isnan(loads_python("[NaN]")[0])


def test_a_cyclic_or_shared_value_is_walked_quickly() -> None:
    around: list = []
    around.append(around)
    assert too_deep(around)
    twice: list = []
    for _ in range(MAX_NESTING - 1):
        twice = [twice, twice]  # 2^99 ways lead to the innermost
    assert not too_deep(twice) and too_deep([twice])


@pytest.mark.parametrize("parse", BOTH)
def test_refusing_takes_time_in_proportion_to_the_text(parse) -> None:
    texts = (
        nested(500_000, "list").encode(),
        b"[" + b",".join([nested(MAX_NESTING - 1, "list").encode()] * 5_000) + b"]",
        b"[" + b",".join([nested(1_000, "list").encode()] * 500) + b"]",
    )
    for text in texts:  # a megabyte each; what is quadratic would take minutes
        began = time.process_time()
        try:
            parse(text)
        except ValueError:
            pass
        assert time.process_time() - began < 10
