"""Makes the README's pictures of the dashboard from the sample runs: `make screenshots`.

usage: python tests/dashboards/screenshots.py FOLDER_OF_RUNS OUTPUT_FOLDER
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from page_client import CHROMIUM, THERE
from playwright.sync_api import Browser, sync_playwright
from png import smaller
from watched import serving

SIZE = {"width": 1440, "height": 900}
RESCUED = "addition-rescued"
PICTURES = {
    "light": ("/run", f"?run={RESCUED}"),
    "dark": ("/run", f"?run={RESCUED}"),
    "runs": ("/", ""),
    "incident": ("/incident", f"?run={RESCUED}&n=1"),
    "completions": ("/completions", f"?run={RESCUED}"),
    "compare": ("/compare", f"?runs=addition-unstable,{RESCUED},addition-healthy"),
}
"""What each shows; all but one are light."""
CHARTS = {"/run": 6, "/incident": 1, "/completions": 1, "/compare": 2}
"""Charts in the first screenful."""
MOST = 150 * 1024
"""Bytes of a picture."""


def take(browser: Browser, runs: Path, out: Path) -> None:
    """The first screenful of each page."""
    out.mkdir(parents=True, exist_ok=True)
    with serving(runs) as address:
        for name, (path, query) in PICTURES.items():
            page = browser.new_page(viewport=SIZE, color_scheme="dark" if name == "dark" else "light")
            page.goto(address.rstrip("/") + path + query)
            page.locator(".compare-verdict" if path == "/compare" else THERE[path]).first.wait_for(timeout=60_000)
            if path == "/compare":
                page.locator(".compare-waiting").first.wait_for(state="detached", timeout=60_000)
            if path == "/":
                page.locator(".runs-table").get_by_text("being read").first.wait_for(state="detached", timeout=60_000)
            for place in range(CHARTS.get(path, 0)):
                page.locator("main .js-plotly-plot .main-svg").nth(3 * place).wait_for(state="attached", timeout=30_000)
            page.evaluate("document.fonts.ready")
            page.wait_for_timeout(1500)  # what is drawn has come to rest
            picture = smaller(page.screenshot(), browser)
            if len(picture) > MOST:
                raise SystemExit(f"{name}.png: {len(picture):,} bytes, more than {MOST:,}")
            (out / f"{name}.png").write_bytes(picture)
            page.close()


def main(runs: Path, out: Path) -> None:
    """All of them, with a browser of their own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(CHROMIUM))
        take(browser, runs, out)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
