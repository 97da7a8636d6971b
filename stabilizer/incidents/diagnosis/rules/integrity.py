"""Something is broken as a fact: numbers, rewards, groups, engines, machines, data."""

from __future__ import annotations

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.core.stats import middle
from stabilizer.detectors.system.first_rows import PROVED, silent_parts
from stabilizer.incidents.diagnosis.case import MARGIN, TOGETHER, Case
from stabilizer.incidents.diagnosis.graph import is_integrity
from stabilizer.incidents.diagnosis.rules.base import (
    FITS,
    NO,
    OBSERVED,
    PROOF,
    SIGNATURE,
    TURNED,
    UNLIKELY,
    WEAK,
    Rule,
    Table,
    Verdict,
)
from stabilizer.runs.stalls import STALLS
from stabilizer.trainers.settings import keys_of

HOTTER = 2.0
"""Factor from which entropy rises between two rows more than other prompts usually make it."""


def overflow(case: Case) -> Verdict:
    """Loss or gradient is NaN or infinite."""
    found = case.find("numerics/non-finite")
    if found is None:
        return NO
    if "reward/mean" in _metrics(found):
        return 0.3, ["the reward itself is NaN or infinite"]
    return 0.6, [
        f"{found.summary}: overflow (float16 in a model made for bfloat16), a batch whose labels or answers"
        " are all masked or empty, a division by zero, or a reward that is NaN or infinite"
    ]


def precision(case: Case) -> Verdict:
    """Too few bits: float16 overflows at 65,504, and bfloat16 weights lose steps below 1/256 of their size."""
    words = case.words(*keys_of("precision"), "dtype")
    half = "float16" in words.replace("bfloat16", "") or case.view.config("fp16") is True
    if half and case.find("numerics/non-finite"):
        return SIGNATURE, ["training runs in float16, which overflows at 65,504, and a value became non-finite"]
    moved = case.recent("optim/update_ratio")
    idle = case.find("optim/no-update", "optim/lr-too-low")
    if words == "bfloat16" and idle and moved is not None and moved < 1e-6:
        return 0.75, [
            f"weights are kept in bfloat16 with 8 bits, and the relative change of a step is only {moved:.1g}"
        ]
    if "16" in words and case.find("policy/mismatch"):
        return WEAK, [f"engine and trainer disagree, and the precision is {words}"]
    return NO


def frozen(case: Case) -> Verdict:
    """Updates are made but the weights do not change: a gradient that is not applied, or an optimizer without the
    weights."""
    found = case.find("optim/no-update")
    if found is None or found.severity == "info" or case.recent("optim/lr") == 0:
        return NO
    silent, pull = case.recent("reward/zero_std_frac"), case.recent("optim/grad_norm")
    if silent is not None and silent >= 0.8:
        return NO
    broken = case.find("numerics/non-finite")
    if broken is not None and broken.onset_step <= found.onset_step + MARGIN * case.spacing:
        return UNLIKELY, [found.summary, "but non-finite gradients cannot be applied, which explains it"]
    spread = (
        [f"only {silent:.0%} of groups lack spread, so there is something to learn from"] if silent is not None else []
    )
    where = [f"the gradient norm is {pull:.3g}, so the gradient is computed but not applied"] if pull else []
    return SIGNATURE, [found.summary, *spread, *where]


def reward_fails(case: Case) -> Verdict:
    """Rewards are missing, are NaN or infinite, changed their unit, or one of their functions never pays."""
    outage, scale = case.find("reward/outage"), case.find("reward/scale-shift")
    if outage is not None and _tool(case, outage):
        return WEAK, [outage.summary]
    if outage is not None:
        return TURNED, [outage.summary]
    broken = case.find("numerics/non-finite")
    if broken is not None and "reward/mean" in _metrics(broken):
        return TURNED, ["the reward is not a number: a reward function returned NaN or infinity"]
    dominated = case.find("reward/hacking", "reward/component-dominance")
    if dominated is not None and (silent := silent_parts(case.view)):
        return OBSERVED, [f"{silent}, from the first row on: it may not recognise a right answer"]
    if scale is None:
        return NO
    if part := case.newly_paid:
        return FITS, [scale.summary, f"but {part}"]
    if scale.onset_step > case.onset + 3 * MARGIN * case.spacing:
        return UNLIKELY, [scale.summary, f"but the problem began at step {case.onset}"]
    return SIGNATURE, [scale.summary]


