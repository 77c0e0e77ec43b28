"""A recording as a source: the same frames, whenever the play head comes to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from trioha.errors import TriohaError
from trioha.watch.collector import Interest, Raw
from trioha.watch.recording import Recording, open_recording
from trioha.watch.replay import Replay
from trioha.wire.remoting_command import RemotingCommand

_TICK_S = 0.1
"""Time between two moves of the slider."""


class ReplaySource:
    """Plays by itself; `replay` is where the play head is moved."""

    live = False
    thrifty = False

    def __init__(self, recording: Recording, title: str) -> None:
        self.replay = Replay(recording)
        self.title = title
        self.namesrvs: tuple[str, ...] = tuple(self.replay.raw.get("namesrvs") or ())

    @classmethod
    def open(cls, path: Path) -> ReplaySource:
        """Errors: TriohaError for what is no recording, OSError for what is no file."""
        return cls(open_recording(path), path.name)

    async def snapshots(self) -> AsyncIterator[Raw]:
        """The frame at the play head now, then each one that playing comes to."""
        loop = asyncio.get_running_loop()
        yield self.replay.raw
        last = loop.time()
        while True:
            await asyncio.sleep(_TICK_S)
            now = loop.time()
            moved = self.replay.advance(now - last)
            last = now
            if moved:
                yield self.replay.raw

    def want(self, interest: Interest) -> None:
        """Do nothing: a recording has only the answers that were recorded."""

    async def ask(
        self, address: str, command: RemotingCommand, timeout_s: float | None = None
    ) -> RemotingCommand:
        raise TriohaError("this is a recording: nobody can be asked")

    async def close(self) -> None:
        self.replay.pause()
