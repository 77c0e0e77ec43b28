"""One thread that stays, for blocking calls that one part of a node makes one after the other.

Theory of operation. Trio's threads are for any call: each call takes a name, a context, a token and
a place in a queue, and its end wakes the loop by a socket and a scheduler pass. For an fsync that
is more than the disk takes. Here a thread waits on a lock. `start` releases it; the end of the call
makes an eventfd readable, which the loop reads inside its wait (`ReadyReads`), and `deliver` is
called there. It is best started when the loop is about to wait: then both sides want Python's own
lock one after the other, and not at once (docs/decisions/0025-a-thread-that-stays-for-fsync.md).

A wake-up of the loop may cost as much as the call. So a call may be *quiet*: its end wakes nobody,
and `collect` delivers the outcome while the loop is awake anyway. What it raises is never quiet.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import outcome

from trioha.services.loop.ready_reads import ReadyReads


class CallThread:
    """Makes one call at a time. Its methods are for the loop's thread."""

    def __init__(self, reads: ReadyReads, name: str) -> None:
        self._reads = reads
        self._go = threading.Lock()
        self._go.acquire()
        self._call: Callable[[], Any] | None = None
        self._deliver: Callable[[outcome.Outcome[Any]], None] | None = None
        self._result: outcome.Outcome[Any] | None = None
        self._is_quiet = False
        self._ended = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        reads.add(self._ended, self._on_ended)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def start(
        self,
        call: Callable[[], Any],
        deliver: Callable[[outcome.Outcome[Any]], None],
        *,
        quiet: bool = False,
    ) -> None:
        """Make a call; none may be under way. `deliver`, on the loop, gets its outcome.

        `quiet`: a call that raises nothing is delivered by `collect` or, later, `collect_soon`.
        """
        self._is_quiet = quiet
        self._call, self._deliver = call, deliver
        self._go.release()

    def collect(self) -> None:
        """Deliver the outcome of a call that has ended, and raised nothing. HOT."""
        if isinstance(self._result, outcome.Value):
            self._hand_over()

    def collect_soon(self) -> None:
        """Deliver the outcome now, or as soon as the call has ended."""
        # The thread sets the result and then asks whether it is quiet: one of the two sees it.
        self._is_quiet = False
        self.collect()

    def close(self) -> None:
        """End the thread; no call may be under way."""
        self._call = None
        self._go.release()
        self._thread.join()
        self._reads.remove(self._ended)
        os.close(self._ended)

    def _run(self) -> None:
        """Thread: our own."""
        while True:
            self._go.acquire()
            if self._call is None:
                return
            result = self._result = outcome.capture(self._call)
            if not self._is_quiet or isinstance(result, outcome.Error):
                os.eventfd_write(self._ended, 1)

    def _on_ended(self) -> None:
        os.eventfd_read(self._ended)
        # It may have been collected meanwhile.
        if self._result is not None:
            self._hand_over()

    def _hand_over(self) -> None:
        result, deliver = self._result, self._deliver
        assert result is not None
        assert deliver is not None
        self._result = self._call = self._deliver = None
        deliver(result)
