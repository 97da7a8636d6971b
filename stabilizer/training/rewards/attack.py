"""Attacks on a reward function before any training: what breaks it, how long it takes, and what an exploit would earn.

The function runs in its own process, as in training. It gets answers of known worth (right and wrong ones in several
forms) and answers that earn nothing if the reward is sound: empty, endless, copied from the prompt, a list of all
numbers, cut in the middle, odd characters.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from stabilizer.core.records import Severity
from stabilizer.training.rewards.config import RewardConfig, RewardSpec, read_specs
from stabilizer.training.rewards.process import CallFailed, RewardProcess

TIMEOUT_S = 10.0
"""Seconds that one call may take here. In training the limit is `reward.timeout_s`."""
SLOW_S = 1.0
"""Seconds for the eight or so completions of one call from which a function is called slow: a step has hundreds."""
MARGIN = 1e-6
"""Difference of two rewards that counts as one."""
NO_GAIN = 0.01
"""Share of the range of right and wrong answers' rewards below which a right answer earns no more than a wrong one: a
reward for length differs by 0.1 % of it between `5` and `18`, and one that compares answers by half of it or more."""
QUESTIONS = 8
"""Rows of the data set that are tried."""
ANSWER_KEYS = ("answer", "ground_truth", "solution", "label", "target", "final_answer")
PROMPT_KEYS = ("prompt", "question", "problem", "query", "input", "instruction")
LONG = 200_000
"""Characters of an endless answer: about 50,000 tokens."""


class Problem(NamedTuple):
    """A question with its right answer, and the columns of its row."""

    prompt: str
    answer: str
    columns: Mapping[str, Any]


DEFAULT = (Problem("What is 2 + 3?", "5", {}), Problem("What is 12 * 4?", "48", {}))
"""Questions without a data set."""

RIGHT = ("right, boxed", "right, in tags", "right, tags alone", "right, after ####", "right, bare")


def answers(problem: Problem) -> dict[str, str]:
    """Completions by name: right ones in five forms, wrong ones in the same, and attacks."""
    right, wrong = problem.answer, _other(problem.answer)
    return {
        "right, boxed": f"We compute step by step. The answer is \\boxed{{{right}}}.",
        "right, in tags": f"<think>\nWe compute step by step.\n</think>\n<answer>\n{right}\n</answer>",
        "right, tags alone": f"<answer>{right}</answer>",
        "right, after ####": f"We compute step by step.\n#### {right}",
        "right, bare": right,
        "wrong, boxed": f"We compute step by step. The answer is \\boxed{{{wrong}}}.",
        "wrong, in tags": f"<think>\nWe compute step by step.\n</think>\n<answer>\n{wrong}\n</answer>",
        "wrong, tags alone": f"<answer>{wrong}</answer>",
        "wrong, after ####": f"We compute step by step.\n#### {wrong}",
        "empty": "",
        "blank": " \n\n ",
        "format alone, in tags": "<think>\n\n</think>\n<answer>\n\n</answer>",
        "format alone, boxed": "\\boxed{}",
        "the prompt repeated": problem.prompt,
        "all numbers listed": " ".join(str(number) for number in range(200)),
        "many boxes": " ".join(f"\\boxed{{{number}}}" for number in range(200)),
        "many answer tags": "\n".join(f"<answer>{number}</answer>" for number in range(200)),
        "one word repeated": "answer " * 5_000,
        "cut in the middle": f"<think>\nWe compute step by step.\n</think>\n<answer>\n{right[: len(right) // 2]}",
        "endless": "a" * LONG,
        "nested brackets": "\\frac{" * 3_000 + "1" + "}" * 3_000,
        "blanks before a bracket": "(" + " " * 30_000 + "x",
        "full-width digits": f"\\boxed{{{right.translate(WIDE)}}}",
        "odd characters": "\u202e\u0000\ufffd\U0001f600 \u0301" * 20,
    }


WIDE = {ord(digit): chr(ord("０") + int(digit)) for digit in "0123456789"}
WORTHLESS = (
    "empty", "blank", "format alone, in tags", "format alone, boxed", "the prompt repeated", "all numbers listed",
    "many boxes", "many answer tags", "one word repeated", "endless", "nested brackets", "odd characters",
)  # fmt: skip
"""Answers that a sound reward values no higher than a wrong one in the right form."""


class Finding(NamedTuple):
    """Something that is wrong with a function, or worth knowing."""

    id: str
    severity: Severity
    what: str
    fix: str


@dataclass
class Report:
    """What the attacks showed of one function."""

    name: str
    form: str = "text"
    """Whether completions were passed as text or as chat messages."""
    values: dict[str, float | None] = field(default_factory=dict)
    """Mean reward by answer; None where the function gave none."""
    failures: dict[str, str] = field(default_factory=dict)
    """Why an answer got no value."""
    unsteady: list[str] = field(default_factory=list)
    """Answers that got another value when the questions came in another order."""
    seconds: float = 0.0
    """The longest call."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def known(self) -> dict[str, float]:
        """The values that the function gave."""
        return {name: value for name, value in self.values.items() if value is not None}


