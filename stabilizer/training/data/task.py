"""The task `data`: prompts of a data set in a seeded order, epoch after epoch, and held-out problems."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stabilizer.training.data.config import DataConfig
from stabilizer.training.data.order import held_out_hashes, prompt_hash, row_at
from stabilizer.training.data.table import Table, read_table
from stabilizer.training.environments import Environment
from stabilizer.training.environments.search import SearchConfig, environment
from stabilizer.training.tasks import DATA, Problem, Task

Tokenizer = Any
"""A tokenizer of `transformers`, which this module does not import."""


class DataTask(Task):
    """Problems from a data set. The task defines the problems; reward functions score the answers."""

    name = DATA

    def __init__(self, config: DataConfig, tokenizer: Tokenizer):
        table = read_table(config.path, config.split, config.subset)
        self._prompts = Prompts(config, tokenizer)
        self.columns = table.columns
        notes: list[str] = []
        rows = self._usable(table, notes)
        if config.held_out_path or config.held_out_split:
            aside = read_table(
                config.held_out_path or config.path, config.held_out_split or config.split, config.subset
            )
            held = self._usable(aside, notes)
        else:
            chosen = set(held_out_hashes([value for _, value in rows], config.held_out))
            aside, held = table, [(i, value) for i, value in rows if value in chosen]
        first = {value: i for i, value in reversed(held)}
        """The first row of each held-out prompt, in the order of their hashes."""
        self._aside = [(aside, first[value]) for value in sorted(first)]
        self._rows = [(table, i) for i, value in rows if value not in first]
        taken = len(rows) - len(self._rows)
        if not self._rows:
            raise ValueError(f"{table.name}: all {len(rows)} usable rows are held out; lower data.held_out")
        if aside is not table and taken:
            notes.append(f"{taken} of {len(rows)} rows are not trained on, because their prompts are held out")
        again = taken - len(first) if aside is table else 0
        repeats = f", {again} left out because they repeat the prompts of those" if again else ""
        notes.append(f"{len(self._rows)} rows to train on, {len(self._aside)} held out{repeats}")
        self.size = len(self._rows)
        self.notes = (*notes, *self._prompts.notes)

    def problem(self, index: int) -> Problem:
        """The training problem with this number, in the order of the file."""
        return self._problem(index, *self._rows[index])

    def held_out(self, count: int) -> list[Problem]:
        """The first `count` held-out problems, or all there are. Their numbers follow those of training."""
        return [self._problem(self.size + i, *where) for i, where in enumerate(self._aside[:count])]

    def training(self, count: int, *, seed: int, salt: int, cursor: int) -> list[Problem]:
        """Problems `cursor` to `cursor + count` of the stream: every row once per epoch, in an order that differs by
        epoch."""
        return [self.problem(row_at(position, self.size, seed, salt)) for position in range(cursor, cursor + count)]

    def encode(self, problems: Sequence[Problem], tokenizer: Tokenizer) -> list[list[int]]:
        return [self._prompts.encode(problem.prompt) for problem in problems]

    def demonstration(self, problem: Problem, draw: int) -> str:
        column = self._prompts.config.completion_column or self._prompts.config.answer_column
        value = problem.columns.get(column)
        if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
            value = value[0]  # a list of one message
        if isinstance(value, Mapping):
            value = _content(value)
        if value is None or value == "" or isinstance(value, (list, dict)):
            raise ValueError(
                f"column {column!r} (data.completion_column) holds {json.dumps(value, default=str)[:80]} for the prompt"
                f" {problem.prompt[:60]!r}: a demonstration must be text, or one message of the assistant"
            )
        return str(value)

    def environment(self, config: SearchConfig) -> Environment | None:
        return environment(_documents(config.corpus), config) if config.url or config.corpus else None

    def _problem(self, index: int, table: Table, row: int) -> Problem:
        values = table.rows[row]
        answer = self._prompts.config.answer_column
        messages, text = self._prompts.read(table, row)
        return Problem(index, text, values[answer] if answer else "", values, messages)

    def _usable(self, table: Table, notes: list[str]) -> list[tuple[int, int]]:
        """(row, hash of its prompt) of every row whose prompt is not too long. Every row is read once."""
        usable, longest = [], 0
        for i, text in self._prompts.all(table):
            if tokens := self._prompts.too_long(text):
                longest = max(longest, tokens)
            else:
                usable.append((i, prompt_hash(text)))
        limit = self._prompts.config.max_prompt_tokens
        dropped = len(table.rows) - len(usable)
        if dropped:
            notes.append(
                f"{table.name}: {dropped} of {len(table.rows)} rows dropped: prompts longer than"
                f" data.max_prompt_tokens = {limit} (the longest has {longest})"
            )
        if not usable:
            raise ValueError(f"{notes[-1]}; raise the limit")
        return usable


class Prompts:
    """Converts a row to the text that the policy reads, with the tokenizer's chat template for a conversation."""

    def __init__(self, config: DataConfig, tokenizer: Tokenizer):
        self.config = config
        self.notes: list[str] = []
        self._tokenizer = tokenizer
        self._fields = _template_fields(config.template)
        self._is_chat: bool | None = None
        """The kind of prompt in the whole data set; the first row decides."""

    def all(self, table: Table) -> Iterator[tuple[int, str]]:
        """Every row's prompt, checked; ValueError with file and line for the first invalid one."""
        for name in self._fields:
            table.need(name, "data.template")
        if not self.config.template:
            table.need(self.config.prompt_column, "data.template, or data.prompt_column")
        if self.config.answer_column:
            table.need(self.config.answer_column, "data.answer_column ('' when no reward function needs an answer)")
        for i in range(len(table.rows)):
            yield i, self.text(table, i)
        if self._is_chat is False and getattr(self._tokenizer, "chat_template", None) and not self.notes:
            self.notes.append(
                "prompts are plain text, though this tokenizer has a chat template; for a chat model set data.chat=true"
            )

    def text(self, table: Table, i: int) -> str:
        """The text of this row as the policy reads it."""
        return self.read(table, i)[1]

    def read(self, table: Table, i: int) -> tuple[list[dict[str, Any]], str]:
        """The chat messages of this row (none if it is plain text), and its text as the policy reads it."""
        row, where = table.rows[i], table.where(i)
        what = "the template's text" if self.config.template else f"column {self.config.prompt_column!r}"
        prompt = self._prompt(row, where)
        if isinstance(prompt, str):
            if not prompt:
                raise ValueError(f"{where}: {what} is empty")
            messages = [{"role": "user", "content": prompt}] if self.config.chat else None
        else:
            messages = _messages(prompt, where, what)
        if self._is_chat is None:
            self._is_chat = messages is not None
            self._check()
        if self._is_chat != (messages is not None):
            kinds = ("chat messages", "text") if self._is_chat else ("text", "chat messages")
            raise ValueError(f"{where}: {what} holds {kinds[1]}, but {kinds[0]} in the rows before")
        if messages and self.config.system_prompt and messages[0]["role"] != "system":
            messages = [{"role": "system", "content": self.config.system_prompt}, *messages]
        text = prompt if messages is None else self._rendered(messages, self._tools(row, where), where)
        try:
            text.encode()
        except UnicodeEncodeError as error:  # a surrogate without its other half: no tokenizer accepts it
            raise ValueError(f"{where}: {what} is cut in the middle of a character, {text[error.start]!a}") from None
        return messages or [], text

    def _prompt(self, row: Mapping[str, Any], where: str) -> Any:
        """The prompt of a row before any chat template."""
        column = self.config.prompt_column
        missing = [name for name in (*self._fields, self.config.answer_column) if name and name not in row]
        if not self.config.template and column not in row:
            missing.insert(0, column)
        if missing:
            raise ValueError(f"{where}: column {missing[0]!r} is missing; the row has {', '.join(row)}")
        empty = next((name for name in self._fields if row[name] is None), None)
        if empty is not None:
            raise ValueError(f"{where}: column {empty!r} is empty, but data.template uses it")
        return self._filled(row, where) if self.config.template else row[column]

    def encode(self, text: str) -> list[int]:
        """Tokens of a prompt. A chat template writes the special tokens itself; otherwise the tokenizer adds them
        once."""
        ids = list(self._tokenizer(text, add_special_tokens=not self._is_chat)["input_ids"])
        bos, eos = self._tokenizer.bos_token_id, self._tokenizer.eos_token_id
        if bos is not None and ids[:2] == [bos, bos]:
            ids = ids[1:]
        ends = 0 if self._is_chat or ids[-1:] != [eos] else 1 + (ids[-2:] == [eos, eos])
        if ends > text.endswith(self._tokenizer.eos_token):
            ids = ids[:-1]  # the tokenizer ends every text with it, but this text is to be continued
        return ids

    def too_long(self, text: str) -> int:
        """The number of prompt tokens if it exceeds the limit, else 0. Short texts are not tokenized: a token is at
        least a byte."""
        limit = self.config.max_prompt_tokens
        if not limit or len(text.encode("utf-8", "surrogatepass")) + 2 <= limit:
            return 0
        tokens = len(self.encode(text))
        return tokens if tokens > limit else 0

    def _filled(self, row: Mapping[str, Any], where: str) -> str:
        """The template with a row's columns filled in."""
        try:
            return self.config.template.format_map(row)
        except Exception as error:  # many kinds: the text after a colon is interpreted by the value
            raise ValueError(
                f"{where}: data.template can't be filled in: {type(error).__name__}: {error}; use only a column's name,"
                " {name}, or add after a colon a format that fits its values"
            ) from None

    def _check(self) -> None:
        if not self._is_chat and self.config.system_prompt:
            raise ValueError("data.system_prompt needs data.chat=true: plain text has no system message")
        if self._is_chat and not getattr(self._tokenizer, "chat_template", None):
            raise ValueError(
                "the prompts are a chat, but the model's tokenizer has no chat template: use a chat model, put a"
                " chat_template.jinja into its folder, or build plain text from the columns with data.template"
            )

    def _tools(self, row: Mapping[str, Any], where: str) -> list[Any] | None:
        """The tools of a row, as the template gets them."""
        column = self.config.tools_column
        if not column or row.get(column) is None:
            return None
        try:
            tools = json.loads(row[column]) if isinstance(row[column], str) else row[column]
        except ValueError:
            tools = None
        if not isinstance(tools, Sequence) or isinstance(tools, str):
            raise ValueError(f"{where}: column {column!r} (data.tools_column) must hold a list of tools, or its JSON")
        return list(tools)

    def _rendered(self, messages: list[dict[str, Any]], tools: list[Any] | None, where: str) -> str:
        more = dict(self.config.chat_template_kwargs) | ({} if tools is None else {"tools": tools})
        try:
            return str(
                self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **more)
            )
        except Exception as error:  # raised by the template: "roles must alternate", "no system role", ...
            raise ValueError(f"{where}: the chat template rejects it: {error}") from None


