"""The connections of one node that have frames to send, and the batch at whose end they leave.

An ack that frees fifty puts of one client makes one write, not fifty.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol


class Sender(Protocol):
    """A connection, as far as it sends."""

    def flush_nowait(self) -> None:
        """Give the kernel what is queued."""

    def wake_writer(self) -> None:
        """Have the write task send what is queued."""


def _nothing() -> None:
    pass


class Outboxes:
    """The links of one node that have something queued, and the batch that will send it."""

    def __init__(self, before_answers: Callable[[], None] = _nothing) -> None:
        """`before_answers` runs at the end of each outermost batch, before anything leaves. HOT."""
        self.before_answers = before_answers
        self._dirty: list[Sender] = []
        self._depth = 0

    def batch(self) -> Outboxes:
        """Send the frames queued inside `with` when the outermost one ends, a write per link."""
        return self

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._depth == 1:
            self.before_answers()
        self._depth -= 1
        if self._depth == 0 and self._dirty:
            dirty, self._dirty = self._dirty, []
            for link in dirty:
                link.flush_nowait()

    def add(self, link: Sender) -> None:
        """Send what `link` has queued: at the end of the batch, or by its write task."""
        if self._depth:
            self._dirty.append(link)
        else:
            link.wake_writer()
