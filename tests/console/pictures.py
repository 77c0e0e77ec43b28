"""Pictures and the transcript of docs/console.md, of an incident lived through for them.

`just console-pictures`. Needs tmux, and Chromium to make PNGs of the console's own SVGs.
"""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path

from support.processes.rig import REPO, running_processes
from support.screens.browser import render
from support.screens.console_drill import Drill, live_through, open_drill, read_again
from support.screens.terminal import Terminal, open_terminal

DOCS = REPO / "docs"
PICTURES = DOCS / "pictures"
PAGE = DOCS / "console.md"
COLUMNS, ROWS = 132, 34
SHOWN = ("late", "plan", "done", "replay")
"""Scenes that become pictures; all of them are in the transcript."""
_BEGIN, _END = "<!-- transcript -->", "<!-- /transcript -->"
_STYLE = (
    "<style>body{margin:0;background:#16161e}svg{display:block;width:1180px;height:auto}</style>"
)
_HEIGHT = 638


class Scenes:
    """Keeps what each scene looked like."""

    def __init__(self, directory: Path, terminal: Terminal) -> None:
        self.directory = directory
        self.texts: dict[str, str] = {}
        self._terminal = terminal

    def __call__(self, name: str) -> None:
        if name not in ("late", "link-lost"):
            self._wait_without_toasts()
        self.texts[name] = self._terminal.screen
        if name not in SHOWN:
            return
        path = self.directory / f"{name}.svg"
        self._terminal.send("C-s")
        while not (found := list(self.directory.glob("trioha-*.svg"))):
            self._terminal.wait_for(".", 1.0)
        self._terminal.wait_for("screenshot")
        found[0].rename(path)

    def _wait_without_toasts(self) -> None:
        """Wait until no toast covers the screen."""
        for _ in range(150):
            if "▌" not in self._terminal.screen:
                return
            time.sleep(0.1)


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        with (
            running_processes(root / "cluster") as processes,
            open_terminal(COLUMNS, ROWS) as terminal,
        ):
            scenes = Scenes(root, terminal)
            terminal.type(f"cd {root}")
            terminal.send("Enter")
            with open_drill(processes, terminal, scenes) as drill:
                live_through(drill)
                read_again(drill)
                rename = Rename(drill)
        for name in SHOWN:
            svg = rename((root / f"{name}.svg").read_text())
            page = root / f"{name}.html"
            page.write_text(f"<!doctype html><meta charset=utf-8>{_STYLE}{svg}")
            drawn = render(page, root / f"{name}-browser", width=1180, height=_HEIGHT)
            (PICTURES / f"console-{name}.png").write_bytes(drawn.picture)
            print(f"console-{name}.png: {len(drawn.picture) // 1024} KiB")
        PAGE.write_text(_with_transcript(PAGE.read_text(), rename, scenes.texts))


class Rename:
    """Addresses as they would be, as wide as they were: the ports of this run mean nothing."""

    def __init__(self, drill: Drill) -> None:
        self._pairs = [(one.address, "10.0.0.101:9876") for one in drill.set.namesrvs]
        for number, node in enumerate(drill.set.nodes, 11):
            self._pairs.append((node.address, f"10.0.0.{number}:10911"))
            if node.ha_address is not None:
                self._pairs.append((node.ha_address, f"10.0.0.{number}:10912"))

    def __call__(self, text: str) -> str:
        for old, new in self._pairs:
            text = text.replace(old, new)
        # The rest are slaves' own ends of their links; only the last node's is ever shown.
        text = text.replace("127.0.0.1:", "10.0.0.13:")
        return re.sub(r"\w+@[\w.-]+,((?: |&#160;)\d+)", r"anna@ops-1,\1", text)


def _with_transcript(page: str, rename: Rename, texts: dict[str, str]) -> str:
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    parts = []
    for name, text in texts.items():
        lines = [line.rstrip() for line in rename(text).splitlines()]
        shown = "\n".join(lines).rstrip()
        parts.append(f"**{_TITLES[name]}**\n\n```\n{shown}\n```\n")
    return f"{before}{_BEGIN}\n\n" + "\n".join(parts) + f"\n{_END}{after}"


_TITLES = {
    "well": "All is well.",
    "late": "A slave stands still: its heartbeat ages.",
    "link-lost": "Past the limit its master gives the link up.",
    "risk": "The master dies. The wizard says what speaks against a failover.",
    "plan": "The risk is accepted; the name is asked for.",
    "done": "Step by step, then the facts again and what the nodes keep of it.",
    "rejoined": "Both come back and follow the new master.",
    "replay": "The same from the recording.",
}


if __name__ == "__main__":
    main()
