"""Answer to GET_BROKER_RUNTIME_INFO (28): names and forms as RocketMQ's tools parse them.

Rates are differences between samples of the store's counters. `sample` is called when the node
looks after its disk anyway, every ten seconds or so; a question asked in between compares with the
nearest sample of the right age. "Yesterday" and "today" turn at midnight, local time.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from trioha.broker.delay import DelaySchedule
from trioha.broker.wait_histogram import PUT_RANGES, PutTimes
from trioha.remoting.channel import Instant
from trioha.store.interface import MessageStore
from trioha.wire.codes import VERSION_V4_9_8

SAMPLE_PERIOD_MS = 5_000
"""Samples closer than this are not kept."""
_MINUTE_MS = 60_000
_WINDOWS_MS = (10_000, 60_000, 600_000)
_SAMPLES_MAX = 256  # reach back over the longest window at the shortest period


class _Sample(NamedTuple):
    now_ms: int
    put_total: int
    get_total: int


class RuntimeInfo:
    """Counters over time, and the table of everything."""

    def __init__(
        self,
        store: MessageStore,
        delay: DelaySchedule,
        put_times: Callable[[int], PutTimes],
        log_directory: Path,
        instant: Instant,
    ) -> None:
        self._store = store
        self._log_directory = log_directory
        self._delay = delay
        self._put_times = put_times
        self._minute_began_ms = instant.now_ms
        self._times_then = put_times(store.statistics().put_total)
        """Times of all puts before this minute."""
        self._last_minute: PutTimes | None = None
        self._boot = instant
        self._samples: deque[_Sample] = deque(maxlen=_SAMPLES_MAX)
        self._day = _day(instant.wall_ms)
        self._yesterday_morning = (0, 0)
        self._today_morning = (0, 0)
        self.sample(instant)

    def sample(self, instant: Instant) -> None:
        """Remember the counters of this moment."""
        if self._samples and instant.now_ms - self._samples[-1].now_ms < SAMPLE_PERIOD_MS:
            return
        statistics = self._store.statistics()
        sample = _Sample(instant.now_ms, statistics.put_total, statistics.get_total)
        self._samples.append(sample)
        if instant.now_ms - self._minute_began_ms >= _MINUTE_MS:
            self._minute_began_ms = instant.now_ms
            times = self._put_times(sample.put_total)
            self._last_minute, self._times_then = times.since(self._times_then), times
        day = _day(instant.wall_ms)
        if day != self._day:
            self._day = day
            self._yesterday_morning = self._today_morning
            self._today_morning = (sample.put_total, sample.get_total)

    def table(self, instant: Instant) -> Mapping[str, str]:
        store = self._store.statistics()
        current = _Sample(instant.now_ms, store.put_total, store.get_total)
        put_tps = self._rates(current, 1)
        get_tps = self._rates(current, 2)
        put_times = self._put_times(store.put_total).since(self._times_then)
        last_minute = put_times if self._last_minute is None else self._last_minute
        table = {
            "bootTimestamp": self._boot.wall_ms,
            # END_TRANSACTION waits in no thread pool, as no request does here.
            "EndTransactionQueueSize": 0,
            "EndTransactionThreadPoolQueueCapacity": 0,
            "brokerActive": "true",
            "brokerVersion": VERSION_V4_9_8,
            "brokerVersionDesc": "V4_9_8",
            "commitLogDirCapacity": _capacity(self._log_directory),
            "commitLogDiskRatio": store.disk_ratio,
            f"commitLogDiskRatio_{self._log_directory}": store.disk_ratio,
            "commitLogMaxOffset": store.max_phy_offset,
            "commitLogMinOffset": store.min_phy_offset,
            "consumeQueueDiskRatio": store.disk_ratio,
            "dispatchBehindBytes": max(0, store.max_phy_offset - store.dispatched_offset),
            "dispatchMaxBuffer": 0,
            "earliestMessageTimeStamp": store.earliest_store_timestamp,
            "getFoundTps": get_tps,
            "getMessageEntireTimeMax": 0,
            "getMissTps": "0.0 0.0 0.0",
            "getTotalTps": get_tps,
            # 4.9 misspells it, 5.x does not.
            "getTransferedTps": get_tps,
            "getTransferredTps": get_tps,
            "msgGetTotalTodayMorning": self._today_morning[1],
            "msgGetTotalTodayNow": store.get_total,
            "msgGetTotalYesterdayMorning": self._yesterday_morning[1],
            "msgPutTotalTodayMorning": self._today_morning[0],
            "msgPutTotalTodayNow": store.put_total,
            "msgPutTotalYesterdayMorning": self._yesterday_morning[0],
            # Nothing waits in pools here, and no lock is held long enough to speak of.
            "pageCacheLockTimeMills": 0,
            "pullThreadPoolQueueCapacity": 0,
            "pullThreadPoolQueueHeadWaitTimeMills": 0,
            "pullThreadPoolQueueSize": 0,
            # Java counts the last whole minute. In the first minute we count the puts so far.
            "putLatency99": f"{last_minute.percentile_ms(0.99):.2f}",
            "putLatency999": f"{last_minute.percentile_ms(0.999):.2f}",
            "putMessageAverageSize": store.put_bytes / max(1, store.put_total),
            "putMessageDistributeTime": _distribution(put_times),
            "putMessageEntireTimeMax": put_times.longest_ms,
            "putMessageFailedTimes": 0,
            "putMessageSizeTotal": store.put_bytes,
            "putMessageTimesTotal": store.put_total,
            "putTps": put_tps,
            "queryThreadPoolQueueCapacity": 0,
            "queryThreadPoolQueueHeadWaitTimeMills": 0,
            "queryThreadPoolQueueSize": 0,
            "remainHowManyDataToFlush": _size(store.max_phy_offset - store.flushed_offset),
            # Java reports this number when it has no pool of buffers.
            "remainTransientStoreBufferNumbs": 2**31 - 1,
            "runtime": _duration(instant.now_ms - self._boot.now_ms),
            "sendThreadPoolQueueCapacity": 0,
            "sendThreadPoolQueueHeadWaitTimeMills": 0,
            "sendThreadPoolQueueSize": 0,
            "startAcceptSendRequestTimeStamp": 0,
        }
        for level, (delivered, end) in self._delay.backlog().items():
            table[f"scheduleMessageOffset_{level}"] = f"{delivered},{end}"
        return {key: str(value) for key, value in table.items()}

    def _rates(self, current: _Sample, column: int) -> str:
        return " ".join(f"{self._rate(current, column, window):.2f}" for window in _WINDOWS_MS)

    def _rate(self, current: _Sample, column: int, window_ms: int) -> float:
        """Return the rate per second since a sample one window ago, or since the oldest one."""
        base = self._samples[0]
        for sample in reversed(self._samples):
            if current.now_ms - sample.now_ms >= window_ms:
                base = sample
                break
        elapsed_ms = current.now_ms - base.now_ms
        return (current[column] - base[column]) * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0


def _distribution(times: PutTimes) -> str:
    """Return how many puts took how long, as Java writes it."""
    return "".join(
        f"[{name}]:{count} " for (name, _), count in zip(PUT_RANGES, times.ranges(), strict=True)
    )


def _capacity(directory: Path) -> str:
    """Return the file system's size and room, in Java's words."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return "Total : 0 B, Free : 0 B."
    return f"Total : {_size(usage.total)}, Free : {_size(usage.free)}."


def _size(count: float) -> str:
    """Return a size in the form of Java's UtilAll: `1.5 KiB`, `17 B`."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} PiB"


def _day(wall_ms: int) -> int:
    return datetime.fromtimestamp(wall_ms / 1000).toordinal()


def _duration(elapsed_ms: int) -> str:
    minutes, seconds = divmod(max(0, elapsed_ms) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
