"""A key that appears twice in its group: one of its values is lost.

What it checks
    Every group of a YAML or JSON file, for keys that appear more than once. Of a group that appears twice, the first is
    lost with everything in it.
Why it matters
    PyYAML, which TRL uses, and every JSON reader keep the last one without a message: the run trains with a value that
    somebody believes to have changed. OmegaConf (veRL, EasyR1, NeMo-RL and others) refuses the file.
Exceptions
    `<<`, which takes over a group from elsewhere, may be repeated. The same key with the same value does no harm and
    is reported as information. TOML forbids repeated keys; its own reader reports them.
Fix
    Delete one of them; only the user knows which one is meant. All other rules judge the last.
References
    PyYAML 6.0, `constructor.py: construct_mapping`; OmegaConf 2.3, `_utils.py: get_yaml_loader` ("duplicate key").
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.configs.config import Repeated
from stabilizer.preflight.rules.base import Finding
from stabilizer.trainers.quantities import View

ID = "keys/repeated"


def check(view: View) -> Iterator[Finding]:
    """One finding for every key that appears twice."""
    for key in view.config.parsed.repeated:
        strict = view.config.trainer.strict_yaml and not key.file.lower().endswith(".json")
        yield Finding(
            severity="critical" if strict else "info" if key.same else "warn",
            key=key.key,
            file=key.file,
            line=key.last,
            value=key.kept,
            summary=_summary(key, view.config.trainer.title, strict),
            why="A change of the other one has no effect, and nothing reports it."
            if not strict
            else "The trainer's reader of YAML finds a duplicate key and stops before the first step.",
            how=f"delete one of them: line {key.first} or line {key.last}",
            sure="certain",
            source="PyYAML 6.0, OmegaConf 2.3, json: what each does with a key that is there twice",
        )


def _summary(key: Repeated, trainer: str, strict: bool) -> str:
    places = f"{key.key} is in line {key.first} ({key.lost}) and again in line {key.last} ({key.kept})"
    return f"{places}; {f'{trainer} refuses the file' if strict else 'the last one counts, the other is lost'}"
