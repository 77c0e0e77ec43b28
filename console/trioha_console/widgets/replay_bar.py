"""The slider of a recording: where the play head is, and where something happened."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from trioha.times import moment_in_words
from trioha.watch.marks import ALERT, LINK, NODE, ROLE, Mark
from trioha.watch.replay import Replay
from trioha_console.cells import Span
from trioha_console.roles import content_of

_ROLES = ("good", "warn", "bad")
_KINDS = (ROLE, LINK, NODE, ALERT)
_TICKS = ("╷", "▵", "▲")


class ReplayBar(Static):
    """Two lines: the slider, and the newest marks before the play head. A click jumps."""

    DEFAULT_CSS = """
    ReplayBar {
        height: 2; padding: 0 1; background: $surface; text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    @dataclass(eq=False)
    class Jumped(Message):
        """The slider was clicked: to this share of its length."""

        share: float

    def __init__(self, replay: Replay) -> None:
        super().__init__()
        self._replay = replay
        self._slider = (0, 1)

    def on_resize(self) -> None:
        self.draw()

    def draw(self) -> None:
        """Draw the bar with the play head at its present place."""
        replay = self._replay
        recording = replay.recording
        state = "▶" if replay.playing else "‖"
        left = f"{state} x{replay.speed:g}  {moment_in_words(replay.at_wall_ms)[:19]}  "
        right = f"  {moment_in_words(recording.end_wall_ms)[11:19]} UTC"
        width = max(10, self.size.width - len(left) - len(right) - 2)
        self._slider = len(left) + 1, width
        spans: list[Span] = [(left, "strong"), *_slider(replay, width), (right, "dim")]
        lines = (content_of(tuple(spans)), content_of(tuple(_newest(replay))))
        self.update(Content("\n").join(lines))

    def on_click(self, event: events.Click) -> None:
        start, width = self._slider
        if event.y == 0 and start <= event.x < start + width:
            self.post_message(self.Jumped((event.x - start) / max(1, width - 1)))


def _slider(replay: Replay, width: int) -> list[Span]:
    """Marks on a line, the worst where several meet, and the play head over all."""
    recording = replay.recording
    length = max(1, recording.end_wall_ms - recording.start_wall_ms)
    levels: dict[int, int] = {}
    for mark in replay.marks:
        place = round((mark.wall_ms - recording.start_wall_ms) / length * (width - 1))
        place = max(0, min(width - 1, place))
        levels[place] = max(levels.get(place, 0), mark.level)
    head = max(0, min(width - 1, round(replay.share * (width - 1))))
    spans: list[Span] = []
    for place in range(width):
        if place == head:
            spans.append(("█", "accent"))
        elif place in levels:
            level = min(2, max(0, levels[place]))
            spans.append((_TICKS[level], _ROLES[level]))
        else:
            spans.append(("━" if place < head else "─", "accent" if place < head else "dim"))
    return spans


def _newest(replay: Replay) -> list[Span]:
    marks = newest_marks(replay)
    if not marks:
        return [(f"{len(replay.marks)} marks; ] goes to the next", "dim")]
    spans: list[Span] = [(f"{moment_in_words(marks[0].wall_ms)[11:19]}  ", "dim")]
    for number, mark in enumerate(marks):
        role = _ROLES[min(2, max(0, mark.level))]
        spans += [("  ·  ", "dim")] * bool(number) + [(mark.text, role)]
    return spans


def newest_marks(replay: Replay) -> list[Mark]:
    """Return the newest marks up to the play head, all of one moment, most important first."""
    index = bisect_right([mark.wall_ms for mark in replay.marks], replay.at_wall_ms)
    if not index:
        return []
    newest_ms = replay.marks[index - 1].wall_ms
    found = [mark for mark in replay.marks[:index] if mark.wall_ms == newest_ms]
    return sorted(found, key=lambda mark: _KINDS.index(mark.kind) if mark.kind in _KINDS else 9)
