r"""Mathematics in `\boxed{…}`: compared by `math-verify` if it is installed, otherwise by spelling."""

from __future__ import annotations

import functools
import re
from importlib.util import find_spec
from typing import Any

from stabilizer.training.rewards.text import last_number


def boxed_math(completion: str, answer: Any) -> float | None:
    r"""1 if the last `\boxed{…}` of the completion equals the answer; 0 if it does not, or there is none.

    The answer may be plain, LaTeX, or a whole solution with its own box. With `math-verify` (the extra `math`) equal
    means mathematically equal: 1/2, 0.5 and \frac{2}{4} agree. Without it, spellings agree if they differ only in white
    space, `$`, \dfrac, \left, \text and the like, or are the same number or fraction.
    """
    if answer is None:
        return None
    given = last_box(completion)
    if given is None:
        return 0.0
    wanted = last_box(str(answer)) or str(answer)
    if spelling(given) == spelling(wanted):
        return 1.0
    if has_math_verify():
        return float(_equal(wanted, given))
    given_number, wanted_number = _number(spelling(given)), _number(spelling(wanted))
    if given_number is None or wanted_number is None:
        return 0.0
    return float(abs(given_number - wanted_number) <= 1e-6 * abs(wanted_number))


@functools.cache
def has_math_verify() -> bool:
    """Whether equality can be decided mathematically."""
    return find_spec("math_verify") is not None


def _equal(wanted: str, given: str) -> bool:
    from math_verify import parse, verify

    return bool(verify(parse(f"${wanted}$"), parse(f"${given}$")))


def last_box(text: str) -> str | None:
    r"""The content of the last `\boxed{…}` or `\fbox{…}`, with balanced braces; None without a closed one."""
    start = max(text.rfind(r"\boxed{"), text.rfind(r"\fbox{"))
    if start < 0:
        return None
    start = text.index("{", start) + 1
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace[0] == "{" else -1 if brace[0] == "}" else 0
        if depth == 0:
            return text[start : brace.start()]
    return None


_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped brace is text


def spelling(text: str) -> str:
    """LaTeX without the parts that do not change its meaning."""
    for old, new in (("\\left", ""), ("\\right", ""), ("dfrac", "frac"), ("tfrac", "frac"), ("^\\circ", ""), ("$", "")):
        text = text.replace(old, new)
    text = re.sub(r"\\(?:text|mathrm|mbox|textbf)\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\\[,;:! ]|\\quad|\s", "", text)
    text = re.sub(r"\\frac(\d)(\d)(?!\d)", r"\\frac{\1}{\2}", text)
    return text.rstrip(".").replace("\\%", "%")


def _number(text: str) -> float | None:
    """The value of a text that consists only of a number or of a fraction of two numbers."""
    text = re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"\1/\2", text)
    if not re.fullmatch(r"[-+]?[\d.,]+(?:/\d+)?%?", text):
        return None
    number = last_number(text)
    return None if number is None else number.value
