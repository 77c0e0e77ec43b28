"""The two lines at the top: name and state of the cluster; and the names of the screens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from trioha.watch.alerts import Alert
from trioha.words import count_in_words
from trioha_console.cells import Cell, text_of
from trioha_console.frame import Frame
from trioha_console.overall import overall_state
from trioha_console.roles import content_of


class HeaderLine(Horizontal):
    """Left: state and name of the cluster; right: warnings, live or replay, and the time."""

    DEFAULT_CSS = """
    HeaderLine { height: 1; background: $panel; }
    HeaderLine > Static { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    HeaderLine > #header-left { width: 1fr; }
    HeaderLine > #header-right { width: auto; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[str, Cell] = {}

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
        state = overall_state(None if frame is None else frame.snapshot, alerts)
        left = [
            *state,
            (title, "strong"),
            *_counts(frame),
        ]
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
        if self._shown.get(selector) == spans:
            return
        # The clock ticks each second; the line is laid out anew when what is right gets wider.
        width = cell_len(text_of(self._shown.get(selector, ())))
        self._shown[selector] = spans
        line = self.query_one(selector, Static)
        line.update(content_of(spans), layout=width != cell_len(text_of(spans)))


def _counts(frame: Frame | None) -> list[tuple[str, str]]:
    if frame is None:
        return []
    snapshot = frame.snapshot
    sets, nodes = len(snapshot.sets), len(snapshot.replicas)
    return [(f"  {count_in_words(sets, 'set')}, {count_in_words(nodes, 'node')}", "dim")]


def _clock(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).astimezone().strftime("%H:%M:%S")


class TitleLine(Static):
    """The top line of a screen over the main one: the cluster's state, then what is shown."""

    DEFAULT_CSS = """
    TitleLine { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap;
        text-overflow: ellipsis; }
    """

    def __init__(self, title: Cell = ()) -> None:
        super().__init__(markup=False)
        self._overall: Cell = ()
        self._subject = title

    def on_mount(self) -> None:
        self._draw()
        self.app.call_later(self.app.run_action, "app.redraw")

    def show_state(self, state: Cell) -> None:
        if state != self._overall:
            self._overall = state
            self._draw()

    def show_title(self, title: Cell) -> None:
        if title != self._subject:
            self._subject = title
            self._draw()

    def _draw(self) -> None:
        # The state first: of a narrow line the end is cut off.
        self.update(content_of((*self._overall, *self._subject)), layout=False)


class NavLine(Static):
    """The screens by number; a click opens one."""

    DEFAULT_CSS = """
    NavLine { height: 1; background: $surface; padding: 0 1; text-wrap: nowrap; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: object = None

    def show(self, names: Sequence[tuple[str, str, str]], current: str) -> None:
        """`names` are (key, id, title) in order. The last one goes where there is no room."""
        names = list(names)
        if sum(len(title) + 3 for _, _, title in names) > self.size.width and self.size.width:
            del names[-1:]
        shown = tuple(names), current
        if shown == self._shown:
            return
        self._shown = shown
        parts: list[Content] = []
        for key, name, title in names:
            style = "bold $primary reverse" if name == current else "$foreground 70%"
            parts.append(
                Content.from_markup(f" [@click=app.view('{name}')][{style}]{key} {title}[/][/]")
            )
        self.update(Content("").join(parts), layout=False)
