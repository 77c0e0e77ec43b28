"""Settings that the console keeps between two runs: theme, screen, order of the tables."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import attrs

from trioha_console.arrange import SortOrder
from trioha_console.themes import DEFAULT_THEME

_BYTES_MAX = 65_536


@attrs.define
class Layout:
    """Kept in ``$XDG_STATE_HOME/trioha/console.json``; losing it loses nothing that matters."""

    theme: str = DEFAULT_THEME
    view: str = "replication"
    orders: dict[str, SortOrder] = attrs.field(factory=dict)

    def as_json(self) -> str:
        return json.dumps(
            {
                "theme": self.theme,
                "view": self.view,
                "orders": {name: [one.title, one.descending] for name, one in self.orders.items()},
            }
        )


def layout_path(environment: Mapping[str, str] = os.environ) -> Path:
    base = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "trioha" / "console.json"


def load_layout(path: Path) -> Layout:
    """Return the stored layout; the defaults if there is none, or if it cannot be read."""
    layout = Layout()
    try:
        with path.open() as file:
            told = json.loads(file.read(_BYTES_MAX))
        layout.theme = str(told.get("theme") or layout.theme)
        layout.view = str(told.get("view") or layout.view)
        layout.orders = {
            str(name): SortOrder(str(title), bool(descending))
            for name, (title, descending) in (told.get("orders") or {}).items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return Layout()
    return layout


def save_layout(path: Path, layout: Layout) -> None:
    """Write the layout; an error is ignored, since a lost layout does little harm."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(layout.as_json())
        part.replace(path)
