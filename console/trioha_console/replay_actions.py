"""Moving about in a recording: the keys, the slider, `:jump`."""

from __future__ import annotations

from abc import abstractmethod

from textual import on

from trioha.errors import TriohaError
from trioha_console.jump import parse_jump
from trioha_console.keys_in_turn import KeysInTurn
from trioha_console.program import Program
from trioha_console.replay_source import ReplaySource
from trioha_console.widgets.replay_bar import ReplayBar


class ReplayActions(KeysInTurn):
    """Mixed into the program; `self` is a `ConsoleApp`."""

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
