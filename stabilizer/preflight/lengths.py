"""Lengths of a data set against the caps of a configuration: which prompts are cut, left out or refused, in tokens.

Tokens are counted with a tokenizer where one is given, with its chat template around messages. Otherwise they are
estimated from characters.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from stabilizer.configs.config import ConfigError
from stabilizer.preflight.rules.base import Finding, Severity, Sure, found
from stabilizer.runs.reader import read_json
from stabilizer.trainers.quantities import View

ID = "data/lengths"
MOST_ROWS = 50_000
"""Rows that are measured, from the beginning."""
LATIN, OTHER = 4.0, 1.5
"""Characters a token: OpenAI's rule of thumb for English, and about what Qwen's tokenizer makes of Chinese."""
PER_MESSAGE = 5
"""Tokens that a template puts around a message, where none is given (ChatML: two marks, the role, two line ends)."""
SYSTEM = ("system_prompt", "data.system_prompt", "system")
"""Settings that hold the system message of every prompt."""
ROLES = {"human": "user", "gpt": "assistant"}
"""Roles in ShareGPT's form, in the usual words."""
CUT_SHARE = 0.01
"""Share of cut prompts from which it is a warning."""
DROPPED_SHARE = 0.1
"""Share of prompts left out, or of answers that do not fit, from which it is a warning."""
ASKED = ("data.prompt_key", "data.input_key", "input_key", "input-key")
"""Settings that name the column of prompts."""
PROMPTS = ("prompt", "messages", "question", "problem", "input", "query", "instruction", "conversations")
ANSWERS = ("solution", "answer", "response", "completion", "output", "target")
CUT, DROPPED, REFUSED = "cut", "left out", "refused"
LONG: Mapping[str, str] = {
    "trl": CUT, "open-r1": CUT, "llama-factory": CUT, "openrlhf": CUT, "search-r1": CUT,
    "slime": DROPPED, "skyrl": DROPPED, "areal": DROPPED, "roll": DROPPED,
}  # fmt: skip
"""What a trainer does with a prompt above its cap, where no setting decides."""

Tokens = Callable[[Sequence[str]], list[float]]
Messages = list[dict[str, str]]
Template = Callable[[Messages], str]


def check(view: View, data: Path, tokenizer: Path | None = None) -> Iterator[Finding]:
    """Findings about the lengths in a data set. ConfigError says what can't be read."""
    rows = list(islice(rows_of(data), MOST_ROWS))
    tokens = counted_by(tokenizer) if tokenizer else _estimated
    column = _column(view, rows, data)
    template = template_of(tokenizer) if tokenizer else None
    prompts = _lengths([row.get(column) for row in rows], tokens, template, _system(view))
    answers = [text for row in rows if (text := _answer(row, column))]
    how = "" if tokenizer else ", estimated from characters (--tokenizer PATH counts them)"
    yield _spread(view, prompts, f"column {column} of {data.name}", how, bool(tokenizer))
    yield from _too_long(view, prompts, bool(tokenizer))
    yield from _answers(view, np.array(tokens(answers)), bool(tokenizer))


# --- what is read --------------------------------------------------------------------------------------------------


