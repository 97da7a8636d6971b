"""Markdown and LaTeX of completions: drawn where understood, kept as written otherwise, never anything but text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.components.formatted import drawn
from dashboards.data.markup import KINDS, Node, formatted, plain


def kinds(parts) -> set[str]:
    return {kind for part in parts if isinstance(part, Node) for kind in ({part.kind} | kinds(part.parts))}


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("**so** it is", "bold", "so it is"),
        ("# Step 1", "heading", "Step 1"),
        ("- first", "item", "• first"),
        ("2) second", "item", "2) second"),
        ("```python\nx = 1\n```", "block", "x = 1"),
        ("```\ncut in the mid", "block", "cut in the mid"),
        (r"is $x \times 3$", "above", ""),
        (r"$x^{2}$", "above", "x2"),
        (r"\( a_1 \leq \pi \)", "below", " a1 ≤ π "),
        (r"\[ \frac{1}{2} \]", "fraction", " 12 "),
        (r"so \boxed{\sqrt{16}} it is", "boxed", "so 16 it is"),
    ],
)
def test_what_models_write_is_understood(text: str, kind: str, words: str) -> None:
    found = formatted(text)
    if words:
        assert kind in kinds(found) and plain(found) == words
    else:
        assert plain(found) == "is x × 3"


@pytest.mark.parametrize("text", ["it costs $5 or $6", "3 * 4 * 5", "a_b_c", "\\unknown", "$$", "\\["])
def test_what_is_no_markup_stays_as_written(text: str) -> None:
    assert plain(formatted(text)) == text and kinds(formatted(text)) <= {"paragraph"}


@given(st.text(alphabet='a1 \n$\\{}[]()^_*`#-<>"&', max_size=300) | st.text(max_size=200))
def test_any_text_becomes_a_tree_of_known_kinds(text: str) -> None:
    found = formatted(text)
    assert kinds(found) <= set(KINDS)
    assert set(plain(found)) >= {letter for letter in text if letter in "1"}


@pytest.mark.parametrize(
    "piece", ["$", "**", "\\boxed{", "\\[", "`a", "$a ", "*a ", "\\(a", "{", "- ", "```\n", "\\frac"]
)
def test_hostile_markup_costs_little(piece: str) -> None:
    began = time.process_time()
    formatted(piece * (20_000 // len(piece)))
    assert time.process_time() - began < 1.0


def test_markup_of_html_and_hidden_characters_is_text() -> None:
    text = str(drawn("**<img src=x onerror=1>** \u202e[a](javascript:alert(1))"))
    assert "Img(" not in text and "A(" not in text and "\u202e" not in text and "⟨RLO⟩" in text
