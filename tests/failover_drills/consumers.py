"""A watch of the offsets that a group has committed at the master: they never go back."""

from __future__ import annotations

from collections.abc import Callable

from support.processes.admin import consumer_offset
from support.processes.worker import Worker

PERIOD_S = 0.05


class OffsetWatch(Worker):
    """A watch that asks the current master again and again, in a thread of its own.

    Only what a master answers counts: a slave may be a moment behind.
    """

    def __init__(
        self, master_address: Callable[[], str | None], group: str, topic: str, queues: int
    ) -> None:
        super().__init__(f"watch[{group}]", 20.0)
        self.regressions: list[str] = []
        self.highest: dict[int, int] = {}
        self.looks = 0
        self._master_address = master_address
        self._group = group
        self._topic = topic
        self._queues = queues

    def _work(self) -> None:
        while not self._stopping.wait(PERIOD_S):
            try:
                self._look()
            except OSError:
                continue  # it is being failed over

    def _look(self) -> None:
        address = self._master_address()
        if address is None:
            return
        told = {
            queue_id: consumer_offset(address, self._group, self._topic, queue_id)
            for queue_id in range(self._queues)
        }
        if self._master_address() != address:
            return
        self.looks += 1
        for queue_id, offset in told.items():
            before = self.highest.get(queue_id, -1)
            if offset < before:
                self.regressions.append(
                    f"{self._group} queue {queue_id}: {before}, then {offset} at {address}"
                )
            self.highest[queue_id] = max(before, offset)
