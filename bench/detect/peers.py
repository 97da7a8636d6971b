"""The other tools' side of `bench detect`: run by the Python of their environment, which holds nothing of this project.

One JSON object per line: rows of a run in, alarms of every tool out, as (step, the tool's own word, severity). Each
tool runs as its documentation says for live use, with its defaults: rl-doctor's LiveMonitor (a check every 25 rows,
from the 60th on), rlwatch's detector suite behind its own cooldown, ADWIN and Page-Hinkley one per stream. A tool that
is not there, or fails, answers with the reason.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

DOCTOR = {
    "reward/mean": "reward_mean", "reward/std": "reward_std", "reward/zero_std_frac": "zero_var_group_frac",
    "batch/group_size": "group_size", "accuracy/val": "eval_score", "policy/entropy": "entropy",
    "policy/kl_ref": "kl", "policy/clip_frac": "pg_clipfrac", "policy/clip_frac_low": "pg_clipfrac_low",
    "policy/clip_frac_high": "pg_clipfrac_high", "optim/grad_norm": "grad_norm", "optim/lr": "lr",
    "policy/loss": "policy_loss", "rollout/length_mean": "response_len_mean",
    "rollout/length_max": "response_len_max", "rollout/truncated_frac": "response_len_clip_ratio",
    "value/explained_variance": "value_explained_var", "time/step_s": "time_per_step",
}  # fmt: skip
"""Our name: rl-doctor's."""
WATCH = {
    "policy/entropy": "entropy", "policy/kl_ref": "kl_divergence", "reward/mean": "reward_mean",
    "reward/std": "reward_std", "policy/loss": "loss", "optim/grad_norm": "grad_norm",
}  # fmt: skip
"""Our name: rlwatch's."""

Said = list[tuple[int, str, str]]


def rl_doctor(request: dict[str, Any]) -> Said:
    """rl-doctor's live monitor."""
    from rl_doctor.live import LiveMonitor

    beta = (request["config"] or {}).get("beta")
    monitor = LiveMonitor(config=None if beta is None else {"kl_coef": beta}, on_finding=lambda finding: None)
    said: Said = []
    for step, values in request["rows"]:
        row = {DOCTOR[name]: value for name, value in values.items() if name in DOCTOR}
        row |= {name.replace("/mean", ""): v for name, v in values.items() if name.count("/") == 2}
        for finding in monitor.log(row, step=step):
            said.append((step, finding.detector, "critical" if finding.severity.name == "CRITICAL" else "warn"))
    return said


def rlwatch(request: dict[str, Any]) -> Said:
    """rlwatch's detectors, each silent for its default cooldown after an alert."""
    from rlwatch.config import RLWatchConfig
    from rlwatch.detectors import DetectorSuite

    config = RLWatchConfig()
    suite, last, said = DetectorSuite(config), {}, []
    for step, values in request["rows"]:
        for alert in suite.check_step(step, **{WATCH[name]: v for name, v in values.items() if name in WATCH}):
            if step - last.get(alert.detector, -math.inf) >= config.alerts.cooldown_steps:
                last[alert.detector] = step
                said.append((step, alert.detector, "critical" if alert.severity == "critical" else "warn"))
    return said


def adwin(request: dict[str, Any]) -> Said:
    """ADWIN with river's defaults."""
    from river.drift import ADWIN

    return _per_stream(request, ADWIN)


def page_hinkley(request: dict[str, Any]) -> Said:
    """Page-Hinkley with river's defaults."""
    from river.drift import PageHinkley

    return _per_stream(request, PageHinkley)


def _per_stream(request: dict[str, Any], make: Any) -> Said:
    said: Said = []
    for name in request["streams"]:
        detector, last = make(), -math.inf
        for step, values in request["rows"]:
            value = values.get(name)
            if value is None or not math.isfinite(value):
                continue
            detector.update(value)
            if detector.drift_detected and step - last >= request["every"]:
                last = step
                said.append((step, name, "warn"))
    return said


TOOLS = {"rl-doctor": rl_doctor, "rlwatch": rlwatch, "ADWIN": adwin, "Page-Hinkley": page_hinkley}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What every tool says."""
    said: dict[str, Any] = {}
    for name, tool in TOOLS.items():
        try:
            said[name] = tool(request)
        except Exception as error:  # of somebody else's making: it becomes that tool's answer, and is shown
            said[name] = f"{type(error).__name__}: {error}"
    return said


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()
