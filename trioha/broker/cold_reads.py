"""Pulls and pops of messages that are on disk only, and the time at which each is read.

Theory of operation. A consumer far behind asks for bytes that have left the page cache. Read in
the loop they would hold up every producer for as long as the disk takes. So such a pull, or pop, is
parked here with the places of what it needs; a thread reads them, and then it is run once more, and
finds them in memory.

The disk and the loop are shared with producers, so the bytes read in a second are limited: for
each group by `cgColdReadThreshold`, for all together by `globalColdReadThreshold`. What is read
counts, not what is answered: a block that was just read for another pull costs nothing, and queues
whose records lie beside each other share their blocks. Groups take turns, and the pulls of one
group are served in the order they came. A limit is kept as the time at which the next read may
begin: each read of `n` bytes moves it by n / limit, and unused time is lost, apart from
`_BURST_MS`. While the log has not grown for a second there is no producer to be spared: then
nothing is limited, and what is read does not count.

Where consumers may read from a slave, such a consumer is sent there, and the master's producers
notice nothing of it. RocketMQ sends a consumer away that is further behind than 40 % of the
machine's memory. Here it is known whose messages are on disk: `has_read` tells whether a pull of a
queue has waited for the disk in the last ten seconds.

RocketMQ rejects such pulls with SYSTEM_BUSY, holds them for seconds, or gives one message; its
limits are off by default, and its pull threads read the disk. Here a pull waits for its own bytes
alone. At its deadline it is answered PULL_NOT_FOUND with its own offset, and the client asks again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trioha.broker.parking import LIMITS, Limits, ParkedRequest, Parking
from trioha.config import BrokerConfig
from trioha.journal import EventSink, NullSink
from trioha.remoting.channel import Channel, Instant
from trioha.remoting.traffic_budget import TrafficBudget
from trioha.store.interface import GetResult
from trioha.wire.remoting_command import RemotingCommand

LOOKS_MAX: Final = 8
"""Reads for one pull. After them the loop itself reads from the disk: a consumer must make progress
even where memory is so short that the bytes read are gone at once."""
_BATCH_BYTES: Final = 1 << 20
"""Bytes read before the pulls of a batch are answered."""
_BURST_MS: Final = 10
_FRESH_MS: Final = 5000
_FRESH_BLOCKS_MAX: Final = 8192
"""Blocks of 128 KiB that were read a moment ago: they are in memory still."""
_OLD_MS: Final = 10_000
_OLD_QUEUES_MAX: Final = 8192
_TOLD_AGAIN_MS: Final = 60_000
"""A group that reads from disk is a journal line if it has not done so for this long."""
_IDLE_MS: Final = 1000
"""Time without growth of the log after which no producer is there that a read could delay."""


class ColdPull(ParkedRequest):
    """One pull or pop that waits for the disk."""

    def __init__(
        self,
        channel: Channel,
        request: RemotingCommand,
        group: str,
        topic: str,
        queue_id: int,
        found: GetResult,
        deadline_ms: int,
        size: int,
        looks: int,
        again: Callable[[ColdPull, Instant], None],
    ) -> None:
        """`again` answers it, or lets it wait once more, when it is due."""
        super().__init__(channel, request, topic, queue_id, None, deadline_ms, size)
        self.group = group
        self.blocks = found.on_disk
        """Bytes that the thread reads."""
        self.looks = looks
        """Count of reads for this request, the present one included."""
        self.again = again
        self.is_read = False
        """True if its bytes were read; False if it is due by its deadline."""


class Pace:
    """Time at which the next read may begin, at a limit of bytes per second; 0: no limit."""

    def __init__(self) -> None:
        self.free_ms = 0.0
        self.spent_ms = 0
        """Time of the group's last read, limited or not."""

    def spend(self, count: int, bytes_per_s: int, now_ms: int) -> None:
        if bytes_per_s > 0:
            begin_ms = max(self.free_ms, now_ms - _BURST_MS)
            self.free_ms = begin_ms + count * 1000 / bytes_per_s


