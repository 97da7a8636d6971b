"""Changes from one row to the next while the policy did not change: other rewards or prompts, not other answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stabilizer.core.stats import middle
from stabilizer.incidents.diagnosis.case import LEAD, MARGIN, Case
from stabilizer.incidents.diagnosis.rules.base import FITS, NO, UNLIKELY, Table, Verdict

NEXT_TO_NONE = 0.05
"""Share of correct answers under which failing prompts cannot be told from failing answers."""
SPREAD_ROWS = 5
"""Rows after which a step of the spread within groups counts as real."""
SEARCHED = 1000
"""Rows from the onset on, and newest rows, in which a loss of spread is looked for. A row costs 35 µs, so this bounds
an explanation to 0.1 s however long ago the incident began. All rows of 300,000 took 10 s."""
FLAT = frozenset({"reward/plateau", "reward/noise-floor"})
"""Findings of a reward that is flat: what changed after they were detected did not make it flat."""


def reward_fell_alone(case: Case) -> Verdict:
    """The reward fell within a few rows while the policy did not change: the scoring changed, not the answers."""
    reward = case.reward
    if reward is None or not reward.dropped or _explained(case, reward.drop_step):
        return NO
    edge, still = reward.drop_step, fell_while_standing(case)
    if not still:
        return NO
    words = f"the reward fell within a few rows at step {edge} while {', '.join(still)} did not change"
    if (silent := _silenced(case, edge)) and _alike(case, edge, silent[1]) is None:
        return UNLIKELY, [f"{words}, but whole groups fell silent"]
    if by_prompt := _by_prompt(case, edge):
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


def fell_by_prompt(case: Case) -> Verdict:
    """The reward fell within a few rows for some prompts and not for others, while the policy did not change: harder
    prompts."""
    reward, still = case.reward, fell_while_standing(case)
    if reward is None or not still or _explained(case, reward.drop_step):
        return NO
    if not (words := _by_prompt(case, reward.drop_step)) or _paid_alike(case, reward.drop_step):
        return NO
    held = case.held_out(reward.drop_step)
    reasons = [
        f"the reward fell within a few rows at step {reward.drop_step} while {', '.join(still)} did not change",
        words,
    ]
    if held is None or held.after < 0.85 * held.before - 0.03:
        return FITS, reasons
    return 0.75, [*reasons, f"held-out accuracy, whose problems stay the same, is still {held.after:.3g}"]


def _by_prompt(case: Case, edge: int) -> str:
    """A sentence when rewards differ from prompt to prompt as they did not before, and less within a prompt; else
    empty."""
    if _few_right(case, edge):
        return ""
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


def groups_silenced(case: Case) -> Verdict:
    """From one row to the next many groups have equal rewards, while the policy did not change: prompts that teach
    nothing."""
    lost = _spread_lost(case)
    if lost is None or lost.failing or (silent := _silent(case, lost.step)) is None or silent[1] < silent[0] + 0.25:
        return NO
    return 0.85, [f"groups without any spread went from {silent[0]:.0%} to {silent[1]:.0%}", lost.words]


def prompts_beyond(case: Case) -> Verdict:
    """From one row to the next many groups fail completely, while the policy did not change: prompts that are too
    hard."""
    lost = _spread_lost(case)
    if lost is None or not lost.failing or not (silent := _silenced(case, lost.step)):
        return NO
    cut = [case.rows("rollout/truncated_frac", lost.step, *span) for span in ((-20, -1), (1, 9))]
    if all(map(len, cut)) and middle(cut[1]) > middle(cut[0]) + 0.1:
        return UNLIKELY, [lost.words, "but answers are truncated from then on, and truncated answers cannot be judged"]
    if (alike := _alike(case, lost.step, silent[1])) is not None:
        words = f"so few correct answers ({alike:.1%}) leave that many groups without one, whatever the prompts are"
        return (0.5 if alike < NEXT_TO_NONE else UNLIKELY), [lost.words, words]
    return 0.8, [f"groups without any spread went from {silent[0]:.0%} to {silent[1]:.0%}", lost.words]


def spread_shrunk(case: Case) -> Verdict:
    """From one row to the next groups differ by less, and no more of them are silent: tiny differences in some are
    scaled up by the division."""
    lost = _spread_lost(case)
    if lost is None or case.view.latest("control/advantage") not in (None, 0.0):
        return NO
    silent = _silent(case, lost.step)
    if (silent is None and lost.failing) or (silent is not None and silent[1] > silent[0] + 0.15):
        return NO
    return 0.85, [f"no more groups lack spread than before: {lost.words}"]


class _Lost(NamedTuple):
    """Spread of reward within groups that was lost within a few rows."""

    step: int
    failing: bool
    """Whether the reward fell with it."""
    words: str


def _spread_lost(case: Case) -> _Lost | None:
    """Where the spread within groups stepped down by a third and stayed there, while the policy did not change."""
    return case.once(_where_spread_was_lost)


def _where_spread_was_lost(case: Case) -> _Lost | None:
    series = case.view.series("reward/std_group")
    level = case.recent("reward/std_group")
    if len(series) < 40 or level is None or case.find("reward/outage"):
        return None
    if 1.5 * level > np.fmax.reduce(series.values):  # it is not low now
        return None
    steps = series.steps[max(20, int(series.steps.searchsorted(case.onset)) - MARGIN) : -SPREAD_ROWS]
    if len(steps) > 2 * SEARCHED:
        steps = np.concatenate([steps[:SEARCHED], steps[-SEARCHED:]])
    if case.findings and {finding.id for finding in case.findings} <= FLAT:
        steps = steps[steps <= max(finding.detected_step for finding in case.findings)]
    shifts = ((int(step), case.jumped("reward/std_group", int(step), 1.5)) for step in steps)
    falls = [(now / was, step, was, now) for step, shift in shifts if shift for was, now in [shift] if now < was]
    if not falls:
        return None
    _, edge, was, now = min(falls)
    still = still_around(case, edge)
    if edge > case.onset + 2 * MARGIN * case.spacing and case.upstream(edge - MARGIN * int(case.spacing), "behaviour"):
        return None  # a policy that failed long before has lost its spread by now
    if 1.5 * level > was or len(still) < 2 or _solves(case, edge):
        return None
    paid, failed = case.jumped("reward/mean", edge, 1.5), _failed(case, edge)
    failing = not _paid_alike(case, edge) and (failed or (paid is not None and paid[1] < paid[0]))
    words = (
        f"the spread of rewards within a group is {now:.2g}, {was:.2g} before step {edge}, while {', '.join(still)} did"
        " not change"
    )
    return _Lost(edge, failing, words)


def _paid_alike(case: Case, edge: int) -> bool:
    """Whether groups that fail completely get an equal reward above zero: the few others cannot have earned so much."""
    failing, now = (case.rows(name, edge, 1, 9) for name in ("reward/all_fail_frac", "reward/mean"))
    known = case.view.series("reward/mean").finite().values
    if len(failing) < 4 or len(now) < 4 or known.min() < 0 or _few_right(case, edge):
        return False
    return middle(now) > (0.1 + 2 * (1 - middle(failing))) * float(known.max())


def _failed(case: Case, edge: int) -> bool:
    """Whether the groups that fell silent are groups that fail, and the reward fell with them."""
    failing = [case.rows("reward/all_fail_frac", edge, *span) for span in ((-22, -2), (1, 13))]
    paid = [case.rows("reward/mean", edge, *span) for span in ((-22, -2), (1, 13))]
    silent = _silent(case, edge)
    if silent is None or not all(len(part) >= 4 for part in (*failing, *paid)):
        return False
    more = float(failing[1].mean() - failing[0].mean())
    noise = float(paid[0].std()) * np.sqrt(1 / len(paid[0]) + 1 / len(paid[1]))
    return more > 0.6 * (silent[1] - silent[0]) > 0 and bool(float(paid[0].mean() - paid[1].mean()) > 1.5 * noise)


def _solves(case: Case, edge: int) -> bool:
    """Whether answers are alike because they are correct: nothing is lost."""
    before, after = (case.rows("reward/all_pass_frac", edge, *span) for span in ((-20, -1), (1, 9)))
    return bool(len(before) and len(after)) and middle(after) > middle(before) + 0.2


def _silenced(case: Case, edge: int) -> tuple[float, float] | None:
    """(before, after) of the share of groups without spread, where it stepped up and some groups are left."""
    silent = _silent(case, edge)
    return silent if silent is not None and silent[0] + 0.25 <= silent[1] < 0.97 else None


def _silent(case: Case, edge: int) -> tuple[float, float] | None:
    """(before, after) of the share of groups without spread."""
    before, after = (case.rows("reward/zero_std_frac", edge, *span) for span in ((-22, -2), (1, 9)))
    return (middle(before), middle(after)) if len(before) >= 8 and len(after) >= 4 else None


def _alike(case: Case, edge: int, silent: float) -> float | None:
    """The share of correct answers, where it alone explains the silent groups. A failing verifier fails for some
    answers of a group as for others, while prompts that are too hard fail as groups and leave the others unchanged."""
    right, size = case.rows("accuracy/train", edge, 1, 9), case.recent("batch/group_size")
    if len(right) < 4 or not size:
        return None
    share = float(np.mean(right))
    return share if silent < (1 - share) ** size + share**size + 0.1 else None


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


def _few_right(case: Case, edge: int) -> bool:
    """Whether so few answers are correct that most groups have none, whatever decides which."""
    silent = _silent(case, edge)
    return silent is not None and _alike(case, edge, silent[1]) is not None


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


RULES: Table = (
    ("reward-fault", reward_fell_alone),
    ("dead-groups", groups_silenced),
    ("dead-groups", spread_shrunk),
    ("prompts-too-hard", prompts_beyond),
    ("prompts-too-hard", fell_by_prompt),
)
