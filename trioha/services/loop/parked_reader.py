"""A task that waits while `ReadyReads` reads its socket, and calls what the task left for it."""

from __future__ import annotations

from collections.abc import Callable

import outcome
import trio

from trioha.services.loop.ready_reads import ReadyReads

Take = Callable[[bytes], bool]
"""Gets the bytes of one read; returns whether the next read may follow without the task."""


class ParkedReader:
    """Reads one socket for a task."""

    def __init__(
        self, fd: int, read_now: Callable[[], bytes | None], take: Take, reads: ReadyReads
    ) -> None:
        """`read_now` does not wait; it returns None when nothing is there, b"" at the end."""
        self._fd = fd
        self._read_now = read_now
        self._take = take
        self._reads = reads
        self._task: trio.lowlevel.Task | None = None
        self._takes = False
        self._has_to_look = False

    def park(self, task: trio.lowlevel.Task) -> None:
        """Read for this task, which waits to be rescheduled, with `abort`.

        It is rescheduled with True when `take` has returned False; with False when the stream has
        ended; with what `read_now` or `take` has raised. With None it finds out itself that what
        `take` called has cancelled it or closed the socket.
        Errors: trio.BrokenResourceError.
        """
        self._has_to_look = False
        try:
            self._reads.add(self._fd, self._on_readable)
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error
        self._task = task

    def closing(self) -> None:
        """Wake the task: its socket is about to be closed."""
        if self._takes:
            self._has_to_look = True
            self._reads.remove(self._fd)
        else:
            self._wake(outcome.Value(None))

    def abort(self, _: object) -> trio.lowlevel.Abort:
        """Read no more for the task, which is cancelled. Trio calls it."""
        if self._takes:
            # It may raise an error yet, which must not be lost.
            self._has_to_look = True
            return trio.lowlevel.Abort.FAILED
        self._task = None
        self._reads.remove(self._fd)
        return trio.lowlevel.Abort.SUCCEEDED

    def _on_readable(self) -> None:
        ended: outcome.Outcome[bool | None]
        self._takes = True
        try:
            data = self._read_now()
            if data is None:
                return
            goes_on = bool(data) and self._take(data)
            if goes_on and not self._has_to_look:
                return
            ended = outcome.Value(None if goes_on else bool(data))
        except BaseException as error:
            ended = outcome.Error(error)
        finally:
            self._takes = False
        self._wake(ended)

    def _wake(self, ended: outcome.Outcome[bool | None]) -> None:
        task, self._task = self._task, None
        if task is not None:
            self._reads.remove(self._fd)
            trio.lowlevel.reschedule(task, ended)
