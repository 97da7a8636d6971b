"""Ranking by worked numbers."""

import math

import pytest

from stabilizer.training.environments.bm25 import Bm25, words

DOCUMENTS = ["red fox", "red red hen", "blue cat sat down"]
# n = 3, lengths 2, 3, 4, mean 3. With k1 = 1.2 and b = 0.75 the term k1 * (1 - b + b * len / mean) is
#   1.2 * (0.25 + 0.75 * 2/3) = 0.9      1.2 * (0.25 + 0.75) = 1.2      1.2 * (0.25 + 0.75 * 4/3) = 1.5
# idf(red), in 2 of 3:  ln(1 + 1.5 / 2.5) = ln 1.6      idf of a word in 1 of 3:  ln(1 + 2.5 / 1.5) = ln(8 / 3)
RED_FOX = math.log(1.6) * 2.2 / (1 + 0.9)
RED_RED_HEN = math.log(1.6) * 2 * 2.2 / (2 + 1.2)
FOX = math.log(8 / 3) * 2.2 / (1 + 0.9)
SAT = math.log(8 / 3) * 2.2 / (1 + 1.5)


def test_scores_are_those_of_the_formula():
    index = Bm25(DOCUMENTS)
    assert [(hit.contents, hit.score) for hit in index.hits("red", 3)] == [
        ("red red hen", pytest.approx(RED_RED_HEN)),
        ("red fox", pytest.approx(RED_FOX)),
    ]
    assert [hit.score for hit in index.hits("red fox", 3)] == pytest.approx([RED_FOX + FOX, RED_RED_HEN])
    assert index.hits("sat", 1)[0].score == pytest.approx(SAT)


def test_a_rare_word_weighs_more_than_a_common_one():
    assert Bm25(DOCUMENTS).retrieve(["hen red", "fox red"], 1) == [["red red hen"], ["red fox"]]


def test_without_length_normalisation_only_occurrences_count():
    hits = Bm25(["red", "red and a lot more"], b=0.0).hits("red", 2)
    assert hits[0].score == hits[1].score
    assert [hit.contents for hit in hits] == ["red", "red and a lot more"]  # of equals the earlier one


def test_a_word_of_every_document_still_counts_for_them():
    assert all(hit.score > 0 for hit in Bm25(["red fox", "red hen"]).hits("red", 2))


@pytest.mark.parametrize("query", ["", "?!", "zebra"])
def test_nothing_in_common_finds_nothing(query):
    assert Bm25(DOCUMENTS).retrieve([query], 3) == [[]]


def test_an_empty_corpus_finds_nothing():
    assert Bm25([]).retrieve(["red"], 3) == [[]]


def test_case_and_punctuation_do_not_matter():
    assert words("Red, FOX-hole 47!") == ["red", "fox", "hole", "47"]
    assert Bm25(DOCUMENTS).retrieve(["RED-fox?"], 1) == [["red fox"]]


def test_a_word_said_twice_counts_twice():
    index = Bm25(DOCUMENTS)
    assert index.hits("fox fox", 1)[0].score == pytest.approx(2 * index.hits("fox", 1)[0].score)
