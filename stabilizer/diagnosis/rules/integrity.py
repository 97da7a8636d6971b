"""Something is broken as a matter of fact: numbers, rewards, groups, engines, machines, data."""

from __future__ import annotations

import numpy as np

from stabilizer.diagnosis.case import Case
from stabilizer.diagnosis.rules.base import FITS, NO, PROOF, SIGNATURE, TURNED, WEAK, Table, Verdict
from stabilizer.records import Finding


def overflow(case: Case) -> Verdict:
    """Loss or gradient is no number."""
    found = case.find("numerics/non-finite")
    if found is None:
        return NO
    if "reward/mean" in _metrics(found):
        return 0.3, ["the reward itself is no number"]
    return 0.6, [f"{found.summary}: overflow, a division by zero, or a reward that is no number"]


def precision(case: Case) -> Verdict:
    """Too few bits: float16 overflows at 65,504, and bfloat16 weights swallow steps below 1/256 of their size."""
    words = case.words("precision", "dtype", "torch_dtype", "actor_rollout_ref.actor.fsdp_config.dtype")
    half = "float16" in words.replace("bfloat16", "") or case.view.config("fp16") is True
    if half and case.find("numerics/non-finite"):
        return SIGNATURE, ["training in float16, which overflows at 65,504, and a number stopped being one"]
    moved = case.recent("optim/update_ratio")
    idle = case.find("optim/no-update", "optim/lr-too-low")
    if words == "bfloat16" and idle and moved is not None and moved < 1e-6:
        return SIGNATURE, [
            f"weights kept in bfloat16 hold 8 bits, and a step changes them by {moved:.1g} of their size"
        ]
    if "16" in words and case.find("policy/mismatch"):
        return WEAK, [f"engine and trainer disagree, and the numbers are {words}"]
    return NO


def reward_fails(case: Case) -> Verdict:
    """Rewards are missing, are no numbers, or changed their unit."""
    outage, scale = case.find("reward/outage"), case.find("reward/scale-shift")
    if outage is not None:
        return TURNED, [outage.summary]
    broken = case.find("numerics/non-finite")
    if broken is not None and "reward/mean" in _metrics(broken):
        return TURNED, ["the reward is no number: a reward function returned NaN or infinity"]
    return (SIGNATURE, [scale.summary]) if scale is not None else NO


def reward_fell_alone(case: Case) -> Verdict:
    """The reward fell off an edge while the policy stood still: the price changed, not what was made."""
    reward = case.reward
    if reward is None or not reward.dropped:
        return NO
    edge = reward.drop_step
    rewards = case.view.series(reward.metric)
    before, after = (rewards.between(*span).finite().values for span in ((edge - 8, edge - 2), (edge + 2, edge + 6)))
    if len(before) < 3 or len(after) < 3 or np.median(before) - np.median(after) < 0.6 * (reward.best - reward.now):
        return NO
    still = []
    for name in ("policy/entropy", "policy/kl_ref", "policy/kl_old", "optim/update_ratio"):
        series = case.view.series(name)
        usual = series.between(edge - 40, edge - 10).finite().values
        then = series.between(edge - 4, edge + 4).finite().values
        if len(usual) < 5 or len(then) < 3:
            continue
        if abs(np.median(then) - np.median(usual)) > max(3 * np.std(usual), 0.3 * abs(np.median(usual))):
            return NO
        still.append(name)
    words = f"the reward fell within a few steps at {edge} while {', '.join(still)} did not move"
    if case.find("system/data-shift"):  # other prompts do the same to the reward, and they were seen to be others
        return (WEAK, [words]) if still else NO
    return (0.45 + 0.1 * len(still), [words]) if still else NO


def wrong_groups(case: Case) -> Verdict:
    """Advantages of a group do not add up to nothing: they compare answers to different prompts."""
    error = _invariant(case, "reward/advantage_center_error")
    return (PROOF, [f"{error.summary}; advantages of one group must add up to 0"]) if error else NO


def stale_weights(case: Case) -> Verdict:
    """The answers were written by older weights than those that learn."""
    if error := _invariant(case, "rollout/sync_error", "rollout/sync_retries"):
        return PROOF, [error.summary]
    reasons = [found.summary for found in case.findings if found.id == "policy/stale-rollouts"]
    late = case.shift("rollout/staleness")
    if late is not None and late.after > max(2 * late.before, late.before + 1):
        reasons.append(f"answers are {late.after:.0f} updates old, {late.before:.0f} before step {case.onset}")
        reasons += [first] if (first := case.led("rollout/staleness")) else []
    elif not reasons and _disagree(case) and _grows(case, "policy/mismatch_kl"):
        return FITS, ["engine and trainer disagree more with every step, as when the engine's weights stay behind"]
    return (min(0.6 + 0.15 * (len(reasons) - 1), 0.9), reasons) if reasons else NO