def wrong_groups(case: Case) -> Verdict:
    """Advantages of a group do not add up to zero: they compare answers to different prompts."""
    error = _invariant(case, "reward/advantage_center_error")
    return (PROOF, [f"{error.summary}; advantages of one group must add up to 0"]) if error else NO


def single_answers(case: Case) -> Verdict:
    """The algorithm compares the answers of a group, and groups have one answer."""
    if found := _invariant(case, "batch/group_size"):
        return PROOF, [found.summary]
    found = _invariant(case, "reward/std_group")
    return (FITS, [found.summary]) if found else NO


def stale_weights(case: Case) -> Verdict:
    """Older weights than those being trained generated the answers."""
    error = _invariant(case, "rollout/sync_error", "rollout/sync_retries", "rollout/weight_version") or _off_after_sync(
        case
    )
    if error:
        return PROOF, [error.summary]
    reasons = [found.summary for found in case.findings if found.id == "policy/stale-rollouts"]
    late = case.shift("rollout/staleness")
    if late is not None and late.after > max(2 * late.before, late.before + 1):
        reasons.append(f"answers are {late.after:.0f} updates old, up from {late.before:.0f} before step {case.onset}")
        reasons += [first] if (first := case.led("rollout/staleness")) else []
    elif not reasons and _disagree(case) and _grows(case, "policy/mismatch_kl"):
        return FITS, ["engine and trainer disagree more with every step, as when the engine's weights are not updated"]
    return (min(0.6 + 0.15 * (len(reasons) - 1), 0.9), reasons) if reasons else NO


def engine_mismatch(case: Case) -> Verdict:
    """Generation and training give the same token different probabilities on the same weights."""
    error = _invariant(case, "policy/ratio_first_error", "policy/mismatch_kl")
    found = _disagree(case)
    first = case.led("policy/mismatch_kl")
    if not (error or found or first):
        return NO
    reasons = [f.summary for f in (error, found) if f] + ([first] if first else [])
    if _off_after_sync(case):
        return FITS, [*reasons, "but the engine lacks the newest weights, which explains it"]
    old = case.shift("rollout/staleness")
    if old is not None and old.after <= old.before:
        reasons.append(f"staleness ({old.after:.0f} updates) did not grow, which excludes old weights")
    turn = case.turned("control/temperature", up=True) or case.turned("control/temperature", up=False)
    return min(0.5 + 0.1 * len(reasons) + (0.1 if turn else 0), 0.9), reasons + ([str(turn)] if turn else [])


def tool_broken(case: Case) -> Verdict:
    """The tool returns nothing, so using it is no longer rewarded."""
    found = case.find("rollout/tool-collapse")
    if found is None:
        return NO
    invalid, read = case.shift("rollout/invalid_calls_frac"), case.shift("rollout/retrieved_frac")
    reasons = [found.summary]
    if invalid is not None and invalid.after > invalid.before + 0.1:
        reasons.append(f"{invalid.after:.0%} of calls are invalid, {invalid.before:.0%} before step {case.onset}")
    if read is not None and read.after < 0.5 * read.before:
        reasons.append(f"{read.after:.0%} of tokens come from the tool, {read.before:.0%} before")
    return min(0.45 + 0.15 * (len(reasons) - 1), 0.8), reasons


def tool_misleads(case: Case) -> Verdict:
    """The tool is called as often as before, and its answers are worth less, in training and in held-out evaluation."""
    asked, reward = case.shift("rollout/searches_mean"), case.reward
    if asked is None or reward is None or not reward.dropped or case.find("rollout/tool-collapse"):
        return NO
    if (held := case.held_out(case.onset)) is None:
        return NO
    if asked.before < 0.3 or asked.after < 0.7 * asked.before or held.after > 0.7 * held.before - 0.05:
        return NO
    if not case.same_steps or case.upstream(case.onset, "source"):
        return NO
    words = f"held-out accuracy went from {held.before:.3g} to {held.after:.3g} and {reward.metric} to {reward.now:.3g}"
    how = f"the tool is called as often ({asked.after:.2g} times an answer) and {case.same_steps}"
    return 0.65, [f"{words}, while {how}: both depend on the tool"]


