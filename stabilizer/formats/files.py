"""Reads files of other programs as JSON types. Every fault of a file becomes a message, never a traceback."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stabilizer.configs import bounds
from stabilizer.configs.bounds import TooMuch, load_toml
from stabilizer.core import json_text
from stabilizer.runs.reader import RunError

MAX_BYTES = 2**30
"""Largest log in bytes; a larger file is usually the wrong one."""


def content(path: Path) -> bytes:
    """All bytes of a regular file. RunError when it is empty, far too large, or no regular file."""
    if not path.is_file():
        raise RunError(f"{path}: {'a folder' if path.is_dir() else 'not a file'}; give the file itself")
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise RunError(
            f"{path}: {size / 2**30:.1f} GiB is more than the {MAX_BYTES // 2**30} GiB this reader takes; give a part"
            " of it, e.g. the lines of one training"
        )
    raw = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if not raw or raw.isspace():
        raise RunError(f"{path}: the file is empty; was the trainer stopped before its first log or checkpoint?")
    return raw


def json_value(path: Path, *, walked: bool = True) -> Any:
    """A JSON file that may contain NaN, Infinity and -Infinity as Python writes them. `walked` as in `json_text`."""
    raw = content(path)
    try:
        return json_text.loads_python(raw, walked=walked)
    except json_text.TooManyValues as error:
        raise RunError(f"{path}: {error}, which is no log of metrics; give a part of it") from None
    except json_text.NestedTooDeep as error:
        raise RunError(f"{path}: {error}, so it is no log; is this the right file?") from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        byte = raw[error.start]
        raise RunError(
            f"{path}: not UTF-8 text (byte 0x{byte:02x} in line {line}), so not JSON; is this the right file? Text in"
            " another encoding becomes UTF-8 with `iconv -f ENCODING -t UTF-8`"
        ) from None
    except json.JSONDecodeError as error:
        text = raw.decode("utf-8", "replace")
        if not text[error.pos :].strip() or error.msg.startswith("Unterminated"):
            why = "the JSON ends too early, as when the trainer was killed while saving; use the checkpoint before"
        else:
            why = f"not JSON: {error.msg} in line {error.lineno}, column {error.colno}"
        raise RunError(f"{path}: {why}") from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise RunError(f"{path}: not readable as JSON: {error}") from None


DAMAGED = (ValueError, RecursionError, LookupError, TypeError, AttributeError)
"""Errors that a damaged text raises beside the parser's own; PyYAML fails on `!!float ''`."""


def check_config(path: Path) -> None:
    """RunError where there is no file, or one too large for a configuration."""
    if not path.exists():
        raise RunError(
            f"{path}: no such file; --config takes the trainer's configuration as YAML, JSON or TOML, or the script"
            " that starts it"
        )
    if path.is_file() and path.stat().st_size > bounds.MAX_BYTES:
        raise RunError(
            f"{path}: more than the {bounds.MAX_BYTES // 2**20} MiB taken for a configuration; is this the right file?"
        )


SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".py")
"""Suffixes of scripts that start a training and hold its settings."""


def config_file(path: Path) -> dict[str, Any]:
    """A configuration from a JSON, TOML or YAML file."""
    check_config(path)
    suffix = path.suffix.lower()
    if suffix == ".json":
        value = json_value(path)
        _check_keys(path)
    elif suffix == ".toml":
        value = _parsed(path, load_toml, ValueError)
    elif suffix in (".yaml", ".yml"):
        try:
            import yaml

            from stabilizer.configs import yaml_keys
        except ImportError:
            raise RunError(f"{path}: reading YAML needs PyYAML; run: pip install pyyaml (or give JSON)") from None
        value = _parsed(path, yaml_keys.load, yaml.YAMLError)
    else:
        raise RunError(
            f"{path}: --config takes .yaml, .yml, .json, .toml or a script ({', '.join(SCRIPTS)}), not"
            f" {suffix or 'a file without suffix'}"
        )
    if json_text.too_deep(value):
        raise RunError(f"{path}: nested more than {json_text.MAX_NESTING} levels deep, so it is no configuration")
    if not isinstance(value, dict):
        raise RunError(f"{path}: a configuration is a mapping of keys to values, this holds a {type(value).__name__}")
    return {str(key): item for key, item in _unwrapped(value).items()}


def _unwrapped(settings: dict[Any, Any]) -> dict[Any, Any]:
    """W&B's config.yaml holds each setting as `{desc: ..., value: ...}`; any other file is left as it is."""
    ours = {key: item for key, item in settings.items() if not str(key).startswith(("_", "wandb_version"))}
    wrapped = (isinstance(item, dict) and "value" in item and set(item) <= {"desc", "value"} for item in ours.values())
    return {key: item["value"] for key, item in ours.items()} if ours and all(wrapped) else settings


def _check_keys(path: Path) -> None:
    """RunError where a JSON object has a key twice; parsers silently keep the last one."""
    again: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> None:
        if len(dict(items)) < len(items):
            counts = Counter(key for key, _ in items)
            again.extend(key for key, count in counts.items() if count > 1)

    try:
        json.loads(content(path), object_pairs_hook=pairs)
    except (ValueError, RecursionError):  # text that only the other parser accepts
        return
    if again:
        lines = content(path).decode("utf-8", "replace").split("\n")
        places = [str(number) for number, line in enumerate(lines, 1) if f"{json.dumps(again[0])}" in line]
        where = f" (it is in the lines {', '.join(places[:8])})" if len(places) > 1 else ""
        raise RunError(
            f"{path}: {again[0]!r} stands twice in one object{where}; the one that comes last would count, and the"
            " other be lost: delete one of them"
        )


def _parsed(path: Path, parse: Callable[[str], Any], expected: type[Exception]) -> Any:
    try:
        return parse(content(path).decode("utf-8"))
    except (expected, *DAMAGED) as error:
        if isinstance(error, RunError):
            raise
        first = (str(error) or type(error).__name__).splitlines()[0]
        if isinstance(error, TooMuch) or type(error).__name__ == "KeyTwice":
            raise RunError(f"{path}: {first}") from None
        raise RunError(f"{path}: not readable as {path.suffix[1:].upper()}: {first}") from None


def json_lines(path: Path) -> Iterator[Any]:
    """One object a line; NaN and Infinity are valid values. A line that is not an object yields None.

    The objects may be shared with an earlier read, so callers must not change them."""
    from stabilizer.formats import console, tailing  # here, because most files are not read by lines

    if tailing.current():
        yield from tailing.gather(path, _Values).values
        return
    for line in console.lines(path):
        yield from _value(line.text)


class _Values:
    """The values of JSON lines, for a log that grows."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def see(self, line: Any) -> None:
        self.values += _value(line.text)

    def fork(self) -> _Values:
        other = _Values()
        other.values = list(self.values)
        return other


def _value(text: str) -> tuple[Any, ...]:
    """The value of a line; nothing for an empty one."""
    text = text.strip()
    if not text:
        return ()
    try:
        value = json_text.loads_python(text)
    except ValueError:
        return (None,)
    return (value if isinstance(value, dict) and value else None,)  # nothing else is a record, so nothing else is kept


def beside(file: Path, notes: list[str]) -> dict[str, Any]:
    """The configuration that Hydra or W&B keep beside a log."""
    for folder in (file.parent, file.parent.parent):
        for name in (".hydra/config.yaml", "files/config.yaml"):
            if not (folder / name).is_file():
                continue
            try:
                settings = config_file(folder / name)
            except RunError as error:
                notes.append(f"configuration not read: {error}")
                continue
            notes.append(f"configuration taken from {name} beside the log")
            return settings
    return {}
