"""Return to a state from before the incident and remove its cause."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Course, Remedy
from stabilizer.remedies.correct_mismatch import CorrectMismatch
from stabilizer.remedies.evidence import leapt
from stabilizer.remedies.fewer_epochs import FewerEpochs
from stabilizer.remedies.going_back import objection_to_return, onset_to_undo
from stabilizer.remedies.lower_entropy_bonus import LowerEntropyBonus
from stabilizer.remedies.lower_lr import HALF_RATE, LR, LowerLr
from stabilizer.remedies.mend_critic import MendCritic
from stabilizer.remedies.narrow_clip import NarrowClip
from stabilizer.remedies.other_kl_estimator import OtherKlEstimator
from stabilizer.remedies.situation import Situation
from stabilizer.remedies.target_entropy import TargetEntropy
from stabilizer.remedies.turns import turned_back
from stabilizer.runs.history import RunView

_LOWER_LR = LowerLr()
_OWN: dict[str, Remedy] = {
    "engine-mismatch": CorrectMismatch(),
    "exploration-exhausted": TargetEntropy(),
    "critic-broken": MendCritic(),
    "kl-estimator": OtherKlEstimator(),
    "clip-too-wide": NarrowClip(),
    "too-many-epochs": FewerEpochs(),
    "entropy-bonus-too-large": LowerEntropyBonus(),
}


class RollBack(Remedy):
    """Return to a state from before the incident and remove its cause.

    What it does
        Returns to the newest verified checkpoint older than the earliest onset of the incident's findings, removes the
        cause and draws the following prompts in another order. If the change restores the former value of a setting,
        the order of prompts stays, because the cause is known and only one thing should change. If the run still
        learned after that onset, the step of its best reward replaces the onset. If no older checkpoint is within
        reach, the damage itself does. If the reward was in doubt until then, the start of the doubt does.

    For
        Damaged weights: changing a knob afterwards does not restore the reward. The newest checkpoint is often saved
        after the onset, so the onset and not the reward decides the target.

    Preconditions
        Damage (a critical finding) and a checkpoint older than the onset. A rollback that leaves the cause in place
        would only repeat the failure. If the cause is unknown, or a few steps leapt and the later ones are as small as
        before, the other order of prompts is the change, and a lower learning rate comes second. A rollback of more
        than 50 steps, or against a cause outside of the trainer, needs a fall of held-out accuracy, if that is known.
        A value from before the damage counts for 20 steps only. The rollback is automatic only if it gains something:
        the current weights and those of the checkpoint answer the next four batches, under the current knobs, engine
        and reward, and the held-out problems. If the checkpoint is not better by two standard errors in reward or in
        solved problems, the fault is not in the weights and the run stays. The comparison is repeated after 20 steps,
        then 40 and so on.

    Dose and bounds
        A setting that was changed around the onset gets its former value. Otherwise the learning rate is halved, to at
        least a quarter of the configured rate, and warms up again. If the cause has its own knob (clip range, passes,
        entropy bonus), that knob is changed instead. At most twice per cause.

    Undo
        The knob is restored; the abandoned branch stays readable.

    Side effects
        The steps since the checkpoint are lost, and the comparison costs about four more. The comparison trains nothing
        and leaves the state of the run unchanged. A custom reward function that remembers its calls (a cache, a
        curriculum by calls) sees these calls as well.

    References
        PaLM (arXiv 2204.02311) restarted 100 steps before a spike and skipped its batches.
    """

    id = "roll-back"
    safety = "hard"
    answers = (
        "lr-too-high", "numeric-overflow", "no-kl-anchor", "clip-too-wide", "too-many-epochs",
        "entropy-bonus-too-large", "engine-mismatch", "exploration-exhausted", "critic-broken", "optimizer-state",
        "kl-estimator",
    )  # fmt: skip
    rollback = True
    why = "the weights are damaged: a return to before the onset helps, but only if the cause is removed"
    expects = "the incident's findings clear, and the reward is no lower than at the checkpoint and before the fix"
    dose = HALF_RATE
    objections = (objection_to_return,)

    def against(self, cause: str, knobs: Mapping[str, float]) -> Change | None:
        """The cause's own knob, or the learning rate if there is none or it is at its bound."""
        own = _OWN.get(cause)
        return (own.change(knobs) if own else None) or self.change(knobs)

    def outlived(self, cause: str) -> tuple[str, ...]:
        return _OWN[cause].outlived_by if cause in _OWN else ()

    def given(
        self, cause: str, knobs: Mapping[str, float], view: RunView, onset: int, ours: Mapping[str, int]
    ) -> Change | None:
        """Undo a change around the onset; otherwise treat the cause, if it is known and still present.

        After a leap that is over, only the order of prompts changes: a lasting lower rate would cost too much for one
        step.
        """
        if back := turned_back(view, onset, ours):
            return back
        known = cause in self.answers and not (cause == "lr-too-high" and leapt(view, onset))
        if not known:
            return {}
        own = _OWN.get(cause)
        return (own.given(cause, knobs, view, onset, ours) if own else None) or self.against(cause, knobs)

    def course(self, change: Change, knobs: Mapping[str, float]) -> Course:
        """Apply the change as its own remedy would: a lower rate warms up, a critic is trained alone for a while."""
        own = [remedy for remedy in _OWN.values() if remedy.change(knobs) == change]
        return (own[0] if own else _LOWER_LR).course(change, knobs) if own or LR in change else {}

    def onset(self, now: Situation) -> int:
        return onset_to_undo(now)
