"""Moving about in a recording: the keys, the slider, `:jump`."""

from __future__ import annotations

import re
from abc import abstractmethod
from datetime import UTC, datetime

from textual import on

from trioha.errors import TriohaError
from trioha.times import parse_moment
from trioha_console.keys_in_turn import KeysInTurn
from trioha_console.program import Program
from trioha_console.replay_source import ReplaySource
from trioha_console.widgets.replay_bar import ReplayBar


class ReplayActions(KeysInTurn):
    """Mixin of the program; `self` is a `ConsoleApp`."""

    @abstractmethod
    def _console(self) -> Program:
        """Return the program that this is mixed into."""

    def action_replay(self, what: str) -> None:
        """Move the play head of a recording."""
        app = self._console()
        source = app.source
        if not isinstance(source, ReplaySource):
            return
        replay = source.replay
        match what:
            case "play" if replay.playing:
                replay.pause()
            case "play":
                at_end = replay.is_at_end
                replay.play()
                if at_end:
                    app.refill()
            case "on":
                replay.step(1)
                app.take_raw(replay.raw)
            case "back":
                replay.step(-1)
                app.refill()
            case "mark" | "mark_before":
                mark = replay.next_mark() if what == "mark" else replay.previous_mark()
                if mark is None:
                    self.notify("there is no mark any further that way")
                else:
                    app.refill()
            case "faster":
                replay.faster()
            case _:
                replay.slower()
        app.show_frame()

    @on(ReplayBar.Jumped)
    def _slid(self, event: ReplayBar.Jumped) -> None:
        app = self._console()
        if isinstance(app.source, ReplaySource):
            app.source.replay.seek_share(event.share)
            app.refill()

    def command_jump(self, rest: str) -> None:
        app = self._console()
        if not isinstance(app.source, ReplaySource):
            raise TriohaError("only a recording can be moved about in")
        replay = app.source.replay
        replay.seek(parse_jump(rest, replay.at_wall_ms))
        app.refill()


_STEP = re.compile(r"([+-])\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")


def parse_jump(text: str, at_wall_ms: int) -> int:
    """Milliseconds since 1970 of ``+10s``, ``-1m``, ``12:04:31`` or a whole time.

    A clock time is of the day at the play head, in UTC.

    Errors: TriohaError in a sentence.
    """
    text = text.strip()
    if step := _STEP.fullmatch(text):
        way = 1 if step[1] == "+" else -1
        return at_wall_ms + way * round(float(step[2]) * _UNITS_MS[step[3] or "s"])
    if _CLOCK.fullmatch(text):
        day = datetime.fromtimestamp(at_wall_ms / 1000, UTC)
        text = (
            f"{day:%Y-%m-%d}T{text:0>8}" if text.count(":") == 2 else f"{day:%Y-%m-%d}T{text:0>5}"
        )
    moment = parse_moment(text, at_wall_ms) if text else None
    if moment is None:
        raise TriohaError(f"{text or 'that'} is no time; write +10s, -1m, 12:04:31 or a whole time")
    return moment
