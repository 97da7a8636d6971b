"""Makes the README's pictures of the dashboard from a real run: `make screenshots`.

usage: python tests/dashboards/screenshots.py RUN_DIRECTORY OUTPUT_FOLDER
"""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

from dashboards.server import prepare

SIZE = {"width": 1440, "height": 1010}
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")


def main(run: Path, out: Path) -> None:
    """Light and dark, the first screenful."""
    out.mkdir(parents=True, exist_ok=True)
    server, address = prepare([run], port=0)
    threading.Thread(target=server.run, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport=SIZE, color_scheme=scheme)
            page.goto(address + "run")
            page.locator(".js-plotly-plot .main-svg").nth(12).wait_for(state="attached", timeout=30_000)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=out / f"{scheme}.png")
            page.close()
        browser.close()
    server.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
