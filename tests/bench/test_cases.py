"""Case studies: pages hold what their folders say, and a symptom is recognised by its numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bench.cases import beta0, chosen, halved, shared
from bench.cases.page import PAGES, files


def without_output(text: str) -> str:
    """A page without the output of commands, whose wording is free to change."""
    return re.sub(r"```text\n.*?```", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_its_folder_says(name: str) -> None:
    for path, text in files(name).items():
        written = path.read_text(encoding="utf-8")
        assert without_output(written) == without_output(text), "run `python -m bench cases --pages`"


def test_an_unknown_case_is_refused_with_the_known_ones() -> None:
    assert chosen("case-easyr1") == ["case-easyr1"] and chosen(None) == list(PAGES)
    with pytest.raises(ValueError, match="no case named 'easyr1'; choose one of case-easyr1"):
        chosen("easyr1")


def series(norm: np.ndarray, reward: np.ndarray) -> dict[str, np.ndarray]:
    return {"optim/grad_norm": norm, "policy/clip_frac": np.full(len(norm), 0.05), "reward/mean": reward}


def test_a_norm_that_climbs_and_swings_while_the_reward_rises_is_the_symptom() -> None:
    rng = np.random.default_rng(0)
    rising, flat = np.linspace(0.5, 0.9, 400), np.full(400, 0.5)
    calm = 1 + 0.3 * rng.standard_normal(400)
    climbing = calm * np.linspace(1, 4, 400)
    assert beta0.sign(series(climbing, rising)).present
    assert not beta0.sign(series(calm, rising)).present
    assert not beta0.sign(series(calm + np.linspace(0, 3, 400), rising)).present, "it climbs and does not swing more"
    assert not beta0.sign(series(climbing, flat)).present


def test_a_reward_that_swings_without_a_trend_is_the_symptom() -> None:
    noise = np.random.default_rng(0).standard_normal(120)
    assert halved.sign(0.06 + 0.05 * noise).present
    assert not halved.sign(0.06 + 0.05 * noise + np.linspace(0, 0.2, 120)).present
    assert not halved.sign(0.5 + 0.05 * noise).present, "swings of a fifth of its level"


def test_a_run_is_measured_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(shared, "BUILD", tmp_path)
    made = []
    for key in ("a", "a", "b"):
        assert shared.kept_or(lambda key=key: made.append(key) or [1.5, float("nan")], "case", key)[0] == 1.5
    assert made == ["a", "b"]
