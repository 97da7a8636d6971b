"""The charts every run is looked at with, in reading order: is it getting better, does it still learn, does it hold.

A chart shows metrics of one unit. What a run does not measure is left out, and so are settings that never moved; what
it measures beyond these can be drawn by name with `metric_figure`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stabilizer.runs.history import RunView


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: its title and the metrics that share its axis."""

    id: str
    title: str
    metrics: tuple[str, ...]
    settings: bool = False
    """Shows settings rather than results; hidden while none of them changed."""


CORE: tuple[Chart, ...] = (
    Chart("reward", "Reward", ("reward/mean",)),
    Chart("accuracy", "Accuracy", ("accuracy/train", "accuracy/val", "accuracy/val_pass1", "accuracy/val_passk")),
    Chart("grad-norm", "Gradient norm", ("optim/grad_norm", "optim/grad_norm_max")),
    Chart("kl", "Drift (KL)", ("policy/kl_ref", "policy/kl_old")),
    Chart("entropy", "Entropy", ("policy/entropy",)),
    Chart("clip", "Clipped tokens", ("policy/clip_frac", "policy/clip_frac_low", "policy/clip_frac_high")),
    Chart("signal", "Groups by outcome", ("reward/zero_std_frac", "reward/all_fail_frac", "reward/all_pass_frac")),
    Chart("spread", "Spread within groups", ("reward/std_group",)),
    Chart("length", "Completion length", ("rollout/length_mean", "rollout/length_max")),
    Chart("degenerate", "Truncation and repetition", ("rollout/truncated_frac", "rollout/repetition")),
    Chart("turns", "Turns and searches", ("rollout/turns_mean", "rollout/searches_mean")),
    Chart("tool", "Tool output and failed calls", ("rollout/retrieved_frac", "rollout/invalid_calls_frac")),
    Chart("logp-correct", "Log-prob of correct answers", ("policy/logp_correct",)),
    Chart("ratio", "Importance ratio", ("policy/ratio_max", "policy/ratio_p99", "policy/ratio_min")),
    Chart("ess", "Effective sample size", ("policy/ess",)),
    Chart("mismatch", "Sampler/trainer mismatch", ("policy/mismatch_kl",)),
    Chart("critic", "Critic", ("value/explained_variance",)),
    Chart("value", "Critic loss", ("value/loss",)),
    Chart("lr", "Learning rate", ("optim/lr",)),
    Chart(
        "knobs",
        "Knobs",
        ("control/lr_scale", "control/beta", "control/epsilon_low", "control/epsilon_high", "control/temperature"),
        settings=True,
    ),
    Chart("batch", "Prompts per step", ("batch/prompts", "batch/prompts_drawn"), settings=True),
    Chart("time", "Time per step", ("time/step_s", "time/rollout_s", "time/update_s")),
)

MAX_COMPONENTS = 6
FALLBACK_CHARTS = 12


def charts(view: RunView) -> list[Chart]:
    """The core charts this run has numbers for; a run with none of them gets its own first metrics, one chart each."""
    found = [chart for chart in (_measured(view, chart) for chart in CORE) if chart is not None]
    names = view.names()
    if parts := [name for name in names if _is_component(name)]:
        found.insert(1, Chart("components", "Reward by component", tuple(parts[:MAX_COMPONENTS])))
    return found or [Chart(f"metric-{index}", name, (name,)) for index, name in enumerate(names[:FALLBACK_CHARTS])]


def _measured(view: RunView, chart: Chart) -> Chart | None:
    """A core chart with the metrics this run has; None without any, and for settings that were never changed."""
    present = tuple(name for name in chart.metrics if name in view)
    if not present or (chart.settings and _never_changed(view, present)):
        return None
    return Chart(chart.id, chart.title, present)


def _never_changed(view: RunView, names: Iterable[str]) -> bool:
    columns = [view.series(name).values for name in names]
    return all((values == values[0]).all() for values in columns)


def _is_component(name: str) -> bool:
    """Whether it is the mean of one reward component, as `reward/format/mean`."""
    return name.startswith("reward/") and name.endswith("/mean") and name.count("/") > 1
