"""Keys that come faster than they are dealt with: each waits for the one before.

Textual hands a key to whatever has the focus when it arrives; its effect, such as a prompt that
takes the focus, comes some messages later. What was pasted or sent by a script would by then be
with the table, each letter a command of its own. So after each key a `Settled` goes the same way,
from the widget in front up to the program, behind the key and behind what the key made the widgets
say. Keys that arrive before it is home are kept.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from functools import partial

from textual import events, on
from textual.app import App
from textual.message import Message

_ROUNDS = 3
"""One for the key, one for the message of the widget in front, one for its parent's message."""
_PATIENCE_S = 0.5
"""A widget that is removed meanwhile may keep a `Settled`; no key waits longer for it than this."""


class KeysInTurn(App[None]):
    """Mixin of the program."""

    @dataclass(eq=False)
    class Settled(Message):
        """Marker that follows a key: the widgets on its way have handled the key before it."""

        turn: int
        rounds: int

    def __init__(self) -> None:
        super().__init__()
        self._kept: deque[events.Key | events.Paste] = deque()
        self._turn = 0
        self._is_settled = True
        self.last_key_s = 0.0
        """Time of the last key, as `time.monotonic()` has it."""

    @property
    def is_settled(self) -> bool:
        """No key is on its way, and none waits."""
        return self._is_settled and not self._kept

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        self.last_key_s = time.monotonic()
        self._kept.append(event)
        if self._is_settled:
            await self._next_key()

    async def _next_key(self) -> None:
        self._turn += 1
        self._is_settled = False
        await super().on_event(self._kept.popleft())
        self._go_round(_ROUNDS)
        # A screen that goes takes the message along that went to one of its widgets.
        self.set_timer(_PATIENCE_S, partial(self._settle, self._turn))

    def _go_round(self, rounds: int) -> None:
        message = self.Settled(self._turn, rounds)
        if not (self.focused or self.screen).post_message(message):
            self.post_message(message)

    @on(Settled)
    async def _came_home(self, message: Settled) -> None:
        if message.turn == self._turn and message.rounds > 1:
            self._go_round(message.rounds - 1)
        else:
            await self._settle(message.turn)

    async def _settle(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._is_settled = True
        if self._kept:
            await self._next_key()
