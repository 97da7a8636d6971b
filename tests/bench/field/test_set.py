"""The field set is well-formed: every file names a thread, and its key words accept its own cause and fix alone."""

from collections import Counter

import pytest

from bench.field.answers import Answer, without_echo
from bench.field.cases import HALVES, KINDS, CaseError, cases, file_name, half_of, load
from bench.field.score import matched, score

ALL = cases()
FEWEST, FEWEST_TRAINERS, FEWEST_SHAPES = 120, 14, 12


def test_the_set_covers_many_threads_trainers_kinds_and_shapes():
    assert len(ALL) >= FEWEST
    assert len({case.trainer for case in ALL}) >= FEWEST_TRAINERS
    assert {case.kind for case in ALL} == set(KINDS)
    assert len({case.shape for case in ALL}) >= FEWEST_SHAPES


def test_a_thread_occurs_once():
    assert [ref for ref, count in Counter(case.reference.lower() for case in ALL).items() if count > 1] == []


def test_each_half_has_a_third_of_the_threads_or_more():
    count = Counter(case.half for case in ALL)
    assert all(count[half] >= len(ALL) / 3 for half in HALVES), count


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.reference)
def test_the_key_words_accept_the_cause_and_fix_and_not_the_input(case):
    answer = Answer(readable=True, top=f"{case.cause} {case.fix}")
    assert score(case, answer).outcome == "SOLVED"
    lines = [line for line in case.input.splitlines() if line.strip()]
    for quoted in (case.input, *lines):
        top = without_echo(quoted, case.input)
        assert not matched(case.solved + case.helped, top), top


def test_a_file_in_the_wrong_half_is_refused(tmp_path):
    reference = "huggingface/trl#1"
    wrong = HALVES[1 - HALVES.index(half_of(reference))]
    path = tmp_path / wrong / file_name(reference)
    path.parent.mkdir()
    path.write_text(f'reference = "{reference}"\ntrainer = "TRL"\nkind = "gossip"\n')
    with pytest.raises(CaseError, match=f"belongs to {half_of(reference)}/.*kind 'gossip' is none of crash"):
        load(path)
