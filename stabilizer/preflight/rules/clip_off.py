"""A clip range that does not clip.

What it checks
    A range of 0, or of 1 and more, on either side, while several updates share a batch of rollouts.
Why it matters
    Clipping is what keeps the second and later updates near the policy that wrote the answers. At 0 every token that
    moved at all is silenced; from 1 on, the lower side never clips.
Exceptions
    One update per batch of rollouts: the ratio is 1 and nothing is ever clipped, so the range does not matter. A clip
    fraction of 0 is then healthy. Losses that clip otherwise (CISPO, GSPO) have ranges of another size.
Fix
    0.2, and 0.28 on the upper side if exploration dries up.
References
    arXiv:1707.06347; arXiv:2503.14476 (clip-higher); huggingface/trl#3120.
"""

from __future__ import annotations

from collections.abc import Iterator

from stabilizer.preflight.rules.base import Finding, found, number
from stabilizer.trainers.quantities import View

ID = "clip/off"
USUAL = 0.2
OTHER_LOSSES = ("cispo", "gspo", "sapo", "vespo", "gpg", "sequence")
LOSS_KEYS = (
    "loss_type",
    "loss_mode",
    "policy_loss_type",
    "importance_sampling_level",
    "algorithm",
    "surrogate",
    "ratio",
)


def check(view: View) -> Iterator[Finding]:
    """One finding for each side."""
    if number(view, "updates") <= 1 or any(word in _losses(view) for word in OTHER_LOSSES):
        return
    seen = set()
    for name in ("clip_low", "clip_high"):
        width, key = view.number(name), view[name].key
        if width is None or 0 < width < 1 or key in seen:
            continue
        seen.add(key)
        yield found(
            view,
            "warn",
            view[name],
            f"clip range {width:g}",
            why="At 0 every token that moved is silenced; from 1 on nothing is clipped, and later updates on the same"
            " answers are free to run away.",
            how=f"{USUAL:g}",
            change={key: USUAL},
            sure="likely",
            source="arXiv:1707.06347, huggingface/trl#3120",
        )


def _losses(view: View) -> str:
    """The names of losses that the configuration sets."""
    settings = view.config.settings.items()
    return " ".join(str(s.value).lower() for key, s in settings if key.rpartition(".")[2] in LOSS_KEYS)
