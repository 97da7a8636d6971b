"""Which settings are likely to explain which gap, which are not, and what to change first.

`RULES` is the table: each rule looks at one gap and the settings that could cause it, predicts size or direction
where theory allows, and compares the prediction with the measurement. A rule also reports when a popular
explanation does not fit. What no rule explains is undetermined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from stabilizer.compare.align import Clock
from stabilizer.compare.differences import Difference, Facts, label
from stabilizer.compare.gaps import Compared
from stabilizer.compare.smoothing import weight_for
from stabilizer.core.metrics import metric
from stabilizer.core.text import short

Sure = Literal["high", "medium", "low"]
_WEIGHT = {"high": 1.0, "medium": 0.6, "low": 0.25}
_MATTERS = {"final-level": 3.0, "level-at-end": 3.0, "peak": 2.0, "time-to-peak": 2.0, "noise": 1.0, "trend": 1.0}


@dataclass(frozen=True)
class Explanation:
    """A cause of a gap, or one that is ruled out (`explains` False). `settings` are what would have to change."""

    gap: str
    cause: str
    explains: bool
    sure: Sure
    why: str
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Change:
    """The one thing to do next. `key` is the run's own spelling; None where nothing of the run is to be changed."""

    what: str
    key: str | None
    value: Any
    target: Any
    why: str
    sure: Sure


class Open(NamedTuple):
    """A gap to be explained: the measured difference (a factor, where the gap is a ratio) with its 99 % interval."""

    difference: float
    low: float
    high: float

    def same_direction(self, factor: float) -> bool:
        """Whether a predicted factor points the same way as the measured one."""
        return (factor - 1) * (self.difference - 1) > 0

    @property
    def words(self) -> str:
        """The measured factor with its interval."""
        return f"measured {self.difference:.2g} ({self.low:.2g} to {self.high:.2g})"


@dataclass(frozen=True)
class Case:
    """What rules look at."""

    main: Compared
    others: Sequence[Compared]
    clock: Clock
    mine: Facts
    theirs: Facts
    smoothing: Any
    drawn: bool
    """The reference was read off a drawing or a table: a trainer's own log is not smoothed."""
    differences: Sequence[Difference]
    peak_steps: tuple[float, float]
    """The step at which each side has its peak, whatever the clock."""

    def differs(self, *settings: str) -> list[Difference]:
        """Those of the settings that are known to differ."""
        return [d for d in self.differences if d.setting in settings]

    def open(self, wanted: str) -> Open | None:
        """The gap, when it is there to be explained."""
        gap = self.main.gap(wanted)
        if gap is None or gap.state != "different" or gap.difference is None or gap.low is None or gap.high is None:
            return None
        return Open(gap.difference, gap.low, gap.high)

    @property
    def completions(self) -> tuple[float | None, float | None]:
        """Completions per step of both sides, where known."""
        return _completions(self.mine), _completions(self.theirs)

    @property
    def noise_by_batch(self) -> float:
        """How many times the reference's noise the run's batch makes; 1 where the batches are not known."""
        mine, theirs = self.completions
        return math.sqrt(theirs / mine) if mine and theirs else 1.0

    def settings(self, *named: str) -> tuple[str, ...]:
        """Those of the settings that are known to differ, by their ids."""
        return tuple(d.setting for d in self.differs(*named))

    def unknown(self, setting: str) -> bool:
        """Whether the run states a setting and the reference does not."""
        return setting in self.mine.known and setting not in self.theirs.known


Found = Iterator[Explanation]


