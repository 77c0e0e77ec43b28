"""The two lines at the top: whom we watch and how that goes; and the screens there are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from trioha.watch.condition import Level, condition_of
from trioha.words import count_in_words
from trioha_console.cells import Cell
from trioha_console.frame import Frame
from trioha_console.roles import content_of


class HeaderLine(Horizontal):
    """Left: whom; right: how fresh, and what may be done."""

    DEFAULT_CSS = """
    HeaderLine { height: 1; background: $panel; }
    HeaderLine > Static { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    HeaderLine > #header-left { width: 1fr; }
    HeaderLine > #header-right { width: auto; }
    """

    def compose(self) -> ComposeResult:
        yield Static(id="header-left")
        yield Static(id="header-right")

    def show(self, title: str, frame: Frame | None, *, paused: bool, armed: bool) -> None:
        left: list[tuple[str, str]] = [("trioha", "title"), ("  ", ""), (title, "strong")]
        left += _counts(frame)
        self._set("#header-left", tuple(left))
        right: list[tuple[str, str]] = []
        if frame is not None and any(one.insecure for one in frame.snapshot.replicas):
            right.append((" INSECURE ", "bad"))
        if armed:
            right.append((" WRITE ", "bad"))
        if frame is None:
            right.append(("connecting ", "dim"))
        else:
            if paused:
                right.append(("‖ paused ", "warn"))
            elif frame.live:
                right.append(("● live ", "good"))
            else:
                right.append(("▶ replay ", "accent"))
            right.append((_clock(frame.wall_ms), ""))
        self._set("#header-right", tuple(right))

    def _set(self, selector: str, spans: Cell) -> None:
        self.query_one(selector, Static).update(content_of(spans))


def _counts(frame: Frame | None) -> list[tuple[str, str]]:
    if frame is None:
        return []
    snapshot = frame.snapshot
    replicas = snapshot.replicas
    levels = [condition_of(replica).level for replica in replicas]
    bad, warn = levels.count(Level.BAD), levels.count(Level.WARN)
    counted = f"  {count_in_words(len(snapshot.sets), 'set')}, "
    parts = [(counted + count_in_words(len(replicas), "node"), "dim")]
    if bad:
        parts.append((f"  ✖ {bad}", "bad"))
    if warn:
        parts.append((f"  ▲ {warn}", "warn"))
    silent = [one for one in snapshot.namesrvs if one.answer.error]
    if silent and len(silent) == len(snapshot.namesrvs):
        parts.append(("  ✖ no name server", "bad"))
    elif silent:
        parts.append((f"  ✖ {len(silent)}/{len(snapshot.namesrvs)} name servers silent", "bad"))
    elif replicas and not bad and not warn:
        parts.append(("  ● all well", "good"))
    return parts


def _clock(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).astimezone().strftime("%H:%M:%S")


class NavLine(Static):
    """The screens by number; a click opens one."""

    DEFAULT_CSS = """
    NavLine { height: 1; background: $surface; padding: 0 1; text-wrap: nowrap; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: object = None

    def show(self, names: Sequence[tuple[str, str]], current: str, *, alerts: int = 0) -> None:
        """`names` are (id, title) in order; `alerts` is how many nobody has acknowledged."""
        shown = tuple(names), current, alerts
        if shown == self._shown:
            return
        self._shown = shown
        parts: list[Content] = []
        for number, (name, title) in enumerate(names, 1):
            style = "bold $primary reverse" if name == current else "$foreground 70%"
            parts.append(
                Content.from_markup(f" [@click=app.view('{name}')][{style}]{number} {title}[/][/]")
            )
        if alerts:
            parts.append(Content.styled(f" ✖ {alerts}", "bold $error"))
        self.update(Content("").join(parts))
