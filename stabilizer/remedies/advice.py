"""What only a person should do: these propose, and no mode applies them."""

from __future__ import annotations

from collections.abc import Mapping

from stabilizer.remedies.base import Change, Remedy


class Advice(Remedy):
    """One thing a person can do, in words that can be followed."""

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
        """`restart` says in words whether a run has to be started again; without it the advice is one of settings."""
        self.id, self.answers, self.why, self.by_hand, self.expects = id, answers, why, do, expects
        self.restart, self.of_settings = restart, not restart

    def change(self, knobs: Mapping[str, float]) -> Change | None:
        return {}


CHECK_REWARD = Advice(
    "check-reward", ("reward-fault",),
    why="what fails is the reward and not the policy: look at the verifier, its timeouts and its inputs first",
    do="score ten stored completions by hand and compare; look for timeouts, exceptions and a changed unit",
    expects="the reward is back at its level, for every completion, without any change to the policy",
    restart="looking needs no restart, a mended reward function does",
)  # fmt: skip
EASIER_PROMPTS = Advice(
    "easier-prompts", ("prompts-too-hard", "dead-groups"),
    why="a group in which every answer fails teaches nothing, at any learning rate",
    do="keep prompts the starting policy solves sometimes (pass rate 0.1 to 0.9), mix in easier ones, or give partial"
    " credit",
    expects="the share of all-fail groups falls under one half",
    restart="needs a restart, because the prompts are read at the start",
)  # fmt: skip

BY_HAND: tuple[Advice, ...] = (
    Advice(
        "sync-weights", ("stale-weights",),
        why="answers are written by weights that are no longer those that learn",
        do="hand the weights to the generation engine after every update, and check there that they arrived: the"
        " log-probabilities of a fixed text must agree to rounding",
        expects="staleness is back at its level and the ratio on the first update is 1",
        restart="needs a restart with the mended program",
    ),
    Advice(
        "patch-reward", ("reward-hackable",),
        why="the reward rises without the problem being solved more often",
        do="read the ten best-paid answers, close the gap they use, and go on from the checkpoint with the best"
        " held-out accuracy; until then more reward is no progress",
        expects="reward and held-out accuracy rise together",
        restart="needs a restart from that checkpoint, with the mended reward",
    ),
    Advice(
        "unpay-length", ("length-rewarded",),
        why="length is paid for, and the policy delivers length",
        do="average the loss over all tokens of the batch instead of per answer, take length out of the reward, or"
        " charge answers beyond the length that correct ones need",
        expects="length returns while accuracy stays",
    ),
    Advice(
        "fix-groups", ("wrong-groups",),
        why="advantages that do not add up to 0 within a group compare answers to different prompts: nothing learned"
        " so far can be trusted",
        do="stop; check that all answers of a prompt carry the same group id after shuffling, filtering and gathering"
        " across processes; start anew",
        expects="the mean advantage of every group is 0 to rounding",
        restart="needs a restart from the beginning",
    ),
    Advice(
        "declare-data", ("data-shift",),
        why="the numbers changed because the prompts did; levels from before are no yardstick",
        do="declare the change (a data-stage event) so that detectors start a new baseline; if no change was meant,"
        " look at the order and the shuffling of the data set",
        expects="held-out accuracy, whose problems stay the same, is unchanged",
        restart="declaring needs no restart, another order of the data does",
    ),
    Advice(
        "mend-tool", ("tool-broken",),
        why="calls that bring nothing back teach the policy not to call",
        do="call the tool by hand with ten stored queries; look for empty results, timeouts and a changed format; mask"
        " its tokens in the loss; go on from a checkpoint in which it was used",
        expects="calls come back, with results",
        restart="needs a restart from that checkpoint, with the mended tool",
    ),
    Advice(
        "stop-here", ("saturated",),
        why="there is nothing left to gain on these prompts",
        do="stop and keep the checkpoint with the best held-out accuracy, or go on with harder prompts",
        expects="held-out accuracy stays; on harder prompts the reward rises again",
        restart="stopping needs no restart, other prompts do",
    ),
    Advice(
        "steadier-reward", ("noise-floor",),
        why="the reward's own noise is larger than what a step can gain",
        do="judge answers more than once or more strictly, take more answers per prompt, or average over more prompts",
        expects="neighbouring steps' rewards agree more and the trend shows",
    ),
    Advice(
        "wait-for-warmup", ("still-warming-up",),
        why="the learning rate has not reached its value yet",
        do="wait until the warm-up is over before judging; shorten it if it takes more than a tenth of the run",
        expects="the reward moves once the rate is there",
        restart="waiting needs no restart, a shorter warm-up does",
    ),
    Advice(
        "more-bits", ("precision", "numeric-overflow"),
        why="numbers of this run need more range or more digits than their format has",
        do="keep weights and the last layer's logits in float32 (bfloat16 for the rest), never float16 for training",
        expects="no number is lost, and the weights move at every step",
    ),
    Advice(
        "fix-config", ("config-error",),
        why="the trainer refused this configuration before the first step",
        do="run `stabilizer preflight CONFIG`: it names the key, the rule and the nearest values that are valid",
        expects="the run starts",
        restart="needs a restart, because the run has ended",
    ),
    Advice(
        "save-memory", ("out-of-memory",),
        why="the device's memory ran out; what was learned since the last checkpoint is lost",
        do="halve the micro-batch (accumulation keeps the batch the same), then the longest completion; with a"
        " colocated engine lower its share of the memory; switch gradient checkpointing on",
        expects="the same step passes; resume from the last checkpoint",
        restart="needs a restart, because the run has ended",
    ),
    Advice(
        "connect-weights", ("weights-frozen",),
        why="steps are paid for and the weights stay as they are: no patience and no learning rate changes that",
        do="compare the optimizer's parameters with model.parameters() and their requires_grad (an adapter that was"
        " merged or frozen, a model wrapped after the optimizer was built), look for a loss made of detached"
        " log-probabilities and for a loss scaler that skips; one step by hand must change a weight",
        expects="the change of the weights per step is above 1e-6 of their size",
        restart="needs a restart with the mended program",
    ),
    Advice(
        "look-at-the-machine", ("infrastructure",),
        why="the run stopped or slowed down for a reason outside learning",
        do="read the last lines of every worker's log, look for a lost worker, a full disk or a slow network, and"
        " resume from the last checkpoint; the learning rate is not the problem",
        expects="steps are back at their pace",
        restart="a run that stopped needs a restart, one that is slow does not",
    ),
    Advice(
        "mend-the-program", ("program-error",),
        why="the program stopped with an exception of its own, and would stop there again",
        do="mend what the last lines of the traceback name, and resume from the last checkpoint",
        expects="the run passes the step at which it stopped",
        restart="needs a restart, because the run has ended",
    ),
)  # fmt: skip
"""Causes with no fix a machine should make."""