def reward_function(case: Case) -> Found:
    """The range of a reward belongs to its function, and to nothing else that can be set."""
    if not case.main.conflict:
        return
    named = case.differs("task", "reward", "reward_weights")
    stated = f" ({_pairs(named)})" if named else ""
    yield Explanation(
        "support",
        "reward-function",
        True,
        "high",
        f"the range and sign of a reward are set by the function that computes it{stated}; no learning rate, batch, "
        "hardware or engine moves them. Either the reference used or plotted another reward, or its axis was rescaled",
        tuple(d.setting for d in named),
    )
    if case.open("time-to-peak"):
        mine, theirs = case.peak_steps
        models = case.differs("model")
        model = f", and two models ({_pairs(models)})" if models else ""
        yield Explanation(
            "time-to-peak",
            "reward-function",
            True,
            "medium",
            f"two rewards are two problems{model}: the run is at the peak of its own reward by step {mine:,.0f}, the "
            f"reference by step {theirs:,.0f}; neither says anything about the other",
            tuple(d.setting for d in named),
        )


def reward_scale(case: Case) -> Found:
    """Trend and noise that differ by the same factor: the reward was multiplied."""
    if case.main.rescaled:
        for wanted in ("peak", "final-level", "level-at-end", "noise", "trend"):
            if case.open(wanted):
                yield Explanation(
                    wanted, "reward-scale", True, "medium", case.main.rescaled, ("reward", "reward_weights")
                )


def batch_noise(case: Case) -> Found:
    """The mean over n completions scatters like 1/sqrt(n)."""
    gap = case.open("noise")
    if gap is None or case.main.rescaled:
        return
    mine, theirs = case.completions
    if mine and theirs:
        yield _noise_by_batch(case, gap, mine, theirs)
        return
    missing = "the reference" if mine else "the run"
    why = f"the noise of a mean goes with 1/sqrt(completions per step), but {missing} does not state how many"
    yield Explanation("noise", "batch-size", True, "low", why)


def _noise_by_batch(case: Case, gap: Open, mine: float, theirs: float) -> Explanation:
    settings = case.settings("prompts", "group_size", "per_step", "processes", "per_device")
    predicted = math.sqrt(theirs / mine)
    words = (
        f"{mine:,.0f} completions a step against {theirs:,.0f}: expected sqrt({theirs:,.0f}/{mine:,.0f}) = "
        f"{predicted:.2g} times the noise, {gap.words}"
    )
    if math.isclose(predicted, 1.0, rel_tol=0.02):
        return Explanation("noise", "batch-size", False, "high", f"both learn from {mine:,.0f} completions a step")
    if gap.low <= predicted <= gap.high:
        return Explanation("noise", "batch-size", True, "high", f"{words}; that is all of it", settings)
    if not gap.same_direction(predicted):
        return Explanation("noise", "batch-size", False, "high", f"{words}; that is the wrong direction")
    share = math.log(predicted) / math.log(gap.difference)
    part = f"about {share:.0%} of it on a log scale" if share < 1 else "more than all of it, so something else counters"
    return Explanation("noise", "batch-size", True, "medium", f"{words}; that is {part}", settings)


def level_noise(case: Case) -> Found:
    """A reward between 0 and 1 is calmest near either end: the variance of right or wrong is p (1 - p)."""
    gap = case.open("noise")
    if gap is None or {item.sign for item in case.main.supports} != {"unit"}:
        return
    means = [float(np.mean([s.y.mean() for s in side])) for side in case.main.shapes]
    predicted = _by_level(*means)
    alike = 0.8 < predicted < 1.25
    if not alike and gap.same_direction(predicted):
        why = (
            f"a reward between 0 and 1 scatters like sqrt(p (1 - p)) and the runs' means are {means[0]:.2g} and "
            f"{means[1]:.2g}: expected {predicted:.2g} times the noise, {gap.words}"
        )
        yield Explanation("noise", "level", True, "medium" if gap.low <= predicted <= gap.high else "low", why)


def _by_level(mine: float, theirs: float) -> float:
    """How many times the noise of the second a share of right answers has; 1 where either is 0 or 1."""
    sizes = mine * (1 - mine), theirs * (1 - theirs)
    return math.sqrt(sizes[0] / sizes[1]) if min(sizes) > 0 else 1.0