def engine_mismatch(case: Case) -> Verdict:
    """Generation and training give the same token different probabilities on the same weights."""
    error = _invariant(case, "policy/ratio_first_error")
    found = _disagree(case)
    first = case.led("policy/mismatch_kl")
    if not (error or found or first):
        return NO
    reasons = [f.summary for f in (error, found) if f] + ([first] if first else [])
    old = case.shift("rollout/staleness")
    if old is not None and old.after <= old.before:
        reasons.append(f"staleness ({old.after:.0f} updates) did not change, which excludes old weights")
    turn = case.turned("control/temperature", up=True) or case.turned("control/temperature", up=False)
    return min(0.5 + 0.1 * len(reasons) + (0.1 if turn else 0), 0.9), reasons + ([str(turn)] if turn else [])


def tool_broken(case: Case) -> Verdict:
    """The tool gives nothing back, so using it stopped paying."""
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


def critic_broken(case: Case) -> Verdict:
    """The critic misleads, and advantages are made of what it says."""
    found = case.find("value/critic-failure")
    if found is None:
        return NO
    first = case.led("value/explained_variance")
    return (0.8, [found.summary, first]) if first else (SIGNATURE, [found.summary])


def optimizer_state(case: Case) -> Verdict:
    """The optimizer's running averages are not those of this run."""
    found = case.find("optim/optimizer-state", "system/resume-mismatch")
    if found is None:
        return NO
    resumed = [e for e in case.view.events(("resume",)) if abs(e.step - found.onset_step) <= 20 * case.spacing]
    reasons = [found.summary, *(f"the run was resumed at step {event.step}" for event in resumed[-1:])]
    return (0.85 if resumed else SIGNATURE), reasons


def data_shift(case: Case) -> Verdict:
    """Other prompts than before."""
    found = case.find("system/data-shift")
    staged = [e for e in case.view.events(("data-stage",)) if abs(e.step - case.onset) <= 20 * case.spacing]
    if staged:
        return 0.85, [f"a data stage began at step {staged[-1].step}: {staged[-1].text}"]
    return (SIGNATURE, [found.summary]) if found else NO


def crash(case: Case) -> Verdict:
    """The process or a worker died, or the machine is slower than it was."""
    found = case.find("system/crashed", "system/stalled", "system/slowdown")
    if found is None or _memory(found):
        return NO
    return (FITS if found.id == "system/slowdown" else 0.8), [found.summary]


def memory(case: Case) -> Verdict:
    """Memory ran out, by the words of the error."""
    found = case.find("system/crashed")
    return (PROOF, [found.summary]) if found is not None and _memory(found) else NO


def config_error(case: Case) -> Verdict:
    """The trainer refused its configuration."""
    found = case.find("system/config-error")
    return (PROOF, [found.summary]) if found is not None else NO


def _memory(found: Finding) -> bool:
    text = f"{found.evidence.get('kind', '')} {found.summary}".lower().replace("-", " ")
    return any(words in text for words in ("out of memory", "outofmemory", "oom", "memory killed"))


def _metrics(found: Finding) -> tuple[str, ...]:
    several = found.evidence.get("metrics", ())
    return (str(found.evidence.get("metric", "")), *(several if isinstance(several, (list, tuple)) else ()))


def _invariant(case: Case, *names: str) -> Finding | None:
    """The broken invariant, when it is about one of these metrics."""
    return next((f for f in case.findings if f.id == "system/invariant" and set(names) & set(_metrics(f))), None)


def _disagree(case: Case) -> Finding | None:
    return case.find("policy/mismatch", "policy/router-shift")


def _grows(case: Case, name: str) -> bool:
    """It kept growing since the onset, rather than stepping up to a new level."""
    since = case.view.series(name).between(case.onset, case.view.step).finite().values
    thirds = np.array_split(since, 3)
    return len(since) >= 15 and bool(1.5 * np.median(thirds[0]) < np.median(thirds[1]) < np.median(thirds[2]) / 1.3)


RULES: Table = (
    ("config-error", config_error),
    ("out-of-memory", memory),
    ("infrastructure", crash),
    ("numeric-overflow", overflow),
    ("precision", precision),
    ("reward-fault", reward_fails),
    ("reward-fault", reward_fell_alone),
    ("wrong-groups", wrong_groups),
    ("stale-weights", stale_weights),
    ("engine-mismatch", engine_mismatch),
    ("tool-broken", tool_broken),
    ("critic-broken", critic_broken),
    ("optimizer-state", optimizer_state),
    ("data-shift", data_shift),
)
