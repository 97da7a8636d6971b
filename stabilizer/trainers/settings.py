"""Where trainers keep a setting: what advice writes, diagnosis reads and a comparison lines up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from stabilizer.configs.config import Parsed, Setting
from stabilizer.core.failures import Meaning
from stabilizer.core.settings import flat
from stabilizer.trainers.all import TRAINERS, find
from stabilizer.trainers.configs import canonical, version_of
from stabilizer.trainers.configuration import Config
from stabilizer.trainers.quantities import View

OWN = "stabilizer"


@cache
def keys_of(quantity: str, trainer: str = "") -> tuple[str, ...]:
    """The keys that may hold a quantity in a configuration; the first one present counts.

    Our own words come first, then the keys of the trainer, then those of all others: a log may hold the settings of a
    trainer that is not known, or that runs inside another. A quantity is a knob without `control/`, or `lr`.
    """
    asked = [known for known in (find(OWN), find(trainer)) if known]
    return tuple(dict.fromkeys(key for known in (*asked, *TRAINERS) for key in known.keys_of(quantity)))


def configured(config: Any, trainer: str, quantity: str) -> float | None:
    """A quantity (`quantities.QUANTITIES`) of a run's configuration, worked out from the keys of its trainer; None
    where it is not written or can't be worked out."""
    known = find(trainer)
    if known is None or known.schema is None or not isinstance(config, Mapping):
        return None
    written = (Setting(key=key, value=value, written=key, file="", line=None) for key, value in flat(config).items())
    parsed = Parsed(form="", path=Path(), text="", settings=tuple(written))
    settings = canonical(known.schema, parsed)
    version, used, why = version_of(known.schema, settings)
    asked = Config(
        parsed=parsed, trainer=known.schema, trainer_why="", version=version, version_used=used, version_why=why,
        settings=settings,
    )  # fmt: skip
    try:
        view = View(asked)
    except (ArithmeticError, TypeError, ValueError):  # a value that no configuration of this trainer can have
        return None
    return view.number(quantity) if view[quantity].written else None


def todo(failure: Meaning, trainer: str) -> str:
    """What to do after a failure, in the keys of the trainer where we know them."""
    known = find(trainer)
    return (known.gpu_memory if known and failure.gpu_memory else "") or own_keys(failure.todo, trainer)


def own_keys(text: str, trainer: str) -> str:
    """A text whose lists in brackets, as `(a in TRL; b in veRL)`, keep only the items of one trainer."""
    known = find(trainer)
    asked = [known, find(known.parent)] if known else []
    titles = {one.schema.title for one in asked if one is not None and one.schema is not None}

    def kept(brackets: re.Match[str]) -> str:
        between = "; " if "; " in brackets[1] else ", "
        own: list[str] = []
        waiting: list[str] = []  # items up to the next name of a trainer are of that trainer
        for part in brackets[1].split(between):
            waiting.append(part)
            if named := _OF_A_TRAINER.findall(part):
                own += waiting if titles & set(named) else []
                waiting = []
        return f" ({between.join(own + waiting)})" if own or waiting else ""

    return _BRACKETS.sub(kept, text) if titles else text


_BRACKETS = re.compile(r" \(([^()]{1,400})\)")
"""A list in a text."""
_OF_A_TRAINER = re.compile(
    rf"\bin ({'|'.join({re.escape(one.schema.title) for one in TRAINERS if one.schema is not None})})\b"
)