def plot_smoothing(case: Case) -> Found:
    """Published curves are often smoothed; what moving average would do it, after the batch has had its share."""
    gap = case.open("noise")
    if gap is None or gap.difference <= 1 or case.main.rescaled or not (case.drawn or case.smoothing):
        return
    if case.smoothing == "none":
        yield Explanation("noise", "smoothing", False, "high", "the reference is stated to be drawn without smoothing")
    elif isinstance(case.smoothing, Mapping) and (weight := case.smoothing.get("weight")):
        factor = math.sqrt((1 + weight) / (1 - weight))
        why = (
            f"the reference is drawn with an exponential moving average of weight {weight:g}, which takes white noise "
            f"down {factor:.2g} times; measured {gap.difference:.2g}. Smooth the run the same way before judging noise"
        )
        yield Explanation("noise", "smoothing", True, "high", why)
    else:
        yield from _unstated_smoothing(case, gap)


def _unstated_smoothing(case: Case, gap: Open) -> Found:
    """The moving average that would leave the reference's noise, when the reference does not state one."""
    batch = case.noise_by_batch
    run, reference = (side[0].noise for side in case.main.shapes)
    drawn_out = reference.seen - run.seen > 0.3
    if gap.low <= batch <= gap.high and not drawn_out:
        why = "no smoothing is needed to explain the reference's calm: its batch does, though both may be at work"
        yield Explanation("noise", "smoothing", False, "low", why)
        return
    left = gap.difference / batch
    weight = weight_for(run.residuals, 1 / left) if left > 1.1 else None
    if not weight:
        return
    after = f", after the batch's {batch:.2g}," if batch > 1.1 else ""
    why = (
        f"an exponential moving average of weight {weight:g} on the run's own curve would leave the reference's "
        f"noise{after} and the reference does not say whether it is smoothed"
    )
    if drawn_out:
        why += (
            f"; its noise runs on from point to point (lag-1 autocorrelation {reference.seen:.2f}, the run's "
            f"{run.seen:.2f}), as smoothing makes it"
        )
    yield Explanation("noise", "smoothing", True, "medium" if drawn_out else "low", why)


def logging_window(case: Case) -> Found:
    """A row that is a mean over k steps scatters less by sqrt(k)."""
    gap = case.open("noise")
    mine, theirs = case.mine.number("logging") or 1.0, case.theirs.number("logging") or 1.0
    if gap and mine != theirs and gap.same_direction(theirs / mine):
        why = (
            f"a row averages {mine:g} steps in the run and {theirs:g} in the reference: expected "
            f"{math.sqrt(theirs / mine):.2g} times the noise"
        )
        yield Explanation("noise", "logging-window", True, "medium", why, ("logging",))


def learning_speed(case: Case) -> Found:
    """While steps are small, progress goes with learning rate times updates."""
    gap = case.open("time-to-peak")
    if gap is None or case.main.conflict:
        return
    mine, theirs = (side.number("lr") for side in (case.mine, case.theirs))
    if mine is None or theirs is None:
        silent = "the reference" if mine else "the run"
        yield Explanation("time-to-peak", "learning-rate", True, "low", f"{silent} does not state its learning rate")
        return
    paces = mine * (case.mine.number("updates") or 1.0), theirs * (case.theirs.number("updates") or 1.0)
    unit, settings = "step", case.settings("lr", "updates", "minibatches", "inner_epochs")
    if case.clock.name != "step":
        batches = case.completions
        if batches[0] is None or batches[1] is None:
            return
        paces, unit = (paces[0] / batches[0], paces[1] / batches[1]), "completion"
        settings += case.settings("prompts", "group_size", "per_step")
    yield _speed_by_pace(case, gap, paces, unit, settings)


def _speed_by_pace(
    case: Case, gap: Open, paces: tuple[float, float], unit: str, settings: tuple[str, ...]
) -> Explanation:
    effort = paces[1] / paces[0]
    words = (
        f"learning rate x updates per {unit} is {short(paces[0])} here and {short(paces[1])} there: expected "
        f"{effort:.2g} times as long, {gap.words}"
    )
    if math.isclose(effort, 1.0, rel_tol=0.1):
        return Explanation("time-to-peak", "lr-x-updates", False, "medium", words)
    if case.differs("model"):
        words += ", but rates of different models do not compare"
        return Explanation("time-to-peak", "lr-x-updates", True, "low", words, settings)
    if gap.same_direction(effort):
        return Explanation("time-to-peak", "lr-x-updates", True, "medium", words, settings)
    return Explanation("time-to-peak", "lr-x-updates", False, "medium", f"{words}: the wrong direction")


