"""Worked examples of every built-in reward, and texts made to be slow or confusing."""

from __future__ import annotations

import pytest

from stabilizer.training.rewards import boxed
from stabilizer.training.rewards.boxed import boxed_math, last_box, spelling
from stabilizer.training.rewards.text import code_free, exact, format_tags, last_number, length, numeric, regex


@pytest.mark.parametrize(
    ("completion", "answer", "options", "reward"),
    [
        ("Paris", "Paris", {}, 1),
        (" Paris\n", "Paris", {}, 1),
        (" Paris", "Paris", {"strip": False}, 0),
        ("paris", "Paris", {}, 0),
        ("paris", "Paris", {"ignore_case": True}, 1),
        ("STRASSE", "straße", {"ignore_case": True}, 1),  # casefold, not lower
        ("New \n York", "New York", {}, 0),
        ("New \n York", "New York", {"ignore_space": True}, 1),
        ("Paris.", "Paris", {"ignore_punctuation": True}, 1),
        ("cafe\u0301", "caf\u00e9", {}, 1),  # e + combining accent, and the composed letter
        ("<answer> a </answer> <answer>b</answer>", "b", {"within": "answer"}, 1),
        ("b", "b", {"within": "answer"}, 0),
        ("</answer>b<answer>", "b", {"within": "answer"}, 0),
        ("NYC", ["New York", "NYC"], {}, 1),
        ("7", 7, {}, 1),
        ("", "", {}, 1),
        ("anything", None, {}, None),
    ],
)
def test_exact(completion, answer, options, reward):
    assert exact(completion, answer, **options) == reward


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("it is 5.", 5),
        ("#### 1,234.5", 1234.5),
        ("1,000,000 people", 1e6),
        ("1,2,3", 3),  # a list, not thousands
        ("1,234,5", 5),
        ("3/4", 0.75),
        ("10 / 4", 2.5),
        ("50%", 0.5),
        (r"50\%", 0.5),
        ("-3", -3),
        ("\N{MINUS SIGN}3", -3),
        ("5-3", 3),  # a range or a subtraction, no sign
        ("x = -3", -3),
        ("$1,000", 1000),
        ("6.02e23", 6.02e23),
        (".5", 0.5),
        ("2 apples and 3 pears", 3),
    ],
)
def test_the_last_number_of_a_text(text, value):
    assert last_number(text).value == pytest.approx(value)


def test_no_number():
    assert last_number("none at all") is None and last_number("") is None


@pytest.mark.parametrize(
    ("completion", "answer", "options", "reward"),
    [
        ("so 6 x 7 = 42.", "42", {}, 1),
        ("42 or 43", "42", {}, 0),
        ("72", "She sold 48 + 24 = 72 clips.\n#### 72", {}, 1),
        ("0.3333333", "1/3", {}, 1),  # 1/3 - 0.3333333 = 3e-8, relative 1e-7
        ("0.333", "1/3", {}, 0),  # relative 1e-3
        ("0.333", "1/3", {"tolerance": 0.001}, 1),
        ("50", "50%", {}, 1),
        ("0.5", "50%", {}, 1),
        ("50%", "0.5%", {}, 0),
        ("1/0", "0", {}, 0),
        ("1e400", "1e400", {}, 1),  # both beyond floats: still the same
        ("1e400", "5", {}, 0),
        ("no idea", "5", {}, 0),
        ("5", "no number", {}, 0),
        ("<answer>5</answer> 6", 5, {"within": "answer"}, 1),
        ("6", 5, {"within": "answer"}, 0),
        ("8", [7, 8], {}, 1),
        ("5", None, {}, None),
    ],
)
def test_numeric(completion, answer, options, reward):
    assert numeric(completion, answer, **options) == reward


