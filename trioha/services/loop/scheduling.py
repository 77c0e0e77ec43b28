"""Notices that this process had work to do and no processor to do it on.

A neighbour that takes the processors, a throttled cgroup and a hypervisor that runs another machine
look like other faults from outside: late acks, slow sends, an election. Linux counts how long a
thread was ready to run and did not (`/proc/thread-self/schedstat`), and for how long a hypervisor
kept the machine waiting (steal, `/proc/stat`). A look once a second costs some 30 µs. Elsewhere
than on Linux only a wake-up that came late is seen.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import trio

from trioha.journal import EventSink
from trioha.services.loop.clock import Clock
from trioha.services.loop.host import is_simulated

LIMIT_MS = 50
"""Delay within one second that is told: a third of a Raft heartbeat."""
LOOK_S = 1.0
TELL_MS = 10_000
"""Least time between two events, however busy the machine is."""
_SCHEDSTAT = Path("/proc/thread-self/schedstat")
_STAT = Path("/proc/stat")
_STEAL = 8
"""Place of the steal time in the first line of `/proc/stat`, proc(5)."""


@attrs.frozen
class ProcessorTimes:
    """Counters in milliseconds that only grow."""

    ran_ms: int = 0
    """Time for which this thread ran."""
    waited_ms: int = 0
    """Time for which this thread was ready, and another ran."""
    stolen_ms: int = 0
    """Time for which a hypervisor ran something else, on all processors together."""


def read_processor_times() -> ProcessorTimes:
    """Read the counters of the calling thread and of its machine; zeros where there are none."""
    ran_ns = waited_ns = steal_ticks = 0
    try:
        ran_ns, waited_ns = map(int, _SCHEDSTAT.read_text().split()[:2])
        steal_ticks = int(_STAT.read_text().split(maxsplit=_STEAL + 1)[_STEAL])
    except (OSError, ValueError, IndexError):
        pass  # not Linux, or a container that hides them
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    return ProcessorTimes(
        ran_ns // 1_000_000, waited_ns // 1_000_000, steal_ticks * 1000 // ticks_per_s
    )


@attrs.define
class _Delays:
    """Sums of the seconds that were slow since the last event."""

    seconds: int = 0
    worst_ms: int = 0
    waited_ms: int = 0
    stolen_ms: int = 0
    ran_ms: int = 0


class SchedulingWatch:
    """Journals `scheduling_delay` for seconds with a delay of `LIMIT_MS` or more."""

    def __init__(
        self,
        clock: Clock,
        events: EventSink,
        read: Callable[[], ProcessorTimes] = read_processor_times,
    ) -> None:
        self._clock = clock
        self._events = events
        self._read = read
        self._delays = _Delays()
        self._told_ms: int | None = None

    async def run(self) -> None:
        """Look once a second until cancelled."""
        if is_simulated():
            await trio.sleep_forever()
        before = self._read()
        due_s = trio.current_time() + LOOK_S
        while True:
            await trio.sleep_until(due_s)
            late_ms = int((trio.current_time() - due_s) * 1000)
            now = self._read()
            self.look(late_ms, before, now)
            before = now
            due_s = trio.current_time() + LOOK_S

    def look(self, late_ms: int, before: ProcessorTimes, now: ProcessorTimes) -> None:
        """Judge one second, at whose end the task was woken `late_ms` after its time."""
        waited_ms = now.waited_ms - before.waited_ms
        delay_ms = max(late_ms, waited_ms)
        if delay_ms >= LIMIT_MS:
            delays = self._delays
            delays.seconds += 1
            delays.worst_ms = max(delays.worst_ms, delay_ms)
            delays.waited_ms += waited_ms
            delays.stolen_ms += now.stolen_ms - before.stolen_ms
            delays.ran_ms += now.ran_ms - before.ran_ms
        self._tell()

    def _tell(self) -> None:
        now_ms = self._clock.now_ms()
        if not self._delays.seconds:
            return
        if self._told_ms is not None and now_ms - self._told_ms < TELL_MS:
            return
        self._told_ms = now_ms
        self._events.event("scheduling_delay", **attrs.asdict(self._delays))
        self._delays = _Delays()