def batch_speed(case: Case) -> Found:
    """By step, a larger batch learns faster; never slower."""
    gap = case.open("time-to-peak")
    mine, theirs = case.completions
    if gap is None or not mine or not theirs or math.isclose(mine, theirs, rel_tol=0.02) or case.clock.name != "step":
        return
    words = f"{mine:,.0f} completions a step against {theirs:,.0f}"
    if gap.same_direction(theirs / mine):
        settings = case.settings("prompts", "group_size", "per_step")
        why = f"{words}: smaller batches learn less from a step"
        yield Explanation("time-to-peak", "batch-size", True, "medium", why, settings)
    else:
        why = f"{words}: a smaller batch makes a step teach less, not more"
        yield Explanation("time-to-peak", "batch-size", False, "medium", why)


_ON_LEVEL: tuple[tuple[str, Sure, str], ...] = (
    ("model", "high", "another model starts elsewhere and can do other things"),
    ("task", "high", "other data are easier or harder"),
    ("reward", "high", "another reward scores the same answers differently"),
    ("reward_weights", "high", "weights multiply the reward"),
    ("lr", "medium", "too low has not arrived yet, too high settles lower or breaks"),
    ("beta", "medium", "a heavier KL term holds the policy nearer to where it started"),
    ("temperature", "medium", "hotter sampling lowers the training reward of the same policy"),
    ("max_completion", "medium", "answers that are cut get no reward"),
    ("prompts", "low", "more prompts a step average the gradient better"),
    ("group_size", "low", "larger groups compare answers better"),
    ("per_step", "low", "more completions a step average the gradient better"),
    ("inner_epochs", "low", "more passes learn more from a batch and go further off-policy"),
    ("minibatches", "low", "more updates a batch go further and further off-policy"),
    ("entropy_coef", "low", "a bonus for entropy costs reward"),
    ("schedule", "low", "a decaying rate settles, a constant one wanders"),
    ("warmup", "low", "a longer warm-up delays everything"),
    ("max_grad_norm", "low", "a tighter clip takes smaller steps"),
)
"""Setting, how sure, and why it can move the level that is reached."""


def level(case: Case) -> Found:
    """What moves the level reached: task and model first, then rate, KL weight, temperature, length limit."""
    if case.main.rescaled:
        return
    for wanted in ("final-level", "level-at-end", "peak"):
        if not case.open(wanted):
            continue
        for setting, sure, why in _ON_LEVEL:
            for difference in case.differs(setting):
                yield Explanation(wanted, setting, True, sure, f"{_pairs([difference])}: {why}", (setting,))
        return


def length_limit(case: Case) -> Found:
    """Longer answers where more are allowed."""
    for compared in case.others:
        gap = compared.gap("final-level")
        if compared.run_metric == "rollout/length_mean" and gap and gap.state == "different":
            for difference in case.differs("max_completion"):
                why = f"{_pairs([difference])}: where more is allowed, more is written"
                yield Explanation("rollout/length_mean", "max_completion", True, "medium", why, ("max_completion",))


def speed(case: Case) -> Found:
    """Seconds per step: hardware and engine first, then how much a step generates."""
    for compared in case.others:
        gap = compared.gap("final-level")
        if compared.run_metric != "time/step_s" or not gap or gap.state != "different":
            continue
        order = ("processes", "device", "engine", "vllm_mode", "model", "prompts", "group_size", "max_completion")
        for place, difference in enumerate(case.differs(*order)):
            sure: Sure = "medium" if place == 0 else "low"
            why = f"{_pairs([difference])}: this sets how long a step takes, not what it teaches"
            yield Explanation("time/step_s", difference.setting, True, sure, why, (difference.setting,))