def rows_of(path: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of a file of JSON lines, JSON, CSV or Parquet."""
    if not path.is_file():
        raise ConfigError(f"--data {path}: no such file; give JSON lines, JSON, CSV or Parquet")
    try:
        yield from _READERS.get(path.suffix.lower(), _json_rows)(path)
    except (ValueError, OSError, csv.Error) as error:
        raise ConfigError(f"--data {path}: not readable as {path.suffix[1:] or 'JSON lines'}: {error}") from None


def _json_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        whole = file.read(1) == "["
        file.seek(0)
        found = json.load(file) if whole else (json.loads(line) for line in file if line.strip())
        yield from (row for row in found if isinstance(row, dict))


def _csv_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        yield from csv.DictReader(file)


def _parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise ConfigError(f"--data {path}: Parquet needs pyarrow; pip install 'stabilizer[data]'") from None
    for batch in ParquetFile(path).iter_batches():
        yield from batch.to_pylist()


_READERS = {".csv": _csv_rows, ".parquet": _parquet_rows}


def _column(view: View, rows: Sequence[Mapping[str, Any]], data: Path) -> str:
    """The column of prompts: the one that the configuration names, else one with a usual name."""
    if not rows:
        raise ConfigError(f"--data {data}: no rows in it")
    named = [str(setting.value) for key in ASKED if (setting := view.config.settings.get(key))]
    column = next((name for name in (*named, *PROMPTS) if rows[0].get(name)), None)
    if column is None:
        columns = ", ".join(map(str, list(rows[0])[:8]))
        raise ConfigError(f"--data {data}: no column of prompts among {columns}; usual names are {', '.join(PROMPTS)}")
    return column


def _answer(row: Mapping[str, Any], column: str) -> str:
    return next((row[name] for name in ANSWERS if name != column and isinstance(row.get(name), str)), "")


def _system(view: View) -> str:
    """The system message that the configuration gives to every prompt."""
    return next((str(setting.value) for key in SYSTEM if (setting := view.config.settings.get(key))), "")


def _lengths(prompts: Sequence[Any], tokens: Tokens, template: Template | None, system: str) -> np.ndarray:
    """Tokens of each prompt, text or messages, as the trainer hands it to the model."""
    texts, around = zip(*(_given(prompt, template, system) for prompt in prompts), strict=True)
    return np.asarray(np.array(tokens(texts)) + np.array(around))


def _given(prompt: Any, template: Template | None, system: str) -> tuple[str, int]:
    """The text that the model gets, and the tokens around it that the text lacks."""
    messages = _messages(prompt, system)
    if template and messages:
        return template(messages), 0
    return "\n".join(map(_text, messages)) or _text(prompt), PER_MESSAGE * len(messages)


def _messages(prompt: Any, system: str) -> Messages:
    """The messages of a prompt; none where it is text that goes to the model as it is."""
    if not isinstance(prompt, list) and not system:
        return []
    parts = prompt if isinstance(prompt, list) else [prompt]
    messages = [{"role": _role(part), "content": _text(part)} for part in parts]
    if system and messages and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    return messages


def _role(part: Any) -> str:
    role = part.get("role") or part.get("from") if isinstance(part, dict) else None
    return ROLES.get(str(role), str(role)) if role else "user"


def _text(prompt: Any) -> str:
    if isinstance(prompt, list):
        return "\n".join(_text(part) for part in prompt)
    if isinstance(prompt, dict):
        return _text(prompt.get("content") or prompt.get("value") or prompt.get("text") or "")
    return "" if prompt is None else str(prompt)


# --- tokens --------------------------------------------------------------------------------------------------------


def _estimated(texts: Sequence[str]) -> list[float]:
    plain = [sum(map(str.isascii, text)) for text in texts]
    return [ascii / LATIN + (len(text) - ascii) / OTHER for text, ascii in zip(texts, plain, strict=True)]


def counted_by(path: Path) -> Tokens:
    """Counts with the tokenizer in a folder, or with its tokenizer.json."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(f"--tokenizer {path}: no tokenizer.json there; give the model's folder or that file")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ConfigError(f"--tokenizer {path}: needs the package tokenizers; pip install tokenizers") from None
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the package raises plain exceptions
        raise ConfigError(f"--tokenizer {file}: not a tokenizer: {error}") from None
    return lambda texts: [float(len(one)) for one in tokenizer.encode_batch(list(texts), add_special_tokens=False)]


def template_of(path: Path) -> Template | None:
    """The chat template in a model's folder, which may add a system message of its own; None if there is none."""
    folder = path if path.is_dir() else path.parent
    settings = read_json(folder / "tokenizer_config.json")
    try:
        text = _written(folder, settings.get("chat_template"))
        render = _compiled(text) if text else None
    except Exception as error:  # whatever a model's folder holds
        raise ConfigError(f"--tokenizer {path}: its chat template can't be read: {error}") from None
    if render is None:
        return None
    marks = {key: value for key, value in settings.items() if key.endswith("_token") and isinstance(value, str)}

    def rendered(messages: Messages) -> str:
        try:
            return render(messages=messages, add_generation_prompt=True, **marks)
        except Exception as error:  # a template may raise anything
            raise ConfigError(f"--tokenizer {path}: its chat template refuses a prompt: {error}") from None

    return rendered


def _written(folder: Path, own: Any) -> str:
    """The text of a chat template: a file of its own, or what the tokenizer's settings hold, one or several by name."""
    if (file := folder / "chat_template.jinja").is_file():
        return file.read_text(encoding="utf-8")
    if isinstance(own, list):
        own = {one["name"]: one["template"] for one in own}.get("default")
    return own if isinstance(own, str) else ""


def _compiled(text: str) -> Callable[..., str]:
    """A chat template, in the sandbox of Jinja that transformers uses: it can neither import nor change anything."""
    from jinja2 import TemplateError  # of Flask, which Dash needs
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )

    def refuse(message: str) -> None:
        raise TemplateError(message)

    sandbox.globals |= {"raise_exception": refuse, "strftime_now": time.strftime}
    return sandbox.from_string(text).render