def test_regex():
    assert regex("a\nAnswer: 12", pattern=r"^a.Answer: \d+$") == 1
    assert regex("say Answer: 12", pattern=r"Answer: \d+") == 1
    assert regex("say Answer: 12", pattern=r"Answer: \d+", full=True) == 0
    assert regex("answer: 12", pattern=r"Answer: \d+", ignore_case=True) == 1


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("<think>a</think><answer>b</answer>", 1),
        ("\n<think>a\nb</think>\n\n<answer>b</answer>\n", 1),
        ("<think>a</think> so <answer>b</answer>", 0),
        ("<answer>b</answer><think>a</think>", 0),
        ("<think>a</think><answer>b</answer><answer>c</answer>", 0),
        ("<think>a<think>b</think><answer>c</answer>", 0),
        ("<think>a</think><answer>b", 0),
        ("<think></think><answer>b</answer>", 0),
        ("", 0),
    ],
)
def test_format(completion, reward):
    assert format_tags(completion) == reward


def test_format_with_other_tags():
    assert format_tags("<r>1</r>", tags=["r"]) == 1 and format_tags("<think>1</think>", tags=["r"]) == 0


def test_length_falls_in_a_straight_line():
    # target 20: 1 - |20 - 15| / 20 = 0.75
    assert [length("x" * n, target=20) for n in (0, 15, 20, 25, 40, 99)] == [0, 0.75, 1, 0.75, 0, 0]
    assert length("four words are here", target=4, unit="words") == 1
    with pytest.raises(ValueError, match="characters or words"):
        length("", target=1, unit="tokens")


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("Import duties from China rose; the function f(x) is even.", 1),
        ("Here:\n```python\nprint(1)\n```", 0),
        ("def f(x):\n    return x", 0),
        ("  import numpy", 0),
        ("from the start we import goods", 1),
        ("#include <stdio.h>", 0),
    ],
)
def test_code_free(completion, reward):
    assert code_free(completion) == reward


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"so \boxed{4}", "4"),
        (r"\boxed{1} then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\fbox{3}", "3"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{1", None),
        ("4", None),
    ],
)
def test_the_last_box_has_balanced_braces(text, box):
    assert last_box(text) == box


def test_spelling_drops_what_means_nothing():
    assert spelling(r" $ \left( \dfrac12 \right) . $ ") == r"(\frac{1}{2})"
    assert spelling(r"5\,\text{cm}") == "5cm"


BOXED = [
    (r"\boxed{42}", "42", 1),
    (r"\boxed{42}", r"a long solution: \boxed{42}.", 1),
    (r"\boxed{\dfrac{3}{4}}", r"\frac34", 1),
    (r"\boxed{0.75}", r"\frac{3}{4}", 1),
    (r"\boxed{1,000}", "1000", 1),
    (r"\boxed{43}", "42", 0),
    (r"42", "42", 0),  # not boxed
    (r"\boxed{x+1}", "x+1", 1),
    (r"\boxed{}", "42", 0),
    (r"\boxed{42}", None, None),
]


@pytest.mark.parametrize(("completion", "answer", "reward"), BOXED)
def test_boxed_math_without_math_verify(monkeypatch, completion, answer, reward):
    monkeypatch.setattr(boxed, "has_math_verify", lambda: False)
    assert boxed_math(completion, answer) == reward


@pytest.mark.parametrize(("completion", "answer", "reward"), [*BOXED, (r"\boxed{1+x}", "x+1", 1)])
def test_boxed_math_with_math_verify(completion, answer, reward):
    pytest.importorskip("math_verify", reason="the extra `math` is not installed")
    assert boxed_math(completion, answer) == reward


HOSTILE = {
    "digits": "9" * 10**6,
    "thousands": "1" + ",111" * 250_000 + ",",
    "commas": "1," * 500_000,
    "signs": "-" * 10**6,
    "fractions": "1/" * 500_000,
    "tags": "<think>" * 150_000,
    "boxes": r"\boxed{" * 150_000,
    "braces": "{" * 10**6,
    "lines": " \n" * 500_000,
    "nulls": "\0" * 10**6,
    "surrogates": "\udc80" * 10**6,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_million_hostile_characters_are_worth_nothing(monkeypatch, text):
    # A cost that grew with the square of the length would keep this busy for hours.
    monkeypatch.setattr(boxed, "has_math_verify", lambda: False)
    assert numeric(text, "5") == 0
    assert exact(text, "5", ignore_case=True, ignore_space=True, ignore_punctuation=True, within="a") == 0
    assert format_tags(text) == 0 and boxed_math(text, "5") == 0 and length(text, target=10) == 0
    assert code_free(text) == 1
