"""The two lines at the top: whom we watch and how that goes; and the screens there are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from trioha.watch.alerts import Alert, AlertLevel
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

    def show(
        self,
        title: str,
        frame: Frame | None,
        alerts: Sequence[Alert],
        *,
        paused: bool,
        armed: bool,
    ) -> None:
        # The state first: of a narrow line the end is cut off.
        left = [*_state(frame, alerts), (title, "strong"), *_counts(frame)]
        self._set("#header-left", tuple(left))
        right: list[tuple[str, str]] = []
        if frame is not None and any(one.insecure for one in frame.snapshot.replicas):
            right.append((" INSECURE ", "bad"))
        if armed:
            right.append((" WRITE ", "bad"))
        if frame is not None:
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


def _state(frame: Frame | None, alerts: Sequence[Alert]) -> list[tuple[str, str]]:
    """How all of it is: nodes that are not well, name servers that do not answer, alerts."""
    if frame is None:
        return [("○ connecting  ", "unknown")]
    snapshot = frame.snapshot
    levels = [condition_of(replica).level for replica in snapshot.replicas]
    bad, warn = levels.count(Level.BAD), levels.count(Level.WARN)
    silent = sum(bool(one.answer.error) for one in snapshot.namesrvs)
    parts: list[tuple[str, str]] = []
    if silent == len(snapshot.namesrvs) and silent:
        parts.append(("✖ no name server  ", "bad"))
    elif silent:
        parts.append((f"✖ {silent}/{len(snapshot.namesrvs)} name servers  ", "bad"))
    if bad:
        parts.append((f"✖ {count_in_words(bad, 'node')}  ", "bad"))
    if warn:
        parts.append((f"▲ {count_in_words(warn, 'node')}  ", "warn"))
    new = [one for one in alerts if not one.acknowledged]
    if new:
        is_critical = any(one.level is AlertLevel.CRIT for one in new)
        mark, role = ("✖", "bad") if is_critical else ("▲", "warn")
        parts.append((f"{mark} {count_in_words(len(new), 'alert')}  ", role))
    elif alerts:
        parts.append((f"▲ {count_in_words(len(alerts), 'alert')} seen  ", "warn"))
    if not parts:
        unknown = not levels or Level.UNKNOWN in levels
        parts = [("○ not all known  ", "unknown")] if unknown else [("● all well  ", "good")]
    return parts


def _counts(frame: Frame | None) -> list[tuple[str, str]]:
    if frame is None:
        return []
    snapshot = frame.snapshot
    sets, nodes = len(snapshot.sets), len(snapshot.replicas)
    return [(f"  {count_in_words(sets, 'set')}, {count_in_words(nodes, 'node')}", "dim")]


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

    def show(self, names: Sequence[tuple[str, str]], current: str) -> None:
        """`names` are (id, title) in order."""
        shown = tuple(names), current
        if shown == self._shown:
            return
        self._shown = shown
        parts: list[Content] = []
        for number, (name, title) in enumerate(names, 1):
            style = "bold $primary reverse" if name == current else "$foreground 70%"
            parts.append(
                Content.from_markup(f" [@click=app.view('{name}')][{style}]{number} {title}[/][/]")
            )
        self.update(Content("").join(parts))
