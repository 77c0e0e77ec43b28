"""Reads sockets inside Trio's wait for I/O: what arrives costs no scheduler pass.

A pass of Trio that wakes one task costs 15 to 20 us of processor time, several times that after a
sleep, and a system call to have the socket watched again. A send that waits for a slave paid it
three times. Nothing of what those tasks did had to be a task's: they read, called a function that
does not wait, and waited for the next bytes.

So such a task parks, and leaves that function here (`SocketTransport.receive_each`). `ReadyReads`
takes the place of Trio's I/O manager. It waits on an epoll descriptor of its own, in which the
sockets of parked tasks are registered for good, and Trio's own descriptor is one more. When bytes
come, the function is called and the wait goes on. It ends, and Trio's pass begins, as soon as there
is anything for Trio to do: an event of its own, a task to run, a deadline. All else is Trio's as it
was. A parked task owns its connection, is cancelled like any other, and is woken by an end of the
stream, by an error of its function, and when the function asks for it.

Who reads here must not wait, and runs in no task: `trio.lowlevel.current_task` is not to be had.

Alarms (`trioha.services.loop.alarm`) ring here too. A task that sleeps until a deadline costs Trio
two passes and a cancellation for each.

Trio has no public way to do this. What is used of its insides is read in `start_ready_reads`; if
it is not there (another system than Linux, another version), tasks read as tasks. The reasons,
and what Trio would have to offer, are in docs/decisions/0023-reads-inside-the-wait.md.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable
from typing import Any, Final

import trio

from trioha.services.loop.clock import clock_offset_s

_NO_EVENTS: Final[list[tuple[int, int]]] = []


class ReadyReads:
    """Trio's I/O manager, and the sockets that are read inside its wait."""

    def __init__(self, runner: Any) -> None:
        """`runner`: Trio's, of the run to serve. Errors: AttributeError when it is not as known."""
        trios = runner.io_manager
        self._trio_fd: int = trios._epoll.fileno()
        self._trio_events: Callable[[float], Any] = trios.get_events
        self._close_trio: Callable[[], None] = trios.close
        self._runnable: Any = runner.runq
        self._deadlines: Any = runner.deadlines
        if type(self._deadlines._heap) is not list:
            raise AttributeError("no heap of deadlines")
        self._current_time: Callable[[], float] = runner.clock.current_time
        self._offset_s = clock_offset_s(runner.clock)
        # All else that Trio asks of its I/O manager.
        self.process_events: Any = trios.process_events
        self.wait_readable: Any = trios.wait_readable
        self.wait_writable: Any = trios.wait_writable
        self.notify_closing: Any = trios.notify_closing
        self.force_wakeup: Any = trios.force_wakeup
        self.statistics: Any = trios.statistics
        self._readers: dict[int, Callable[[], None]] = {}
        self._put_off: list[Callable[[], None]] = []
        self._for_idle: list[Callable[[], None]] = []
        self._alarms: list[Callable[[], None]] = []
        self._wake_s = math.inf
        """Time, as Trio tells it, at which to call the alarms; infinite for none."""
        self._epoll = select.epoll()
        self._epoll.register(self._trio_fd, select.EPOLLIN)

    def add(self, fd: int, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` whenever the socket can be read, or has ended. It raises nothing."""
        self._epoll.register(fd, select.EPOLLIN)
        self._readers[fd] = on_readable

    def remove(self, fd: int) -> None:
        """Call it no more. To be done before the socket is closed."""
        if self._readers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def before_wait(self, function: Callable[[], None]) -> None:
        """Call this once, after all that can be read now has been. It raises nothing."""
        self._put_off.append(function)

    def when_idle(self, function: Callable[[], None]) -> None:
        """Call this once, when nothing can be read and no task can run. It raises nothing.

        A flood of reads may put it off for long.
        """
        self._for_idle.append(function)

    @property
    def has_real_clock(self) -> bool:
        """Trio's clock goes by itself. A clock of tests jumps to deadlines that Trio knows."""
        return self._offset_s == self._offset_s

    def add_alarm(self, on_wake: Callable[[], None]) -> None:
        """Call `on_wake` at the times of `wake_at`, its own and others'. It raises nothing."""
        self._alarms.append(on_wake)

    def remove_alarm(self, on_wake: Callable[[], None]) -> None:
        self._alarms.remove(on_wake)

    def time_s(self) -> float:
        """Return the time of Trio's clock."""
        return self._trios_s(time.perf_counter())

    def wake_at(self, time_s: float) -> None:
        """Call the alarms at this time of Trio's clock, if not before. HOT."""
        self._wake_s = min(self._wake_s, time_s)

    def get_events(self, timeout: float) -> Any:
        """Wait and read until there is something for Trio to do, at most `timeout` seconds. HOT."""
        poll, readers, trio_fd = self._epoll.poll, self._readers, self._trio_fd
        runnable = self._runnable
        now_s = time.perf_counter()
        due_s = now_s + timeout
        while True:
            if self._put_off:
                self._do_put_off()
                if runnable:
                    timeout = 0.0
            wait_s = 0.0
            if not self._for_idle:
                wait_s = max(0.0, min(timeout, self._wake_s - self._trios_s(now_s)))
            has_read = has_events = False
            for fd, _ in poll(wait_s):
                if fd == trio_fd:
                    has_events = True
                else:
                    has_read = True
                    # Reading another socket may have removed this one.
                    on_readable = readers.get(fd)
                    if on_readable is not None:
                        on_readable()
            if has_events:
                # Trio may have events at each wait: an alarm must not wait for one without.
                self._ring_if_due(time.perf_counter())
                return self._trio_events(0)
            if self._for_idle and not has_read and timeout > 0:
                self._do_for_idle()
                has_read = True
            now_s = time.perf_counter()
            if self._ring_if_due(now_s):
                has_read = True
            if not has_read or runnable or timeout <= 0:
                return _NO_EVENTS
            timeout = due_s - now_s
            # A function may have set an earlier deadline. One that holds no more costs a pass.
            heap: list[Any] = self._deadlines._heap
            if heap:
                deadline_s: float = heap[0][0]
                timeout = min(timeout, deadline_s - self._trios_s(now_s))
            if timeout <= 0:
                return _NO_EVENTS

    def _trios_s(self, now_s: float) -> float:
        """Return the time of Trio's clock when `time.perf_counter` was `now_s`."""
        offset_s = self._offset_s
        # NaN is not equal to itself.
        return now_s + offset_s if offset_s == offset_s else self._current_time()

    def _ring_if_due(self, now_s: float) -> bool:
        if self._trios_s(now_s) < self._wake_s:
            return False
        self._wake_s = math.inf
        for on_wake in tuple(self._alarms):
            on_wake()
        return True

    def _do_put_off(self) -> None:
        put_off, self._put_off = self._put_off, []
        for function in put_off:
            function()

    def _do_for_idle(self) -> None:
        for_idle, self._for_idle = self._for_idle, []
        for function in for_idle:
            function()

    def close(self) -> None:
        self._epoll.close()
        self._close_trio()


_of_run: Final[trio.lowlevel.RunVar[ReadyReads | None]] = trio.lowlevel.RunVar(
    "trioha.ready_reads", None
)


def ready_reads() -> ReadyReads | None:
    """Return what reads inside the wait of this Trio run; None if tasks read."""
    return _of_run.get()


def start_ready_reads() -> bool:
    """Read inside the wait from now on, in this Trio run. False: this Trio cannot be asked to."""
    if ready_reads() is not None:
        return True
    try:
        from trio._core._run import GLOBAL_RUN_CONTEXT

        runner = GLOBAL_RUN_CONTEXT.runner
        reads = ReadyReads(runner)
    except (ImportError, AttributeError):
        return False
    runner.io_manager = reads  # type: ignore[assignment]
    _of_run.set(reads)
    return True