# --- what is found -------------------------------------------------------------------------------------------------


def _spread(view: View, prompts: np.ndarray, where: str, how: str, counted: bool) -> Finding:
    middle, most = np.percentile(prompts, (50, 95))
    summary = (
        f"{len(prompts):,} prompts ({where}): {middle:,.0f} tokens in the median, 95 % up to {most:,.0f}, the longest"
        f" {prompts.max():,.0f}{how}"
    )
    return _found(
        view,
        "info",
        "max_prompt",
        summary,
        "A cap costs memory for every row and a cut costs its prompts.",
        "",
        counted,
    )


def _too_long(view: View, prompts: np.ndarray, counted: bool) -> Iterator[Finding]:
    """Prompts above the cap, by what this trainer does with them."""
    cap = view.number("max_prompt")
    if not cap or not (over := int((prompts > cap).sum())):
        return
    share = over / len(prompts)
    done, by = _done(view)
    severity: Severity = "info"
    if done == REFUSED:
        severity = "critical"
    elif share >= (DROPPED_SHARE if done == DROPPED else CUT_SHARE):
        severity = "warn"
    summary = (
        f"{over:,} of {len(prompts):,} prompts ({share:.1%}) are above {view['max_prompt'].key} = {cap:,.0f} tokens"
        f" and are {done}{by}"
    )
    longest = f"{view['max_prompt'].key} {np.ceil(prompts.max()):,.0f} holds all of them"
    yield _found(
        view, severity, "max_prompt", summary, WHY[done], f"{longest}; or leave long prompts out beforehand", counted
    )


WHY = {
    CUT: "A question that is cut can't be answered, so its rewards teach nothing or teach to guess.",
    DROPPED: "Long prompts are mostly the hard ones, and the run is shorter than planned.",
    REFUSED: "Training stops when the first of them is drawn, perhaps hours after the start.",
}


def _done(view: View) -> tuple[str, str]:
    """What happens to a prompt above the cap, and the setting that decides it."""
    name, ask = view.config.trainer.name, view.ask
    if name in ("verl", "easyr1"):
        if ask.flag("data.filter_overlong_prompts"):
            return DROPPED, " (data.filter_overlong_prompts)"
        way = str(ask.raw("data.truncation") or "error")
        return (REFUSED if way == "error" else CUT), f" (data.truncation is {way})"
    if name == "ms-swift":
        way = str(ask.raw("truncation_strategy") or "left")
        return (DROPPED if way in ("delete", "raise") else CUT), f" (truncation_strategy is {way})"
    return LONG.get(name, CUT), ""


def _answers(view: View, answers: np.ndarray, counted: bool) -> Iterator[Finding]:
    """Reference answers that the cap on answers does not hold."""
    cap = view.number("max_completion")
    if not cap or not len(answers) or not (over := int((answers > cap).sum())):
        return
    share = over / len(answers)
    summary = (
        f"{over:,} of {len(answers):,} reference answers ({share:.1%}) are longer than {view['max_completion'].key} ="
        f" {cap:,.0f} tokens; the longest has {answers.max():,.0f}"
    )
    why = "An answer as long as the reference is cut before its result and earns nothing."
    how = (
        f"{np.ceil(np.percentile(answers, 99)):,.0f} holds 99 % of them; a model that reasons needs several times that"
    )
    yield _found(view, "warn" if share >= DROPPED_SHARE else "info", "max_completion", summary, why, how, counted)


def _found(view: View, severity: Severity, at: str, summary: str, why: str, how: str, counted: bool) -> Finding:
    sure: Sure = "certain" if counted else "likely"
    told = found(view, severity, view[at], summary, why=why, how=how, sure=sure, source="the data given")
    return replace(told, id=ID)
