"""Headless Chromium: a page as a picture, and what its console said."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import attrs

from support.suite.skips import unavailable

_NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_S = 120.0


@attrs.frozen
class Rendered:
    """A PNG, and the lines of the console."""

    picture: bytes
    console: list[str]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, from the PNG's first chunk."""
        assert self.picture[:8] == b"\x89PNG\r\n\x1a\n"
        return int.from_bytes(self.picture[16:20]), int.from_bytes(self.picture[20:24])


def require_browser() -> str:
    """Its name; skips the test, saying why, where there is none; in CI fails instead."""
    for name in _NAMES:
        if shutil.which(name) is not None:
            return name
    unavailable("HTML page: Chromium is not installed")


def render(
    page: Path, directory: Path, *, dark: bool = False, width: int = 1200, height: int = 3000
) -> Rendered:
    """Open `page` in a browser with nothing in it; its leftovers stay below `directory`."""
    picture = directory / "picture.png"
    colours = ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = _run(page, directory, width, height, f"--screenshot={picture}", *colours)
    console = re.findall(r"CONSOLE[^]]*\] (.*)", done.stderr)
    return Rendered(picture.read_bytes(), console)


_OVERFLOWS = """<script>
const scrolls = (one) => one && (
    ["auto", "scroll"].includes(getComputedStyle(one).overflowX) || scrolls(one.parentElement));
const wide = [...document.body.querySelectorAll("*")].filter((one) =>
    one.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5
    && !scrolls(one.parentElement) && !scrolls(one));
document.title = JSON.stringify({
    width: document.documentElement.clientWidth,
    scrolled: document.documentElement.scrollWidth,
    wide: wide.map((one) => one.outerHTML.slice(0, 200)),
});
</script></body>"""


def overflows(page: Path, directory: Path, *, width: int) -> dict[str, Any]:
    """Width of the page's view, of all that it holds, and elements beyond it that do not scroll by
    themselves. A script measures in a copy of the page, which forbids scripts."""
    copy = directory / "copy.html"
    directory.mkdir(parents=True, exist_ok=True)
    text, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    assert count == 1
    copy.write_text(text.replace("</body>", _OVERFLOWS))
    done = _run(copy, directory, width, 1000, "--dump-dom")
    titled = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert titled is not None, done.stdout[:500]
    measured: dict[str, Any] = json.loads(html.unescape(titled[1]))
    return measured


def _run(
    page: Path, directory: Path, width: int, height: int, *options: str
) -> subprocess.CompletedProcess[str]:
    directory.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        [
            require_browser(),
            *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--no-first-run", "--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND"),
            f"--user-data-dir={directory / 'profile'}",
            f"--window-size={width},{height}",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