def not_the_engine(case: Case) -> Found:
    """vLLM is blamed for much; it changes how fast answers come and, slightly, their probabilities."""
    named = [v for v in (case.theirs.known.get("engine"), case.theirs.known.get("vllm_mode")) if v]
    open_gap = "support" if case.main.conflict else "noise" if case.open("noise") else ""
    if open_gap and named and case.mine.known.get("engine") != case.theirs.known.get("engine"):
        yield Explanation(
            open_gap,
            "generation-engine",
            False,
            "high",
            f"the reference generates with {'vLLM' if named[0] is True else short(named[0])}: an engine decides how "
            "fast answers come and shifts their probabilities a little; it moves neither the range of a reward nor the "
            "noise of its mean",
        )


def hardware(case: Case) -> Found:
    """More processes matter through the batch they add up to."""
    gap = case.open("noise")
    for difference in case.differs("processes") if gap else ():
        yield Explanation(
            "noise",
            "processes",
            True,
            "medium",
            f"{_pairs([difference])}: processes multiply the completions of a step unless the batch settings make up "
            "for it; gradient accumulation gives one process the same batch, at the price of time",
            ("processes",),
        )


RULES: tuple[Callable[[Case], Found], ...] = (
    reward_function,
    reward_scale,
    batch_noise,
    level_noise,
    plot_smoothing,
    logging_window,
    hardware,
    learning_speed,
    batch_speed,
    level,
    length_limit,
    speed,
    not_the_engine,
)


def explanations(case: Case) -> list[Explanation]:
    """The explanations of every rule; a gap that no rule explains is undetermined."""
    found = [item for rule in RULES for item in rule(case)]
    explained = {item.gap for item in found if item.explains} | _with_the_level(case)
    left = [gap.id for gap in case.main.gaps if gap.id not in explained and gap.state == "different"]
    return found + [Explanation(gap, "undetermined", True, "low", _unexplained(case)) for gap in left]


def _with_the_level(case: Case) -> set[str]:
    """Gaps whose explanation is that of the level."""
    return {"peak", "trend"} if case.open("final-level") or case.open("level-at-end") else set()


def _unexplained(case: Case) -> str:
    versions = [d for d in case.differences if d.area == "version"]
    hint = f"; versions differ ({_pairs(versions[:3])}), and defaults change between them" if versions else ""
    return f"no known difference explains it{hint}"


def next_change(
    case: Case, found: Sequence[Explanation], verdict: str, seeds: tuple[int, int]
) -> tuple[Change, list[Change]]:
    """The one thing to do next, and what may follow: one variable at a time."""
    ranked = _ranked(case, found)
    if verdict in ("identical", "same"):
        return Change(
            "nothing to change", None, None, None, "the curves show no difference that a setting could explain", "high"
        ), []
    if case.main.conflict:
        target = case.main.supports[1].stated
        said = f", so that it lies between {short(target[0])} and {short(target[1])}" if target else ""
        change = Change(
            "plot the same reward on both sides",
            _reward_key(case),
            None,
            None,
            f"before any training setting, find out which reward the reference shows and score the run with it{said}, "
            "or rescale both as (reward - worst) / (best - worst). Until then levels cannot be compared",
            "high",
        )
        return change, ranked
    if case.main.rescaled:
        why = "divide by the factor, or set the reward weights alike, and compare again"
        return Change("bring the reward to one scale", _reward_key(case), None, None, why, "medium"), ranked
    if ranked and (ahead := _ahead(case)):
        words = f"the run ends {short(ahead)} higher than the reference, which {ranked[0].what} might undo"
        return Change("keep the settings of the run", None, None, None, words, ranked[0].sure), []
    if ranked:
        return ranked[0], ranked[1:]
    if verdict == "undetermined" or 1 in seeds:
        side = "run" if seeds[0] == 1 else "reference"
        why = (
            "no difference was shown, and the intervals are too wide to call it none"
            if verdict == "undetermined"
            else "no known setting explains the gap, and a lone run cannot tell a setting from luck"
        )
        return Change(f"another seed of the {side}, nothing else changed", "seed", None, None, why, "medium"), []
    why = "no known difference explains the gap; find out what the reference does not state"
    return Change("undetermined", None, None, None, why, "low"), []