def critic_broken(case: Case) -> Verdict:
    """The critic misleads, and advantages are built on it."""
    found = case.find("value/critic-failure")
    if found is None:
        return NO
    if found is case.untaught:
        return UNLIKELY, [found.summary, "but it never learned: such batches teach a critic as little"]
    first = case.led("value/explained_variance")
    return (0.8, [found.summary, first]) if first else (SIGNATURE, [found.summary])


def optimizer_state(case: Case) -> Verdict:
    """The optimizer's moments are not those of this run."""
    found = case.find("optim/optimizer-state", "system/resume-mismatch")
    if found is None or (found.id == "system/resume-mismatch" and "signs" not in found.evidence):
        return NO  # without signs, only the reference differs from the start, which is usual in distillation
    resumed = [e for e in case.view.events(("resume",)) if abs(e.step - found.onset_step) <= 20 * case.spacing]
    if found.onset_step > case.onset + 3 * MARGIN * case.spacing:
        return UNLIKELY, [found.summary, f"but the problem began at step {case.onset}"]
    if not resumed and (more := case.multiplied):
        return UNLIKELY, [
            found.summary,
            f"but a step has made {more.after:.0f} updates since, {more.before:.0f} before",
        ]
    reasons = [found.summary, *(f"the run was resumed at step {event.step}" for event in resumed[-1:])]
    return (0.85 if resumed else SIGNATURE), reasons


def data_shift(case: Case) -> Verdict:
    """Other prompts than before."""
    found = case.find("system/data-shift")
    staged = [e for e in case.view.events(("data-stage",)) if abs(e.step - case.onset) <= 20 * case.spacing]
    if staged:
        return 0.85, [f"a data stage began at step {staged[-1].step}: {staged[-1].text}"]
    if found is None:
        return NO
    if "gap" in found.evidence:  # memorisation, which looks like a gap in the reward
        return (0.6 if case.find("reward/hacking") else SIGNATURE), [found.summary]
    cut = case.find("rollout/truncation")
    if cut is not None and cut.onset_step <= found.onset_step + 2 * case.spacing:
        return UNLIKELY, [
            found.summary,
            "but answers are truncated from then on, which shortens them and lowers the reward",
        ]
    fled = case.find("policy/kl-runaway")
    if fled is not None and case.hastened and fled.onset_step < found.onset_step:
        return UNLIKELY, [found.summary, f"but {case.hastened}"]
    entropy = case.jumped("policy/entropy", found.onset_step, HOTTER)
    if entropy is not None and entropy[1] > entropy[0]:
        words = f"but entropy rose from {entropy[0]:.2g} to {entropy[1]:.2g} in the same rows"
        return WEAK, [found.summary, f"{words}, as after a rise of the sampling temperature"]
    return 0.75, [found.summary, *_same_policy(case)]


def crash(case: Case) -> Verdict:
    """The process or a worker died, or the machine is slower than it was."""
    found = case.find("system/crashed", "system/stalled", "system/slowdown") or _message(case)
    if found is None or _stopped_by(found) in ("out-of-memory", "program-error", "config-error", *STALLS):
        return NO
    return (FITS if found.id == "system/slowdown" else 0.8), [found.summary]


def program(case: Case) -> Verdict:
    """The program stopped with an exception of its own."""
    found = case.find("system/crashed") or _message(case)
    return (PROOF, [found.summary]) if found is not None and _stopped_by(found) == "program-error" else NO


def memory(case: Case) -> Verdict:
    """Memory ran out, according to the error in the log."""
    found = case.find("system/crashed") or _message(case)
    return (PROOF, [found.summary]) if found is not None and _stopped_by(found) == "out-of-memory" else NO


def leak(case: Case) -> Verdict:
    """Memory in use grows step by step."""
    found = case.find("system/memory-growth")
    if found is None:
        return NO
    return (0.5 if "answers grew" in found.summary else FITS), [found.summary]


def config_error(case: Case) -> Verdict:
    """The trainer rejected its configuration. A check at which a log ends explains nothing that was measured before."""
    found = case.find("system/config-error")
    if found is not None and any(not is_integrity(f.id) and f.onset_step < found.onset_step for f in case.findings):
        return NO
    if found is None and (other := case.find("system/crashed") or _message(case) or _proven(case)):
        found = other if _stopped_by(other) == "config-error" else None
    return (PROOF, [found.summary]) if found is not None else NO


