"""Turns advice into lines to paste: each trainer's keys for our knobs, and when a change takes effect.

Keys depend on the trainer, not on the log format. Our own trainer is not included: its remedies describe themselves
(`remedies.advise`). A trainer that lacks a setting gets a sentence that says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stabilizer.core.records import RemedyAdvice
from stabilizer.trainers.all import find
from stabilizer.trainers.other.knobs import UNKNOWN
from stabilizer.trainers.spelling import Key, Spelling, at, times

_HELD = 20
"""Fewest rows of one learning rate that show it to be the configured one."""
_BESIDE = ("roll-back",)
"""Remedies that do more than turn their knobs."""
_KNOBS = {
    "control/beta": "the weight of a KL term",
    "control/lr_scale": "the learning rate",
    "control/entropy_coef": "an entropy bonus",
}
"""Plain words for knobs for which a trainer may have no key."""


def spelling_of(trainer: str) -> Spelling:
    """The trainer's keys and procedures; `UNKNOWN` for a trainer without any."""
    known = find(trainer)
    return known.advice if known and known.advice else UNKNOWN


def has_setting(trainer: str, advice: RemedyAdvice) -> bool:
    """Whether the trainer has a key for any of it."""
    spelling = spelling_of(trainer)
    return bool(spelling.text(advice.id)) or any(knob in spelling.keys for knob in advice.change)


def how(
    trainer: str,
    advice: RemedyAdvice,
    config: Mapping[str, Any],
    *,
    onset: int,
    highest: float | None = None,
    rate: float | None = None,
    of_settings: bool = True,
    restart: str = "",
) -> str:
    """The change as a user of the trainer types it, or that it has no such setting, and whether it needs a restart.

    Without a configuration, `rate` is the learning rate that the log shows to be the configured one
    (`configured_rate`), and `highest` the highest one logged. `of_settings` and `restart` are those of the remedy
    that the advice comes from.
    """
    spelling = spelling_of(trainer)
    keyed = [(spelling.keys[knob], *values) for knob, values in advice.change.items() if knob in spelling.keys]
    turned = [(key, before, after) for key, before, after in keyed if after is not None]
    lines = [_line(spelling, key, before, after, config, highest, rate) for key, before, after in turned]
    relative = not rate and any(key.scales for key, *_ in turned)
    if spelling.text(advice.id) and (not lines or advice.id in _BESIDE):
        lines.insert(0, spelling.procedure(advice.id, config, onset))
        relative = relative or spelling.is_relative(advice.id)
    reasons = list(dict.fromkeys(key.why_restart for key, *_ in keyed))
    manually = "" if advice.change else advice.how
    if lines:
        text = _with_lines(spelling, manually, lines, hint=relative and not config)
    elif advice.change or of_settings:
        text, reasons = _without(spelling, advice, manually), ["code is loaded at the start"]
    else:
        text = manually
    return _with_restart(text, restart or f"needs a restart because {' and '.join(reasons or [spelling.why_restart])}")


def _with_restart(text: str, restart: str) -> str:
    """The text with the restart that it takes; the advice of a run that logs knobs has it already."""
    return text if text.endswith(restart) else f"{text}; {restart}"


def _with_lines(spelling: Spelling, manually: str, lines: Sequence[str], *, hint: bool) -> str:
    """The lines to type after what a person does besides; `hint` says that a configuration would give the numbers."""
    text = "; ".join(lines)
    if manually and spelling is not UNKNOWN:
        text = f"{manually}. In {spelling.title}: {text}"
    return text + ("; --config FILE gives the numbers" if hint else "")


def _without(spelling: Spelling, advice: RemedyAdvice, by_hand: str) -> str:
    """Plain words for what a trainer has no key for."""
    if spelling is UNKNOWN:
        lacking = "The trainer of this log is not known, so its setting is not known either"
        return f"{by_hand}. {lacking}" if by_hand else lacking
    wanted = [_KNOBS.get(knob, knob.rpartition("/")[2].replace("_", " ")) for knob in advice.change]
    why = next((spelling.lacks[name] for name in (advice.id, *advice.change) if name in spelling.lacks), "")
    lacking = f"{spelling.title} has no setting for {' or '.join(wanted) or 'this'}" + (f" ({why})" if why else "")
    return ". ".join(filter(None, [by_hand, f"{lacking}: change it manually, in the code"]))


def configured_rate(logged: Sequence[float]) -> float | None:
    """The configured learning rate, if the log shows it: the largest one, if it held for the last half of the rows.

    None for a rate that decays."""
    highest = max(logged, default=0.0)
    level = len(logged) - next((place for place, value in enumerate(logged) if value == highest), 0)
    held = all(value == highest for value in logged[-level:]) if level else False
    return highest if held and highest > 0 and level >= max(_HELD, len(logged) / 2) else None


def _line(
    spelling: Spelling,
    key: Key,
    before: float | None,
    after: float,
    config: Mapping[str, Any],
    highest: float | None,
    rate: float | None,
) -> str:
    """A key with its value, or in words where the factor's base is not known."""
    if not key.scales:
        return key.template.format(value=f"{after:g}")
    factor = after / before if before else after
    if configured := at(config, key.scales) or rate:
        return key.template.format(value=f"{configured * factor:g}")
    known = f"{highest:.3g} is the highest logged" if highest else "the log leaves it out or rounds it to 0.000"
    return f"{spelling.named(key.scales)}: {times(factor)} what it was set to ({known})"
