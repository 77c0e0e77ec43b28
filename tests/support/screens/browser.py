"""Headless Chromium: a page as a picture, and what its console said."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

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
    directory.mkdir(parents=True, exist_ok=True)
    picture = directory / "picture.png"
    done = subprocess.run(
        [
            require_browser(),
            *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--no-first-run", "--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND"),
            f"--user-data-dir={directory / 'profile'}",
            f"--screenshot={picture}",
            f"--window-size={width},{height}",
            *(["--blink-settings=preferredColorScheme=0"] if dark else []),
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    console = re.findall(r"CONSOLE[^]]*\] (.*)", done.stderr)
    return Rendered(picture.read_bytes(), console)
