"""The reward rewards the wrong thing or nothing, or answers are truncated before they can earn it."""

from __future__ import annotations

from stabilizer.detectors.evidence.departure import creep
from stabilizer.detectors.evidence.settings import penalised
from stabilizer.incidents.diagnosis.case import MARGIN, SOON, TOGETHER, Case
from stabilizer.incidents.diagnosis.graph import STAGES, is_integrity, stage
from stabilizer.incidents.diagnosis.rules.base import (
    FITS,
    NO,
    OBSERVED,
    SIGNATURE,
    TURNED,
    UNLIKELY,
    WEAK,
    Table,
    Verdict,
    few_prompts,
)
from stabilizer.incidents.diagnosis.rules.edge import fell_while_standing

PAID = STAGES.index("behaviour")
"""The first stage that the reward determines."""
MOSTLY = 0.5
"""Share of cut answers, before and since, from which most answers are never judged, so nothing else need be wrong."""
PENALTY = 0.25
"""Share of what the reward lost that it must have gained after the KL penalty; noise of both is the same. A choice."""
LONGER = 1.5
"""Growth of answers since the start of the run from which the limit only reveals it."""
SHIFT = "reward/scale-shift"
NORMALISER = ("policy.advantage", "scale_rewards", "algorithm.norm_adv_by_std_in_grpo")
"""Settings of trainers that say by what advantages are divided ..."""
BY_GROUP = ("", "group_std", "group", "true")
"""... and their values for the spread of the group, which is also the default."""


def hackable(case: Case) -> Verdict:
    """The reward can be earned without solving the problem."""
    found = case.find("reward/hacking")
    if found is None:
        share = case.find("reward/component-dominance")
        if words := _paid_and_not_solved(case):
            return 0.75, [words]
        told = [f for f in case.findings if f.severity != "info" and (stage(f.id) >= PAID or f.id == SHIFT)]
        if case.newly_paid and told and not case.upstream(told[0].onset_step, "source"):
            return 0.75, [case.newly_paid, told[0].summary]
        loops = case.find("rollout/repetition", "rollout/language-drift")
        if share is not None:
            return FITS, [share.summary]
        if loops is not None and case.reward and case.reward.rising:
            return FITS, [loops.summary, f"{case.reward.metric} rises nevertheless ({case.reward.now:.3g})"]
        return NO
    reasons = [found.summary]
    for name in ("accuracy/val", "accuracy/train"):
        held = case.shift(name)
        if held is not None and held.after <= held.before:
            reasons.append(f"{name} went from {held.before:.3g} to {held.after:.3g} since step {case.onset}")
            break
    return SIGNATURE + 0.1 * (len(reasons) - 1), reasons


def _paid_and_not_solved(case: Case) -> str:
    """A sentence when the reward did not fall while most problems are no longer solved; else empty."""
    paid, solved = case.shift("reward/mean"), case.shift("accuracy/train")
    pay, right = (case.recent(name) for name in ("reward/mean", "accuracy/train"))
    if paid is None or solved is None or pay is None or right is None or solved.before < 0.1:
        return ""
    noise = float(case.rows("reward/mean", case.onset, -30, 0).std())
    if pay < paid.before - 0.5 * noise or right > 0.5 * solved.before:
        return ""
    told = f"reward/mean {paid.before:.3g} to {pay:.3g}, accuracy/train {solved.before:.3g} to {right:.3g}"
    return f"the reward did not fall while accuracy did ({told}, before step {case.onset} and now)"


def length_rewarded(case: Case) -> Verdict:
    """Longer (or shorter) answers get a higher reward, correct or not."""
    found = case.find("rollout/length-explosion", "rollout/length-collapse")
    length = case.shift("rollout/length_mean")
    if found is None and not (case.find("reward/hacking") and length and not 0.67 < length.ratio < 1.5):
        return NO
    reasons = [found.summary] if found else []
    if found is None and length is not None:
        reasons = [f"answers went from {length.before:.0f} to {length.after:.0f} tokens"]
    broken = next((f for f in case.findings if is_integrity(f.id) and f.onset_step <= case.onset + MARGIN), None)
    if broken is not None and found is not None and found.id == "rollout/length-collapse":
        return UNLIKELY, [*reasons, f"but {broken.id} occurred at the same time"]
    pays, came = case.recent("rollout/length_reward_corr"), case.shift("rollout/length_reward_corr")
    sign = 1 if length is None or length.ratio > 1 else -1
    if pays is not None and sign * pays > 0.3:
        reasons.append(f"length and reward are correlated ({pays:.2f})")
    elif came is not None and sign * came.after > 0.1 and sign * (came.after - came.before) > 0.1:
        reasons.append(f"length and reward became correlated ({came.before:.2f} to {came.after:.2f})")
    paid = case.shift("reward/mean")
    right = case.shift("accuracy/val") or case.shift("accuracy/train")
    fell = case.reward is not None and case.reward.dropped
    if paid and right and not fell and paid.after > paid.before and right.after <= right.before + 0.01:
        reasons.append(
            f"the reward rose ({paid.before:.3g} to {paid.after:.3g}) and accuracy did not ({right.after:.3g})"
        )
    return (min(0.55 + 0.15 * (len(reasons) - 1), 0.85), reasons) if len(reasons) > 1 else (0.35, reasons)


