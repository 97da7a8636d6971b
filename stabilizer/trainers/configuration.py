"""A configuration together with the trainer and version it is judged for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stabilizer.configs.config import Parsed, Setting, Unresolved

if TYPE_CHECKING:
    from stabilizer.trainers.schema import Schema


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything the rules may ask about."""

    parsed: Parsed
    trainer: Schema
    trainer_why: str
    version: str | None
    """As the user or the file says; None when only a guess is possible."""
    version_used: str
    """The version whose defaults and rules are applied."""
    version_why: str
    settings: Mapping[str, Setting]
    processes: int | None = None
    gpus: int | None = None
    model_size: float | None = None
    """Parameters in billions."""
    prompts: int | None = None
    """Prompts in the data set."""
    guessed: bool = False
    """Whether the trainer is only guessed, from keys that others have too."""

    def value(self, key: str, default: Any = None) -> Any:
        """The value written for `key`; `default` when it is not written or can't be known."""
        setting = self.settings.get(key)
        return default if setting is None or isinstance(setting.value, Unresolved) else setting.value

    def plain(self) -> dict[str, Any]:
        """All known values by key, as the trainer spells them."""
        return {key: s.value for key, s in self.settings.items() if not isinstance(s.value, Unresolved)}
