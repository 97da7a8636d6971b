"""A run's policy as a folder that others can load, with a card that says where it comes from and how its run went."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from stabilizer.analysis.analyse import Analysis, analyse
from stabilizer.core.text import plain
from stabilizer.core.version import __version__
from stabilizer.figures.svg import line_chart
from stabilizer.runs.story import interventions, summary
from stabilizer.trainers.reading import load

if TYPE_CHECKING:
    from stabilizer.core.knobs import Checkpoint

SHOWN = ("accuracy/val", "reward/mean")
FILES = ("model", "path", "held_out_path", "corpus", "functions", "use")
"""Keys of a configuration that may name a file."""


def export_model(run: Path, out: Path, which: str = "best") -> tuple[int, str]:
    """Write the policy of `run` to `out` with its card; returns the step it was taken from, and what to know about it.

    `which` is best (by validation), last, or a step that has a checkpoint. Raises ValueError when there is none.
    """
    from stabilizer.training.checkpoint import scan
    from stabilizer.training.config import config_from_dict
    from stabilizer.training.saved import newest_progress, saved_policy, write_policy

    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out}: not empty; name a folder that is, or does not exist yet")
    loaded = load(run)
    settings = loaded.history.view().about("config", {})
    if not isinstance(settings, dict):
        raise ValueError(f"{run / 'run.json'}: no usable configuration in it, so what the weights are of is not known")
    # Whatever paid the completions: it is not asked, and its file need not be there any more.
    config = config_from_dict({**settings, "reward": {"functions": ["exact"]}})
    folder = run / "checkpoints"
    progress = newest_progress(folder)
    if progress is None:
        raise ValueError(f"{folder}: no checkpoint that can be verified; --to csv writes the metrics")
    validated = loaded.history.view().series("accuracy/val").finite().steps
    compared = len(validated) > 0 and validated[-1] > 0  # else the start is the best for want of another
    best, states = progress.best_step, progress.line(scan(folder))
    chosen = _choose(states, best, which if compared or which != "best" else "last")
    write_policy(saved_policy(config, chosen), config, out)
    analysis = analyse(loaded)
    (out / "training.svg").write_text(_plot(analysis), encoding="utf-8")
    (out / "README.md").write_text(model_card(analysis, chosen.step), encoding="utf-8")
    return chosen.step, _note(chosen.step, best, compared=compared) if which == "best" else ""


def _note(step: int, best: int, *, compared: bool) -> str:
    """A note where the exported policy is not the best by validation."""
    if not compared:
        return "training was never validated, so the best is not known; this is the newest policy"
    if step != best:
        return f"the best validation was at step {best}, whose checkpoint is not kept; this is the newest there is"
    return "no validation was better than the first: this is the policy that training began with" if not step else ""


def _choose(states: Sequence[Checkpoint], best: int, which: str) -> Checkpoint:
    by_step = {checkpoint.step: checkpoint for checkpoint in states}
    if which == "last":
        return by_step[max(by_step)]
    if which == "best":
        return by_step.get(best, by_step[max(by_step)])
    if not which.isdigit() or int(which) not in by_step:
        raise ValueError(f"no checkpoint {which!r}; there are best, last, {', '.join(str(step) for step in by_step)}")
    return by_step[int(which)]


def model_card(analysis: Analysis, step: int) -> str:
    """The card, in the form model hubs read. Text from the run is shown without control characters."""
    config: dict[str, Any] = _portable(analysis.run.history.view().about("config", {}))
    view = analysis.run.history.view()
    measured = []
    for name in SHOWN:
        series = view.series(name).finite()
        before = [(at, value) for at, value in zip(series.steps, series.values, strict=True) if at <= step]
        if before:
            measured.append(f"| `{name}` | {before[-1][1]:.4g} | {before[-1][0]} |")
    incidents = [
        f"- incident {incident.number}, from step {incident.onset}: {plain(incident.summary)}"
        for incident in analysis.incidents
    ] or ["- none"]
    made = summary(analysis.run.actions)
    changed = sorted({one.remedy for one in interventions(analysis.run.actions)})
    hands = f"It was {made['text']} ({', '.join(changed)}), so it is not comparable with an unchanged run."
    front = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "base_model": None if config.get("model") == "builtin" else config.get("model"),
        "tags": ["stabilizer", "reinforcement-learning", config.get("algorithm", "grpo")]
        + (["changed-while-training"] if changed else []),
    }
    front = {key: value for key, value in front.items() if value}
    lines = [
        "---",
        yaml.safe_dump(front, sort_keys=False).strip(),
        "---",
        "",
        f"# {plain(analysis.run.name)}, step {step}",
        "",
        f"Trained with stabilizer {__version__}: {plain(config.get('algorithm', 'grpo'))} on the task"
        f" {plain(config.get('task', '?'))}, {analysis.last_step} steps in all.",
        "",
        f"**Verdict on the run: {analysis.verdict}**"
        + (f" (worst ever seen: {analysis.worst})." if analysis.worst else "."),
        "",
        *incidents,
        "",
        *([hands, ""] if changed else []),
        "| measured at or before this step | value | step |",
        "|---|---|---|",
        *measured,
        "",
        "![reward and held-out accuracy over the run](training.svg)",
        "",
        "## Configuration",
        "",
        "```json",
        json.dumps(config, indent=1),
        "```",
        "",
    ]
    return "\n".join(lines)


def _plot(analysis: Analysis) -> str:
    view = analysis.run.history.view()
    series = [(name, view.series(name).finite()) for name in SHOWN]
    spans = [(finding.onset_step, finding.last_step) for finding in analysis.findings if finding.severity != "info"]
    return line_chart([(name, s.steps, s.values) for name, s in series if len(s) > 1], spans=spans)


def _portable(value: Any, key: str = "") -> Any:
    """A configuration with files by their names alone: a card is shared, and these folders mean nothing elsewhere."""
    if isinstance(value, dict):
        return {name: _portable(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_portable(inner, key) for inner in value]
    whole = isinstance(value, str) and key in FILES and Path(value).is_absolute()
    return Path(value).name if whole else value