PROVEN = (
    "capped-length", "dead-groups", "reward-fault", "weights-frozen", "still-warming-up", "lr-too-high",
    "exploration-exhausted",
)  # fmt: skip
"""Causes that the first rows of a log can show."""


def proven(cause: str) -> Rule:
    """What the first rows of a log prove already."""

    def rule(case: Case) -> Verdict:
        found = _proven(case)
        if found is None or _stopped_by(found) != cause:
            return NO
        return (PROOF if found.evidence.get("confidence", PROVED) >= PROVED else FITS), [found.summary]

    return rule


def _proven(case: Case) -> Finding | None:
    """What the first rows prove, and the cause with it."""
    return next((found for found in case.findings if "facts" in found.evidence and _stopped_by(found)), None)


def located(cause: str) -> Rule:
    """What a watchdog saw in a stalled process."""

    def rule(case: Case) -> Verdict:
        found = case.find("system/stalled")
        return (
            (TURNED, [str(found.evidence.get("what", found.summary))]) if found and _stopped_by(found) == cause else NO
        )

    return rule


def _message(case: Case) -> Finding | None:
    """A known message of the log. One that is mere information explains nothing that was measured."""
    found = case.find("system/known-trouble")
    alone = all(f.id == "system/known-trouble" for f in case.findings)
    return found if found is not None and (alone or found.severity != "info") else None


def _stopped_by(found: Finding) -> str:
    """The cause that the log itself states for a crash; else empty."""
    return str(found.evidence.get("cause", ""))


def _metrics(found: Finding) -> tuple[str, ...]:
    several = found.evidence.get("metrics", ())
    return (str(found.evidence.get("metric", "")), *(several if isinstance(several, (list, tuple)) else ()))


def _invariant(case: Case, *names: str) -> Finding | None:
    """The broken invariant, when it is about one of these metrics."""
    return next((f for f in case.findings if f.id == "system/invariant" and set(names) & set(_metrics(f))), None)


def _off_after_sync(case: Case) -> Finding | None:
    """Weights that were sent but did not arrive: the engine's answer to a fixed text shows it."""
    return next(
        (f for f in case.findings if f.id == "policy/stale-rollouts" and "rollout/sync_error" in _metrics(f)), None
    )


def _same_policy(case: Case) -> list[str]:
    """Evidence for other prompts rather than another policy: held-out problems stay the same."""
    held = case.shift("accuracy/val")
    if held is None or abs(held.after - held.before) > 0.05:
        return []
    return [f"held-out accuracy, whose problems stay the same, is still {held.after:.3g}"]


def _tool(case: Case, outage: Finding) -> bool:
    """Whether the tool collapsed no later than rewards went missing, so that the tool probably fails."""
    tool = case.find("rollout/tool-collapse")
    return tool is not None and tool.onset_step <= outage.onset_step + TOGETHER * case.spacing


def _disagree(case: Case) -> Finding | None:
    return case.find("policy/mismatch", "policy/router-shift")


def _grows(case: Case, name: str) -> bool:
    """Whether it has kept growing since the onset, rather than stepping up to a new level."""
    since = case.view.series(name).between(case.onset, case.view.step).finite().values
    thirds = np.array_split(since, 3)
    return len(since) >= 15 and bool(1.5 * middle(thirds[0]) < middle(thirds[1]) < middle(thirds[2]) / 1.3)


RULES: Table = (
    *((cause, proven(cause)) for cause in PROVEN),
    *((cause, located(cause)) for cause in STALLS),
    ("config-error", config_error),
    ("out-of-memory", memory),
    ("memory-leak", leak),
    ("infrastructure", crash),
    ("program-error", program),
    ("numeric-overflow", overflow),
    ("precision", precision),
    ("weights-frozen", frozen),
    ("reward-fault", reward_fails),
    ("wrong-groups", wrong_groups),
    ("single-answers", single_answers),
    ("stale-weights", stale_weights),
    ("engine-mismatch", engine_mismatch),
    ("tool-broken", tool_broken),
    ("tool-broken", tool_misleads),
    ("critic-broken", critic_broken),
    ("optimizer-state", optimizer_state),
    ("data-shift", data_shift),
)
