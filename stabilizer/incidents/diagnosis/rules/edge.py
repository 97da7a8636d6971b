"""Changes from one row to the next while the policy did not change: other rewards or prompts, not other answers."""

from __future__ import annotations

import numpy as np

from stabilizer.core.stats import middle
from stabilizer.incidents.diagnosis.case import LEAD, Case
from stabilizer.incidents.diagnosis.rules.base import FITS, NO, UNLIKELY, Table, Verdict


def reward_fell_alone(case: Case) -> Verdict:
    """The reward fell within a few rows while the policy did not change: the scoring changed, not the answers."""
    reward = case.reward
    if reward is None or not reward.dropped or _explained(case, reward.drop_step):
        return NO
    edge, still = reward.drop_step, fell_while_standing(case)
    if not still:
        return NO
    words = f"the reward fell within a few rows at step {edge} while {', '.join(still)} did not change"
    silent = _silenced(case, edge)
    if silent and not _alike(case, edge, silent):
        return UNLIKELY, [f"{words}, but whole groups fell silent"]
    if not silent and (by_prompt := _by_prompt(case, edge)):
        return UNLIKELY, [words, f"but {by_prompt}"]
    if case.find("system/data-shift"):  # other prompts have the same effect on the reward, and they were detected
        return UNLIKELY, [words]
    length = case.jumped("rollout/length_mean", edge, 1.08)
    if length:
        return UNLIKELY, [f"{words}, but answers went from {length[0]:.0f} to {length[1]:.0f} tokens at once"]
    score, held = min(0.45 + 0.1 * len(still), 0.6 if silent else 0.75), case.held_out(edge)
    if held is not None and held.after < 0.85 * held.before - 0.03:
        fell = f"held-out accuracy fell as well ({held.before:.3g} to {held.after:.3g})"
        if len(still) < 3 or "policy/kl_ref" not in still:
            return UNLIKELY, [f"{words}, but {fell}"]
        return FITS, [f"{words}, and {fell}: an unchanged policy loses nothing, so the scoring of both changed"]
    kept = [f"held-out accuracy is still {held.after:.3g}"] if held is not None else []
    return score + 0.1 * len(kept), [words, *kept]


def _by_prompt(case: Case, edge: int) -> str:
    """A sentence when rewards differ from prompt to prompt as they did not before, and less within a prompt; else
    empty."""
    shares = []
    for span in ((-25, -1), (1, 13)):
        within, overall = (case.rows(name, edge, *span) for name in ("reward/std_group", "reward/std"))
        if len(within) < 6 or len(overall) < 6 or not (spread := middle(overall)) > 0:
            return ""
        shares.append(middle(within) / spread)
    if shares[1] > 0.7 * shares[0]:
        return ""
    words = f"rewards within a group differ by {shares[1]:.0%} of the batch's spread since step {edge}"
    return f"{words}, {shares[0]:.0%} before: the reward now depends on the prompt"


def _silenced(case: Case, edge: int) -> float | None:
    """The share of groups without spread, where it stepped up and some groups are left."""
    before, after = (case.rows("reward/zero_std_frac", edge, *span) for span in ((-22, -2), (1, 9)))
    if len(before) < 8 or len(after) < 4:
        return None
    silent = middle(after)
    return silent if middle(before) + 0.25 <= silent < 0.97 else None


def _alike(case: Case, edge: int, silent: float) -> bool:
    """Whether the share of correct answers alone explains the silent groups. A failing verifier fails for some answers
    of a group as for others, while prompts that are too hard fail as groups and leave the others unchanged."""
    right, size = case.rows("accuracy/train", edge, 1, 9), case.recent("batch/group_size")
    if len(right) < 4 or not size:
        return False
    share = float(np.mean(right))
    return bool(silent < (1 - share) ** size + share**size + 0.1)


def fell_while_standing(case: Case) -> list[str]:
    """Policy metrics that did not change when the reward fell within a few rows; empty where it did not fall so or
    one changed."""
    reward = case.reward
    if reward is None or not reward.dropped:
        return []
    usual, before, after = (case.rows(reward.metric, reward.drop_step, *span) for span in ((-40, -1), (-8, -1), (2, 7)))
    if len(before) < 3 or len(after) < 3:
        return []
    if middle(before) - middle(after) < 0.6 * (max(middle(usual), middle(before)) - reward.now):
        return []
    return still_around(case, reward.drop_step)


def _explained(case: Case, edge: int) -> bool:
    """Whether something upstream came before it. The behaviour of answers long ago cannot take anything from an
    unchanged policy within a row."""
    lately = [f for f in case.findings if f.onset_step >= edge - LEAD * case.spacing]
    return bool(case.upstream(edge, "behaviour") or Case(lately, case.view).upstream(edge))


def still_around(case: Case, edge: int) -> list[str]:
    """Policy metrics that did not change around a step; empty when one of them did."""
    still = []
    for name in ("policy/entropy", "policy/kl_ref", "policy/kl_old", "optim/update_ratio"):
        usual, then = case.rows(name, edge, -40, -9), case.rows(name, edge, -3, 5)
        if len(usual) < 5 or len(then) < 3:
            continue
        moved = float(middle(then) - middle(usual))
        if name in ("policy/kl_old", "optim/update_ratio"):
            moved = max(moved, 0.0)  # with less to learn from, steps get smaller
        limit = max(3 * float(np.std(usual)), 0.3 * abs(middle(usual)))
        if name == "policy/entropy":  # a policy that loses half of it in forty rows has changed
            limit = min(limit, 0.5 * abs(middle(usual)))
        if abs(moved) > limit:
            return []
        still.append(name)
    return still


RULES: Table = (("reward-fault", reward_fell_alone),)