def capped_length(case: Case) -> Verdict:
    """The length limit cuts answers before they end."""
    found = case.find("rollout/truncation")
    turn = case.turned("control/max_completion", up=False)
    cut, length = case.shift("rollout/truncated_frac"), case.shift("rollout/length_mean")
    if found is None and not (turn and cut and cut.after > cut.before + 0.05):
        return NO
    reasons = [found.summary] if found else []
    if found is None and cut is not None:
        reasons = [f"{cut.after:.0%} of answers are truncated, {cut.before:.0%} before"]
    if turn:
        return TURNED, [str(turn), *reasons]
    grown = case.find("rollout/length-explosion", "rollout/repetition", "policy/entropy-explosion")
    longer = creep(case.view, "rollout/length_mean")
    if (grown and (found is None or grown.onset_step <= found.onset_step + MARGIN * case.spacing)) or (
        longer is not None and longer.clear and longer.ratio >= LONGER
    ):
        return 0.35, [*reasons, "but answers grew or repeat themselves, and the limit only reveals it"]
    if case.hastened:
        return UNLIKELY, [*reasons, f"but {case.hastened}"]
    cap = case.setting("control/max_completion")
    if cap and length is not None:
        reasons.append(f"the limit is {cap:.0f} tokens, and answers have {length.after:.0f} on average")
    if cut and cut.after > cut.before + 0.1 and length is not None and length.ratio < 1.1:
        words = f"answers did not get longer ({length.before:.0f} to {length.after:.0f} tokens), so the limit came down"
        return 0.75, [*reasons, words]
    always = min(cut) if cut else case.recent("rollout/truncated_frac") or 0.0
    return OBSERVED if always >= MOSTLY else FITS, reasons


def too_hard(case: Case) -> Verdict:
    """Prompts that nothing can be learned from yet."""
    found = case.find("reward/no-signal")
    if (
        found is None or case.reward is None or found.evidence.get("alike")
    ):  # equal rewards, and whether they pass is unknown
        return NO
    if case.reward.dropped:
        return _harder(case, case.reward.drop_step)
    if first := case.upstream(found.onset_step):
        return UNLIKELY, ["every answer fails in most groups", f"but {first.id} came before"]
    if other := case.find("reward/hacking", "reward/component-dominance"):
        return UNLIKELY, ["every answer fails in most groups", f"but something else is rewarded: {other.summary}"]
    paid = case.shift("reward/mean")
    silent = case.shift("reward/zero_std_frac")
    if paid and silent and paid.after >= paid.before and silent.after > silent.before + 0.25:
        return UNLIKELY, ["every answer fails in most groups, but the reward is no lower than before"]
    best = f"{case.reward.metric} was never much higher (best {case.reward.best:.3g})"
    return 0.6, ["every answer fails in most groups", best]


def _harder(case: Case, edge: int) -> Verdict:
    """From one row to the next most groups fail, with answers of another length: other and harder prompts."""
    length = case.jumped("rollout/length_mean", edge, 1.08)
    if length is None or case.upstream(edge):
        return NO
    words = (
        f"most groups have failed since step {edge}, and answers went from {length[0]:.0f} to {length[1]:.0f} tokens"
    )
    return FITS, [f"{words} in the same rows: the prompts are other and harder ones"]


def little_spread(case: Case) -> Verdict:
    """Rewards of a group hardly differ, and division by the deviation scales the difference up."""
    found = case.find("reward/std-blowup")
    if found is None:
        return NO
    if case.reward and case.reward.dropped and found.onset_step > case.reward.drop_step + TOGETHER * case.spacing:
        return UNLIKELY, [found.summary, f"but the reward had fallen before (step {case.reward.drop_step})"]
    first = case.led("reward/std_group")
    began = found.onset_step <= case.onset + SOON * case.spacing
    return (SIGNATURE, [found.summary, first]) if first else (0.6 if began else FITS, [found.summary])


