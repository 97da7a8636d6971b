"""Scale shift: the reward changes its unit from one step to the next."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stabilizer.core.records import Finding
from stabilizer.core.stats import median, step_noise
from stabilizer.detectors.base import Detector
from stabilizer.runs.history import RunView, Series

REACH = 120
"""Rows within which a jump is looked for."""
SHARES = ("accuracy/train", "reward/zero_std_frac", "reward/all_fail_frac", "reward/all_pass_frac")


@dataclass(frozen=True, kw_only=True)
class ScaleShift(Detector):
    """The reward and its spread jumped by the same factor, while the share of solved problems stayed the same.

    Signature
        Between two rows the spread of rewards (over the batch where logged, else within groups, else the noise of the
        mean) changed by `factor` or more. The mean reward changed by the same factor within a tolerance of a third; a
        mean around 0 has no scale, so there the differences between its rows must have changed by about the factor.
        Neither accuracy nor the shares of groups that fail, pass or have no spread moved by more than 0.1 (where no
        spread is logged: held-out accuracy did not). At least one of those must be logged. Or one component of the
        reward rose between two rows to `factor` times its highest earlier value, its noise with it, while the others
        and accuracy stayed: its weight was changed.

    Why it matters
        Where advantages are divided by the group's deviation, nothing changes. Otherwise the step grows by that factor,
        and so does the reward relative to a KL or entropy term whose weight stayed. Curves before and after cannot be
        compared.

    Look-alikes
        A policy that improves: its spread changes too, but then the share of solved problems moves. A mix of data with
        other rewards per prompt: the factor differs between mean and spread. A running normaliser that settles in the
        first steps: there is no trend yet to leave. A fall of the reward to nothing is `reward/collapse`.

    False alarms
        None for a declared change of the reward (an event). A task whose correct answers earn more the harder they are,
        on an undeclared change of data.

    Remedies
        `check-reward`: find what changed (weights of components, a normaliser, the version of the reward model).
        Manually: adjust the KL and entropy coefficients to the new scale, or normalise advantages by the group's
        spread.

    References
        Engstrom et al. 2020 (arXiv 2005.12729) on reward scaling; Andrychowicz et al. 2021 (arXiv 2006.05990).
    """

    id = "reward/scale-shift"
    needs = ("reward/mean", "|".join((*SHARES, "accuracy/val", "reward/<component>/mean")))
    confirm = 3

    factor: float = 1.5
    """Smallest change of scale, up or down, that matters."""
    still: float = 0.1
    """Change of a share of completions or groups that counts as none."""

    def check(self, view: RunView) -> Finding | None:
        return self._whole(view) or self._component(view)

    def _whole(self, view: RunView) -> Finding | None:
        name = next((name for name in ("reward/std", "reward/std_group") if name in view), "reward/mean")
        shares = [share for share in (SHARES if name != "reward/mean" else ("accuracy/val",)) if share in view]
        spread = self._recent(view, name)
        edge = _edge(_logs(spread.values) if name != "reward/mean" else spread.values) if shares else None
        if edge is None or len(view.series("reward/mean")) < 20:
            return None
        step = int(spread.steps[edge])
        then, now = self._around(view, "reward/mean", step)
        if len(then) < 8 or len(now) < 5:
            return None
        was, is_ = (_spread(part, name) for part in self._around(view, name, step))
        factor = is_ / was if was > 0 else 0.0
        if name == "reward/mean" and abs(then.mean()) > 4 * was / np.sqrt(len(then)):
            times = float(
                now.mean() / then.mean()
            )  # more precise than the noise of so few rows, which must agree roughly
            factor = times if factor > 0 and 0.5 < times / factor < 2 else 0.0
        if not (factor >= self.factor or 0 < factor <= 1 / self.factor):
            return None
        before, after = float(then.mean()), float(now.mean())
        noise = max(step_noise(then), step_noise(now) / factor) * np.sqrt(1 / len(then) + 1 / len(now))
        same = abs(after / factor - before) < max(abs(before) / 3, 4 * noise)
        told = abs(after - before) > 4 * max(noise, noise * factor)
        swings = not told and name != "reward/mean" and self._swings(view, step, factor)
        if not (same and (told or swings) and all(self._unmoved(view, share, step) for share in shares)):
            return None
        moved = f"{name}: {was:.3g} to {is_:.3g}" if swings else f"{before:.3g} to {after:.3g}"
        return self.finding(
            view, "warn", step,
            f"reward and its spread jumped by a factor of {factor:.3g} at step {step} ({moved})"
            f" while {', '.join(shares)} stayed the same: the scale of the reward changed, not what is solved",
            metric=name, baseline=was, now=is_, factor=factor,
        )  # fmt: skip

    def _component(self, view: RunView) -> Finding | None:
        names = components(view)
        for name in names if len(names) > 1 else ():
            series = self._recent(view, name)
            edge = _edge(series.values)
            if edge is None:
                continue
            then, now = series.values[:edge], series.values[edge:][:15]
            if not 0 < self.factor * float(then.max()) < float(now.min()) or step_noise(now) < step_noise(then[-15:]):
                continue
            step, others = int(series.steps[edge]), [other for other in names if other != name]
            others += [share for share in SHARES[:1] if share in view]
            if not all(self._unmoved(view, other, step) for other in others):
                continue
            before, after = float(then[-15:].mean()), float(now.mean())
            return self.finding(
                view, "warn", step,
                f"{name} jumped from {before:.3g} to {after:.3g} at step {step}, above all earlier values, while"
                f" {', '.join(others)} stayed the same: its weight changed, not what is earned",
                metric=name, baseline=before, now=after, factor=after / before,
            )  # fmt: skip
        return None

    @staticmethod
    def _swings(view: RunView, edge: int, factor: float) -> bool:
        """Whether the differences between rows of the mean changed by about the factor too, beyond the error of so
        few rows: all that a mean around zero, which has no scale, can show."""
        recent = view.series("reward/mean").last(2 * REACH).finite()
        at = int(recent.steps.searchsorted(edge))
        then, now = recent.values[max(0, at - 60) : at], recent.values[at : at + 40]
        was, is_ = (_spread(part, "reward/mean") for part in (then, now))
        if not (was > 0 and is_ > 0 and len(now) >= 8):
            return False
        times = math.log(is_ / was) / math.log(factor)
        error = 0.87 * math.sqrt(1 / len(then) + 1 / len(now)) / abs(math.log(factor))  # the differences overlap
        return max(0.5, 3 * error) < times < 2

    @staticmethod
    def _recent(view: RunView, name: str) -> Series:
        return view.series(name).between(view.baseline_start(), view.step).last(REACH).finite()

    @staticmethod
    def _around(view: RunView, name: str, edge: int) -> tuple[np.ndarray, np.ndarray]:
        """Up to 15 values before and from a step."""
        recent = view.series(name).last(2 * REACH).finite()
        at = int(recent.steps.searchsorted(edge))
        return recent.values[max(0, at - 15) : at], recent.values[at : at + 15]

    def _unmoved(self, view: RunView, name: str, edge: int) -> bool:
        then, now = self._around(view, name, edge)
        if name == "accuracy/val":  # seldom measured: old values say nothing about the edge
            then, now = then[-4:], now[:4]
        if not len(then) or not len(now):
            return False
        error = max(step_noise(then), step_noise(now)) * np.sqrt(1 / len(then) + 1 / len(now))
        still = self.still * (1.0 if name in (*SHARES, "accuracy/val") else max(abs(float(then.mean())), 0.1))
        return bool(abs(float(now.mean() - then.mean())) <= max(still, min(3 * error, 2 * still)))


def components(view: RunView) -> list[str]:
    """Components of the reward by name. Length penalties are the trainer's own and are left out."""
    return list(view.once(_components))


def _components(view: RunView) -> list[str]:
    return [
        name
        for name in view.names()
        if name.startswith("reward/")
        and name.endswith("/mean")
        and name.count("/") == 2
        and name != "reward/overlong/mean"
    ]


def _edge(values: np.ndarray) -> int | None:
    """The row of the largest jump between two rows, if beyond noise with 8 rows before it and 5 after."""
    if len(values) < 13:
        return None
    sums = np.concatenate(([0.0], np.cumsum(values)))
    at = np.arange(8, len(values) - 4)
    jumps = np.abs((sums[at + 5] - sums[at]) / 5 - (sums[at] - sums[at - 8]) / 8)
    most = int(np.argmax(jumps))
    return int(at[most]) if jumps[most] > 5 * max(step_noise(values), 0.02 * abs(median(values))) * 0.57 else None


def _logs(values: np.ndarray) -> np.ndarray:
    logs: np.ndarray = np.log(np.maximum(values, 1e-12))
    return logs


def _spread(values: np.ndarray, name: str) -> float:
    """Level of a logged spread; of the mean, the noise of its rows."""
    return float(np.diff(values).std()) if name == "reward/mean" else median(values)
