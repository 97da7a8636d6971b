"""The README's pictures: the script that makes them is run here, on the same pages that the other browser tests try."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest
from screenshots import PICTURES, SIZE, take

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.ui
def test_the_pictures_of_the_readme_can_be_made_from_the_sample_runs(browser: Any, tmp_path: Path) -> None:
    take(browser, ROOT / "sample_runs", tmp_path)
    made = {picture.stem for picture in tmp_path.glob("*.png")}
    assert made == set(PICTURES)
    assert made >= set(re.findall(r"dashboards/screenshots/(\w+)\.png", (ROOT / "README.md").read_text("utf-8")))
    for picture in tmp_path.glob("*.png"):
        width, height = struct.unpack(">II", picture.read_bytes()[16:24])
        assert (width, height) == (SIZE["width"], SIZE["height"])
