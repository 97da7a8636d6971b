"""How many broken runs the remedies save, and what they do to healthy ones, beside simpler ways of acting.

Tiny policies really train, and in the second quarter of a run something is broken that some remedy could make good: a
setting, the state, or the world around it (`faults.py` says for each why it can be, and for those left out why not).
Every arm sees the same detectors and trains equally many iterations, those that a rollback throws away among them (not
equally many tokens: a batch that was grown costs what it adds), and is scored by the mean of its last five greedy
validations on held-out problems that nothing else uses. A case is damaged when it ends below 95 % of its clean twin
without any action, and only those can be rescued: by ending at 95 % or above. Harm is ending more than two points below
the run without any action; two runs that differ by the draw of their prompts alone end points apart as well, so an arm
that only draws other prompts at the first finding says how much of it is chance. An arm that no finding could set off
is not trained, for it ends as the run without any action. Intervals are 95 %: Wilson for shares, a paired bootstrap
against the simple arm that is best in each draw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from bench.rescue import cases, faults, plan, score
from bench.rescue.arms import ARMS, OFF, OURS
from bench.rescue.plan import Case
from bench.rescue.play import CACHE, Outcome
from bench.rescue.reasons import changes, reason
from bench.rescue.score import Result
from stabilizer.core.version import __version__


class Judged(NamedTuple):
    """A case, how its arms went, and what that is worth."""

    case: Case
    outcomes: Mapping[str, Outcome]
    result: Result


def measure(
    *,
    half: str = "report",
    quick: bool = False,
    seed: int = 0,
    rounds: int = 1,
    only: str | None = None,
    jobs: int = 2,
    budget_s: float | None = None,
    folder: Path = CACHE,
    tell: Callable[[str], None] = print,
) -> tuple[dict[str, Any], list[Judged]]:
    """Every figure, as JSON's own types, and the cases one by one. `tell` hears what is going on."""
    wanted = plan.quick(seed) if quick else plan.plan(half, seed, rounds)
    if only:
        wanted = [case for case in wanted if case.kind == only or case.kind.startswith(f"{only}/")]
        if not wanted:
            known = ", ".join([*faults.BY_KIND, *(f"healthy/{kind}" for kind in plan.HEALTHY)])
            raise ValueError(f"--only {only}: no such kind; there are {known}")
    count, minutes = cases.ahead(wanted, folder)
    if count:
        within = f", of which the budget leaves {jobs * budget_s / 60:.0f}" if budget_s is not None else ""
        tell(f"{count} cases to make, about {minutes:.0f} minutes of one core{within}; what is there is not made again")
    there, left = cases.make_all(wanted, folder, jobs=jobs, budget_s=budget_s)
    if left:
        tell(f"the budget left out {len(left)} of {len(there) + len(left)} cases; the same command goes on with them")
    judged = [judge(case, folder) for case in there if case.kind != plan.OTHER_PROMPTS]
    judged = [j for j in judged if j is not None]
    result = {
        "schema": 1,
        "command": _command(half, quick, seed, rounds, only, budget_s),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "version": __version__,
        "half": "develop" if quick else half,
        "quick": quick,
        "seeds": sorted({case.seed for case in there}),
        "tasks": sorted({f"{case.task} by {case.algorithm}" for case in there}),
        "left out": len(left),
        "cpu_s": round(sum(row["seconds"] for j in judged for row in j.outcomes.values())),
        **score.summary([j.result for j in judged], _chance(there, folder)),
        "cases": [_row(j) for j in judged],
    }
    return result, judged


def judge(case: Case, folder: Path) -> Judged | None:
    """A case that was made, or None when its twin is missing."""
    outcomes = cases.treated(case, folder)
    twin = outcomes[OFF] if case.healthy else cases.outcome(case.twin, OFF, folder)
    if outcomes is None or twin is None:
        return None
    by_arm = {arm: outcomes.get(arm, outcomes[OFF]) for arm in ARMS}
    onset = case.onset or 1
    return Judged(case, outcomes, Result(
        name=case.name, kind=case.kind, severity=case.severity,
        nature="" if case.healthy else faults.BY_KIND[case.kind].nature,
        clean=twin["final"], finals={arm: row["final"] for arm, row in by_arm.items()},
        actions={arm: len(changes(row)) for arm, row in by_arm.items()},
        lost={arm: score.lost_iterations(row["curve"], twin["curve"], onset) for arm, row in by_arm.items()},
        heard=bool(outcomes[OFF]["findings"]),
    ))  # fmt: skip


def complaints(judged: Sequence[Judged], seed: int = 0, rounds: int = 1) -> list[str]:
    """Every case: how its arms ended, what was done, why it was not saved, and how to see it again."""
    lines = []
    for j in judged:
        r, case = j.result, j.case
        ends = ", ".join(f"{arm} {r.finals[arm]:.3f}" for arm in j.outcomes)
        state = "healthy" if case.healthy else "damaged" if r.damaged else "no damage"
        lines.append(f"{state}: {case.name}, onset {case.onset}, strength {case.strength}: clean {r.clean:.3f}, {ends}")
        for arm in OURS:
            row = j.outcomes.get(arm, j.outcomes[OFF])
            if r.damaged and not r.rescued(arm):
                lines.append(f"    {arm} did not save it: {reason(row, faults.BY_KIND[case.kind])}")
            elif not r.damaged and r.change(arm) < -score.HARM:
                lines.append(f"    {arm} did harm: {-100 * r.change(arm):.1f} points")
            for action in changes(row):
                lines.append(f"    {arm} at iteration {action['at']}: {action['remedy']}: {action['text']}")
        more = (f" --seed {seed}" if seed else "") + (f" --rounds {rounds}" if rounds > 1 else "")
        lines.append(f"    python -m bench.rescue.play {case.half} {case.name} auto-full{more}")
    return lines


def _chance(there: Sequence[Case], folder: Path) -> list[tuple[float, float]]:
    """Ends of clean runs and of the same with other prompts."""
    pairs = []
    for case in there:
        if case.kind == plan.TWIN and (other := cases.outcome(case.other_prompts, OFF, folder)):
            pairs.append((cases.outcome(case, OFF, folder)["final"], other["final"]))
    return pairs


def _row(j: Judged) -> dict[str, Any]:
    """A case in the kept file: enough to draw every figure again."""
    r = j.result
    done = {arm: [a["remedy"] for a in changes(row)] for arm, row in j.outcomes.items() if arm in OURS}
    ends = {arm: round(r.finals[arm], 4) for arm in j.outcomes}
    return {"name": r.name, "clean": round(r.clean, 4), "damaged": r.damaged, "heard": r.heard, "finals": ends,
            "actions": done}  # fmt: skip


def _command(half: str, quick: bool, seed: int, rounds: int, only: str | None, budget_s: float | None) -> str:
    words = ["stabilizer bench rescue", "--quick" if quick else f"--half {half}", f"--seed {seed}",
             f"--rounds {rounds}" if rounds > 1 else "", f"--only {only}" if only else "",
             f"--budget {budget_s:g}" if budget_s is not None else ""]  # fmt: skip
    return " ".join(word for word in words if word)
