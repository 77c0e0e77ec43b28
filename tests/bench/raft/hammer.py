"""A client that sends all the time to a member that takes it, and notes each answer «stored».

It knows all members and asks the next one as soon as one refuses or is gone, so that what it sees
is the group's own gap and no client's habits.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence

from bench.peer.probe import Probe
from bench.raft.sides import TOPIC

from trioha.wire.codes import ResponseCode

PAUSE_S = 0.002
WAIT_S = 60.0


class Hammer:
    """Sends in a thread of its own until it is stopped."""

    def __init__(self, addresses: Sequence[str], first: str) -> None:
        others = [address for address in addresses if address != first]
        self._addresses = itertools.cycle([first, *others])
        self._changed = threading.Condition()
        self._stopping = False
        self.stored: list[tuple[float, float]] = []
        """When a send began that was stored, and when the answer came; monotonic seconds."""
        self.refused = 0
        self._thread = threading.Thread(target=self._run, name="hammer", daemon=True)
        self._thread.start()

    def wait_for_stored(self, since_s: float, count: int = 1, within_s: float = WAIT_S) -> float:
        """When the `count`th send that began after `since_s` was answered.

        Errors: AssertionError when that does not happen in time.
        """
        found: list[float] = []

        def there() -> bool:
            found[:] = [ended_s for began_s, ended_s in self.stored[-count:] if began_s >= since_s]
            return len(found) >= count

        with self._changed:
            assert self._changed.wait_for(there, within_s), f"nothing was stored in {within_s} s"
        ends = [ended_s for began_s, ended_s in self.stored if began_s >= since_s]
        return ends[count - 1]

    def longest_gap_s(self, since_s: float) -> float:
        """The longest time between two answers that touches what came after `since_s`."""
        ends = [ended_s for _, ended_s in self.stored]
        gaps = [after - before for before, after in itertools.pairwise(ends) if after >= since_s]
        return max(gaps)

    def stop(self) -> None:
        self._stopping = True
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        while not self._stopping:
            try:
                with Probe(next(self._addresses)) as probe:
                    self._send_while_taken(probe)
            except OSError:
                self.refused += 1
            time.sleep(PAUSE_S)

    def _send_while_taken(self, probe: Probe) -> None:
        while not self._stopping:
            began_s = time.monotonic()
            if probe.send(TOPIC) != ResponseCode.SUCCESS:
                self.refused += 1
                return
            with self._changed:
                self.stored.append((began_s, time.monotonic()))
                self._changed.notify_all()
            time.sleep(PAUSE_S)