def _messages(prompt: Any, where: str, what: str) -> list[dict[str, Any]]:
    """The chat messages of a row, checked."""
    wanted = 'must be text or a list of messages, [{"role": "user", "content": "..."}]'
    if not isinstance(prompt, Sequence) or not prompt:
        raise ValueError(f"{where}: {what} holds {json.dumps(prompt, default=str)[:80]}: {wanted}")
    messages = []
    for message in prompt:
        text = _content(message) if isinstance(message, Mapping) and isinstance(message.get("role"), str) else None
        if text is None:
            raise ValueError(f"{where}: {what} holds a message {json.dumps(message, default=str)[:80]}: {wanted}")
        messages.append({**message, "content": text})
    if prompt[-1]["role"] == "assistant":
        raise ValueError(
            f"{where}: {what} ends with the assistant's message; a prompt must end before it (the answer belongs in"
            " data.answer_column)"
        )
    return messages


def _content(message: Mapping[str, Any]) -> str | None:
    """The text of a message: as it is, from its parts, or empty beside calls of tools; None if it has none.

    Parts are joined because many templates take text only. A part that is no text (an image) has no place in it.
    """
    content = message.get("content")
    if isinstance(content, str):
        return content
    if content is None:
        return "" if message.get("tool_calls") else None
    if not isinstance(content, Sequence):
        return None
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
    return "".join(map(str, texts)) if all(isinstance(text, str) for text in texts) else None


def _documents(path: str) -> list[str]:
    """The contents of a corpus; None if a retriever's address is used instead."""
    if not path:
        return []
    table = read_table(path)
    column = "contents" if "contents" in table.columns else "text"
    if column not in table.columns:
        raise ValueError(f"{table.name}: no column 'contents' or 'text' (there are {', '.join(table.columns)})")
    for i, row in enumerate(table.rows):
        if not isinstance(row.get(column), str):
            raise ValueError(f"{table.where(i)}: {column!r} must be text, because the policy reads it")
    return [row[column] for row in table.rows]


def _template_fields(template: str) -> list[str]:
    """The columns that a template names; ValueError for an invalid template."""
    try:
        fields = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise ValueError(f"data.template: {error}; write a literal brace twice: {{{{ }}}}") from None
    bad = next((name for name in fields if not name or set(name) & set(".[]!:")), None)
    if bad is not None:
        raise ValueError(f"data.template: {{{bad}}} names no column; write a literal brace twice: {{{{ }}}}")
    return fields
