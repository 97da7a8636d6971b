"""Markdown and LaTeX of a completion as a small tree that a page can draw.

A model writes both for readers, and half of what it writes is broken or cut. So nothing is rejected: what is not
understood stays as it was written. The tree holds text and the kinds of `KINDS`, and nothing else: no link, no image,
no HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

KINDS = (
    "paragraph", "heading", "item", "block", "code", "bold", "italic",
    "display", "math", "fraction", "part", "root", "boxed", "above", "below", "word",
)  # fmt: skip
MOST = 20_000
"""Characters that are formatted; the rest follows as it was written."""
DEPTH = 12
"""Groups inside of one another in a formula; deeper ones stay as they were written."""


class Node(NamedTuple):
    """A part of the tree: its kind, and what is in it."""

    kind: str
    parts: tuple[Node | str, ...]


_FENCE = re.compile(r"\s{0,3}(?:```|~~~)")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(.*)")
_ITEM = re.compile(r"(\s{0,12})([-*+]|\d{1,3}[.)])\s+(.*)")
_DISPLAY = re.compile(r"\$\$([^$]{1,4000})\$\$|\\\[((?:[^\\]|\\(?![\[\]])){1,4000})\\\]")
"""No pattern here looks past the next opening mark, so that the time grows with the length of a text alone."""
_INLINE = re.compile(
    r"`([^`\n]{1,400})`"
    r"|\\\(((?:[^\\]|\\(?![()])){1,2000})\\\)"
    r"|(?<![\\\w$])\$(?=[^\s$])([^$\n]{1,400}?)(?<=\S)\$(?![\w$])"
    r"|(\\boxed\{[^\n]{0,400})"
    r"|\*\*(?=\S)([^*\n]{1,400}?)\*\*"
    r"|(?<![*\w])\*(?=[^\s*])([^*\n]{1,400}?)\*(?![*\w])"
)


def formatted(text: str) -> tuple[Node | str, ...]:
    """The tree of a text."""
    found: list[Node | str] = []
    place = 0
    head = text[:MOST]
    for match in _DISPLAY.finditer(head):
        found += _blocks(head[place : match.start()])
        found.append(Node("display", formula(match[1] or match[2] or "")))
        place = match.end()
    found += _blocks(head[place:])
    return (*found, text[MOST:]) if len(text) > MOST else tuple(found)


def _blocks(text: str) -> Iterator[Node]:
    """The lines of a text, by what they begin with; lines of prose that follow one another are one paragraph."""
    prose: list[str] = []
    lines = iter(text.split("\n"))
    for line in lines:
        special = _fenced(line, lines) or _heading(line) or _item(line)
        if special is None and line.strip():
            prose.append(line)
            continue
        if prose:
            yield Node("paragraph", inline("\n".join(prose)))
            prose = []
        if special is not None:
            yield special
    if prose:
        yield Node("paragraph", inline("\n".join(prose)))


def _fenced(line: str, lines: Iterator[str]) -> Node | None:
    """A block of code up to its closing fence, or to the end of a text that was cut."""
    if not _FENCE.match(line):
        return None
    inside: list[str] = []
    for next_line in lines:
        if _FENCE.match(next_line):
            break
        inside.append(next_line)
    return Node("block", ("\n".join(inside),))


def _heading(line: str) -> Node | None:
    match = _HEADING.match(line)
    return Node("heading", inline(match[1])) if match else None


def _item(line: str) -> Node | None:
    match = _ITEM.match(line)
    if match is None:
        return None
    mark = "•" if match[2] in "-*+" else match[2]
    return Node("item", (f"{match[1]}{mark} ", *inline(match[3])))


def inline(text: str) -> tuple[Node | str, ...]:
    """Code, formulas, bold and italic words of a line."""
    found: list[Node | str] = []
    place = 0
    while match := _INLINE.search(text, place):
        found.append(text[place : match.start()])
        code, round_, dollar, boxed, bold, italic = match.groups()
        place = match.end()
        if code is not None:
            found.append(Node("code", (code,)))
        elif boxed is not None:
            node, used = _Formula(boxed).one_command()
            found.append(Node("math", (node,)))
            place = match.start() + used
        elif bold is not None:
            found.append(Node("bold", inline(bold)))
        elif italic is not None:
            found.append(Node("italic", (italic,)))
        else:
            found.append(Node("math", formula(round_ or dollar)))
    return tuple(part for part in (*found, text[place:]) if part)


# --- formulas ---------------------------------------------------------------------------------------------------------

_SYMBOLS = {
    **dict(zip(
        "alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi "
        "varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega".split(),
        "α β γ δ ε ε ζ η θ ι κ λ μ ν ξ π ρ σ τ φ φ χ ψ ω Γ Δ Θ Λ Ξ Π Σ Φ Ψ Ω".split(),
        strict=True,
    )),
    **dict(zip(
        "times cdot div pm mp le leq ge geq ne neq approx equiv sim in notin subset subseteq cup cap infty sum prod "
        "int to rightarrow Rightarrow implies leftarrow iff forall exists partial nabla ldots cdots dots circ degree "
        "angle mid parallel perp therefore because lfloor rfloor lceil rceil langle rangle".split(),
        "× · ÷ ± ∓ ≤ ≤ ≥ ≥ ≠ ≠ ≈ ≡ ∼ ∈ ∉ ⊂ ⊆ ∪ ∩ ∞ ∑ ∏ ∫ → → ⇒ ⇒ ← ⇔ ∀ ∃ ∂ ∇ … ⋯ … ∘ ° ∠ ∣ ∥ ⊥ ∴ ∵ ⌊ ⌋ ⌈ ⌉ ⟨ ⟩".split(),
        strict=True,
    )),
}  # fmt: skip
_BLANK = {"quad": "  ", "qquad": "    ", ",": " ", ";": " ", ":": " ", "!": "", " ": " ", "\\": "\n"}
_DROPPED = frozenset({"left", "right", "big", "Big", "bigg", "Bigg", "displaystyle", "limits", "nolimits"})
_WORDS = frozenset({"text", "mathrm", "textbf", "mathbf", "mathit", "operatorname", "mbox", "textit", "mathbb"})
_TOKEN = re.compile(r"\\([A-Za-z]+|.)|([{}^_])|([^\\{}^_]+)", re.S)


def formula(text: str) -> tuple[Node | str, ...]:
    """The tree of a formula; the text itself where it is nested too deep."""
    try:
        return _Formula(text).all()
    except _TooDeep:
        return (text,)


class _TooDeep(Exception):
    """A formula with more groups inside of one another than `DEPTH`."""


class _Formula:
    """Reads a formula from left to right."""

    def __init__(self, text: str):
        self._text, self._place, self._depth = text, 0, 0

    def all(self) -> tuple[Node | str, ...]:
        """Everything, also what follows a brace too many."""
        found = [*self._sequence()]
        while self._place < len(self._text):
            found += ["}", *self._sequence()]
        return tuple(found)

    def one_command(self) -> tuple[Node | str, int]:
        """The first command with its argument, and the characters it takes."""
        try:
            found = self._next()
        except _TooDeep:
            found, self._place = self._text, len(self._text)
        return found if found is not None else "", self._place

    def _sequence(self) -> list[Node | str]:
        found: list[Node | str] = []
        while (part := self._next()) is not None:
            found.append(part)
        return found

    def _next(self) -> Node | str | None:
        """The next part; None at the end and behind a closing brace."""
        match = _TOKEN.match(self._text, self._place)
        if match is None:  # a lonely backslash at the end
            rest, self._place = self._text[self._place :], len(self._text)
            return rest or None
        self._place = match.end()
        command, mark, plain = match.groups()
        if command is not None:
            return self._command(command, match[0])
        if mark is None:
            return str(plain)
        if mark == "{":
            return Node("part", self._group())
        return None if mark == "}" else Node("above" if mark == "^" else "below", (self._argument(),))

    def _command(self, name: str, written: str) -> Node | str:
        if name in ("frac", "dfrac", "tfrac"):
            return Node("fraction", (Node("part", (self._argument(),)), Node("part", (self._argument(),))))
        if name in ("sqrt", "boxed"):
            return Node("root" if name == "sqrt" else "boxed", (self._argument(),))
        if name in _WORDS:
            return Node("word", (self._argument(),))
        if name in _DROPPED:
            return ""
        return _SYMBOLS.get(name) or _BLANK.get(name, name if not name.isalpha() else written)

    def _group(self) -> tuple[Node | str, ...]:
        self._depth += 1
        if self._depth > DEPTH:
            raise _TooDeep
        found = self._sequence()
        self._depth -= 1
        return tuple(found)

    def _argument(self) -> Node | str:
        """A group, a command, or one character."""
        while self._text[self._place : self._place + 1] == " ":
            self._place += 1
        first = self._text[self._place : self._place + 1]
        if first in ("{", "\\"):
            return self._next() or ""
        self._place += len(first)
        return first


def plain(parts: Sequence[Node | str]) -> str:
    """The text of a tree without its form."""
    return "".join(part if isinstance(part, str) else plain(part.parts) for part in parts)