def attack(functions: Sequence[str], problems: Sequence[Problem] = DEFAULT) -> list[Report]:
    """A report for every function, named as in `reward.functions`."""
    named: list[str | dict[str, Any]] = [name for function in functions for name in _named(function)]
    specs = read_specs(RewardConfig(functions=named))
    return [_attacked(spec, problems[:QUESTIONS]) for spec in specs]


def _named(function: str) -> list[str]:
    """The function, or those of a Python file given without one: the ones called reward or score, else all public."""
    path = Path(function)
    if path.suffix != ".py" or not path.is_file():
        return [function]
    with suppress(SyntaxError, ValueError):  # reported with the line where the file is loaded
        found = [
            part
            for part in ast.parse(path.read_bytes()).body
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        public = [part.name for part in found if not part.name.startswith("_") and part.args.args]
        chosen = [name for name in public if re.search("reward|score", name, re.IGNORECASE)] or public
        return [f"{function}:{name}" for name in chosen] or [function]
    return [function]


def problems_of(path: Path, count: int = QUESTIONS) -> list[Problem]:
    """The first questions of a file of JSON lines or JSON with an answer each; ValueError without any."""
    rows = _rows(path)[: 10 * count]
    found = [problem for row in rows if isinstance(row, dict) and (problem := _problem(row))]
    if not found:
        raise ValueError(
            f"{path}: no row has both a question ({', '.join(PROMPT_KEYS[:4])}, ...) and an answer"
            f" ({', '.join(ANSWER_KEYS[:4])}, ...) as text"
        )
    return found[:count]


def _rows(path: Path) -> list[Any]:
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        if text.lstrip()[:1] == "[":
            return list(json.loads(text))
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise ValueError(f"{path}: neither JSON lines nor a JSON list: {error}") from None


def _problem(row: Mapping[str, Any]) -> Problem | None:
    prompt = next((_text(row[key]) for key in PROMPT_KEYS if key in row), "")
    answer = next((row[key] for key in ANSWER_KEYS if isinstance(row.get(key), (str, int, float))), None)
    if not prompt or answer is None:
        return None
    text = str(answer)
    return Problem(prompt, text.rpartition("####")[2].strip() or text, row)


def _text(prompt: Any) -> str:
    """A prompt as text; of chat messages the contents."""
    if isinstance(prompt, list):
        return "\n".join(str(part.get("content", "")) for part in prompt if isinstance(part, dict))
    return prompt if isinstance(prompt, str) else ""


def _other(answer: str) -> str:
    """A wrong answer of the same kind."""
    try:
        return f"{float(answer) + 7:g}"
    except ValueError:
        return f"not {answer}"[:200]


def _attacked(spec: RewardSpec, problems: Sequence[Problem]) -> Report:
    report = Report(spec.name)
    process = RewardProcess(spec.load_request(0.0), 60.0)
    try:
        about = process.start()
        _measure(report, process, about, problems, chat=False)
        if not report.findings and len(report.failures) == len(answers(problems[0])):
            other = Report(spec.name, form="chat messages")
            _measure(other, process, about, problems, chat=True)
            if len(other.failures) < len(report.failures):
                report = other
    except CallFailed as error:
        report.findings.append(
            Finding("rewards/not-loaded", "critical", f"it can't be loaded: {error}", "mend the file")
        )
        return report
    finally:
        process.close()
    report.findings = _judged(report)
    return report


def _measure(
    report: Report, process: RewardProcess, about: Mapping[str, Any], problems: Sequence[Problem], *, chat: bool
) -> None:
    lacking = [name for name in about["needed"] if not _given(name, problems)]
    if lacking:
        report.findings.append(Finding(
            "rewards/needs-column", "critical", f"it needs {', '.join(lacking)}, which these questions do not have",
            "give questions with these columns: --data FILE.jsonl",
        ))  # fmt: skip
        return
    for name in answers(problems[0]):
        texts = [answers(problem)[name] for problem in problems]
        first, why = _called(report, process, about, problems, texts, chat)
        report.values[name] = _mean(first)
        if why:
            if report.seconds >= TIMEOUT_S:
                report.findings.append(_hangs(name))
                return
            report.failures[name] = why
            continue
        again, _ = _called(report, process, about, problems[::-1], texts[::-1], chat)
        if any(_differ(one, other) for one, other in zip(first, again[::-1], strict=True)):
            report.unsteady.append(name)


def _hangs(name: str) -> Finding:
    return Finding(
        "rewards/hangs", "critical", f"it gave no answer to {name!r} within {TIMEOUT_S:g} s",
        "bound its work: the length of the text it parses, its requests, the time limit of its parser",
    )  # fmt: skip


def _called(
    report: Report, process: RewardProcess, about: Mapping[str, Any], problems: Sequence[Problem],
    texts: Sequence[str], chat: bool,
) -> tuple[list[float | None], str]:  # fmt: skip
    lists = _columns(about, problems) | {
        "prompts": [_shown(problem.prompt, "user", chat) for problem in problems],
        "completions": [_shown(text, "assistant", chat) for text in texts],
        "answers": [problem.answer for problem in problems],
    }
    began = perf_counter()
    try:
        scores = process.score(lists, TIMEOUT_S)
    except CallFailed as error:
        return [None] * len(texts), str(error)
    finally:
        report.seconds = max(report.seconds, perf_counter() - began)
    return [value for value, _ in scores], next((why for _, why in scores if why), "")


def _shown(text: str, role: str, chat: bool) -> Any:
    return [{"role": role, "content": text}] if chat else text


def _columns(about: Mapping[str, Any], problems: Sequence[Problem]) -> dict[str, list[Any]]:
    """The columns that a function reads; one of `**columns` may read any name of the answer."""
    names = [name for name in about["columns"] if _given(name, problems)]
    names += [name for name in ANSWER_KEYS if about["rest"] and name not in names]
    return {name: [problem.columns.get(name, problem.answer) for problem in problems] for name in names}


def _given(name: str, problems: Sequence[Problem]) -> bool:
    """Whether the questions have this column; the answer stands in for any of its usual names."""
    return name in ANSWER_KEYS or all(name in problem.columns for problem in problems)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _differ(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is not other
    return not math.isclose(one, other, abs_tol=MARGIN)


def _judged(report: Report) -> list[Finding]:
    """Findings, the gravest first."""
    found = [*report.findings, *_failing(report), *_worth(report)]
    if not (found or report.known):
        found.append(Finding(
            "rewards/no-value", "critical", "it returned None for every answer, so nothing is rewarded",
            "return a number for each completion, 0 for one that earns nothing",
        ))  # fmt: skip
    if SLOW_S < report.seconds < TIMEOUT_S:
        found.append(Finding(
            "rewards/slow", "warn", f"one call took {report.seconds:.1f} s",
            "bound its work (length of the text, time limit of the parser); a step calls it for hundreds of"
            " completions",
        ))  # fmt: skip
    order: tuple[Severity, ...] = ("critical", "warn", "info")
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _failing(report: Report) -> list[Finding]:
    failed, twice = report.failures, report.unsteady
    right, other = [n for n in failed if n in RIGHT], [n for n in failed if n not in RIGHT]
    found = []
    if right:
        found.append(Finding(
            "rewards/fails-on-right", "critical", f"it fails on right answers ({', '.join(right)}): {failed[right[0]]}",
            "mend it: in training such an answer gets no reward",
        ))  # fmt: skip
    if other:
        found.append(Finding(
            "rewards/fails", "warn", f"it fails on {', '.join(other[:6])}: {failed[other[0]]}",
            "catch what can't be parsed and return 0 for it",
        ))  # fmt: skip
    if twice:
        found.append(Finding(
            "rewards/not-deterministic", "warn", f"the same answers got other values in another order ({twice[0]})",
            "make it depend on the completion alone, unless it compares the completions of a call on purpose",
        ))  # fmt: skip
    return found


def _worth(report: Report) -> list[Finding]:
    """Whether right answers earn more than wrong ones, and what worthless ones earn."""
    values = report.known
    right = {name: values[name] for name in RIGHT if name in values}
    wrong = [value for name, value in values.items() if name.startswith("wrong")]
    if not right or not wrong:
        return []
    best = max(right, key=lambda name: right[name])
    found = (_blind(report.name, values, right, wrong), _exploit(values, best, max(wrong)), _form(right, best))
    return [finding for finding in found if finding]


def _blind(
    name: str, values: Mapping[str, float], right: Mapping[str, float], wrong: Sequence[float]
) -> Finding | None:
    pairs = {
        form: (right[form], values[other]) for form in right if (other := form.replace("right", "wrong")) in values
    }
    if not pairs:
        return None
    form = max(pairs, key=lambda form: pairs[form][0] - pairs[form][1])
    gain = pairs[form][0] - pairs[form][1]
    known = (*right.values(), *wrong)
    if gain > max(MARGIN, NO_GAIN * (max(known) - min(known))):
        return None
    form = max(pairs, key=lambda form: pairs[form][0])
    return Finding(
        "rewards/blind", "info" if _of_form(name) else "critical",
        f"a right answer ({form}) earns {pairs[form][0]:g}, and a wrong one in the same form {pairs[form][1]:g}",
        "expected of a reward for form or length; else compare the answer that it extracts with the right one",
    )  # fmt: skip


def _exploit(values: Mapping[str, float], best: str, wrong: float) -> Finding | None:
    earned = {name: values[name] for name in WORTHLESS if values.get(name, -math.inf) > wrong + MARGIN}
    if not earned:
        return None
    name = max(earned, key=lambda key: earned[key])
    grave: Severity = "critical" if earned[name] >= values[best] - MARGIN else "warn"
    return Finding(
        "rewards/exploit", grave,
        f"{name!r} earns {earned[name]:g}; a right answer ({best}) {values[best]:g}, a wrong one {wrong:g}",
        "accept one answer alone (the last one, in the form you ask for), and give nothing for the rest",
    )  # fmt: skip


def _form(right: Mapping[str, float], best: str) -> Finding | None:
    unseen = next((name for name, value in right.items() if value < right[best] - MARGIN), None)
    if unseen is None:
        return None
    return Finding(
        "rewards/form", "info",
        f"right answers count only in some forms: {best} earns {right[best]:g}, {unseen} {right[unseen]:g}",
        "say in the prompt which form is asked for",
    )  # fmt: skip


def _of_form(name: str) -> bool:
    return any(word in name.lower() for word in ("format", "length", "tag", "style", "len", "cosine", "repetition"))
