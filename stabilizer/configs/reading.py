"""Reads a configuration file of any form with the reader of that form.

A reader is a module with `FORM` (a word for messages), `SUFFIXES`, `read(path, text) -> Parsed` and
`insert(parsed, key, value) -> (start, text)`, which returns where a new setting would be written. The suffix of the
file decides the form, because a configuration, unlike a log, is named by the person who writes it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

from stabilizer.configs import python_script, shell, toml_file, yaml_file
from stabilizer.configs.config import ConfigError, Parsed, Setting

READERS: tuple[ModuleType, ...] = (yaml_file, toml_file, shell, python_script)
LAUNCHERS = ("python", "python3", "accelerate", "ray")
BEGINNING = 400
"""Words of a text by which a script is recognised."""
MAX_BYTES = 4 * 2**20
"""Bytes of a configuration file. A larger file is something else."""


def reader_for(path: Path, text: str = "") -> ModuleType:
    """The reader of a file. A file without a known suffix is a script when it begins like one, else YAML."""
    suffix = path.suffix.lower()
    named = next((reader for reader in READERS if suffix in reader.SUFFIXES), None)
    if named:
        return named
    if suffix not in ("", ".txt", ".cfg", ".conf"):
        known = ", ".join(suffix for reader in READERS for suffix in reader.SUFFIXES)
        raise ConfigError(f"{path}: no form of configuration is known by {suffix!r}; known are {known}")
    return shell if _is_script(text) else yaml_file


def _is_script(text: str) -> bool:
    """Whether a text begins like a script or a command."""
    words = text.split()[:BEGINNING]
    return text.startswith("#!") or any(word.startswith("--") or word in LAUNCHERS for word in words)


def read(path: Path) -> Parsed:
    """The settings in a file. ConfigError says what is wrong with it and what to do."""
    return parsed(path, text_of(path))


def parsed(path: Path, text: str, *, alone: bool = False) -> Parsed:
    """The settings in the text of a file, and in the file that it builds on.

    With `alone` no other file is read, whatever the text names: its author may not be allowed to read files here.
    """
    try:
        found = reader_for(path, text).read(path, text)
        if not found.settings:
            raise ConfigError(f"{path}: no settings found in it; {EMPTY[found.form]}")
        return _with_included(found, alone)
    except (RecursionError, MemoryError):
        raise ConfigError(f"{path}: nested too deeply to be a configuration; is this the right file?") from None


PARENT = "defaults"
"""The key with which a NeMo-RL file names the file it builds on."""
INCLUDES = ("config", "config_path", "@")
"""Arguments with which a command names the file that holds the rest of its settings."""
INCLUDED_SUFFIXES = (".yaml", ".yml", ".json", ".toml")


def _with_included(command: Parsed, alone: bool) -> Parsed:
    """The settings of the file that a command or a configuration builds on, below its own, which win."""
    target = _included(command)
    if target is None:
        return command
    left_out = "what it leaves out counts as the trainer's default"
    if alone:
        note = f"{target.value}, on which it builds, is not read here: {left_out}"
        return replace(command, notes=(*command.notes, note))
    folders = (command.path.parent, *command.path.resolve().parents[:4], Path.cwd())
    path = next((folder / target.value for folder in folders if (folder / target.value).is_file()), None)
    if path is None:
        note = f"{target.value}, on which it builds, is not found from here: {left_out}"
        return replace(command, notes=(*command.notes, note))
    text = text_of(path)
    below = reader_for(path, text).read(path, text)
    own = tuple(s for s in command.settings if s is not target)
    return replace(
        command,
        settings=(*below.settings, *own),
        repeated=(*below.repeated, *command.repeated),
        notes=(*command.notes, f"{path}: its settings are read too"),
    )


def _included(command: Parsed) -> Setting | None:
    """The setting that names another configuration file, if any."""
    keys = {"shell": INCLUDES, "yaml": (PARENT,)}.get(command.form, ())
    named = (setting for setting in command.settings if setting.key in keys and isinstance(setting.value, str))
    return next((setting for setting in named if Path(setting.value).suffix in INCLUDED_SUFFIXES), None)


EMPTY = {
    "yaml": "a configuration is `key: value` lines",
    "toml": "a configuration is `key = value` lines",
    "shell": "looked for a command with --flags or key=value arguments; give the script that starts the training",
    "python": "looked for GRPOConfig(...), RLOOConfig(...) or PPOConfig(...) with literal arguments;"
    " if they come from the command line, give the script that starts it",
}
"""What to do about a file without settings, by form."""


def text_of(path: Path) -> str:
    """The text of a file; ConfigError says why it is none that settings can be in."""
    if "\0" in str(path):
        raise ConfigError(f"{str(path)!r}: a path can't contain a NUL character")
    try:
        if not path.exists():
            raise ConfigError(f"{path}: no such file; preflight takes the configuration or the script that starts it")
        if path.is_dir():
            raise ConfigError(f"{path}: a folder; give the configuration file in it")
        if not path.is_file():
            raise ConfigError(f"{path}: not a regular file; save it to a file first")
        if (size := path.stat().st_size) > MAX_BYTES:
            raise ConfigError(
                f"{path}: {size / 2**20:.1f} MiB is more than the {MAX_BYTES // 2**20} MiB taken for a configuration;"
                " is this a log? then: stabilizer diagnose"
            )
        with path.open("rb") as file:
            raw = file.read()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}; check the path and its rights") from None
    if not raw.strip():
        raise ConfigError(f"{path}: the file is empty; give the configuration the run is started with")
    if b"\0" in raw:
        raise ConfigError(f"{path}: not text but binary; preflight reads YAML, JSON, TOML, shell and Python files")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
