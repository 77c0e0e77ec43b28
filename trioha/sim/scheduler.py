"""Virtual time: what happens next, in one heap.

Everything in a simulation is an action at a millisecond. Actions of one millisecond run in the
order in which they were asked for, so a run is the same whenever its seed is: nothing here iterates
a set, hashes an object or reads a clock.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable

Action = Callable[[], None]
TRACE_LINES_MAX = 400


class Timer:
    """One action to come; cancelled, it never does."""

    __slots__ = ("action", "due_ms")

    def __init__(self, due_ms: int, action: Action) -> None:
        self.due_ms = due_ms
        self.action: Action | None = action

    def cancel(self) -> None:
        self.action = None


class Scheduler:
    """The clock of a simulated world, and its planned actions."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.action_count = 0
        self.trace: deque[str] = deque(maxlen=TRACE_LINES_MAX)
        """Last lines of the trace, printed beside a failing seed."""
        self._heap: list[tuple[int, int, Timer]] = []
        self._serial = 0

    def after(self, delay_ms: int, action: Action) -> Timer:
        """Do `action` so much later; 0 is still after everything that is due now."""
        assert delay_ms >= 0, f"{delay_ms} ms is in the past"
        timer = Timer(self.now_ms + delay_ms, action)
        self._serial += 1
        heapq.heappush(self._heap, (timer.due_ms, self._serial, timer))
        return timer

    def run_until(self, end_ms: int, after_each: Action | None = None) -> None:
        """Let time pass. `after_each` runs after every action: the place for invariants."""
        heap = self._heap
        while heap and heap[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(heap)
            action = timer.action
            if action is None:
                continue
            self.now_ms = due_ms
            self.action_count += 1
            action()
            if after_each is not None:
                after_each()
        self.now_ms = end_ms

    def tell(self, who: str, text: str) -> None:
        """Add one line to the trace."""
        self.trace.append(f"{self.now_ms:>7} {who:<10} {text}")