def narrowing_spread(case: Case) -> Verdict:
    """The norm creeps because advantages are divided by a spread of the group that has become small."""
    found = case.find("optim/grad-explosion")
    if found is None or not found.evidence.get("crept") or case.words(*NORMALISER) not in BY_GROUP:
        return NO
    if any(finding.severity != "info" for finding in case.findings):
        return NO  # a slow climb explains no damage
    tail = "; advantages are divided by that, so the same answers pull harder and harder"
    spread = creep(case.view, "reward/std_group")
    if spread is not None:
        narrow = spread.clear and 0 < spread.now <= spread.start / 2
        words = f"rewards of a group differ by {spread.now:.2g} now and by {spread.start:.2g} at the start{tail}"
        return (SIGNATURE, [words]) if narrow else NO
    whole, silent = creep(case.view, "reward/std"), creep(case.view, "reward/zero_std_frac")
    if whole is None or silent is None or not (whole.clear and silent.clear):
        return NO
    if not 0 < whole.now * (1 - silent.now) <= whole.start * (1 - silent.start) / 2:
        return NO
    words = f"rewards of a batch differ by {whole.now:.2g} now and by {whole.start:.2g} at the start, and"
    shares = f"{silent.now:.0%} of groups have no spread, {silent.start:.0%} at the start: groups narrow"
    return FITS, [f"{words} {shares}{tail}"]


def template(case: Case) -> Verdict:
    """Answers stopped depending on the prompt, while most groups teach nothing."""
    found, silent = case.find("policy/template-collapse"), case.recent("reward/zero_std_frac")
    if found is None or silent is None or silent < 0.5:
        return NO
    before = case.shift("reward/zero_std_frac")
    if case.reward and case.reward.dropped and before is not None and before.before < 0.5:
        return UNLIKELY, [found.summary, f"{silent:.0%} of groups have no spread, but only since the reward fell"]
    return FITS, [found.summary, f"{silent:.0%} of groups have no spread, so other terms of the loss dominate"]


def exploration_lost(case: Case) -> Verdict:
    """The policy became near-deterministic, and not because the reward fell first."""
    found = case.find("policy/entropy-collapse")
    if found is None:
        return NO
    if turn := case.turned("control/temperature", up=False) or case.turned("control/entropy_coef", up=False):
        return TURNED, [f"{turn}, and entropy collapsed", found.summary]
    if case.find("reward/hacking", "rollout/repetition", "rollout/tool-collapse"):
        return 0.3, [found.summary]  # those bring certainty about the wrong thing
    if case.reward and case.reward.dropped:
        if found.onset_step + TOGETHER * case.spacing >= case.reward.drop_step or case.upstream(
            found.onset_step, "behaviour"
        ):
            return NO
        if fell_while_standing(case):
            return UNLIKELY, [found.summary, "but the reward fell within a few rows in which the policy did not change"]
        if case.hastened:
            return UNLIKELY, [found.summary, f"but {case.hastened}"]
        return 0.6, [f"entropy collapsed before the reward fell (step {case.reward.drop_step})", found.summary]
    return 0.6, ["entropy collapsed while the reward was flat", found.summary]


def swings(case: Case) -> Verdict:
    """A reward that swings because each step sees few prompts."""
    found, each = case.find("reward/oscillation", "reward/noise-floor"), case.prompts_per_update
    if found is None or (found.severity == "info" and case.loud) or case.upstream(found.onset_step):
        return NO
    if each is None or each >= 16:
        return NO
    return FITS, [found.summary, few_prompts(each)]


def noise_floor(case: Case) -> Verdict:
    """The reward's own noise is larger than what a step can gain."""
    found, each = case.find("reward/noise-floor"), case.prompts_per_update
    if found is None or (found.severity == "info" and case.loud):
        return NO
    if each is not None and each >= 16:
        return SIGNATURE, [found.summary, f"an update has {each:.0f} prompts, so the noise is in the reward itself"]
    return WEAK, [found.summary]


def penalty_outweighs(case: Case) -> Verdict:
    """The reward falls while what is left of it after the KL penalty rises: training optimises the penalty."""
    name = penalised(case.view) if case.find("reward/collapse") else None
    reward, trained = case.shift("reward/mean"), case.shift(name) if name else None
    if not reward or not trained or reward.after >= reward.before:
        return NO
    if trained.after - trained.before < PENALTY * (reward.before - reward.after):
        return NO
    return OBSERVED, [
        f"the reward fell from {reward.before:.3g} to {reward.after:.3g}, but after its KL penalty ({name}), which is"
        f" what is trained, it rose from {trained.before:.3g} to {trained.after:.3g}"
    ]


RULES: Table = (
    ("pinned-by-kl", penalty_outweighs),
    ("reward-hackable", hackable),
    ("length-rewarded", length_rewarded),
    ("dead-groups", template),
    ("capped-length", capped_length),
    ("prompts-too-hard", too_hard),
    ("dead-groups", little_spread),
    ("divided-by-spread", narrowing_spread),
    ("exploration-exhausted", exploration_lost),
    ("batch-too-small", swings),
    ("noise-floor", noise_floor),
)
