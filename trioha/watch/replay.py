"""Replay of a recording: the position of the play head, and its movement.

The head is a time, not a frame: playing moves it by the passed time multiplied by the speed, and
shows the frame that was current then. So a pause of the recorder replays as a pause, and any speed
shows the same frames. Nothing here sleeps: the shell tells how much time has passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from trioha.errors import TriohaError
from trioha.watch.alerts import Alerts
from trioha.watch.collector import Raw
from trioha.watch.marks import Mark, MarkFinder
from trioha.watch.recording import Recording
from trioha.watch.snapshot import ClusterSnapshot, Tables

SPEEDS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class Replay:
    """A play head on a recording."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.playing = False
        self.speed = 1.0
        self._at_ms: float = recording.start_wall_ms
        self._number = 0

    @property
    def at_wall_ms(self) -> int:
        return int(self._at_ms)

    @property
    def number(self) -> int:
        """Number of the frame that is shown."""
        return self._number

    @property
    def share(self) -> float:
        """Position of the slider: the share of the recording before the head, 0 to 1."""
        length = self.recording.end_wall_ms - self.recording.start_wall_ms
        return (self._at_ms - self.recording.start_wall_ms) / length if length else 1.0

    @property
    def is_at_end(self) -> bool:
        return self._at_ms >= self.recording.end_wall_ms

    @property
    def raw(self) -> Raw:
        """Answers at the play head; for a damaged frame, those of the last whole frame before it.

        Errors: TriohaError if no frame before it is whole.
        """
        for number in range(self._number, -1, -1):
            try:
                return self.recording.raw(number)
            except TriohaError:
                continue
        return self.recording.raw(self._number)

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        """Marks by time: the file's, or those found in its frames if it has none."""
        marks = self.recording.marks or list(find_marks(self.recording))
        return tuple(sorted(marks, key=lambda mark: mark.wall_ms))

    def play(self, speed: float | None = None) -> None:
        """Play from here, or from the start if the head is at the end."""
        if speed is not None:
            self.speed = speed
        if self.is_at_end:
            self.seek(self.recording.start_wall_ms)
        self.playing = True

    def pause(self) -> None:
        self.playing = False

    def faster(self) -> None:
        self.speed = next((one for one in SPEEDS if one > self.speed), SPEEDS[-1])

    def slower(self) -> None:
        self.speed = next((one for one in reversed(SPEEDS) if one < self.speed), SPEEDS[0])

    def advance(self, elapsed_s: float) -> bool:
        """Move the head; return True if another frame is current. Pauses at the end."""
        if not self.playing:
            return False
        moved = self.seek(self._at_ms + elapsed_s * 1000 * self.speed)
        if self.is_at_end:
            self.playing = False
        return moved

    def seek(self, wall_ms: float) -> bool:
        """Move to a time, or to the nearest one; return True if another frame is current."""
        start_ms, end_ms = self.recording.start_wall_ms, self.recording.end_wall_ms
        self._at_ms = min(max(wall_ms, start_ms), max(start_ms, end_ms))
        before = self._number
        self._number = self.recording.number_at(int(self._at_ms))
        return self._number != before

    def seek_share(self, share: float) -> bool:
        """Move to a position of the slider, 0 to 1."""
        length = self.recording.end_wall_ms - self.recording.start_wall_ms
        return self.seek(self.recording.start_wall_ms + share * length)

    def step(self, count: int = 1) -> bool:
        """Move by `count` frames, back if negative; stops playing."""
        self.playing = False
        before = self._number
        self._number = min(max(self._number + count, 0), len(self.recording.frames) - 1)
        self._at_ms = self.recording.frames[self._number].wall_ms
        return self._number != before

    def next_mark(self) -> Mark | None:
        """Jump to the next thing that happened; None, and no move, when there is none."""
        return self._jump(next((one for one in self.marks if one.wall_ms > self._at_ms), None))

    def previous_mark(self) -> Mark | None:
        earlier = (one for one in reversed(self.marks) if one.wall_ms < self._at_ms)
        return self._jump(next(earlier, None))

    def before(self, count: int) -> Iterator[Raw]:
        """The frames that led here, the shown one last: to fill histories after a jump."""
        return self.recording.raws(self._number - count + 1, self._number)

    def _jump(self, mark: Mark | None) -> Mark | None:
        if mark is not None:
            self.seek(mark.wall_ms)
        return mark


def find_marks(recording: Recording) -> Iterator[Mark]:
    """Yield the marks of a recording, from its frames alone."""
    finder, alerts, tables = MarkFinder(), Alerts(), Tables()
    for raw in recording.raws(0, len(recording.frames) - 1):
        snapshot = ClusterSnapshot.of(raw, tables)
        yield from finder.look(snapshot, alerts.look(snapshot))
