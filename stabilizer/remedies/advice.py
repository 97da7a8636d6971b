"""Advice for a person: proposed only, never applied by any mode."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy
from stabilizer.runs.stalls import STALLS


class Advice(Remedy):
    """One action for a person, as an instruction."""

    safety = "advice"

    def __init__(
        self,
        id: str,
        answers: tuple[str, ...],
        *,
        why: str,
        do: str,
        expects: str,
        restart: str = "",
    ):
        """`restart` states whether a run must be started again; without it the advice is about settings."""
        self.id, self.answers, self.why, self.by_hand, self.expects = id, answers, why, do, expects
        self.restart, self.of_settings = restart, not restart

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return {}


CHECK_REWARD = Advice(
    "check-reward", ("reward-fault",),
    why="the reward fails, not the policy: check the verifier, its timeouts and its inputs first",
    do="score ten stored completions manually and compare; look for timeouts, exceptions and a changed unit",
    expects="the reward of every completion returns to its level without any change to the policy",
    restart="checking needs no restart, a fixed reward function does",
)  # fmt: skip
EASIER_PROMPTS = Advice(
    "easier-prompts", ("prompts-too-hard", "dead-groups"),
    why="a group in which every answer fails gives no gradient, at any learning rate",
    do="keep prompts the starting policy solves sometimes (pass rate 0.1 to 0.9), mix in easier ones, or give partial"
    " credit",
    expects="the share of all-fail groups falls below one half",
    restart="needs a restart, because the prompts are read at the start",
)  # fmt: skip

BY_HAND: tuple[Advice, ...] = (
    Advice(
        "sync-weights", ("stale-weights",),
        why="the engine generates answers with older weights than the learner has",
        do="send the weights to the generation engine after every update, and check that they arrived: the"
        " log-probabilities of a fixed text must agree to rounding",
        expects="staleness returns to its level and the ratio on the first update is 1",
        restart="needs a restart with the fixed program",
    ),
    Advice(
        "patch-reward", ("reward-hackable",),
        why="the reward rises, but the policy solves no more problems",
        do="read the ten answers with the highest reward, close the gap they use, and continue from the checkpoint with"
        " the best held-out accuracy; until then more reward is no progress",
        expects="reward and held-out accuracy rise together",
        restart="needs a restart from that checkpoint, with the fixed reward",
    ),
    Advice(
        "unpay-length", ("length-rewarded",),
        why="the reward favours length, so answers grow longer",
        do="average the loss over all tokens of the batch instead of per answer, remove length from the reward, or"
        " penalise answers longer than correct ones need to be",
        expects="length returns to its level and accuracy does not fall",
    ),
    Advice(
        "fix-groups", ("wrong-groups",),
        why="advantages that do not sum to 0 within a group compare answers to different prompts: nothing learned"
        " so far can be trusted",
        do="stop; check that all answers of a prompt carry the same group id after shuffling, filtering and gathering"
        " across processes; start again",
        expects="the mean advantage of every group is 0 to rounding",
        restart="needs a restart from the beginning",
    ),
    Advice(
        "declare-data", ("data-shift",),
        why="the metrics changed because the prompts changed, so earlier levels can't be compared",
        do="declare the change (a data-stage event) so that detectors start a new baseline; if no change was intended,"
        " check the order and the shuffling of the data set, and the sampling settings",
        expects="held-out accuracy, whose problems stay the same, is unchanged",
        restart="declaring needs no restart, a new data order does",
    ),
    Advice(
        "mend-tool", ("tool-broken",),
        why="calls that return nothing teach the policy not to call",
        do="call the tool manually with ten stored queries; look for empty results, timeouts and a changed format; mask"
        " its tokens in the loss; continue from a checkpoint in which it was used",
        expects="calls return results",
        restart="needs a restart from that checkpoint, with the fixed tool",
    ),
    Advice(
        "stop-here", ("saturated",),
        why="these prompts leave nothing to gain",
        do="stop and keep the checkpoint with the best held-out accuracy, or continue with harder prompts",
        expects="held-out accuracy does not fall; on harder prompts the reward rises again",
        restart="stopping needs no restart, other prompts do",
    ),
    Advice(
        "steadier-reward", ("noise-floor",),
        why="the noise of the reward is larger than the gain of one step",
        do="judge answers more than once or more strictly, take more answers per prompt, or average over more prompts",
        expects="rewards of neighbouring steps differ less and the trend shows",
    ),
    Advice(
        "wait-for-warmup", ("still-warming-up",),
        why="the learning rate is still warming up",
        do="wait until the warm-up is over before judging; shorten it if it takes more than a tenth of the run",
        expects="the reward moves once the warm-up is over",
        restart="waiting needs no restart, a shorter warm-up does",
    ),
    Advice(
        "more-bits", ("precision", "numeric-overflow"),
        why="some numbers of this run need more range or precision than their format has",
        do="keep weights and the last layer's logits in float32 (bfloat16 for the rest), never float16 for training",
        expects="no value overflows or underflows, and the weights move at every step",
    ),
    Advice(
        "fix-config", ("config-error",),
        why="a setting does not fit the program, the machine or another setting",
        do="run `stabilizer preflight CONFIG`: it names the key, the rule and the nearest values that are valid",
        expects="the run starts",
        restart="needs a restart, because the run has ended",
    ),
    Advice(
        "save-memory", ("out-of-memory",),
        why="the device ran out of memory; progress since the last checkpoint is lost",
        do="halve the micro-batch (accumulation keeps the batch the same), then the longest completion; with a"
        " colocated engine lower its share of the memory; switch gradient checkpointing on",
        expects="the same step passes; resume from the last checkpoint",
        restart="needs a restart, because the run has ended",
    ),
    Advice(
        "stop-the-growth", ("memory-leak",),
        why="memory in use grows with every step, and the run ends when it is gone",
        do="look for what grows: a list that keeps tensors (losses with their graph, log-probabilities), completions"
        " kept for logging, workers of a data loader, a cache without a limit; on a GPU also try"
        " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation. Until it is found, save often, and"
        " restart from a checkpoint before the memory is gone (`stabilizer supervise` restarts after a kill)",
        expects="memory in use stays level",
        restart="needs a restart with the fixed program",
    ),
    Advice(
        "connect-weights", ("weights-frozen",),
        why="steps cost time and the weights do not change: waiting or a higher learning rate will not help",
        do="compare the optimizer's parameters with model.parameters() and their requires_grad (an adapter that was"
        " merged or frozen, a model wrapped after the optimizer was built); with an adapter and gradient checkpointing"
        " set use_reentrant to False or call model.enable_input_require_grads(); look for a loss made of detached"
        " log-probabilities and for a loss scaler that skips; one manual step must change a weight",
        expects="the change of the weights per step is above 1e-6 of their size",
        restart="needs a restart with the fixed program",
    ),
    Advice(
        "look-at-the-machine", ("infrastructure",),
        why="the run stopped or slowed down for a reason outside learning",
        do="read the last lines of every worker's log, look for a lost worker, a full disk or a slow network, and"
        " resume from the last checkpoint; the learning rate is not the problem",
        expects="steps take their usual time again",
        restart="a stopped run needs a restart, a slow one does not",
    ),
    Advice(
        "free-the-run", STALLS,
        why="a phase of the run does not end, and the machine costs as much as one that works",
        do="look at the line that the finding names and at the stacks in heartbeats/ of the run directory; end the run"
        " if it can't go on, and resume from the last checkpoint (`stabilizer supervise` does both)",
        expects="the phase takes its usual time again",
        restart="a stuck process needs a restart, a slow one does not",
    ),
    Advice(
        "mend-the-program", ("program-error",),
        why="without a change the program would do the same again",
        do="fix the fault that the last lines of the traceback name, and resume from the last checkpoint",
        expects="the run passes the step at which it stopped",
        restart="needs a restart, because the run has ended",
    ),
)  # fmt: skip
"""Causes that only a person should fix."""
