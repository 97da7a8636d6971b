"""All rules over one configuration: what `stabilizer preflight` does before it prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stabilizer.configs import excerpts, reading
from stabilizer.configs.config import ConfigError, Parsed, Setting, parse_version, scalar
from stabilizer.core.records import SEVERITIES
from stabilizer.preflight import lengths
from stabilizer.preflight.rules import RULES
from stabilizer.preflight.rules.base import Finding
from stabilizer.trainers import configs
from stabilizer.trainers.configuration import Config
from stabilizer.trainers.quantities import View
from stabilizer.trainers.schema import Schema
from stabilizer.trainers.versions import version_beside, version_in


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user states besides the file."""

    trainer: str | None = None
    version: str | None = None
    processes: int | None = None
    gpus: int | None = None
    model_size: float | None = None
    prompts: int | None = None
    overrides: tuple[str, ...] = ()
    alone: bool = False
    """Read no file that the configuration names: the text came from somebody else."""
    data: Path | None = None
    tokenizer: Path | None = None
    """The data set, and the tokenizer that counts its tokens."""
    told: str = ""
    """The text around the settings, which may tell versions."""


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """What was found in a configuration."""

    config: Config
    findings: tuple[Finding, ...]
    unknown: tuple[str, ...]
    """Quantities that rules ask for and that could not be known, in words."""

    @property
    def verdict(self) -> str:
        """The worst severity, or `healthy`."""
        return max((f.severity for f in self.findings), key=SEVERITIES.index, default="healthy")


def preflight(path: Path, options: Options | None = None) -> Preflight:
    """Read a configuration and ask every rule. ConfigError when it can't be read or is for no known trainer."""
    options = options or Options()
    if path.suffix.lower() in excerpts.TEXTS and (found := in_text(path, reading.text_of(path), options)):
        return judge(found, options)
    return judge(configured(reading.read(path), options), options)


def in_text(path: Path, text: str, options: Options) -> Config | None:
    """The settings in a text that may hold prose and a log besides: the part that has most of a known trainer's."""
    options = replace(options, told=text)
    found = []
    for place, part in ((path, text[: excerpts.MOST]), *excerpts.excerpts(path, text)):
        with suppress(ConfigError):
            parsed = reading.parsed(place, part, alone=options.alone)
            found.append(configured(_within(parsed, path), options))
    return max(found, key=lambda config: (not config.guessed, len(config.settings)), default=None)


def _within(parsed: Parsed, path: Path) -> Parsed:
    """An excerpt as settings of the file that it is from."""
    if parsed.path == path:
        return parsed
    own = [replace(s, file=str(path)) if s.file == str(parsed.path) else s for s in parsed.settings]
    return replace(parsed, path=path, settings=tuple(own), part=True)


def configured(parsed: Parsed, options: Options) -> Config:
    """Settings with their trainer and version."""
    if options.overrides:
        extra = [_override(text) for text in options.overrides]
        parsed = replace(parsed, settings=(*parsed.settings, *extra))
    if options.trainer:
        trainer, why, guessed = configs.named(options.trainer), "as given", False
    else:
        trainer, why, guessed = configs.recognised(parsed)
    settings = configs.canonical(trainer, parsed)
    version, used, version_why = _version(parsed, trainer, settings, options)
    processes = options.processes or parsed.processes
    declared = settings.get("num_processes")
    if processes is None and declared is not None and isinstance(declared.value, int):
        processes = declared.value
    return Config(
        parsed=parsed,
        trainer=trainer,
        trainer_why=why,
        version=version,
        version_used=used,
        version_why=version_why,
        settings=settings,
        processes=processes,
        gpus=options.gpus,
        model_size=options.model_size,
        prompts=options.prompts,
        guessed=guessed,
    )


def _version(
    parsed: Parsed, trainer: Schema, settings: Mapping[str, Setting], options: Options
) -> tuple[str | None, str, str]:
    """(the version that is known or None, the version to judge by, why): given, else in a file beside, else by keys."""
    if options.version:
        parse_version(options.version)
        return options.version, options.version, "as given"
    if told := version_in(options.told, trainer.name):
        return told, told, "as the text around it says"
    beside = None if options.alone else version_beside(parsed.path, trainer)
    if beside:
        return beside.version, beside.version, f"by {beside.where} beside it"
    return configs.version_of(trainer, settings)


def judge(config: Config, options: Options | None = None) -> Preflight:
    """All findings of all rules, and of the data set that the options name, worst first."""
    view = View(config)
    found = [replace(finding, id=rule.ID) for rule in RULES for finding in rule.check(view)]
    if options and options.data:
        found += lengths.check(view, options.data, options.tokenizer)
    if config.guessed:  # another program's defaults are not known
        found = [finding for finding in found if finding.key in config.settings]
    order = {rule.ID: place for place, rule in enumerate(RULES)}
    found.sort(key=lambda f: (-SEVERITIES.index(f.severity), order.get(f.id, 0), f.line or 0))
    return Preflight(config=config, findings=tuple(found), unknown=tuple(_unknown(view)))


def as_json(result: Preflight) -> dict[str, Any]:
    """The object that `--json` prints, in the form of `diagnose`."""
    config = result.config
    return {
        "schema": 1,
        "config": str(config.parsed.path),
        "source": {
            "format": config.parsed.form,
            "trainer": config.trainer.name,
            "trainer_why": config.trainer_why,
            "version": config.version,
            "version_used": config.version_used,
            "version_why": config.version_why,
            "files": [str(config.parsed.path)],
            "settings": len(config.settings),
            "processes": config.processes,
            "notes": list(config.parsed.notes),
        },
        "verdict": result.verdict,
        "worst": result.verdict,
        "findings": [finding_json(finding) for finding in result.findings],
        "not_checked": [{"id": text} for text in result.unknown],
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    """A finding as JSON's own types."""
    return {
        "id": finding.id,
        "severity": finding.severity,
        "summary": finding.summary,
        "location": {"key": finding.key, "file": finding.file, "line": finding.line},
        "value": _plain(finding.value),
        "why": finding.why,
        "how": finding.how,
        "change": {key: [_plain(old), _plain(new)] for key, (old, new) in finding.change.items()},
        "alternatives": list(finding.alternatives),
        "confidence": finding.sure,
        "source": finding.source,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _override(text: str) -> Setting:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text}: write it as key=value, e.g. --set beta=0.001")
    key = key.strip().lstrip("-")
    return Setting(key=key, value=scalar(value.strip()), written=key, file="--set", line=None)


def _unknown(view: View) -> Iterable[str]:
    asked: Sequence[tuple[str, str]] = (
        ("prompts_update", "prompts per update: give --processes N or --gpus N"),
        ("steps", "length of the run: give --prompts N, the size of the data set"),
        ("lr", "learning rate"),
    )
    for name, text in asked:
        builtin = str(view.value("model")).partition(":")[0] == "builtin"
        if name in view.known and view.number(name) is None and not (name == "lr" and builtin):
            yield text
