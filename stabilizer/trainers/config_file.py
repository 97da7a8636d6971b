"""The configuration given with `--config`: a file of settings, or the script that starts the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stabilizer.configs.config import ConfigError, Unresolved
from stabilizer.configs.reading import read
from stabilizer.core.settings import nested
from stabilizer.formats import files
from stabilizer.runs.reader import RunError
from stabilizer.trainers.configs import canonical, recognised


def config_file(path: Path) -> dict[str, Any]:
    """Settings under the trainer's own names, nested as a YAML file has them."""
    if path.suffix.lower() not in files.SCRIPTS:
        return files.config_file(path)
    files.check_config(path)
    return _script(path)


def _script(path: Path) -> dict[str, Any]:
    """The settings in a script under the trainer's own names, nested as in a YAML file."""

    try:
        parsed = read(path)
    except ConfigError as error:
        raise RunError(str(error)) from None
    try:
        settings = canonical(recognised(parsed)[0], parsed)
    except ConfigError:
        raise RunError(
            f"{path}: no trainer that is known is started here; give its settings as YAML or JSON, under its own names"
        ) from None
    values = {key: setting.value for key, setting in settings.items()}
    return nested({key: value.text if isinstance(value, Unresolved) else value for key, value in values.items()})
