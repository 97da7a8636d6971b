"""A configuration judged for the page: from a text somebody pasted, from a run, or from an example.

The text is all that is read: a configuration that builds on another file gets a note, for a page must not be talked
into reading the server's files. Nothing is written, and no text, however made, is more than an answer in words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboards.data.run_registry import Runs
from stabilizer.configs.config import ConfigError
from stabilizer.configs.reading import parsed
from stabilizer.core.paths import sample_runs
from stabilizer.preflight.check import Options, Preflight, configured, in_text, judge
from stabilizer.preflight.fix import corrected
from stabilizer.runs.reader import read_json
from stabilizer.trainers.configs import TRAINERS

MAX_TEXT = 64 * 1024
"""Characters of a configuration: what is judged must not keep other viewers waiting."""
FORMS: Mapping[str, str] = {"yaml": "YAML", "json": "JSON", "toml": "TOML", "sh": "shell", "py": "Python"}
"""Suffix -> name of the forms a configuration comes in."""
TITLES: Mapping[str, str] = {
    "case-easyr1": "EasyR1, GRPO: flat after 30 steps",
    "case-trl-beta0": "TRL, GRPO without a KL term",
    "case-search-r1": "Search-R1, PPO: all batches halved",
    "case-open-r1": "Open-R1 on seven GPUs",
    "length-vs-published": "TRL's TLDR example on one GPU",
}
"""Sample run -> title of the configuration that lies in its folder."""


@dataclass(frozen=True)
class PreflightInput:
    """The input of the page."""

    text: str
    form: str = ""
    trainer: str = ""
    version: str = ""
    gpus: str = ""
    processes: str = ""
    model_size: str = ""
    prompts: str = ""


@dataclass(frozen=True)
class PreflightAnswer:
    """The findings and the corrected text, or the problem that prevented them."""

    result: Preflight | None = None
    fixed: str = ""
    applied: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    verdict_after: str = ""
    problem: str = ""


def judged(asked: PreflightInput) -> PreflightAnswer:
    """Judge a text. Never raises: problems are returned in words."""
    try:
        return _judged(asked)
    except ConfigError as error:
        return PreflightAnswer(problem=str(error)[:2000])
    except Exception as error:  # a bug of ours is reported, and the page stays up
        return PreflightAnswer(
            problem=f"this could not be judged ({type(error).__name__}); please report it with the text"
        )


def example(name: str) -> PreflightInput | None:
    """The configuration of a sample run, by the name of its folder; None for any other name."""
    file = next((sample_runs() / name).glob("config.*"), None) if name in TITLES else None
    return PreflightInput(file.read_text(encoding="utf-8"), form=file.suffix[1:]) if file else None


def from_run(runs: Runs, id: str) -> PreflightInput | None:
    """The configuration a run was started with, as JSON; None when the run or its configuration is unknown."""
    followed = runs.get(id)
    about = read_json(followed.path / "run.json") if followed else {}
    config = about.get("config")
    if not isinstance(config, dict) or not config:
        return None
    text = json.dumps(config, indent=2, ensure_ascii=False, default=str)
    trainer = about.get("trainer")
    names = {known.name for known in TRAINERS}
    return PreflightInput(text[: MAX_TEXT + 1], form="json", trainer=trainer if trainer in names else "")


def guessed(text: str) -> str:
    """The form a text most likely has, by how it begins."""
    text = text[:20_000]
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith("{"):
        return "json"
    if re.search(r"^[ \t]*(from \w[\w.]* import |import \w|def \w+\(|\w+ = \w*Config\()", text, re.MULTILINE):
        return "py"
    if start.startswith("#!") or re.search(r"(^|\s)(--\w[\w.-]+|python3?|accelerate|torchrun|ray)(\s|=|$)", text):
        return "sh"
    if re.search(r"^\[[\w.\"-]+\]\s*$", text, re.MULTILINE) or re.search(r"^[\w.-]+\s*=\s*\S", text, re.MULTILINE):
        return "toml"
    return "yaml"


def _judged(asked: PreflightInput) -> PreflightAnswer:
    if not asked.text.strip():
        raise ConfigError("paste a configuration, or the script that starts the training")
    if len(asked.text) > MAX_TEXT:
        raise ConfigError(f"the text is longer than {MAX_TEXT // 1024} kB; is this a log? Paste the configuration only")
    if "\0" in asked.text:
        raise ConfigError("the text holds a NUL character, so it is no configuration")
    form = asked.form if asked.form in FORMS else guessed(asked.text)
    options = Options(
        trainer=asked.trainer or None,
        version=asked.version.strip()[:40] or None,
        alone=True,
        gpus=_count("GPUs", asked.gpus),
        processes=_count("processes", asked.processes),
        model_size=_billions(asked.model_size),
        prompts=_count("prompts", asked.prompts),
    )
    fenced = asked.form not in FORMS and "```" in asked.text  # a question in Markdown, with prose besides
    result = judge(
        (in_text(Path("pasted.txt"), asked.text, options) if fenced else None)
        or configured(parsed(Path(f"pasted.{form}"), asked.text, alone=True), options)
    )
    fixed = corrected(result, options)
    return PreflightAnswer(
        result=result,
        fixed=fixed.text if fixed.applied else "",
        applied=tuple(finding.id for finding in fixed.applied),
        left=tuple(finding.id for finding in fixed.left),
        verdict_after=fixed.after.verdict,
    )


def _count(what: str, text: Any) -> int | None:
    words = str(text).strip() if text is not None else ""
    if not words:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", words) or int(words) < 1:
        raise ConfigError(f"{what}: {words[:40]!r} is not a count of 1 or more")
    return int(words)


def _billions(text: str) -> float | None:
    words = text.strip().lower()
    if not words:
        return None
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*([bmk]?)", words)
    if not match or float(match[1]) <= 0:
        raise ConfigError(f"model size: {words[:40]!r} is not a size; write it as 7B, 1.5B or 500M")
    return float(match[1]) * {"b": 1.0, "": 1.0, "m": 1e-3, "k": 1e-6}[match[2]]
