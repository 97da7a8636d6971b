"""Return to a state from before the incident, and take its cause away."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import NOBODY, Change, Course, Remedy
from stabilizer.remedies.correct_mismatch import CorrectMismatch
from stabilizer.remedies.evidence import leapt
from stabilizer.remedies.fewer_epochs import FewerEpochs
from stabilizer.remedies.going_back import objection_to_return, onset_to_undo
from stabilizer.remedies.lower_entropy_bonus import LowerEntropyBonus
from stabilizer.remedies.lower_lr import LR, LowerLr
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
    """Return to a state from before the incident, and take its cause away.

    What it does
        Returns to the newest verified checkpoint older than the earliest onset of the incident's findings, changes what
        caused it and draws the prompts ahead in another order; not where the change gives a setting back its former
        value, for then the cause is known and one thing changes at a time. Where the run learned on after that onset,
        or nothing older is within reach, its best or the damage itself takes the onset's place; where the reward was in
        doubt until then, the doubt does.

    For
        Damage that is in the weights: turning a knob afterwards does not bring the reward back. The newest checkpoint
        is often taken after the trouble began, so the target is chosen by the onset and not by the reward.

    Preconditions
        Damage (a critical finding), and a checkpoint older than the onset. Going back with the cause in place would
        only replay the failure; where no cause can be told, or single steps leapt and those since are as small as
        before, other prompts ahead are the change, and a smaller learning rate is the second answer.
        More than 50 steps, and what meets a trouble outside of the trainer again, go only where held-out accuracy has
        fallen, or is not known. By itself only where it wins something: the present weights and those of the checkpoint
        answer four of the batches that come next, under the knobs, engine and reward as they are, and the held-out
        problems. Where the checkpoint is paid no more and solves no more, by two standard errors, the trouble is not in
        the weights, and the run stays; it is asked again after 20 steps, then 40 and so on.

    Dose and bounds
        A setting that was changed around the onset gets its former value. Where none was, the learning rate is halved,
        a quarter of the configured one at the least, and warms up again; a cause that has a knob of its own (clip
        range, passes, entropy bonus) has that turned instead. Twice a cause.

    Undo
        The knob goes back; the branch that was left stays readable.

    Side effects
        The steps since the checkpoint are lost; to ask what would be won costs about four more. Nothing is learned from
        the answers, and the run goes on as if nobody had asked; but a reward function of your own that remembers its
        calls (a cache, a curriculum by calls) sees these as well.

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
    why = "the weights are damaged: only a state from before the onset learns again, and only without what damaged it"
    expects = "the incident's findings are quiet, and the reward is no lower than at the checkpoint and before the fix"

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return _LOWER_LR.change(knobs)

    def against(self, cause: str, knobs: Mapping[str, float]) -> Change | None:
        """The cause's own knob, or the learning rate where it has none or stands at its bound."""
        own = _OWN.get(cause)
        return (own.change(knobs) if own else None) or self.change(knobs)

    def outlived(self, cause: str) -> tuple[str, ...]:
        return _OWN[cause].outlived_by if cause in _OWN else ()

    def given(
        self, cause: str, knobs: Mapping[str, float], view: RunView, onset: int, ours: Mapping[str, int] = NOBODY
    ) -> Change | None:
        """What was changed around the onset is changed back; else what answers the cause, if that is known and goes on.

        A leap that is over is answered by other prompts ahead: half the rate for good would be the price of one step.
        """
        if back := turned_back(view, onset, ours):
            return back
        known = cause in self.answers and not (cause == "lr-too-high" and leapt(view, onset))
        if not known:
            return {}
        own = _OWN.get(cause)
        return (own.given(cause, knobs, view, onset, ours) if own else None) or self.against(cause, knobs)

    def course(self, change: Change, knobs: Mapping[str, float]) -> Course:
        """As the remedy whose change it is would: a lowered rate warms up, a critic is left alone for a while."""
        own = [remedy for remedy in _OWN.values() if remedy.change(knobs) == change]
        return (own[0] if own else _LOWER_LR).course(change, knobs) if own or LR in change else {}

    def objection(self, now: Situation) -> str | None:
        return objection_to_return(now)

    def onset(self, now: Situation) -> int:
        return onset_to_undo(now)