class ColdReads(Parking[ColdPull]):
    """Pulls that wait for the disk, and the limits they are read by."""

    def __init__(
        self,
        config: BrokerConfig,
        events: EventSink | None = None,
        budget: TrafficBudget | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        super().__init__(budget, limits)
        self.config = config
        self._events = events or NullSink()
        self.read_total = 0
        """Reads for pulls, since the start."""
        self.read_bytes_total = 0
        self.has_new = False
        """True if a pull came since `take` was last called."""
        self.is_waited_for = False
        """True if pulls are parked or due. Most brokers never have any, so look here first."""
        self._groups: OrderedDict[str, OrderedDict[ColdPull, None]] = OrderedDict()
        """Waiting pulls by group. The group whose turn it is comes first."""
        self._paces: dict[str, Pace] = {}
        self._pace = Pace()
        self._read_ms: OrderedDict[tuple[Path, int], int] = OrderedDict()
        """Time at which a block was read, by file and place. The oldest comes first."""
        self._queue_ms: OrderedDict[tuple[str, str, int], int] = OrderedDict()
        """Time of the last read for a group, topic and queue. The oldest comes first."""
        self._log_end = -1
        self._grown_ms = -_IDLE_MS

    def take(self, now_ms: int, log_end: int) -> list[ColdPull]:
        """Return the pulls whose bytes are to be read now, and count them as read."""
        self.has_new = False
        is_limited = self._is_limited(now_ms, log_end)
        taken: list[ColdPull] = []
        size = 0
        passed_over = 0
        while passed_over < len(self._groups):
            group, pulls = self._groups.popitem(last=False)
            pull = next(iter(pulls))
            cost = self._cost(pull, now_ms)
            if cost and (size >= _BATCH_BYTES or (is_limited and self._free_ms(group) > now_ms)):
                self._groups[group] = pulls
                passed_over += 1
                continue
            passed_over = 0
            del pulls[pull]
            if pulls:
                self._groups[group] = pulls
            taken.append(pull)
            size += cost
            self._spend(pull, cost, now_ms, is_limited)
        return taken

    def next_read_ms(self, now_ms: int) -> int | None:
        """Return when `take` may have something, or None: call it then, or when `has_new`."""
        if not self._groups:
            return None
        paced_ms = min(map(self._free_ms, self._groups))
        return max(now_ms, min(-int(-paced_ms // 1), self._grown_ms + _IDLE_MS))

    def has_read(self, group: str, topic: str, queue_id: int, now_ms: int) -> bool:
        """Return whether the group has had messages of this queue read from disk a moment ago."""
        read_ms = self._queue_ms.get((group, topic, queue_id))
        return read_ms is not None and now_ms < read_ms + _OLD_MS

    def were_read(self, pulls: list[ColdPull]) -> None:
        """Make due those of the pulls whose clients are still there."""
        for pull in pulls:
            self.read_total += 1
            if pull.is_parked:
                pull.is_read = True
                self._make_due(pull)

    def take_due(self) -> list[ColdPull]:
        """Hand over what is to be run again now, in the order it became due."""
        due = super().take_due()
        self.is_waited_for = bool(len(self))
        return due

    def answer_due(self, instant: Instant) -> None:
        """Look again for every request that was read for, or whose deadline has come."""
        self.expire(instant.now_ms)
        for pull in self.take_due():
            pull.again(pull, instant)

    def _is_limited(self, now_ms: int, log_end: int) -> bool:
        if log_end != self._log_end:
            if self._log_end >= 0:
                self._grown_ms = now_ms
            self._log_end = log_end
        return now_ms < self._grown_ms + _IDLE_MS

    def _free_ms(self, group: str) -> float:
        """Return the time at which the next read for a group may begin."""
        pace = self._paces.get(group)
        return self._pace.free_ms if pace is None else max(self._pace.free_ms, pace.free_ms)

    def _cost(self, pull: ColdPull, now_ms: int) -> int:
        """Return the bytes to read for a pull, without those that were read a moment ago."""
        fresh_ms = now_ms - _FRESH_MS
        return sum(
            block.missing_bytes
            for block in pull.blocks
            if self._read_ms.get(block[:2], -_FRESH_MS - 1) < fresh_ms
        )

    def _spend(self, pull: ColdPull, count: int, now_ms: int, is_limited: bool) -> None:
        config = self.config
        for block in pull.blocks:
            self._read_ms[block[:2]] = now_ms
            self._read_ms.move_to_end(block[:2])
        while len(self._read_ms) > _FRESH_BLOCKS_MAX:
            self._read_ms.popitem(last=False)
        queue = (pull.group, pull.topic, pull.queue_id)
        self._queue_ms[queue] = now_ms
        self._queue_ms.move_to_end(queue)
        if len(self._queue_ms) > _OLD_QUEUES_MAX:
            self._queue_ms.popitem(last=False)
        self.read_bytes_total += count
        pace = self._paces.get(pull.group)
        if pace is None or pace.spent_ms + _TOLD_AGAIN_MS <= now_ms:
            self._forget_paces(now_ms)
            pace = self._paces[pull.group] = Pace()
            self._events.event(
                "cold_reads_began", group=pull.group, topic=pull.topic, queue=pull.queue_id
            )
        pace.spent_ms = now_ms
        if is_limited:
            pace.spend(count, config.cg_cold_read_threshold, now_ms)
            self._pace.spend(count, config.global_cold_read_threshold, now_ms)

    def _forget_paces(self, now_ms: int) -> None:
        """Forget groups that have read nothing from disk for a while."""
        if len(self._paces) >= 2 * len(self._groups) + 64:
            for group in [
                name
                for name, pace in self._paces.items()
                if pace.free_ms <= now_ms and pace.spent_ms + _TOLD_AGAIN_MS <= now_ms
            ]:
                del self._paces[group]

    def _file(self, parked: ColdPull) -> None:
        self.has_new = self.is_waited_for = True
        pulls = self._groups.get(parked.group)
        if pulls is None:
            pulls = self._groups[parked.group] = OrderedDict()
        pulls[parked] = None

    def _unfile(self, parked: ColdPull) -> None:
        pulls = self._groups.get(parked.group)
        if pulls is not None and parked in pulls:
            del pulls[parked]
            if not pulls:
                del self._groups[parked.group]
