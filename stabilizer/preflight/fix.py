"""A corrected copy of a configuration: the fewest keys changed, everything else left as it is.

One change is made at a time, and the whole configuration is judged again. A change is taken back when the trainer
would refuse it, or when it brings a worse finding than the one it resolves.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stabilizer.configs import reading
from stabilizer.configs.config import ConfigError, Parsed
from stabilizer.core.records import SEVERITIES
from stabilizer.preflight.check import Options, Preflight, configured, judge
from stabilizer.preflight.rules.base import Finding
from stabilizer.trainers.configuration import Config

ROUNDS = 60
"""Changes that are tried at most; more than there are rules."""


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """A corrected text and what was done."""

    text: str
    applied: tuple[Finding, ...]
    left: tuple[Finding, ...]
    """Findings that remain, of the level that was asked for."""
    after: Preflight
    refused: Mapping[tuple[str, str, str], str] = field(default_factory=dict)

    def why_left(self, finding: Finding) -> str:
        """Why a finding's change was not made; "" where it has none."""
        return self.refused.get(_key(finding), "")


def corrected(result: Preflight, options: Options, only: str | None = None) -> Fixed:
    """The configuration with the definite change of every warning made; with `only`, of that rule alone."""
    refused = dict[tuple[str, str, str], str]()
    tried: set[tuple[str, str, str]] = set()
    applied: list[Finding] = []
    now = result
    for _ in range(ROUNDS):
        finding = next((f for f in now.findings if _wanted(f, only) and _key(f) not in tried), None)
        if finding is None:
            break
        tried.add(_key(finding))
        attempt = _attempt(now, finding, options, result.config)
        if isinstance(attempt, str):
            refused[_key(finding)] = attempt
        else:
            applied.append(finding)
            now = attempt
    left = tuple(f for f in now.findings if f.severity != "info" and (only is None or f.id == only))
    return Fixed(text=now.config.parsed.text, applied=tuple(applied), left=left, after=now, refused=refused)


def _attempt(now: Preflight, finding: Finding, options: Options, first: Config) -> Preflight | str:
    """The configuration judged with a finding's change made, or why the change is not made."""
    try:
        text = edited(now.config, {key: new for key, (_, new) in finding.change.items()})
        attempt = _again(now.config.parsed, text, options, first)
    except ConfigError as error:
        return str(error)
    return _worse(now, attempt, finding) or attempt


def edited(config: Config, change: Mapping[str, Any]) -> str:
    """The file's text with these keys changed or added, comments and order kept."""
    parsed = config.parsed
    if parsed.part:
        raise ConfigError(f"{parsed.path}: the settings are a part of this text; save them to a file of their own")
    reader = reading.reader_for(parsed.path, parsed.text)
    text = parsed.text
    edits: list[tuple[int, int, str]] = []
    fresh: list[str] = []
    for key, value in change.items():
        setting = config.settings.get(key)
        if setting is not None and setting.file == "--set":
            raise ConfigError(f"{key} is set on the command line with --set; change it there")
        if setting is None or setting.file not in ("--set", str(parsed.path)):  # a command line overrides its recipe
            fresh.append(key)
        elif setting.span is None:
            raise ConfigError(f"{parsed.path}:{setting.line}: {key} can't be edited in place")
        else:
            start, end = setting.span
            edits.append((start, end, _in_place(parsed, start, text[start:end], value, reader)))
    for start, end, piece in sorted(edits, key=lambda edit: edit[:2], reverse=True):
        text = text[:start] + piece + text[end:]
    for key in fresh:  # one after the other: the second may belong to a group that came with the first
        at, addition = reader.insert(reader.read(parsed.path, text), _spelled(config, key), change[key])
        text = text[:at] + addition + text[at:]
    return text


def write(path: Path, text: str, source: Path) -> None:
    """Write the copy, whole or not at all. An existing file is only replaced when it is the configuration itself."""
    same = path.exists() and path.resolve() == source.resolve()
    if os.path.lexists(path) and not same:
        raise ConfigError(f"{path}: exists already; name another with --fix OUT, or delete it first")
    if not path.parent.is_dir():
        raise ConfigError(f"{path.parent}: no such folder; make it first")
    target = path.resolve()
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".fix-")
    except OSError as error:
        raise ConfigError(f"{path}: can't be written there: {error.strerror}; name another with --fix OUT") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        mode = source.stat().st_mode & 0o777
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def default_target(path: Path) -> Path:
    """Where the copy goes when no name is given: beside the configuration, `recipe.fixed.yaml`."""
    return path.with_name(f"{path.stem}.fixed{path.suffix}")


def _again(parsed: Parsed, text: str, options: Options, first: Config) -> Preflight:
    """Judge the edited text for the trainer and version of the first one: an edit must not change either."""
    fresh = reading.parsed(parsed.path, text, alone=options.alone)
    config = configured(fresh, replace(options, trainer=first.trainer.name))
    return judge(
        replace(
            config,
            version=first.version,
            version_used=first.version_used,
            version_why=first.version_why,
            trainer_why=first.trainer_why,
        )
    )


def _wanted(finding: Finding, only: str | None) -> bool:
    if not finding.change:
        return False
    return finding.id == only if only else finding.severity != "info"


def _key(finding: Finding) -> tuple[str, str, str]:
    return finding.id, finding.key, str(sorted(finding.change.items()))


def _worse(before: Preflight, after: Preflight, finding: Finding) -> str:
    """Why a change is no improvement: the finding remains, or one at least as severe appears. "" for none."""
    if any(f.id == finding.id and f.key == finding.key and f.severity == finding.severity for f in after.findings):
        return "the change alone does not resolve it"
    known = {(f.id, f.key) for f in before.findings}
    level = SEVERITIES.index(finding.severity)
    came = (f for f in after.findings if (f.id, f.key) not in known and SEVERITIES.index(f.severity) >= level)
    return next((f"the change would bring {f.id} ({f.key}): {f.summary}" for f in came), "")


def _spelled(config: Config, key: str) -> str:
    """A new key in the spelling the file uses: plain flags stay among plain flags."""
    old = {new: alias for alias, new in config.trainer.aliases.items()}
    uses_old = any(s.key in config.trainer.aliases for s in config.parsed.settings)
    return old.get(key, key) if uses_old else key


def _in_place(parsed: Parsed, start: int, was: str, value: Any, reader: Any) -> str:
    """A new value in the place of an old one, in its quotes and with its spelling of true and false."""
    piece: str = reader.written(value)
    if parsed.form == "shell":
        if isinstance(value, bool) and was.strip("\"'")[:1].islower():
            piece = piece.lower()
        quote = was[:1] if was[:1] in "\"'" and was[-1:] == was[:1] else ""
        if was.endswith('"') and not quote:
            piece += '"'  # the quote was opened before the key: "key=value"
        return f"{quote}{piece}{quote}"
    return piece