def _ahead(case: Case) -> float:
    """By how much the run ends better than the reference, where that is shown; 0 otherwise."""
    level = case.open("final-level") or case.open("level-at-end")
    better = metric(case.main.run_metric).better == "up" and level is not None and level.low > 0
    return level.difference if level is not None and better else 0.0


_OTHER_EXPERIMENT = ("task", "reward", "model", "device", "updates")
"""Settings that make another experiment, or that are no key one can set."""


def _ranked(case: Case, found: Sequence[Explanation]) -> list[Change]:
    """Differing settings by how much of the gaps they explain, each with the reference's value."""
    causes = [item for item in found if item.explains]
    scores = _scores(causes)
    skipped = set(_OTHER_EXPERIMENT)
    if {"prompts", "group_size", "per_step"} & scores.keys():
        skipped.add("processes")  # they matter through the batch, which can be had without them
    by_setting = {d.setting: d for d in case.differences if d.setting not in skipped}
    return [
        _change_because(case, by_setting[setting], [item for item in causes if setting in item.settings])
        for setting in sorted(scores, key=lambda setting: -scores[setting])
        if setting in by_setting
    ]


def _scores(causes: Sequence[Explanation]) -> dict[str, float]:
    """How much of the gaps each setting explains; of several settings in one explanation, the first counts most."""
    scores: dict[str, float] = {}
    for item in causes:
        weight = _WEIGHT[item.sure] * _MATTERS.get(item.gap, 0.3)
        for place, setting in enumerate(item.settings):
            scores[setting] = scores.get(setting, 0.0) + weight / (1 + 0.5 * place)
    return scores


def _change_because(case: Case, difference: Difference, causes: Sequence[Explanation]) -> Change:
    labels = {gap.id: gap.label for gap in case.main.gaps}
    accounts = dict.fromkeys(f"{labels.get(item.gap, item.gap)} ({item.sure})" for item in causes)
    reason = max(causes, key=lambda item: _WEIGHT[item.sure])
    why = f"may account for {', '.join(accounts)}. {reason.why[:1].upper()}{reason.why[1:]}"
    return _change_of(case, difference, why, reason.sure)


def _change_of(case: Case, difference: Difference, why: str, sure: Sure) -> Change:
    """A difference as something to set: a batch is set by its prompts, or by accumulating gradients."""
    if difference.setting == "per_step":
        for setting in ("prompts", "accumulation"):
            if now := case.mine.number(setting):
                target = now * difference.reference / difference.run
                words = (
                    f"{label(setting)} {short(now)} -> {short(target)} (completions per step "
                    f"{short(difference.run)} -> {short(difference.reference)})"
                )
                return Change(words, case.mine.keys[setting], now, target, why, sure)
    words = f"{difference.label} {short(difference.run)} -> {short(difference.reference)}"
    return Change(words, difference.key, difference.run, difference.reference, why, sure)


def _completions(known: Facts) -> float | None:
    if known.per_step:
        return known.per_step
    prompts, size = known.number("prompts"), known.number("group_size")
    return prompts * size if prompts and size else None


def _reward_key(case: Case) -> str | None:
    return case.mine.keys.get("reward") or case.mine.keys.get("task")


def _pairs(found: Sequence[Difference]) -> str:
    return ", ".join(f"{d.label} {short(d.run)} here, {short(d.reference)} there" for d in found)


def unknowns(case: Case) -> list[str]:
    """Settings that could explain an open gap, known for the run but not for the reference."""
    if not case.main.conflict and all(gap.state != "different" for gap in case.main.gaps):
        return []
    asked = ["lr", "model", "task", "reward", "beta", "temperature", "max_completion"]
    asked += ["prompts", "group_size"] if not _completions(case.theirs) else []
    return [label(setting) for setting in asked if case.unknown(setting)]
